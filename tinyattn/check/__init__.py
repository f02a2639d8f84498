"""Diagnosis of a learner's own attention: what is wrong with it, by name, on the smallest input.

`ta.check(function)` in a notebook, `python -m tinyattn check FILE[:FUNCTION]` for a file.
Read in this order: known/ (the right programs, what is got wrong as edits of them, the inputs), run/ (running
somebody's code safely), judge/ (one function's answers and the questions asked of them), report and verdict,
practice, matrix (what a test proves), cli.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .judge.case import Finding
from .known.mutants import MUTANTS, Mutant
from .report import Report
from .run.isolate import full_plan, run_file, run_function
from .verdict import report_on

__all__ = ["MUTANTS", "Finding", "Mutant", "Report", "check", "check_file"]


def check_file(path: str | Path, function: str | None = None, *, kind: str | None = None) -> Report:
    """Check the functions of a file that have a known name, or the one that is named."""
    plan = full_plan()
    return report_on(run_file(path, function, plan=plan, kind=kind), plan, function)


def check(function: Callable[..., Any], *, kind: str | None = None) -> Report:
    """Check a function of this session. What it should be follows from its name or its arguments, or is
    said by kind="scaled_dot_product_attention", "causal_mask", "multi_head_attention", "cross_attention"
    or "scaled_dot_product_attention_backward"."""
    if not callable(function):
        raise TypeError(f"check wants a function, got {type(function).__name__}: write ta.check(f), not ta.check(f(…))")
    plan = full_plan()
    if kind is not None and kind not in plan:
        raise ValueError(f"kind={kind!r} is none of {', '.join(plan)}")
    return report_on(run_function(function, kind), plan)


class _CallableModule(ModuleType):
    """Lets `ta.check(f)` and `from tinyattn.check import …` both work."""

    def __call__(self, function: Callable[..., Any], *, kind: str | None = None) -> Report:
        return check(function, kind=kind)


sys.modules[__name__].__class__ = _CallableModule
