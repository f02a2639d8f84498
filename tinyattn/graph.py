"""The heart: a tensor remembers how it was made, and backward() walks that memory from the newest result to the oldest.

Forward: `apply` runs an op's formula on arrays and hangs a Node on the result: which op, which inputs, which arrays.
Backward: `walk` visits the nodes, newest first. At each it knows g = dL/d(result) and gives every input its share.
Again: the rules are plain mathematics. On arrays they compute; on Tensors (create_graph) the same lines are recorded.
Elsewhere: who may write to an array (values.py), what a tensor is to Python and NumPy (face.py), errors (refusals.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import refusals, values
from .calling import caller, current_region, recording
from .calling import no_grad as no_grad
from .calling import region as region
from .face import Face
from .values import Array, Rule, TensorLike, clock, numeric

__all__ = ["Tensor", "grad", "gradients", "no_grad"]


@dataclass(slots=True, eq=False)
class Op:
    """An operation: a formula on arrays and its way back, which is a rule per input, or one pull for all of them."""

    name: str
    forward: Callable[..., Any]  # (*arrays, **params) -> array; beside a pull (array, what the pull wants besides)
    rules: tuple[Rule | None, ...]  # (g, out, *inputs, **params) -> dL/d(input), summed over broadcast axes by walk
    pull: Callable[..., Any] | None  # (g, out, *inputs, extra=, needs=, **params) -> dL/d(input) or None, one per input
    twin: Callable[..., Any] | None  # where pull takes arrays only: the same function, composed of ops


class Node:
    """How a tensor was made. It holds arrays, and never its own tensor: there is no cycle, so a graph is freed at once.

    A node is released (inputs is None) when a backward pass has gone through it, unless the graph is retained.
    """

    __slots__ = ("extra", "inputs", "op", "order", "params", "region", "retains_grad", "saved")

    def __init__(self, op: Op, inputs: Sequence[Any], saved: Sequence[Any], extra: Any, params: dict[str, Any]) -> None:
        self.op, self.params, self.extra = op, params, extra
        self.inputs: Sequence[Any] | None = inputs  # Tensors and constants, in the op's order
        self.saved = saved  # (result, *inputs) as arrays
        self.order = next(clock)  # inputs are made before results: the order of making is a topological order
        self.region, self.retains_grad = current_region.get(), False


class Tensor(Face):
    """An array that can be differentiated.

    data: anything `np.array` takes; copied. Numbers only; gradients need a floating dtype.
    requires_grad: whether `backward()` should compute d(output)/d(this) into `.grad`.
    name: shown in drawings and error messages.
    """

    __slots__ = ()
    _node: Node | None  # how it was made; None: it is a leaf, or a constant

    def backward(
        self, gradient: TensorLike | None = None, *, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Add d(this)/d(leaf) to `.grad` of every leaf that requires gradients, and where `retain_grad` asked for it.

        gradient: dL/d(this), of this tensor's shape; may be left out for one element, where it is 1.
        retain_graph: keep the graph for another backward pass (it is released as it is used).
        create_graph: record the backward pass, so that the gradients can be differentiated in turn.
        Raises RuntimeError on a non-scalar without gradient, on a released graph, and if nothing needs a gradient.
        """
        for t, g in walk(self, gradient, way(self), retain_graph, create_graph):
            if t._node is None or t._node.retains_grad:
                g, old = g if create_graph else wrap(np.array(g)), t._grad  # a copy: g may be shared
                t._grad = g if old is None else old + g if create_graph else wrap(np.asarray(old._data + g._data))

    def retain_grad(self) -> None:
        """Ask `backward()` to fill `.grad` of this computed tensor too (leaves always get theirs)."""
        if not self._needs:
            raise RuntimeError("retain_grad() on a tensor that needs no gradient: nothing would be written")
        if self._node is not None:
            self._node.retains_grad = True

    def detach(self) -> Tensor:
        """The same values as a tensor that needs no gradient: a constant from here on."""
        return wrap(self._locked(), self.name)


