"""The heart: a tensor remembers how it was made, and backward() walks that memory from the newest result to the oldest.

Forward: `apply` runs an op's formula on arrays and hangs a Node on the result: which op, which inputs, which arrays.
Backward: `walk` visits the nodes, newest first. At each it knows g = dL/d(result) and gives every input its share.
Again: the rules are plain mathematics. On arrays they compute; on Tensors (create_graph) the same lines are recorded.
Elsewhere: who may write to an array (values.py), what a tensor is to Python and NumPy (face.py), errors (refusals.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from . import refusals, values
from .face import Face
from .modes import current_region, recording, region
from .values import HALF, Array, Gradient, Rule, clock, constant, narrowed, unbroadcast, unrounded, widened

__all__ = ["Tensor", "grad", "gradients"]
Flow: TypeAlias = "tuple[Tensor, Any]"  # (t, dL/dt), an array or, under create_graph, a Tensor


@dataclass(slots=True, eq=False)
class Op:
    """An operation: a formula on arrays and its way back, which is a rule per input, or one pull for all of them."""

    name: str
    forward: Callable[..., Any]  # (*arrays, **params) -> array, or (array, extra) with a pull; changes no array
    rules: tuple[Rule | None, ...]  # (g, out, *inputs, **params) -> dL/d(input), summed over broadcast axes by walk
    pull: Rule | None  # (g, out, *inputs, extra=, needs=, **params) -> dL/d(input) or None, one per input
    twin: Callable[..., Any] | None  # if pull takes arrays only: the same function, composed of ops
    wide: bool  # if its first input is float16: computes in float32, forward and back, and rounds once


@dataclass(slots=True, eq=False)
class Node:
    """How a tensor was made. It never holds its own tensor: no cycle, so a graph is freed with its last tensor.

    A backward pass that goes through a node releases it (inputs is None), unless retain_graph or create_graph is set.
    """

    op: Op
    inputs: Sequence[Any] | None  # Tensors and constants, in the op's order
    saved: Sequence[Any]  # (result, *inputs) as arrays
    extra: Any  # what else the op's pull needs
    params: dict[str, Any]
    order: int  # by the clock: inputs come before results, so this is a topological order
    region: Any  # the box that it is drawn in
    retains_grad: bool = False


class Tensor(Face):
    """An array that can be differentiated.

    data: anything `np.array` takes; copied. Numbers only; gradients need a floating dtype.
    requires_grad: whether `backward()` should compute d(output)/d(this) into `.grad`.
    name: shown in drawings and error messages.
    """

    __slots__ = ()

    def backward(self, gradient: Gradient = None, *, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Add d(this)/d(leaf) to `.grad` of every leaf that requires gradients; so too for tensors with `retain_grad`.

        gradient: dL/d(this), of this tensor's shape; if this has one element, it may be left out: then it is 1.
        retain_graph: keep the graph for another backward pass (else it is released as it is used).
        create_graph: record the backward pass, so that the gradients can be differentiated too; keeps the graph.
        Raises RuntimeError on a non-scalar without gradient, on a released graph, and if nothing needs a gradient.
        """
        given = {id(gradient)}  # tensors that somebody already has: .grad shares nothing with them
        for t, g in walk(self, gradient, way(self), retain_graph, create_graph):
            if t._node is None or t._node.retains_grad:
                t._grad = own(g, given, t._grad)


wrap, as_tensor, own = Tensor._wrap, Tensor._from, Tensor._own


