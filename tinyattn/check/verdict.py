"""From a run to a report: the findings on every function that was called, or why there are none."""

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .inside import place
from .judge.case import Case, Finding, shown
from .judge.diagnose import diagnose, examine
from .judge.lines import SURE, points
from .judge.outcome import at_line, close, evaluate
from .judge.properties import TEXTS
from .known.probes import Limits, Probe, probes, within
from .report import Report
from .run.isolate import Run

Again = Callable[[list[place.Look]], list[dict[str, Any]]]  # one more run, to look inside


def report_on(run: Run, function: str | None = None, again: Again | None = None) -> Report:
    """The findings on all functions that a run has called; stubs count only where nothing else is there."""
    if run.load:
        return Report([load_error(run.load)], [])
    findings: list[Finding] = []
    for name, kind in run.kinds.items():
        findings += _judged(run, name, kind, again)
    findings += [told for pair in run.pairs if (told := _pair(run, pair, findings))]
    for finding in findings:
        if finding.severity == "bug" and finding.line is None:
            points(finding, run.parts)
    if not run.kinds:
        findings.append(_nothing_found(run, function))
    written = [f for f in findings if f.id != "error-not-written"]
    if len(run.kinds) > len(findings) - len(written):
        for finding in findings:
            finding.severity = "note" if finding.id == "error-not-written" else finding.severity
    names = list(run.kinds) or [f.function for f in findings if f.function]
    return Report(sorted(findings, key=lambda f: f.severity == "note"), names)


def _judged(run: Run, name: str, kind: str, again: Again | None) -> list[Finding]:
    """The findings on one function: by the contract of its kind, or in the form that was read off it."""
    form = run.forms[name]
    if not kind:
        return [_unread(name, form["arguments"], next(iter(run.records[name].values()), {}))]
    if "limits" not in form:
        return diagnose(kind, name, probes(kind), run.records[name])
    limits = limits_of(form)
    made = [p for p in within(kind, limits) if p.name in run.records[name]]
    words = "\n".join(code for _, code in run.parts)
    case = examine(kind, name, made, run.records[name], form=limits, blocked=form["blocked"], words=words)
    found = case.findings
    with contextlib.suppress(Exception):  # a verdict without a place is better than none
        _place(run, name, case, again)
    notes = [
        Finding(id.split("/")[0], "note", name, TEXTS[id][0].format(**v), *TEXTS[id][1:]) for id, v in form["notes"]
    ]
    return found + notes


def _place(run: Run, name: str, case: Case, again: Again | None) -> None:
    """The place of each mistake: by its text where that is the mistake itself, else by looking inside."""
    for finding in case.findings:
        if finding.id in SURE:
            points(finding, run.parts)
    looks = place.looks(case) if again else []
    for record in again([look | {"label": name} for _, look in looks]) if again and looks else ():
        finding, look = looks[record["number"]]
        place.told(finding, record, look)
        if finding.id.startswith("mask-fill") and not _about_masks(finding):
            del finding.evidence["here"]
            points(finding, run.parts)


def _about_masks(finding: Finding) -> bool:
    """Whether a place has to do with masking at all; a value further up may stand in for the fill."""
    return bool(re.search(r"mask|where|fill|inf|neg|tri[ul]?\(", finding.evidence["here"]["code"], re.I))


def _pair(run: Run, record: dict[str, Any], findings: list[Finding]) -> Finding | None:
    """A mask function and an attention that are each right, and together are not."""
    attention, maker = record["pair"]
    if any(f.severity == "bug" and f.function in (attention, maker) for f in findings):
        return None
    kind, form = run.kinds[attention], run.forms[attention]
    limits = replace(limits_of(form), mask=False, square=True)
    probe = next(p for p in within(kind, limits) if p.name == record["input"])
    n = probe.args[0].shape[-2]
    causal = np.tri(n, dtype=bool)
    yours = np.array(record["value"]["data"], dtype=float).reshape(record["value"]["shape"])
    right, opposite = (evaluate(kind, (), Probe("", "", (*probe.args, m))) for m in (causal, ~causal))
    if right is None or close((yours,), right):
        return None
    rows = slice(0, n - 1)  # the last has nothing left
    other = opposite is not None and close((yours[rows],), (opposite[0][rows],))
    key = "mask-pair-opposite" if other else "mask-pair-opposite/other"
    message, hint, lesson = TEXTS[key]
    evidence = {
        "input": f"{probe.name}, with {maker}({n})",
        "arguments": shown(kind, (*probe.args, causal)[:3] if kind.startswith("scaled") else probe.args),
        "yours": {"output": yours},
        "right": {"output": right[0]},
    }
    told = message.format(attention=attention, maker=maker) + _two_lines(run, attention, maker)
    return Finding("mask-pair-opposite", "bug", attention, told, hint, lesson, evidence)


