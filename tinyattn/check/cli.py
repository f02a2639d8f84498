"""The commands check, practice and break."""

import argparse
import json
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

from ..text import Line, is_terminal, show
from . import check_file, matrix
from .known.mutants import BY_ID, MUTANTS, source
from .practice import SENTENCE, STEPS, TEMPLATE, plan
from .report import Report, report_lines, wrap
from .run.isolate import Run, run_file
from .verdict import report_on


def _split(target: str) -> tuple[str, str | None]:
    """FILE:FUNCTION, where FILE may contain colons itself (C:\\mine.py)."""
    file, colon, function = target.rpartition(":")
    return (file, function) if colon and function.isidentifier() and not Path(target).exists() else (target, None)


def check(argv: list[str]) -> int:
    """check FILE[:FUNCTION] [--step N] [--json] [--watch] [--solution], or check --matrix"""
    parser = argparse.ArgumentParser(
        prog="python -m tinyattn check",
        description="Say what is wrong with an attention of your own. Exit code: 0 correct, 1 wrong, 2 cannot be run.",
    )
    parser.add_argument("target", nargs="?", metavar="FILE[:FUNCTION]")
    parser.add_argument("--step", type=int, choices=range(1, len(STEPS) + 1), help="check one step of the practice")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--watch", action="store_true", help="check again whenever the file changes")
    parser.add_argument("--solution", action="store_true", help="show the right lines")
    parser.add_argument("--matrix", action="store_true", help="print the kill matrix: every mutant, every probe")
    given = parser.parse_args(argv)
    if given.matrix:
        print(matrix.markdown(), end="")
        return 0
    if given.target is None:
        parser.error("which FILE?")
    file, function = _split(given.target)
    if given.watch:
        return _watch(file, function, given.step, given.solution)
    report, extra = _report(file, function, given.step)
    with suppress(BrokenPipeError):  # | head: the verdict stands
        if given.json:
            print(json.dumps(report.to_json(), ensure_ascii=True, indent=1, allow_nan=False))
        else:
            show([*report_lines(report, given.solution), *extra])
    return report.exit_code


def _report(file: str, function: str | None, step: int | None) -> tuple[Report, list[Line]]:
    if step is None:
        return check_file(file, function), []
    return _step(run_file(file, plan=plan()), step)


def _step(run: Run, step: int) -> tuple[Report, list[Line]]:
    if run.load or not (run.kinds or run.broke is None):
        return report_on(run), []
    findings = STEPS[step - 1].findings(run)
    names = list(dict.fromkeys(f.function for f in findings if f.function))
    return Report(findings, names or [f"Step {step}"]), STEPS[step - 1].extra(run)


def guide(run: Run, file: str) -> list[Line]:
    """The exercises so far: what is done, and the first step that is not."""
    lines: list[Line] = [[(f"{file}", "bold")], []]
    for number, step in enumerate(STEPS, 1):
        report, extra = _step(run, number)
        if run.load:
            return [*lines, *report_lines(report)]
        done = report.verdict == "correct"
        lines.append([(f"{'✓' if done else '→'} Step {number}: {step.title}", "green" if done else "bold")])
        if not done or number == len(STEPS):
            rest = [[(f"  Step {n}: {s.title}", "dim")] for n, s in enumerate(STEPS, 1) if n > number]
            body = [] if done else report_lines(report)
            if [f.id for f in report.findings] == ["error-not-written"]:
                body = wrap("Not written yet: read the docstring in the file, write it, save.", "     ")
            return [*lines, [], *body, *extra, *rest]
    return lines


def _watch(file: str, function: str | None, step: int | None, solution: bool) -> int:  # pragma: no cover
    """Check at each change, until Ctrl-C."""
    seen, code = None, 2
    try:
        while True:
            now = Path(file).stat().st_mtime_ns if Path(file).exists() else -1
            if now != seen:
                seen = now
                if is_terminal(sys.stdout):
                    print("\033[2J\033[H", end="")
                text = Path(file).read_text(encoding="utf-8", errors="replace") if now > 0 else ""
                if "def rows_sum_to_one" in text and function is None and step is None:
                    show(guide(run_file(file, plan=plan()), file))
                else:
                    report, extra = _report(file, function, step)
                    show([*report_lines(report, solution), *extra])
                    code = report.exit_code
                print("\nWatching; Ctrl-C ends it.", flush=True)
            time.sleep(0.3)
    except KeyboardInterrupt:
        print()
        return code


def practice(argv: list[str]) -> int:
    """practice [FILE]"""
    parser = argparse.ArgumentParser(prog="python -m tinyattn practice", description="Write the exercises into a file.")
    parser.add_argument("file", nargs="?", default="my_attention.py")
    file = Path(parser.parse_args(argv).file)
    if file.exists():
        print(f"{file} is already there, and your work may be in it: name another file.", file=sys.stderr)
        return 2
    file.write_text(TEMPLATE.replace("{file}", str(file)).replace("{sentence}", " ".join(SENTENCE)), encoding="utf-8")
    print(
        f"{file} is written. Open it in your editor, and in a terminal beside it run\n\n"
        f"    python -m tinyattn check --watch {file}\n\nIt needs nothing but NumPy, and about half an hour."
    )
    return 0


def _answer(question: str) -> str:
    """y, n, or nothing for no idea."""
    while True:
        answer = input(f"{question} [y/n] ").strip().lower()[:1]
        if answer in ("y", "n", ""):
            return answer


def break_it(argv: list[str]) -> int:
    """break [MUTANT] [--list]"""
    parser = argparse.ArgumentParser(
        prog="python -m tinyattn break",
        description="A right program with one bug put in: predict what it does, then see.",
    )
    parser.add_argument("mutant", nargs="?", choices=sorted(BY_ID), metavar="MUTANT")
    parser.add_argument("--list", action="store_true", help="list all mutants")
    given = parser.parse_args(argv)
    if given.list:
        width = max(map(len, BY_ID))
        show([line for m in MUTANTS for line in wrap(m.what, "", "", m.id.ljust(width) + "  ")])
        return 0
    mutant = BY_ID[given.mutant] if given.mutant else random.choice(MUTANTS)
    kind, edit = matrix.home(mutant)
    show(
        [
            [("One line or two of this program are wrong.", "bold")],
            [],
            *[[("    " + line, "")] for line in (source(kind, (edit,)) or "").splitlines()],
            [],
        ]
    )
    asked, answers = is_terminal(sys.stdin), {}
    symptoms = matrix.symptoms(kind, edit)
    for question in symptoms:
        answers[question] = _answer(question) if asked else ""
        if not asked:
            print(question)
    told: list[Line] = [[]]
    for question, (yes, detail) in symptoms.items():
        hit = "" if not answers[question] else "✓ " if answers[question] == ("y" if yes else "n") else "✗ "
        told += wrap(f"{question} {'Yes' if yes else 'No'}{detail}.", "  ", "", hit)
    finding = matrix.shown(mutant, kind, edit)
    report = Report([finding], [kind])
    show([*told, [], *report_lines(report, solution=True)])
    return 0
