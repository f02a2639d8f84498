"""A tensor's array, and who may write to it.

An array is in one of three states:
    open    only the tensor has it, and no graph has read it;
    lent    `.data` has handed it out: its holder may write to it, and may have views of it, which no lock reaches;
    locked  a graph has read it, another tensor shares it, or it was assigned: nobody writes to it any more.
`.data` lends an open array. If the array is locked, `.data` lends a copy, and the copy becomes the tensor's array.
A graph that reads an open array locks it. It locks a lent one too, but cannot lock its views: so the tensor and the
graph take a copy, and the holder keeps the old array.

    x = Tensor([1.0, 2.0], requires_grad=True)    open
    d = x.data; d[0] = 5.0                        lent: x is [5, 2]
    y = (x * x).sum()                             locked: the graph has read [5, 2], in an array that d cannot reach
    x.data[0] = 7.0                               x has a new array, [7, 2], which is lent; the graph keeps [5, 2]
    y.backward()                                  RuntimeError: x changed after it was read

So a graph never computes with values that it did not read, and no training step copies its parameters.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import refusals

Array: TypeAlias = NDArray[Any]
TensorLike: TypeAlias = "Values | ArrayLike"  # a Tensor, or what np.array makes an array of
Gradient: TypeAlias = "TensorLike | None"  # dL/d(a tensor), of its shape; None: 1, if the tensor has one element
Mask: TypeAlias = "TensorLike | None"  # booleans, True = may attend; or floats, which are added to the scores
Axis: TypeAlias = "int | tuple[int, ...] | None"  # None: all axes
Shape: TypeAlias = "tuple[int, ...]"
Rng: TypeAlias = "np.random.Generator | int | None"  # a generator, a seed, or None: other numbers each time
Rule: TypeAlias = Callable[..., Any]  # (g, out, *inputs, **params) -> dL/d(input), where g = dL/d(out)

HALF = np.dtype(np.float16)
clock = itertools.count(1)  # of nodes and of changes
last_change = 0  # when a tensor last got another array: younger nodes have read the present arrays


class Values:
    """What a tensor is without a graph: an array in one of the three states."""

    __slots__ = ("_data", "_lent")
    _data: Array
    _lent: bool

    @property
    def data(self) -> Array:
        """The values; you may write to them. A graph keeps the values that it has read, and backward() will notice."""
        if not self._data.flags.writeable:
            self._bind(self._data.copy())
        self._lent = True
        return self._data

    @data.setter
    def data(self, value: TensorLike) -> None:
        new = refusals.unfit_data(self, numeric(value))
        new.setflags(write=False)
        self._bind(new)

    def _bind(self, array: Array) -> None:
        """Take another array in place of the present one."""
        global last_change
        self._data, self._lent, last_change = array, False, next(clock)

    def _locked(self) -> Array:
        """The array, locked, for a graph to read."""
        self._data.setflags(write=False)
        if self._lent:
            self._data, self._lent = self._data.copy(), False
            self._data.setflags(write=False)
        return self._data


def widened(arrays: Sequence[Any]) -> list[Any]:
    """float16 as float32: half precision is for storing numbers; sums in it overflow, and lose digits, too soon."""
    return [x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype is HALF else x for x in arrays]


def narrowed(out: Array, arrays: Sequence[Any]) -> Array:
    """A float32 result of widened arrays, rounded back: to float16, unless one of the arrays was a longer float."""
    longer = any(isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.dtype is not HALF for x in arrays)
    return out if longer or out.dtype != np.float32 else out.astype(HALF)


def unrounded(op: Any, g: Any, saved: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """(g, out, *inputs) of float16 in float32, for a way back. out is computed again: rounded, it lacks digits."""
    g, _, *inputs = widened([g, *saved])
    out = op.forward(*inputs, **params)
    return [g, out[0] if op.pull else out, *inputs]


def squares_fit(x: Array) -> bool:
    """Whether Σ x² over all of x stays in the range of its dtype; then so does every part of the sum."""
    return math.isfinite(np.vdot(x, x))


def centred(x: Array, axis: Axis = None) -> tuple[Array, Any]:
    """(x / 2ᵉ, e): squares of x / 2ᵉ stay in the range of its dtype. e is 0, unless x is near an end of that range.

    With an axis there is one e for each line along it, kept as length 1.
    """
    size = np.maximum(x.max(axis, keepdims=True, initial=0), -x.min(axis, keepdims=True, initial=0))
    far = np.finfo(x.dtype).max ** 0.25
    end = (size > 0) & ((size >= far) | (size <= 1 / far)) & np.isfinite(size)
    if not end.any():
        return x, 0
    exponent = np.where(end, np.frexp(size)[1], 0)
    return np.ldexp(x, -exponent), exponent


def numeric(data: Any) -> Array:
    """A copy of data as an array of real numbers."""
    data = data._data if isinstance(data, Values) else data
    if isinstance(data, (list, tuple)) and any(isinstance(x, Values) for x in data):
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


_sources: dict[int, tuple[Any, Any]] = {}  # id of a copy: weak references to the copy, and to what it is a copy of


def constant(data: Any) -> Array:
    """A copy, as `numeric` makes it, that remembers its original: in a drawing, one array is one node."""
    array = numeric(data)
    if isinstance(data, np.ndarray):
        at = id(array)
        _sources[at] = weakref.ref(array, lambda _: _sources.pop(at, None)), weakref.ref(data)
    return array


def source(array: Array) -> Any:
    """The same object for all constants that are copies of one array."""
    return _sources.get(id(array), (None, array))[1]


def unbroadcast(g: Any, x: Any, name: str) -> Any:
    """Undo broadcasting: an element that was copied gets the sum of its copies' gradients (float16: in float32)."""
    copied = tuple(i for i in range(g.ndim) if i < g.ndim - x.ndim or x.shape[i - g.ndim + x.ndim] == 1)
    g = g.astype(np.float32) if g.dtype is HALF else g
    return refusals.wrong_share(g, g.sum(axis=copied, keepdims=True), x, name)
