"""The findings for a reader: one sentence each, the smallest input, yours beside the right one.

Text is built once, as lines of (text, style) pieces; `show` paints it with rich where that is installed.
"""

import re
from dataclasses import asdict
from typing import Any

import numpy as np

from ..text import Line, Shown, columns, plain, printed
from .judge.case import Finding
from .judge.outcome import TOLERANCE

WIDTH = 100  # at most, in characters
ROWS, COLUMNS = 7, 8  # larger matrices are named by their shape


class Report:
    """The verdict on a file or a function: `correct`, `wrong` or `error`, and the findings behind it."""

    def __init__(self, findings: list[Finding], functions: list[str]):
        self.findings, self.functions = findings, functions
        ids = [f.id for f in findings if f.severity == "bug"]
        errors = [id for id in ids if id.startswith("error-")]
        self.solution = False  # whether its text has the right lines too
        self.verdict = "correct" if not ids else "error" if len(errors) == len(ids) else "wrong"

    @property
    def exit_code(self) -> int:
        return ("correct", "wrong", "error").index(self.verdict)

    def to_json(self) -> dict[str, Any]:
        """`{"verdict": …, "findings": [{"id", "severity", "message", "function", …}]}`, arrays as lists."""
        plain: dict[str, Any] = _plain(
            {
                "verdict": self.verdict,
                "functions": self.functions,
                "findings": [asdict(f) for f in self.findings],
            }
        )
        return plain

    def __repr__(self) -> str:
        return printed(as_text(self, self.solution))

    def _repr_html_(self) -> str:
        return Shown(report_lines(self, self.solution))._repr_html_()


def _plain(value: Any) -> Any:
    """Arrays as lists, and NaN and inf as words, which JSON lacks."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist()) if value.size <= 200 else f"array of shape {value.shape}"
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def number(x: float) -> str:
    """Three decimals at most, and no zeros at the end."""
    if not np.isfinite(x):
        return str(x).replace("inf", "∞").replace("nan", "NaN").replace("-", "−")
    if x == int(x) and abs(x) < 1e7:
        return str(int(x)).replace("-", "−")
    text = f"{x:.3f}".rstrip("0").rstrip(".") if 1e-3 <= abs(x) < 1e5 else f"{x:.2g}"
    return text.replace("-", "−")


def block(title: str, values: Any, other: Any = None) -> list[Line]:
    """A small matrix under its name; cells that differ from `other` get a star."""
    array = np.asarray(values)
    lead = (0,) * (array.ndim - 2)
    if other is not None and array.shape == np.shape(other) and lead:
        wrong = ~np.isclose(array, other, 0, _tolerance(other), equal_nan=True)
        lead = tuple(int(i) for i in np.argwhere(wrong)[0][: array.ndim - 2]) if wrong.any() else lead
    caption = title + (f"[{', '.join(map(str, lead))}]" if lead else "")
    matrix = np.atleast_2d(array[lead])
    if matrix.shape[0] > ROWS or matrix.shape[1] > COLUMNS:
        return [[(caption, "bold")], [(f"  {' × '.join(map(str, array.shape))}", "")]]
    wrong = np.zeros(matrix.shape, dtype=bool)
    if other is not None and np.shape(other) == array.shape:
        right = np.atleast_2d(np.asarray(other)[lead])
        wrong = ~np.isclose(matrix, right, 0, _tolerance(other), equal_nan=True)
    words = [
        ["1" if x else "·" for x in row] if matrix.dtype == bool else [number(float(x)) for x in row] for row in matrix
    ]
    width = max((len(w) for row in words for w in row), default=1)
    starred = other is not None
    lines: list[Line] = [[(caption, "bold")]]
    for row, flags in zip(words, wrong):
        marks = [("*" if bad else " ") * starred for bad in flags]
        cells = [(word.rjust(width) + mark + "  ", "red" * (mark == "*")) for word, mark in zip(row, marks)]
        lines.append([("  ", ""), *cells])
    return lines


def _tolerance(right: Any) -> float:
    values = np.abs(np.asarray(right, dtype=float))
    return TOLERANCE * float(values[np.isfinite(values)].max(initial=0.0))


def beside(blocks: list[list[Line]]) -> list[Line]:
    """Blocks side by side, in as many rows as the width asks for."""

    def length(line: Line) -> int:
        return sum(len(text) for text, _ in line)

    rows: list[list[list[Line]]] = [[]]
    used = 0
    for lines in blocks:
        wide = max(map(length, lines)) + 3
        if used and used + wide > columns(WIDTH) - 6:
            rows.append([])
            used = 0
        rows[-1].append(lines)
        used += wide
    told: list[Line] = []
    for row in rows:
        widths = [max(map(length, lines)) + 3 for lines in row]
        for i in range(max((len(lines) for lines in row), default=0)):
            line: Line = []
            for lines, wide in zip(row, widths):
                piece = lines[i] if i < len(lines) else []
                line += [*piece, (" " * (wide - length(piece)), "")]
            told.append(line)
    return told


def wrap(text: str, indent: str, style: str = "", first: str = "") -> list[Line]:
    """A paragraph in lines that fit."""
    lines, current, room = [], indent + first, columns(WIDTH)
    for word in text.split():
        if len(current) + len(word) + 1 > room and current.strip():
            lines.append(current)
            current = indent + " " * len(first)
        current += word if current.endswith(" ") or not current else " " + word
    return [[(line, style)] for line in [*lines, current]]


def finding_lines(finding: Finding, label: str, solution: bool, seen: str = "", whose: str = "your") -> list[Line]:
    """One finding: name, sentence, evidence (unless it was just seen), the lesson's sentence, hint."""
    evidence = finding.evidence if finding.evidence.get("input") != seen else {}
    lines: list[Line] = [[(f"  {label} ", "bold"), (finding.id, "bold red" if finding.severity == "bug" else "bold")]]
    lines += wrap(finding.message, "     ")
    lines += place_lines(finding)
    if finding.severity == "bug" and "input" in evidence:
        name = evidence["input"]
        lines += [[], *wrap(f"The smallest input that shows it: {name}", "     ", "dim")]
        inputs = [block(key, value) for key, value in evidence["arguments"].items() if np.ndim(value)]
        told = [f"{k} = {v}" for k, v in evidence["arguments"].items() if not np.ndim(v)]
        lines += [[("     ", ""), (", ".join(told), "")]] if told else []
        lines += [[("     ", ""), *line] for line in beside(inputs)]
        if "printed" in evidence:
            shapes = ", ".join(f"{k} {np.shape(v)}" for k, v in evidence["arguments"].items() if np.ndim(v))
            lines += wrap(f"It was called with {shapes}, and printed:", "     ", "dim")
            lines += [[(f"       {line}", "")] for line in evidence["printed"].splitlines()]
        if "problem" in evidence:
            lines += wrap(evidence["problem"] + ".", "     ", "red", "yours: " if whose == "your" else "it: ")
        for key in evidence.get("yours", {}):
            yours, right = evidence["yours"][key], evidence["right"][key]
            pair = [block(f"{whose} {key}", yours, right), block(f"right {key}", right)]
            lines += [[], *([("     ", ""), *line] for line in beside(pair))]
            if np.shape(yours) != np.shape(right):
                lines.append([(f"     {whose} {key} has shape {np.shape(yours)}, right is {np.shape(right)}", "red")])
        lines.append([])
    if finding.lesson and finding.severity == "bug":
        lines += wrap(finding.lesson, "     ", "italic", "The lesson: ")
    if finding.hint:
        lines += wrap(finding.hint, "     ", "cyan", "Hint: ")
    if solution and finding.solution:
        lines += [[], [("     The right lines:", "dim")]]
        lines += [[("       " + line, "green")] for line in finding.solution.splitlines()]
    return [*lines, []]


