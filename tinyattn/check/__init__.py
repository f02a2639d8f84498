"""Diagnosis of a learner's own attention: what is wrong with it, by name, on the smallest input.

`ta.check(function)` in a notebook, `python -m tinyattn check FILE[:FUNCTION]` for a file.
Read in this order: reference (the right programs), mutants (what is got wrong, as edits of them), probes (the
inputs), outcome and case (one function's answers), diagnose (the order of questions) with known, extremes,
unknown, properties and causal (the questions); isolate and child (running somebody's code safely), report,
practice, matrix (what a test proves), cli.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .case import Finding
from .diagnose import diagnose
from .isolate import Plan, Run, full_plan, run_file, run_function
from .mutants import MUTANTS, Mutant

__all__ = ["MUTANTS", "Finding", "Mutant", "Report", "check", "check_file"]


class Report:
    """The verdict on a file or a function: `correct`, `wrong` or `error`, and the findings behind it."""

    def __init__(self, findings: list[Finding], functions: list[str]):
        self.findings, self.functions = findings, functions
        ids = [f.id for f in findings if f.severity == "bug"]
        errors = [id for id in ids if id.startswith("error-")]
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
        from .report import as_text

        return as_text(self)


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


def judge(run: Run, plan: Plan, function: str | None = None) -> Report:
    """The findings on all functions that a run has called; stubs count only where nothing else is there."""
    if run.load:
        return Report([load_error(run.load)], [])
    findings: list[Finding] = []
    for name, kind in run.kinds.items():
        findings += diagnose(kind, name, plan[kind], run.records[name])
    if not run.kinds:
        findings.append(_nothing_found(run, function))
    written = [f for f in findings if f.id != "error-not-written"]
    if len(run.kinds) > len(findings) - len(written):
        for finding in findings:
            finding.severity = "note" if finding.id == "error-not-written" else finding.severity
    return Report(sorted(findings, key=lambda f: f.severity == "note"), list(run.kinds))


def load_error(error: dict[str, Any]) -> Finding:
    from .outcome import at_line

    kind = error["error"]
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


def check_file(path: str | Path, function: str | None = None, *, kind: str | None = None) -> Report:
    """Check the functions of a file that have a known name, or the one that is named."""
    plan = full_plan()
    return judge(run_file(path, function, plan=plan, kind=kind), plan, function)


def check(function: Callable[..., Any], *, kind: str | None = None) -> Report:
    """Check a function of this session. What it should be follows from its name or its arguments, or is
    said by kind="scaled_dot_product_attention", "causal_mask", "multi_head_attention", "cross_attention"
    or "scaled_dot_product_attention_backward"."""
    if not callable(function):
        raise TypeError(f"check wants a function, got {type(function).__name__}: write ta.check(f), not ta.check(f(…))")
    plan = full_plan()
    if kind is not None and kind not in plan:
        raise ValueError(f"kind={kind!r} is none of {', '.join(plan)}")
    return judge(run_function(function, kind), plan)


class _CallableModule(ModuleType):
    """Lets `ta.check(f)` and `from tinyattn.check import …` both work."""

    def __call__(self, function: Callable[..., Any], *, kind: str | None = None) -> Report:
        return check(function, kind=kind)


sys.modules[__name__].__class__ = _CallableModule
