"""Diagnosis of a learner's own attention: what is wrong with it, by name, on the smallest input.

ta.check(function, *, kind=None, solution=False) in a notebook, `python -m tinyattn check FILE[:FUNCTION]` for a file.
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
from .known.probes import ARGUMENTS
from .report import Report
from .run.isolate import run_file, run_function
from .verdict import report_on

__all__ = ["MUTANTS", "Finding", "Mutant", "Report", "check", "check_file"]


def check_file(path: str | Path, function: str | None = None, *, kind: str | None = None) -> Report:
    """Check what a file has of attention, or the one function or class that is named: .py or .ipynb."""
    run = run_file(path, function, kind=_known(kind))
    return report_on(run, function, lambda looks: run_file(path, function, kind=kind, looks=looks).places)


def check(function: Callable[..., Any], *, kind: str | None = None, solution: bool = False) -> Report:
    """Check a function, method or class of this session. What it is and which conventions it follows is read off
    it, or said by kind=: "scaled_dot_product_attention", "causal_mask", "multi_head_attention", "cross_attention",
    "self_attention", "softmax", "scaled_dot_product_attention_backward". solution: also show the right lines."""
    if not callable(function):
        raise TypeError(f"check wants a function, got {type(function).__name__}: write ta.check(f), not ta.check(f(…))")
    run = run_function(function, _known(kind))
    report = report_on(run, again=lambda looks: run_function(function, kind, looks=looks).places)
    report.solution = solution
    return report


def _known(kind: str | None) -> str | None:
    if kind is not None and kind not in (*ARGUMENTS, "self_attention"):
        raise ValueError(f"kind={kind!r} is none of {', '.join((*ARGUMENTS, 'self_attention'))}")
    return kind


class _CallableModule(ModuleType):
    """Lets `ta.check(f)` and `from tinyattn.check import …` both work."""

    __call__ = staticmethod(check)


sys.modules[__name__].__class__ = _CallableModule
