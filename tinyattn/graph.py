"""The engine: tensors that remember how they were made, and the walk back along that memory.

Forward, an op computes its result with NumPy and leaves a `Node` on it: which op, which inputs.
Backward, `output.backward()` visits those nodes from the newest to the oldest. At each one it knows
g = dL/d(result) and asks the op for g's share of every input: the op's derivative rules.

The rules (ops.py) are plain mathematics. They never ask what they are given: on arrays they compute
the gradient at NumPy's speed; on Tensors (`create_graph=True`) the same lines record a graph of their
own, and so gradients can be differentiated, or drawn, again.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tensor", "grad", "no_grad"]

Array = NDArray[Any]
Rule = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")

_recording: ContextVar[bool] = ContextVar("recording", default=True)
_region: ContextVar[tuple[str, object, Any] | None] = ContextVar("region", default=None)
_clock = itertools.count(1)
_last_change = 0  # the time at which a tensor last got another array: younger nodes have read what is there


class no_grad(ContextDecorator):
    """Inside `with no_grad():`, or in a function it decorates, nothing is recorded: faster, and no memory kept."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = super().__new__(cls)
        self._tokens = []
        return self if function is None else self(function)  # @no_grad is @no_grad()

    _tokens: list[Any]

    def __enter__(self) -> None:
        self._tokens.append(_recording.set(False))

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        _recording.reset(self._tokens.pop())

    def _recreate_cm(self) -> Any:  # a decorated function may run in several threads: tokens of their own
        return no_grad()


def region(function: Callable[P, R], label: str | None = None) -> Callable[P, R]:
    """Decorate a composed function: what it records is drawn as one box (draw.py). Calls may nest."""
    name = label or function.__name__

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _region.set((name, object(), _region.get()))
        try:
            return function(*args, **kwargs)
        finally:
            _region.reset(token)

    return call


class Node:
    """How a tensor was made: op(*inputs, **params).

    A node holds the arrays that the op read and wrote, so it needs no reference to its own tensor: there
    are no cycles, and a graph is freed the moment its last name goes. `inputs` is None once released.
    """

    __slots__ = ("extra", "inputs", "op", "order", "params", "region", "retains_grad", "saved")

    def __init__(
        self, op: Any, inputs: Sequence[Any], saved: tuple[Any, ...], extra: Any, params: dict[str, Any]
    ) -> None:
        self.op = op
        self.inputs: Sequence[Any] | None = inputs  # Tensors and constants, in the op's order
        self.saved = saved  # (result, *inputs) as arrays
        self.extra = extra  # what a fused op keeps for its way back
        self.params = params
        self.order = next(_clock)  # inputs exist before results: creation order is a topological order
        self.region = _region.get()
        self.retains_grad = False

    def release(self) -> None:
        self.inputs = self.extra = None
        self.saved = ()