def apply(op: Op, inputs: Sequence[Any], params: dict[str, Any]) -> Tensor:
    """Compute op(*inputs, **params). If an input needs a gradient, hang a Node on the result."""
    record = lent = False
    arrays: list[Any] = []
    kept: list[Any] = []
    for x in inputs:
        if isinstance(x, Tensor):
            arrays.append(x._data)
            if x._needs:
                record = True
            if x._lent:
                lent = True
        else:
            x = x if isinstance(x, (float, int)) else constant(x)  # Python's numbers leave float32 at float32
            arrays.append(x)
        kept.append(x)
    record = record and recording.get()
    if lent and record:
        arrays = [x._locked() if isinstance(x, Tensor) else x for x in kept]
    wide = op.wide and getattr(arrays[0], "dtype", None) is HALF
    try:
        out = op.forward(*(widened(arrays) if wide else arrays), **params)
    except (IndexError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise refusals.failed(error, op, arrays, params) from error
    out, extra = out if op.pull else (out, None)
    out = out if isinstance(out, np.ndarray) else np.asarray(out)
    out = narrowed(out, arrays) if wide else out
    if lent and not record and (out.base is not None or out is arrays[0]):
        out = out.copy()  # a view of an array that its holder may write to
    result = wrap(out)
    if record:
        if out.dtype.kind != "f":
            refusals.not_a_float(out, op.name)
        node = Node(op, kept, (out, *arrays), extra, params, next(clock), current_region.get())
        result._needs, result._node = True, node
    if record or out.base is not None or out is arrays[0]:  # a graph reads them, or a view shares them: locked
        out.setflags(write=False)
        for x in kept:
            if isinstance(x, Tensor) and x._node is None:  # results are locked from the start
                x._data.setflags(write=False)
    return result


def grad(
    output: Tensor,
    inputs: Tensor | Iterable[Tensor],
    grad_output: Gradient = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients d(output)/d(input), one per input; no `.grad` is touched.

    grad_output: dL/d(output), needed unless output has one element; the result is then dL/d(input).
    create_graph: record the backward pass too, so that `grad` of a gradient is a second derivative; keeps the graph.
    materialize_grads: zeros for an input that output does not depend on.
    Raises RuntimeError for such an input without it, and in the cases of `backward`.
    """
    inputs = refusals.ends(output, inputs)
    path = way(output, inputs)
    refusals.not_on_the_way(output, () if materialize_grads else inputs, path)
    wanted, given = set(inputs), {id(grad_output)}
    steps = walk(output, grad_output, path, retain_graph, create_graph)  # frees each g after its turn
    found = {t: [own(g, given) for x in inputs if x is t] for t, g in steps if t in wanted}  # listed twice: two tensors
    return tuple(found[t].pop() if t in found else wrap(np.zeros(t.shape, t.dtype)) for t in inputs)


def gradients(output: Tensor, gradient: Gradient = None) -> dict[Tensor, Array]:
    """dL/dt for every tensor t on the way to output, if it needs one, newest first: no `.grad` is touched."""
    return {t: np.array(g) for t, g in walk(output, gradient, way(*refusals.ends(output, output)), True, False)}


def way(output: Tensor, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
    """The tensors from inputs (None: all leaves that need a gradient) to output, oldest first; without recursion."""
    found, stack = {output}, [output]
    while stack:
        t = stack.pop()
        if t._node is None or (t._node.inputs is None and refusals.released(t, inputs or ())):
            continue
        for x in t._node.inputs or ():
            if isinstance(x, Tensor) and x._needs and x not in found:
                found.add(x)
                stack.append(x)
    path = sorted(found, key=lambda t: 0 if t._node is None else t._node.order)
    if inputs is None:
        return path
    between = set(inputs)
    for t in path:
        for x in (t._node and t._node.inputs) or ():
            if isinstance(x, Tensor) and x in between:
                between.add(t)
                break
    return [t for t in path if t in between]


def walk(output: Tensor, gradient: Gradient, path: list[Tensor], retain: bool, create: bool) -> Iterator[Flow]:
    """Yield (t, dL/dt) for the tensors of a way, newest first: the chain rule, one node at a time."""
    g: Any = as_tensor(refusals.unfit_start(output, gradient, path, create and not recording.get()))
    wanted, total = set(path), {output: g if create else g._data}
    refusals.changed(path, wanted, values.last_change)
    while path:
        t = path.pop()
        g = total.pop(t)  # complete: every result made from t is younger, and has already passed its share to t
        g = g if g.dtype is t._data.dtype else g.astype(t._data.dtype)  # rounded once, after all shares are added
        g = g if create or 0 not in g.strides else g.copy()  # a broadcast view would push matmul off BLAS
        if create and t.name and g is not gradient:
            g.name = g.name or f"d{t.name}"  # for drawings
        yield t, g
        if (node := t._node) is None or node.inputs is None:
            continue
        pairs = (backward if create else shares)(t, node, g, wanted)
        for x, dx in pairs:
            if dx.shape != x._data.shape:
                dx = unbroadcast(dx, x, node.op.name)
            total[x] = total[x] + (dx.astype(np.float32) if dx.dtype is HALF else dx) if x in total else dx
        if pairs and not (retain or create):
            node.inputs, node.saved, node.extra = None, (), None
        pairs, dx = [], None  # only total holds shares, so that each is freed after its turn


def shares(t: Tensor, node: Node, g: Any, wanted: set[Tensor]) -> list[Flow]:
    """(x, its share of g) for each input x of a node that is wanted."""
    op, inputs, params = node.op, node.inputs or (), node.params
    operands = (t, *inputs) if isinstance(g, Tensor) else node.saved  # on Tensors, a rule records what it does
    if op.wide and t._data.dtype is HALF and not isinstance(g, Tensor):
        g, *operands = unrounded(op, g, operands, params)
    if op.pull:
        needs = [isinstance(x, Tensor) and x in wanted for x in inputs]
        pulled = op.pull(g, *operands, extra=node.extra, needs=needs, **params)
        return [(x, dx) for x, dx, need in zip(inputs, pulled, needs) if need]
    found = []
    for x, rule in zip(inputs, op.rules):
        if isinstance(x, Tensor) and x in wanted:
            found.append((x, (rule or refusals.no_rule(x, op.name))(g, *operands, **params)))
    return found


backward = region(shares, "backward")  # what rules record is drawn as one box
