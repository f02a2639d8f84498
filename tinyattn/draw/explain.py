"""The backward pass of one computation in words: which rule made which gradient, and where a gradient dies."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..graph import Tensor
from ..habits import explained
from ..text import Line, Shown
from ..values import Array, TensorLike
from .folding import Box, boxes
from .steps import Step, collect, dies, formula, rules, slopes, typical
from .words import called, rearranged_name

__all__ = ["explain"]

MOST = 200  # steps that are listed one by one; in a longer computation, a loop is listed once
TINY, HUGE = 1e-6, 1e6  # relative to the gradient that the pass starts with


@explained
def explain(output: Tensor, gradient: TensorLike | None = None) -> Shown:
    """The backward pass of output as a numbered list: op, rule, shapes and norms. It changes nothing.

    Each entry has the op with its input, and its sentence from the table. For each input with a gradient it has the
    source of the rule, with g = dL/d(result), the gradient that arrives; then shape and norm of what the rule gave.
    A mark shows gradients that are exactly 0, 0 except for rounding, tiny or huge beside the first one, or not finite.
    It also shows ops that pass on less than a thousandth of what arrives: there the gradient dies.
    gradient: dL/d(output), as in `backward`, for an output that is no scalar.
    Returns the text, which Python's prompt, print and a notebook show.
    Raises RuntimeError if output has no graph, or a released one.
    """
    steps, ends = collect([output], lambda name, level: name == "attention")
    slopes(steps, ends, gradient)
    told = boxes(steps, lambda level, frame: False, repeats=len(steps) > MOST).boxes
    first = typical(ends[0].slope) or 1.0 if ends[0].slope is not None else 1.0
    backward = [box for box in reversed(told) if box.step.node and box.step.slope is not None]
    names = {step: step.name or f"#{i}" for i, box in enumerate(backward, 1) for step in box.steps}
    readers = Counter(x for step in steps for x, share in zip(step.inputs, step.shares) if share is not None)
    lines: list[Line] = [[("The backward pass, from the last op to the first", "bold")]]
    lines += [[("g is the gradient that arrives at an op, dL/d(its result); #2 is the result of entry 2", "dim")]]
    for i, box in enumerate(backward, 1):
        lines += [[], *_entry(box, f"{i:>{len(str(len(backward)))}}. ", names, readers[box.step], first)]
    leaves = [box.step for box in told if box.step.node is None and box.step.slope is not None]
    lines += [[], [("The leaves", "bold")]] if leaves else []
    for step in leaves:
        assert step.slope is not None
        lines.append([(f"d{_name(step, names)}: {_size(step.slope)}", ""), *_marks(step, step.slope, first)])
    return Shown(lines)


def _name(step: Step, names: dict[Step, str]) -> str:
    if step.passes:  # it has no entry
        return rearranged_name(_name(step.inputs[0], names), step)
    return names.get(step) or step.path or called(step)


def _entry(box: Box, number: str, names: dict[Step, str], readers: int, first: float) -> list[Line]:
    step, space = box.step, " " * len(number)
    assert step.slope is not None
    made = f"{step.name} = " * bool(step.name) + f"{step.op}({', '.join(_name(x, names) for x in step.inputs)})"
    where = f"   in {step.frame.path or step.frame.name}" if step.frame else ""
    lines: list[Line] = [[(number + made + f" × {box.count:,}" * (box.count > 1), "bold"), (where, "dim")]]
    one_for_all, written = rules(step.node.op)
    lines += [[(space + sentence, "dim")] for sentence in (formula(step.node.op), one_for_all) if sentence]
    came = f"g, the sum of {readers} shares" if readers > 1 else "g"
    lines.append([(f"{space}{came}: {_size(step.slope)}", ""), *_marks(step, step.slope, first)])
    for i, (x, share) in enumerate(zip(step.inputs, step.shares)):
        if share is None:
            continue
        name, argument = f"d{_name(x, names)}", f"d{step.argument(i)}"
        rule = f" = {argument}" * (argument not in ("d", name)) + (
            f" = {written[argument]}" if argument in written else ""
        )
        marks = [*_marks(x, share, first), *_fall(step, i)]
        lines.append([(space + name, ""), (rule, "cyan"), (f": {_size(share)}", ""), *marks])
    return lines


def _size(g: Array) -> str:
    with np.errstate(all="ignore"):
        return f"{g.item():.4g}" if g.size == 1 else f"{g.shape}, norm {np.linalg.norm(g.ravel()):.3g}"


def _marks(step: Step, g: Array, first: float) -> Line:
    """The mark of a gradient, in words."""
    if not g.size:
        return []
    size, zeros = typical(g), float(np.mean(g == 0))
    if not np.isfinite(g).all():
        return [("   ← not finite", "bold red")]
    if zeros == 1:
        return [("   ← exactly 0", "yellow")]
    if step.rounding:
        return [(f"   ← 0 in theory: what is left is rounding ({size:.0e})", "yellow")]
    marks = [f"{zeros:.0%} are exactly 0"] if zeros >= 0.005 else []
    if size < TINY * first:
        return [
            (f"   ← tiny, {size / first:.0e} of the first: {', '.join([f'median {size:.1e}', *marks])}", "bold red")
        ]
    if size > HUGE * first:
        return [(f"   ← huge, {size / first:.0e} times the first", "bold red")]
    return [(f"   {marks[0]}", "dim")] if marks else []


def _fall(step: Step, i: int) -> Line:
    share = step.shares[i]
    if share is None or step.slope is None or not share.any() or not dies(step, i):
        return []
    passed = typical(share) / typical(step.slope)
    return [(f"   ← it dies here: {passed:.0e} of what arrived is passed on", "bold red")]