def _two_lines(run: Run, attention: str, maker: str) -> str:
    """Where each of the two uses or makes the mask, by its text; which one is to be mended is the learner's choice."""
    told = []
    for name, id in ((attention, "mask-inverted"), (maker, "causal-sees-next")):
        here = Finding(id, "bug", name, "")
        points(here, run.parts)
        if here.line is not None:
            at = f"cell {here.cell}, line {here.line}" if here.cell else f"line {here.line}"
            told.append(f"{at}: `{here.text}`")
    return f" See {' and '.join(told)}." if told else ""


def limits_of(form: dict[str, Any]) -> Limits:
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in form["limits"].items()}
    return Limits(**given)


def _unread(name: str, arguments: list[str], record: dict[str, Any]) -> Finding:
    """No call came back, whatever was tried."""
    error = record.get("error", "")
    if error == "NotImplementedError":
        return Finding("error-not-written", "bug", name, "Not written yet.", "Replace the raise.")
    if error == "Stopped":
        return Finding(
            "error-stopped", "bug", name, f"No call of it came back: {record['message']}.", "An endless loop?"
        )
    text = f"No call of it came back: {at_line(record)}." if "error" in record else "No call of it came back."
    told = f"Its arguments are {', '.join(arguments)}. " if arguments else ""
    hint = told + "If it is something else than its name and arguments say, name it: kind=…, or --kind."
    return Finding(
        "error-exception",
        "bug",
        name,
        text,
        hint,
        line=record.get("line"),
        cell=record.get("cell"),
        place="raised" if "line" in record else "",
    )


def load_error(error: dict[str, Any]) -> Finding:
    kind = error["error"]
    if kind == "Check":
        text = f"The checker itself failed: {error['message'][:300]}."
        return Finding("error-check", "bug", "", text, "This is no fault of the program: please report it.")
    if kind in ("SyntaxError", "IndentationError", "TabError"):
        where = f"line {error.get('line')}: `{error.get('code')}`"
        text = f"Python cannot read the file: {error['message']}, {where}."
        return Finding("error-syntax", "bug", "", text, "Look at that line, and at the end of the one before it.")
    if kind in ("ImportError", "ModuleNotFoundError"):
        return Finding(
            "error-import",
            "bug",
            "",
            f"The file cannot be imported: {at_line(error)}.",
            "Is the module installed for this Python, or beside the file?",
        )
    if kind in ("FileNotFoundError", "IsADirectoryError", "PermissionError"):
        return Finding("error-no-file", "bug", "", f"The file cannot be read: {error['message']}.")
    hint = {"EOFError": "There is nobody to answer input() during a check; put it under `if __name__ == …`."}
    return Finding(
        "error-load",
        "bug",
        "",
        f"Running the file from top to bottom raises {at_line(error)}.",
        hint.get(kind, 'Code to try things out belongs under `if __name__ == "__main__":`.'),
    )


def _nothing_found(run: Run, function: str | None) -> Finding:
    if run.broke and run.broke["function"]:
        told = f"No call of it came back: {run.broke['how']}."
        return Finding("error-stopped", "bug", run.broke["function"], told, "An endless loop? os._exit?")
    if run.broke:
        return Finding(
            "error-stopped",
            "bug",
            "",
            f"The file did not load: {run.broke['how']}.",
            'An endless loop or an exit at the top level? `if __name__ == "__main__":` keeps it out.',
        )
    there = f"It defines {', '.join(run.functions)}." if run.functions else "It defines no function."
    wanted = function or "scaled_dot_product_attention(Q, K, V, mask=None)"
    return Finding(
        "error-missing-function",
        "bug",
        function or "",
        f"There is no function {wanted}. {there}",
        "Name another one after a colon: FILE:FUNCTION.",
    )
