"""The commands check, practice and break."""

import argparse
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..text import Line, is_terminal, show
from . import check_file, matrix
from .known.probes import KINDS
from .practice import guide, is_practice, stand, write
from .practice.guide import step_lines
from .practice.steps import STEPS, Work
from .report import report_lines


def _split(target: str) -> tuple[str, str | None]:
    """FILE:FUNCTION, where FILE may contain colons itself (C:\\mine.py)."""
    file, colon, function = target.rpartition(":")
    named = colon and all(part.isidentifier() for part in function.split("."))
    try:
        return (file, function) if named and not Path(target).exists() else (target, None)
    except (OSError, ValueError):  # no name that a file could have
        return target, None


NAMED = sorted({*KINDS, "softmax", "self_attention"})


def check(argv: list[str]) -> int:
    """check FILE[:FUNCTION] [--kind KIND] [--step N] [--json] [--watch] [--solution], or check --matrix"""
    parser = argparse.ArgumentParser(
        prog="python -m tinyattn check",
        description="Say what is wrong with an attention of your own. Exit code: 0 correct, 1 wrong, 2 cannot be run.",
    )
    parser.add_argument("target", nargs="?", metavar="FILE[:FUNCTION]")
    parser.add_argument("--step", type=int, choices=range(1, len(STEPS) + 1), help="check one step of the practice")
    parser.add_argument("--kind", choices=NAMED, help="what the function is, where that cannot be read off it")
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
        return _watch(file, function, given.step, given.solution, given.kind)
    code, lines, told = _checked(file, function, given.step, given.solution, given.kind)
    with suppress(BrokenPipeError):  # | head: the verdict stands
        if given.json:
            print(json.dumps(told, ensure_ascii=True, indent=1, allow_nan=False))
        else:
            show(lines)
    return code


def _checked(
    file: str, function: str | None, step: int | None, solution: bool, kind: str | None
) -> tuple[int, list[Line], dict[str, Any]]:
    """Exit code, report, and the report for programs: of one step, of the whole practice, or of a file's functions."""
    if step is not None:
        report, lines = step_lines(Work(Path(file)), step, solution)
    elif function is None and is_practice(file):
        now = stand(file)
        return now.exit_code, guide(now, file, solution), now.to_json()
    else:
        report = check_file(file, function, kind=kind)
        lines = report_lines(report, solution)
    return report.exit_code, lines, report.to_json()


def _watch(  # pragma: no cover
    file: str, function: str | None, step: int | None, solution: bool, kind: str | None
) -> int:
    """Check at each change, until Ctrl-C."""
    seen, code = None, 2
    try:
        while True:
            now = Path(file).stat().st_mtime_ns if Path(file).exists() else -1
            if now != seen:
                seen = now
                if is_terminal(sys.stdout):
                    print("\033[2J\033[H", end="")
                code, lines, _ = _checked(file, function, step, solution, kind)
                show(lines)
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
    try:
        write(file)
    except FileExistsError:
        print(f"{file} is already there, and your work may be in it: name another file.", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{file} cannot be written: {error.strerror}. Is its folder there?", file=sys.stderr)
        return 2
    print(
        f"{file} is written. Open it in your editor, and in a terminal beside it run\n\n"
        f"    python -m tinyattn check --watch {file}\n\n"
        "It needs nothing but NumPy; steps 1 to 5 take about half an hour."
    )
    return 0