def wrap(array: Array, name: str | None = None) -> Tensor:
    """A constant around an array that is ours: no copy, no checks."""
    t = Tensor.__new__(Tensor)
    t._data, t._lent, t._node, t._grad, t._needs, t.name = array, False, None, None, False, name
    return t


def as_tensor(x: TensorLike) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


# --- forward ------------------------------------------------------------------------------------------


def op(
    *rules: Rule | None, pull: Any = None, twin: Any = None
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Make an op of a formula: @op(rule, rule, …), None for an input without derivative; or @op(pull=…, twin=…)."""

    def define(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        record = Op(forward.__name__.strip("_"), forward, rules, pull, twin)
        call: Callable[..., Tensor] = caller(forward, len(rules), apply, record)
        vars(call).update(op=record, forward=forward)
        return call

    return define


def on(x: Any, function: Callable[..., Tensor]) -> Callable[..., Any]:
    """An op as a rule calls it: on Tensors itself, on arrays its formula."""
    return function if isinstance(x, Tensor) else function.forward  # type: ignore[attr-defined]


def apply(op: Op, inputs: Sequence[Any], params: dict[str, Any]) -> Tensor:
    """Compute op(*inputs, **params) and, if an input needs a gradient, note how."""
    record = lent = False
    arrays: list[Any] = []
    kept: list[Any] = []
    for x in inputs:
        if isinstance(x, Tensor):
            arrays.append(x._data)
            record, lent = record or x._needs, lent or x._lent
        else:
            x = x if isinstance(x, (float, int)) else numeric(x)  # Python's numbers leave float32 at float32
            arrays.append(x)
        kept.append(x)
    record = record and recording.get()
    if lent and record:
        arrays = [x._locked() if isinstance(x, Tensor) else x for x in kept]
    try:
        out = op.forward(*arrays, **params)
    except (IndexError, ValueError, TypeError) as error:
        raise refusals.failed(error, op.name, arrays, params) from error
    out, extra = out if op.pull else (out, None)
    out = out if isinstance(out, np.ndarray) else np.asarray(out)
    if lent and not record and out.base is not None:
        out = out.copy()  # a view of an array that somebody may write to
    result = wrap(out)
    if record and out.dtype.kind == "f":
        result._needs, result._node = True, Node(op, kept, (out, *arrays), extra, params)
    if result._needs or out.base is not None:  # the graph, or a view, shares these values from here on
        out.setflags(write=False)
        for x in kept:
            if isinstance(x, Tensor) and x._node is None:  # results are locked from the start
                x._data.setflags(write=False)
    return result


# --- backward -----------------------------------------------------------------------------------------


def grad(
    output: Tensor,
    inputs: Tensor | Iterable[Tensor],
    grad_output: TensorLike | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients d(output)/d(input), one per input; no `.grad` is touched.

    grad_output: dL/d(output), needed unless output has one element; the result is then dL/d(input).
    create_graph: the gradients are part of a graph, so that `grad` of a gradient is a second derivative;
        it keeps the graph, as retain_graph does.
    Raises RuntimeError on an input that output does not depend on, and where `backward` would.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    found: dict[Tensor, Any] = dict.fromkeys(inputs)
    for t, g in walk(output, grad_output, way(output, inputs), retain_graph, create_graph):
        if t in found:
            found[t] = g if create_graph else wrap(np.array(g))
    return tuple(found[t] for t in inputs)


def gradients(output: Tensor, gradient: TensorLike | None = None) -> dict[Tensor, Array]:
    """dL/d(t) for every tensor t on the way to output, newest first: touches no `.grad`, keeps the graph."""
    return {t: np.array(g) for t, g in walk(output, gradient, way(output), True, False)}


def way(output: Tensor, inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
    """The tensors from inputs (None: all leaves that need a gradient) to output, oldest first; without recursion."""
    refusals.constant(output)
    found, stack = {output}, [output]
    while stack:
        t = stack.pop()
        if t._node is None or refusals.released(t, inputs or ()):
            continue
        for x in t._node.inputs or ():
            if isinstance(x, Tensor) and x._needs and x not in found:
                found.add(x)
                stack.append(x)
    path = sorted(found, key=lambda t: 0 if t._node is None else t._node.order)
    if inputs is None:
        return path
    refusals.not_on_the_way(inputs, found)
    between = set(inputs)
    for t in path:
        if t._node is not None and any(isinstance(x, Tensor) and x in between for x in t._node.inputs or ()):
            between.add(t)
    return [t for t in path if t in between]


def seed(output: Tensor, gradient: TensorLike | None, create_graph: bool) -> Any:
    """What the walk starts with: an array, or a Tensor under create_graph."""
    if gradient is None:
        refusals.not_one_number(output)
        gradient = np.ones(output.shape, output.dtype)
    g = refusals.unfit_seed(output, as_tensor(gradient))
    if not create_graph:
        return g._data.astype(output.dtype, copy=False)
    return g if g.dtype == output.dtype else g.astype(output.dtype)


def walk(
    output: Tensor, gradient: TensorLike | None, path: list[Tensor], retain_graph: bool, create_graph: bool
) -> Iterator[tuple[Tensor, Any]]:
    """Yield (t, dL/dt) for the tensors of a way, newest first: the chain rule, one node at a time."""
    wanted, total = set(path), {output: seed(output, gradient, create_graph)}
    for t in path:
        node = t._node
        if node is not None and node.order < values.last_change:
            refusals.changed(t, node, wanted)
    while path:
        t = path.pop()
        g = total.pop(t)  # complete: all that t went into is younger, and has passed its share on
        if not create_graph and 0 in g.strides:
            g = g.copy()  # a broadcast view would push matmul off BLAS
        if create_graph and t.name and g is not gradient:
            g.name = g.name or f"d{t.name}"  # for drawings
        yield t, g
        node = t._node
        if node is None or node.inputs is None:
            continue
        pairs = (backward if create_graph else shares)(t, node, g, wanted, create_graph)
        for x, dx in pairs:
            if dx.shape != x._data.shape or dx.dtype != x._data.dtype:
                dx = unbroadcast(dx, x, node.op)
            total[x] = total[x] + dx if x in total else dx
        if pairs and not (retain_graph or create_graph):
            node.inputs, node.saved, node.extra = None, (), None
        pairs, dx = [], None  # total alone holds the shares, so that each is freed when its turn has come


def shares(t: Tensor, node: Node, g: Any, wanted: set[Tensor], create_graph: bool) -> list[tuple[Tensor, Any]]:
    """(x, its share of g) for each input x of a node that is wanted."""
    op, inputs, params = node.op, node.inputs or (), node.params
    arguments = (t, *inputs) if create_graph else node.saved  # on Tensors, the rules record what they do
    if not op.pull:
        found = []
        for x, rule in zip(inputs, op.rules):
            if isinstance(x, Tensor) and x in wanted:
                found.append((x, (rule or refusals.no_rule(x, op.name))(g, *arguments, **params)))
        return found
    needs = [isinstance(x, Tensor) and x in wanted for x in inputs]
    if create_graph and op.twin:  # each input gets a stand-in, so that in f(x, x) each x gets its own share
        stand_ins = [+x if need else x for x, need in zip(inputs, needs)]
        twins = grad(op.twin(*stand_ins, **params), itertools.compress(stand_ins, needs), g, create_graph=True)
        return list(zip(itertools.compress(inputs, needs), twins))
    pulled = op.pull(g, *arguments, extra=node.extra, needs=needs, **params)
    return [(x, dx) for x, dx, need in zip(inputs, pulled, needs) if need]


backward = region(shares, "backward")  # what rules record is drawn as one box


def unbroadcast(g: Any, x: Tensor, op: Op) -> Any:
    """Undo broadcasting: an element that was copied gets the sum of its copies' gradients. Keeps x's dtype."""
    if g.shape != x.shape:
        extra = g.ndim - x.ndim
        copied = tuple(i for i in range(g.ndim) if i < extra or x.shape[i - extra] == 1)
        summed = g.sum(axis=copied, keepdims=True)
        if extra < 0 or summed.shape[extra:] != x.shape:
            refusals.wrong_share(g, x, op.name)
        g = summed.reshape(x.shape)
    return g if g.dtype == x.dtype else g.astype(x.dtype)
