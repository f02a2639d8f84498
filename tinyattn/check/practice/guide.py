"""Where one stands: what is done, the first step that is not, what comes next. No step is blamed before it is begun."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...text import Line
from .. import check_file
from ..judge.case import Finding
from ..known.mutants import BY_ID
from ..report import Report, finding_lines, report_lines, wrap
from ..verdict import report_on
from .hints import solution as written_out
from .steps import STEPS, Work, saturation

NOT_BEGUN = {"error-not-written", "property-unanswered"}


def is_practice(path: str | Path) -> bool:
    try:
        return "def rows_sum_to_one" in Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


@dataclass
class Stand:
    """A practice file's state: per step its findings, up to the first step that is not done."""

    work: Work
    reports: list[Report]  # of the steps done, and of the one that is under way
    load: Report | None  # if the file cannot be run

    @property
    def done(self) -> int:
        return sum(report.verdict == "correct" for report in self.reports)

    @property
    def exit_code(self) -> int:
        """0: all done; 1: the step under way is wrong; 2: it is not begun, or the file cannot be run."""
        if self.load:
            return 2
        if self.done == len(STEPS):
            return 0
        return 2 if self.begun_is_clear else self.reports[-1].exit_code

    @property
    def begun_is_clear(self) -> bool:
        """Whether there is nothing to mend: the next step is only not begun."""
        return {f.id for f in self.reports[-1].findings if f.severity == "bug"} <= NOT_BEGUN

    @property
    def shown(self) -> list[Line]:
        """What the last step that is done shows, and what the next one is answered from."""
        next_one = STEPS[self.done] if self.done < len(STEPS) and not self.load else None
        done = STEPS[self.done - 1].shown(self.work) if self.done else []
        return done + (next_one.shown(self.work) if next_one and next_one.picture else [])

    def to_json(self) -> dict[str, Any]:
        report = self.load or self.reports[-1]
        steps = [
            {"number": n, "title": step.title, "demo": f"demos/{step.demo}.py", "state": self._state(n)}
            for n, step in enumerate(STEPS, 1)
        ]
        return report.to_json() | {"steps": steps}

    def _state(self, number: int) -> str:
        if number <= self.done:
            return "done"
        under_way = number == self.done + 1 and not self.load and not self.begun_is_clear
        return "under way" if under_way else "not begun"


def step_report(work: Work, number: int) -> Report:
    """The report on one step."""
    if work.run.load or not (work.run.kinds or work.run.broke is None):
        return report_on(work.run)
    findings = STEPS[number - 1].findings(work)
    _place(work, findings)
    names = list(dict.fromkeys(f.function for f in findings if f.function))
    return Report(findings, names or [f"Step {number}"])


def _place(work: Work, findings: list[Finding]) -> None:
    """A mistake stands on the line where the checker of whole files finds the same one."""
    wrong = [f for f in findings if f.severity == "bug" and f.id not in NOT_BEGUN and f.function in work.run.records]
    for name in {f.function for f in wrong}:
        found = {f.id: f for f in check_file(work.path, name).findings if f.line}
        for finding in wrong:
            if finding.function == name and (same := found.get(finding.id)):
                finding.line, finding.column, finding.text = same.line, same.column, same.text
                finding.place = same.place
                if here := same.evidence.get("here"):
                    numbers = ("yours", "right") if _elsewhere(finding, same) else ()
                    finding.evidence["here"] = {key: here[key] for key in here if key not in numbers}


def _elsewhere(finding: Finding, same: Finding) -> bool:
    """Whether the two were found on different inputs: the numbers at a place belong to the input beside them."""
    shown, other = (f.evidence.get("arguments", {}) for f in (finding, same))
    return shown.keys() != other.keys() or not all(np.array_equal(shown[key], other[key]) for key in shown)


def step_lines(work: Work, number: int, solution: bool = False) -> tuple[Report, list[Line]]:
    """One step alone: its report, and what it shows."""
    report, step = step_report(work, number), STEPS[number - 1]
    shows = report.verdict == "correct" or step.picture
    return report, [*report_lines(report, solution), *(step.shown(work) if shows else [])]