def place_lines(finding: Finding) -> list[Line]:
    """The line of the learner's own text, a mark under the place, and what is needed there."""
    here = finding.evidence.get("here")
    at = f"cell {finding.cell}, line {finding.line}" if finding.cell else f"line {finding.line}"
    if finding.place == "likely":
        return [
            [],
            [(f"     {at}   ", "dim"), (finding.text, "bold"), ("   (likely, by its text; not proven)", "dim")],
        ]
    if not here or finding.line is None or finding.column is None:
        return []
    code, before = here["code"].rstrip(), here["code"][: finding.column - 1]
    cut = len(code) - len(code.lstrip())
    marks = " " * (len(f"     {at}   ") + finding.column - 1 - cut) + "^" * max(
        1, min(len(finding.text), len(code) - len(before))
    )
    lines: list[Line] = [[], [(f"     {at}   ", "dim"), (code[cut:], "bold")], [(marks, "red")]]
    if "says" in here and here["says"] != finding.message:
        lines += wrap(here["says"].partition(", ")[2] if not finding.cell else here["says"], "     ")
    if "yours" in here and np.ndim(here["yours"]) + np.ndim(here["right"]):
        title = f"your {finding.text}" if len(finding.text) <= 24 else "yours there"
        pair = [block(title, here["yours"], here["right"]), block("needed there", here["right"])]
        lines += [[], *([("     ", ""), *line] for line in beside(pair))]
    elif "yours" in here:
        told = f"there: {number(float(here['yours']))}, needed: {number(float(here['right']))}"
        lines += [[(f"     {told}", "")]] if not re.fullmatch("−?[0-9.e]*[0-9∞]", here["needed"]) else []
    return lines


def report_lines(report: Report, solution: bool = False) -> list[Line]:
    """The whole report."""
    lines: list[Line] = []
    for function in report.functions or [""]:
        found = [f for f in report.findings if f.function == function]
        bugs = [f for f in found if f.severity == "bug"]
        mark, word, style = ("✗", "not right yet", "bold red") if bugs else ("✓", "correct", "bold green")
        if bugs and bugs[0].id.startswith("error-"):
            word = "cannot be checked"
        if bugs and all(f.id == "property-unanswered" for f in bugs):
            word = "not answered yet"
        if any(f.id == "error-not-written" for f in found):
            mark, word, style = "·", "not written yet", "dim"
        lines += [[(f"{mark} {function or 'This file'}: {word}", style)]]
        if style == "dim":
            continue
        lines.append([])
        if len(bugs) > 1:
            lines += [
                [("  Several things at once; they are listed in the order in which to mend them.", "")],
                [],
            ]
        for i, finding in enumerate(bugs):
            seen = bugs[i - 1].evidence.get("input", "") if i else ""
            lines += finding_lines(finding, f"{i + 1}." if len(bugs) > 1 else "→", solution, seen)
        for finding in found if not bugs else ():
            lines += finding_lines(finding, "note", solution)
    elsewhere = [f for f in report.findings if f.function not in (report.functions or [""])]
    for finding in elsewhere:
        lines += finding_lines(finding, "→", solution)
    return lines


def as_text(report: Report, solution: bool = False) -> str:
    """The report without colours."""
    return plain(report_lines(report, solution))