class Tensor:
    """An array that can be differentiated.

    data: anything `np.array` takes; copied. Numbers only; gradients need a floating dtype.
    requires_grad: whether `backward()` should compute d(output)/d(this) into `.grad`.
    name: shown in drawings and error messages.

    A graph never sees its values change: once an op has read an array it is locked, also where `.data` has handed
    it out before, and `.data` hands out a fresh copy to write to (copy on write).
    """

    __slots__ = ("__weakref__", "_data", "_grad", "_lent", "_needs", "_node", "name")
    _data: Array
    _grad: Tensor | None
    _lent: bool
    _needs: bool
    _node: Node | None
    name: str | None

    def __init__(self, data: Any, requires_grad: bool = False, *, name: str | None = None) -> None:
        self._data = _numeric(data._data if isinstance(data, Tensor) else data)
        self._lent = False
        self._node = None
        self._needs = False
        self._grad = None
        self.name = name
        self.requires_grad = requires_grad

    # --- values -------------------------------------------------------------------------------------

    @property
    def data(self) -> Array:
        """The values, yours to write to. What a graph has already read stays as it was, and backward() will notice."""
        if not self._data.flags.writeable:
            self._bind(self._data.copy())
        self._lent = True
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        new = _numeric(value._data if isinstance(value, Tensor) else value)
        if new.shape != self.shape:
            raise ValueError(
                f"new data of shape {new.shape} for a tensor of shape {self.shape}: graphs and "
                "optimisers rely on the shape. Make a new Tensor instead."
            )
        if self._needs and new.dtype.kind != "f":
            raise TypeError(f"new data is {new.dtype}, but this tensor requires gradients: use .astype(float)")
        new.setflags(write=False)
        self._bind(new)

    def _bind(self, array: Array) -> None:
        global _last_change
        self._data, self._lent, _last_change = array, False, next(_clock)

    def _locked(self) -> Array:
        """The array, not to be written to any more. Where it was handed out, views of it may be about, which no lock
        reaches: those are left to their owner, with a copy for us."""
        self._data.setflags(write=False)
        if self._lent:
            self._data, self._lent = self._data.copy(), False
            self._data.setflags(write=False)
        return self._data

    @property
    def requires_grad(self) -> bool:
        return self._needs

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and self._data.dtype.kind != "f":
            raise TypeError(
                f"a {self.dtype} tensor cannot require gradients: a derivative needs values that can "
                "change a little. Use floats: Tensor(data.astype(float), requires_grad=True)"
            )
        if self._node is not None and not value:
            raise RuntimeError(
                "requires_grad of a computed tensor cannot be switched off: its graph leads "
                "further back. Use t.detach()"
            )
        self._needs = bool(value)

    @property
    def grad(self) -> Tensor | None:
        """What `backward()` has added up, a tensor of this shape; None when cleared."""
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            value = value if isinstance(value, Tensor) else Tensor(value)
            if value.shape != self.shape:
                raise ValueError(
                    f"a gradient of shape {value.shape} for a tensor of shape {self.shape}: it holds one "
                    "number per element, so the shapes must be equal"
                )
        self._grad = value

    shape = property(operator.attrgetter("_data.shape"))
    ndim = property(operator.attrgetter("_data.ndim"))
    size = property(operator.attrgetter("_data.size"))
    dtype = property(operator.attrgetter("_data.dtype"))

    def item(self) -> float:
        """The value of a one-element tensor as a Python number."""
        return self._data.item()  # type: ignore[no-any-return]

    def numpy(self) -> Array:
        """A copy of the values as an array; it has left the graph."""
        return self._data.copy()

    def detach(self) -> Tensor:
        """The same values as a tensor that needs no gradient: a constant from here on."""
        return _wrap(self._locked(), self.name)

    def retain_grad(self) -> None:
        """Ask `backward()` to fill `.grad` of this computed tensor too (leaves always get theirs)."""
        if not self._needs:
            raise RuntimeError("retain_grad() on a tensor that needs no gradient: nothing would be written")
        if self._node is not None:
            self._node.retains_grad = True

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor: it has no axis to count")
        return len(self._data)

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor: it has no axis to walk along")
        return (self[i] for i in range(len(self)))

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "a tensor's elements cannot be assigned: the graph would not see it. Build the result with "
            "ta.where, ta.masked_fill or ta.concatenate; or write to t.data before use"
        )

    def __bool__(self) -> bool:
        return bool(self._data)

    def __float__(self) -> float:
        return float(self._data.item())

    def __int__(self) -> int:
        return int(self._data.item())

    def __index__(self) -> int:
        return operator.index(self._data)

    def __repr__(self) -> str:
        x, finite = self._data, self._data[np.isfinite(self._data)]
        if x.size == 1:
            value = f"{x.item():.6g}"
        else:
            value = f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "no finite values"
            value += f", {x.size - finite.size} not finite" if 0 < finite.size < x.size else ""
        parts = [repr(self.name)] if self.name else []
        parts += [value, f"shape={x.shape}", str(x.dtype)]
        if self._needs:
            parts += [f"from {op_name(self._node.op)}" if self._node else "leaf"]
            parts += ["has grad" if self._grad is not None else "no grad yet"]
        return f"Tensor({', '.join(parts)})"

    def __format__(self, spec: str) -> str:
        return format(self._data.item(), spec) if spec and self.size == 1 else format(repr(self), spec)

    def __reduce__(self) -> tuple[Any, ...]:  # pickle, copy and deepcopy: a leaf; the history stays behind
        return functools.partial(Tensor, name=self.name), (self.numpy(), self._needs)

    # --- NumPy's side: np.exp(t), array * t, np.asarray(t) ------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if self._needs:
            raise TypeError(
                "np.asarray of a tensor that requires gradients would drop them silently: "
                "use t.numpy() to leave the graph"
            )
        if copy is False:
            raise ValueError("a tensor gives NumPy a copy of its values, so copy=False cannot be had")
        return self._data.astype(dtype or self.dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        if any(isinstance(t, Tensor) for t in out) or (out and any(isinstance(t, Tensor) and t._needs for t in args)):
            raise TypeError(
                f"np.{ufunc.__name__} cannot write into an array what a tensor computes: the graph would "
                "not see it. Write a = a + t instead of a += t"
            )
        if out:
            return getattr(ufunc, method)(*_arrays(args), **kwargs)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return _from_numpy(name, getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _from_numpy(function.__name__, function, args, kwargs)

    # --- operators and methods: the functions of ops.py, bound there ---------------------------------

    __hash__ = object.__hash__
    __add__: Callable[..., Tensor]
    __radd__: Callable[..., Tensor]
    __sub__: Callable[..., Tensor]
    __rsub__: Callable[..., Tensor]
    __mul__: Callable[..., Tensor]
    __rmul__: Callable[..., Tensor]
    __truediv__: Callable[..., Tensor]
    __rtruediv__: Callable[..., Tensor]
    __pow__: Callable[..., Tensor]
    __rpow__: Callable[..., Tensor]
    __matmul__: Callable[..., Tensor]
    __rmatmul__: Callable[..., Tensor]
    __neg__: Callable[..., Tensor]
    __pos__: Callable[..., Tensor]
    __abs__: Callable[..., Tensor]
    __getitem__: Callable[..., Tensor]
    __eq__: Callable[..., Any]
    __ne__: Callable[..., Any]
    __lt__: Callable[..., Any]
    __le__: Callable[..., Any]
    __gt__: Callable[..., Any]
    __ge__: Callable[..., Any]
    exp: Callable[..., Tensor]
    log: Callable[..., Tensor]
    sqrt: Callable[..., Tensor]
    tanh: Callable[..., Tensor]
    sigmoid: Callable[..., Tensor]
    relu: Callable[..., Tensor]
    abs: Callable[..., Tensor]
    sum: Callable[..., Tensor]
    mean: Callable[..., Tensor]
    max: Callable[..., Tensor]
    min: Callable[..., Tensor]
    prod: Callable[..., Tensor]
    var: Callable[..., Tensor]
    softmax: Callable[..., Tensor]
    log_softmax: Callable[..., Tensor]
    logsumexp: Callable[..., Tensor]
    masked_fill: Callable[..., Tensor]
    swapaxes: Callable[..., Tensor]
    squeeze: Callable[..., Tensor]
    astype: Callable[..., Tensor]
    reshape: Callable[..., Tensor]
    transpose: Callable[..., Tensor]
    T: property
    mT: property

    # --- differentiation ----------------------------------------------------------------------------

    def backward(self, gradient: Any = None, *, retain_graph: bool = False, create_graph: bool = False) -> None:
        """Add d(this)/d(leaf) to `.grad` of every leaf that requires gradients.

        gradient: dL/d(this), of this tensor's shape; may be left out for one element, where it is 1.
        retain_graph: keep the graph for another backward pass (it is released as it is used).
        create_graph: record the backward pass, so that the gradients can be differentiated in turn.
        Raises RuntimeError on a non-scalar without gradient, on a released graph, and where nothing needs a gradient.
        """
        history = _history(self)
        seed = _seed(self, gradient, create_graph)
        for t, g in _sweep(self, seed, history, set(history), retain_graph, create_graph):
            if t._node is None or t._node.retains_grad:
                if not create_graph:
                    g = _wrap(np.array(g))  # a copy: .grad may be written to, g may be shared
                old = t._grad
                t._grad = g if old is None else old + g if create_graph else _wrap(np.asarray(old._data + g._data))


# --- ops ---------------------------------------------------------------------------------------------


def op(*rules: Rule | None, each: Rule | None = None) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Make a differentiable op of a NumPy formula and its derivative rules.

    rules: one per input, in order. Each gets (g, out, *inputs, **params), with g = dL/d(out), and returns
        dL/d(input) in any shape that `out` broadcast it to: the engine sums that back. None: a constant
        (a mask, an index). The formula's arguments after the inputs are its params.
    each: for any number of inputs: one rule that also gets the input's position, first.
    """

    def define(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        signature = inspect.signature(forward)
        names = () if each else tuple(signature.parameters)
        count = len(rules)
        defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}

        @functools.wraps(forward)
        def call(*args: Any, **kwargs: Any) -> Tensor:
            if len(args) < count and kwargs:  # an input was given by keyword
                args, kwargs = signature.bind(*args, **kwargs).args, {}
            if len(names) > count:  # what follows the inputs are params, which rules get by name
                if len(args) > count:
                    params = dict(zip(names[count:], args[count:]))
                    if len(args) > len(names) or params.keys() & kwargs.keys():
                        signature.bind(*args, **kwargs)  # raises what Python would
                    args, kwargs = args[:count], kwargs | params
                kwargs = defaults | kwargs
            return _apply(call, args, kwargs)

        vars(call).update(forward=forward, rules=rules, each=each, pullback=None)
        return call

    return define


def fused(
    composed: Callable[..., Tensor], pullback: Callable[..., Sequence[Any]]
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Make an op of a formula written for speed, whose way back is one function on plain arrays.

    The formula returns (out, extra). pullback(g, out, *inputs, extra=…, needs=…, **params) returns a gradient
    or None per input; needs says which are wanted. `composed` is the same function in tinyattn's ops: the
    engine differentiates that one where the gradient itself must be differentiable (create_graph).
    """

    def define(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        def call(*inputs: Any, **params: Any) -> Tensor:
            return _apply(call, inputs, params)

        call.__name__, call.__doc__ = forward.__name__, forward.__doc__
        vars(call).update(forward=forward, pullback=pullback, composed=composed)
        return call

    return define


def op_name(op: Any) -> str:
    return op.__name__.strip("_")  # type: ignore[no-any-return]


def _apply(op: Any, inputs: tuple[Any, ...], params: dict[str, Any]) -> Tensor:
    """Compute op(*inputs, **params) and, where an input needs a gradient, note how."""
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
            if not isinstance(x, (float, int)):  # Python numbers stay as they are: they leave float32 at float32
                x = _numeric(x)
            arrays.append(x)
        kept.append(x)
    record = record and _recording.get()
    if lent and record:
        arrays = [x._locked() if isinstance(x, Tensor) else x for x in kept]
    try:
        out = op.forward(*arrays, **params)
    except (IndexError, ValueError, TypeError) as error:
        kind = next(k for k in (np.exceptions.AxisError, IndexError, ValueError, TypeError) if isinstance(error, k))
        raise kind(f"ta.{op_name(op)} of {_describe(arrays, params)}: {error}") from error
    out, extra = out if op.pullback else (out, None)
    if not isinstance(out, np.ndarray):
        out = np.asarray(out)
    if lent and not record and out.base is not None:
        out = out.copy()  # a view of an array that is out of our hands
    result = _wrap(out)
    record = record and out.dtype.kind == "f"
    if record:
        result._needs = True
        result._node = Node(op, kept, (out, *arrays), extra, params)
    if record or out.base is not None:  # values are shared from here on, with the graph or a view: lock them
        out.setflags(write=False)
        for x in kept:
            if isinstance(x, Tensor) and x._node is None:  # results are locked from the start
                x._data.setflags(write=False)
    return result


def _wrap(array: Array, name: str | None = None) -> Tensor:
    """A constant tensor around an array that is ours: no copy."""
    t = Tensor.__new__(Tensor)
    t._data = array
    t._lent = False
    t._node = None
    t._needs = False
    t._grad = None
    t.name = name
    return t


def as_tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else Tensor(x)


def _numeric(data: Any) -> Array:
    """A copy of data as an array of real numbers."""
    if isinstance(data, (list, tuple)) and any(isinstance(x, Tensor) for x in data):
        raise TypeError("a list of tensors is not a tensor: join them with ta.stack, which keeps their gradients")
    try:
        array = np.array(data)
    except ValueError as error:
        raise ValueError(f"these rows are not equally long, so they make no array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{array.dtype} data cannot be a tensor: it takes real numbers (floats, integers, booleans), "
            f"got {type(data).__name__}"
        )
    return array


def _describe(inputs: Sequence[Any], params: dict[str, Any]) -> str:
    shapes = [f"{tuple(x.shape)} {x.dtype}" if hasattr(x, "shape") else repr(x) for x in inputs]
    return ", ".join(shapes + [f"{k}={v!r}" for k, v in params.items() if not isinstance(v, np.ndarray)])


# Functions of NumPy whose answers have no derivative: truth values, shapes, indices, fresh arrays.
_NOT_DIFFERENTIABLE = {
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isnan",
    "isinf",
    "signbit",
    "logical_not",
    "logical_and",
    "logical_or",
    "shape",
    "ndim",
    "size",
    "argmax",
    "argmin",
    "argsort",
    "allclose",
    "isclose",
    "array_equal",
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "result_type",
}


def _from_numpy(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """np.f(t): ta.f where there is one; on constants NumPy's own; otherwise an error, never a lost gradient."""
    from tinyattn import ops  # here, since ops.py imports this file

    if name not in _NOT_DIFFERENTIABLE:
        if name in ops.__all__:
            return getattr(ops, name)(*args, **kwargs)
        if any(isinstance(t, Tensor) and t._needs for t in _flatten((args, tuple(kwargs.values())))):
            raise TypeError(
                f"np.{name} has no derivative rule here: its result would lose the gradient. Compose it of "
                "ta.exp, ta.sum, … (see tinyattn/ops.py), or leave the graph with t.numpy()"
            )
    return function(*_arrays(args), **{k: _arrays(v) for k, v in kwargs.items()})


def _flatten(x: Any) -> Iterator[Any]:
    if isinstance(x, (tuple, list)):
        for part in x:
            yield from _flatten(part)
    else:
        yield x


def _arrays(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return type(x)(_arrays(part) for part in x)
    return x._data if isinstance(x, Tensor) else x


# --- the way back ------------------------------------------------------------------------------------


def grad(
    output: Tensor,
    inputs: Tensor | Iterable[Tensor],
    grad_output: Any = None,
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
    history = _history(output, ends=inputs)
    found = set(history)
    for i, t in enumerate(inputs):
        if t not in found:
            raise RuntimeError(
                f"output does not depend on input {i} ({t!r}), so it has no gradient: was it used in "
                "computing output, with requires_grad=True and outside no_grad?"
            )
    needed = set(inputs)
    for t in history:  # oldest first: needed is what lies between inputs and output
        for x in t._node.inputs or () if t._node is not None else ():
            if isinstance(x, Tensor) and x in needed:
                needed.add(t)
                break
    path = [t for t in history if t in needed]
    wanted = dict.fromkeys(inputs)
    for t, g in _sweep(output, _seed(output, grad_output, create_graph), path, needed, retain_graph, create_graph):
        if t in wanted:
            wanted[t] = g if create_graph else _wrap(np.array(g))
    return tuple(wanted[t] for t in inputs)  # type: ignore[misc]


def gradients(output: Tensor, gradient: Any = None) -> dict[Tensor, Array]:
    """dL/d(t) for every tensor t on the way to output, for drawings: touches no `.grad`, keeps the graph."""
    history = _history(output)
    return dict(_sweep(output, _seed(output, gradient, False), history, set(history), True, False))


def _seed(output: Tensor, gradient: Any, create_graph: bool) -> Any:
    """The gradient that the walk starts with: an array, or a Tensor under create_graph."""
    if gradient is None:
        if output.size != 1:
            raise RuntimeError(
                f"the output has shape {output.shape}, not one element, so 'its gradient' is not one "
                "number per input: take a scalar, e.g. (output * weights).sum(), or pass gradient= of "
                "that shape"
            )
        gradient = np.ones(output.shape, output.dtype)
    g = gradient if isinstance(gradient, Tensor) else _wrap(_numeric(gradient))
    if g.shape != output.shape:
        raise ValueError(
            f"gradient of shape {g.shape} for an output of shape {output.shape}: it holds one number per "
            "element of the output, so the shapes must be equal"
        )
    if not create_graph:
        return g._data.astype(output.dtype, copy=False)
    return g if g.dtype == output.dtype else g.astype(output.dtype)


def _history(output: Tensor, ends: Sequence[Tensor] = ()) -> list[Tensor]:
    """output and every tensor it was computed from that needs a gradient, oldest first.

    Results are younger than what they were computed from, so sorting by age gives an order in which each
    tensor's gradient is complete before it is passed on, whatever the graph: no recursion, no path walked twice.
    Raises RuntimeError on a graph that was released, unless at one of the ends.
    """
    if not output._needs:
        raise RuntimeError(
            "the output needs no gradient: nothing it was computed from has requires_grad=True, or it "
            "was computed inside no_grad"
        )
    found, stack = {output}, [output]
    while stack:
        t = stack.pop()
        if t._node is None:
            continue
        if t._node.inputs is None:
            if any(t is end for end in ends):
                continue
            raise RuntimeError(
                "this graph has been run backward already and was released to save memory: pass "
                "retain_graph=True to the first backward(), or compute the output again"
            )
        for x in t._node.inputs:
            if isinstance(x, Tensor) and x._needs and x not in found:
                found.add(x)
                stack.append(x)
    return sorted(found, key=_age)


def _age(t: Tensor) -> int:
    return 0 if t._node is None else t._node.order


def _sweep(
    output: Tensor, seed: Any, path: list[Tensor], needed: set[Tensor], retain_graph: bool, create_graph: bool
) -> Iterator[tuple[Tensor, Any]]:
    """Yield (t, dL/dt) for the tensors of path, newest first: the chain rule, one node at a time."""
    for t in path:
        if t._node is not None and t._node.order < _last_change:
            _check_unchanged(t, t._node, needed)
    total = {output: seed}  # gradients on their way: complete once all younger tensors have passed theirs on
    while path:
        t = path.pop()
        g = total.pop(t)
        if not create_graph and 0 in g.strides:
            g = g.copy()  # a broadcast view would push matmul off BLAS
        yield t, g
        node = t._node
        if node is None or node.inputs is None:
            continue
        shares = _shares(t, node, g, needed, create_graph)
        for x, dx in shares:
            read = x._data
            if dx.shape != read.shape or dx.dtype != read.dtype:
                dx = _unbroadcast(dx, x, node.op)
            total[x] = total[x] + dx if x in total else dx
        if shares and not (retain_graph or create_graph):
            node.release()
        shares, dx = [], None  # total has them now, and lets go of each when its turn has come


def _check_unchanged(t: Tensor, node: Node, needed: set[Tensor]) -> None:
    """Raise RuntimeError where the values that t was computed from, or its own, are not the tensors' any more."""
    inputs = node.inputs or ()
    if not any(isinstance(x, Tensor) and x in needed for x in inputs):
        return
    for x, read in zip((t, *inputs), node.saved):
        if isinstance(x, Tensor) and x._data is not read and not np.array_equal(x._data, read, equal_nan=True):
            raise RuntimeError(
                f"the data of {x!r} changed after ta.{op_name(node.op)} read or wrote it, so the "
                "gradient would be that of other values: change data after backward(), or compute the "
                "output again"
            )


def _shares(t: Tensor, node: Node, g: Any, needed: set[Tensor], create_graph: bool) -> list[tuple[Tensor, Any]]:
    """(x, g's share of x) for the inputs x of node that need one, by the op's rules."""
    op, inputs, values, params = node.op, node.inputs or (), node.saved, node.params
    if create_graph:  # the same rules on Tensors: they record what they do
        values = (t, *inputs)
    if op.pullback:
        needs = [isinstance(x, Tensor) and x in needed for x in inputs]
        pull = functools.partial(_pull_composed, op) if create_graph else op.pullback
        pulled = pull(g, *values, extra=node.extra, needs=needs, **params)
        return [(x, dx) for x, dx, need in zip(inputs, pulled, needs) if need]
    rules = op.rules or [functools.partial(op.each, i) for i in range(len(inputs))]
    shares = []
    for x, rule in zip(inputs, rules):
        if isinstance(x, Tensor) and x in needed:
            if rule is None:
                raise NotImplementedError(
                    f"ta.{op_name(op)} has no derivative rule for {x!r}: the gradient would "
                    "be lost. Write the rule, or detach() that input"
                )
            shares.append((x, rule(g, *values, **params)))
    return shares


def _pull_composed(op: Any, g: Any, out: Any, *inputs: Any, extra: Any, needs: list[bool], **params: Any) -> list[Any]:
    """A fused op's gradient as a graph: that of its composed twin. Each argument gets a stand-in of its own, so that in
    f(x, x) each x gets its own share, and what lies behind x is left to the walk."""
    stand_ins = [+x if need else x for x, need in zip(inputs, needs)]
    out = op.composed(*stand_ins, **params)
    shares = iter(grad(out, [x for x, need in zip(stand_ins, needs) if need], g, create_graph=True))
    return [next(shares) if need else None for need in needs]


def _unbroadcast(g: Any, x: Tensor, op: Any) -> Any:
    """Undo broadcasting: an element that was copied gets the sum of its copies' gradients. Keeps x's dtype."""
    if g.shape != x.shape:
        extra = g.ndim - x.ndim
        copied = tuple(i for i in range(g.ndim) if i < extra or x.shape[i - extra] == 1)
        summed = g.sum(axis=copied, keepdims=True)
        if extra < 0 or summed.shape[extra:] != x.shape:
            raise AssertionError(
                f"a derivative rule of ta.{op_name(op)} is wrong: it returned shape {g.shape} for an "
                f"input of shape {x.shape}"
            )
        g = summed.reshape(x.shape)
    return g if g.dtype == x.dtype else g.astype(x.dtype)