def stand(path: str | Path) -> Stand:
    work = Work(Path(path))
    if work.run.load or (work.run.broke and not work.run.kinds):
        return Stand(work, [], report_on(work.run))
    reports: list[Report] = []
    for number in range(1, len(STEPS) + 1):
        reports.append(step_report(work, number))
        if reports[-1].verdict != "correct":
            break
    return Stand(work, reports, None)


def guide(stand: Stand, file: str, solution: bool = False) -> list[Line]:
    """The whole page: the steps, the last one's result, the objection to the next or how to begin it."""
    if stand.load:
        return [[(file, "bold")], [], *report_lines(stand.load)]
    lines: list[Line] = [[(f"{file}: {stand.done} of {len(STEPS)} steps done", "bold")], []]
    for number, step in enumerate(STEPS, 1):
        if number <= stand.done:
            lines.append([(f"✓ Step {number}: {step.title}", "green")])
            if number == stand.done:
                lines += [[], *step.shown(stand.work), *_picture(stand.work, number), *_demo(step.demo), []]
                lines += _noted(stand.reports[number - 1], solution)
        elif number == stand.done + 1:
            lines.append([(f"→ Step {number}: {step.title}", "bold")])
            lines += [[], *_under_way(stand, number, solution), *_demo(step.demo), []]
        else:
            lines.append([(f"  Step {number}: {step.title}", "dim")])
    if stand.done == len(STEPS):
        lines += [[], [("All done. python -m tinyattn break is the game that follows.", "bold")]]
    return lines


def _under_way(stand: Stand, number: int, solution: bool) -> list[Line]:
    report, step = stand.reports[-1], STEPS[number - 1]
    shown = step.shown(stand.work) if step.picture and stand.done >= number - 1 else []
    if [f.id for f in report.findings] == ["error-not-written"]:
        lines = [*shown, *wrap("Not written yet: read the docstring in the file, write it, save.", "     ")]
        return lines + [[("       " + line, "green")] for line in written_out(number).splitlines() if solution]
    if stand.begun_is_clear:
        asked: list[Finding] = [f for f in report.findings if f.severity == "bug"]
        return [*shown, *([[]] * bool(shown)), *(line for f in asked for line in wrap(f.message, "     "))]
    return [*shown, *report_lines(report, solution)]


def _noted(report: Report, solution: bool) -> list[Line]:
    """What is no mistake, and a danger all the same."""
    dangers = [f for f in report.findings if f.id in BY_ID]
    return [line for finding in dangers for line in finding_lines(finding, "note", solution)]


def _demo(name: str) -> list[Line]:
    """The demo of a step, by the path from here where the project's folder is there."""
    file = Path(__file__).parents[3] / "demos" / f"{name}.py"
    try:
        told = f"python {os.path.relpath(file)}" if file.exists() else f"demos/{name}.py in the project's repository"
    except (OSError, ValueError):  # no folder to start from, or another drive
        told = f"python {file}"
    return [[(f"     shown by {told}", "dim")]]


def _picture(work: Work, number: int) -> list[Line]:
    """Step 3 as a picture beside the learner's file, where matplotlib is there."""
    table = saturation(work) if number == 3 else []
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    if not table:
        return []
    path = work.path.with_name(f"{work.path.stem}_step3.png")
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    dk = [row[0] for row in table]
    for axis, title, scaled, without in ((axes[0], "largest weight", 1, 3), (axes[1], "|dL/dQ|", 2, 4)):
        axis.plot(dk, [row[scaled] for row in table], "o-", color="#0072b2", label="÷ √dk")
        axis.plot(dk, [row[without] for row in table], "s--", color="#d55e00", label="without")
        axis.set(xscale="log", xlabel="dk", title=f"your functions: median {title}")
        axis.legend(frameon=False)
    try:
        figure.savefig(path, dpi=120)
    except OSError:
        return []
    return [[(f"     picture: {path.name}", "dim")]]
