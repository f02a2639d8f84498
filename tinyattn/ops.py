"""The table of derivatives: every op is a NumPy formula with one rule per input beside it.

A rule gets g = dL/d(out), the result `out`, the inputs and the parameters. It returns its input's share of g.
A rule need not think of three things:
- Broadcasting. If an input was stretched, the engine sums the share back to the input's shape.
- Arrays or Tensors. Rules use operators, methods and NumPy's functions, which work on both (what NumPy does not have
  goes through `on`).
- Whether it is needed. It is called only for inputs that need a gradient.

The ops have NumPy's names, so sum, max, min and abs hide Python's own in this file: those are `builtins.sum` here.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arguments import array
from .calling import on, op
from .einsum import dot
from .face import NUMPY
from .graph import Tensor, as_tensor
from .habits import explained
from .methods import Methods
from .values import Array, Axis, Shape, TensorLike, centred, squares_fit

Value = Any  # what a formula returns: an array or a NumPy scalar

# --- arithmetic --------------------------------------------------------------------------------------


@op(lambda g, out, x, y: g, lambda g, out, x, y: g)
def add(x: Array, y: Array) -> Value:
    """x + y.   dx = g,  dy = g"""
    return np.add(x, y)


@op(lambda g, out, x, y: g, lambda g, out, x, y: -g)
def subtract(x: Array, y: Array) -> Value:
    """x - y.   dx = g,  dy = -g"""
    return np.subtract(x, y)


@op(lambda g, out, x, y: g * y, lambda g, out, x, y: g * x, wide=True)
def multiply(x: Array, y: Array) -> Value:
    """x · y, element by element.   dx = g · y,  dy = g · x"""
    return np.multiply(x, y)


@op(lambda g, out, x, y: g / y, lambda g, out, x, y: -(g / y) * out, wide=True)
def divide(x: Array, y: Array) -> Value:
    """x / y.   dx = g / y,  dy = -g · x / y²"""
    return np.divide(x, y)


@op(
    lambda g, out, x, y: g * y * x ** _less_one(x, y),
    lambda g, out, x, y: g * out * np.log(np.where(out == 0, np.e, np.where((x == 0) & (y == 0), 1.0, x))),
    wide=True,
)
def power(x: Array, y: Array) -> Value:
    """x ** y.   dx = g · y · x^(y - 1),  dy = g · x^y · log x  (0 where x^y is 0, and at 0 ** 0)"""
    return np.power(x, y)


def _less_one(x: Any, y: Any) -> Any:
    """y - 1; but 1 where x = y = 0: there dx = g · 0 · x is 0, and with x^-1 it would be NaN."""
    if isinstance(y, (int, float)) and y:
        return y - 1  # stays a Python number, which leaves float32 at float32
    zero = (x == 0) & (y == 0)
    return np.where(zero, 1.0, y - 1) if np.any(zero) else y - 1


@op(lambda g, out, x: -g)
def negative(x: Array) -> Value:
    """-x.   dx = -g"""
    return np.negative(x)


@op(lambda g, out, x: g)
def positive(x: Array) -> Value:
    """+x: the same values as a new node of the graph.   dx = g"""
    return np.positive(x)


@op(lambda g, out, x, y: g @ y.mT, lambda g, out, x, y: _flat(x).mT @ _flat(g) if y.ndim == 2 else x.mT @ g, wide=True)
def _matmul(x: Array, y: Array) -> Value:
    """X Y for matrices, with any leading axes.   dX = G Yᵀ,  dY = Xᵀ G"""
    return np.matmul(x, y)


def _flat(x: Any) -> Any:
    """Leading axes turned into more rows: then one product, Xᵀ G, sums over them, without a dY for each."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def matmul(x: TensorLike, y: TensorLike) -> Tensor:
    """x @ y as in NumPy: matrices with broadcast leading axes; a vector on the left is a row, on the right a column."""
    row, column = _rank(x) == 1, _rank(y) == 1
    if row or column:
        product = _matmul(expand_dims(x, 0) if row else x, expand_dims(y, -1) if column else y)
        return squeeze(product, (-2,) * row + (-1,) * column)
    return _matmul(x, y)


def _rank(x: Any) -> int:
    return x._data.ndim if isinstance(x, Tensor) else array(x, "x").ndim


# --- functions of one number --------------------------------------------------------------------------


@op(lambda g, out, x: g * out)
def exp(x: Array) -> Value:
    """eˣ.   dx = g · eˣ"""
    return np.exp(x)


@op(lambda g, out, x: g / x)
def log(x: Array) -> Value:
    """The natural logarithm.   dx = g / x"""
    return np.log(x)


@op(lambda g, out, x: g / (2 * out))
def sqrt(x: Array) -> Value:
    """√x.   dx = g / (2 √x): infinite at 0. For a length, √(x·x + ε) has a gradient at 0; √(x·x) has NaN."""
    return np.sqrt(x)


@op(lambda g, out, x: g / (1 + x))
def log1p(x: Array) -> Value:
    """log(1 + x), exact for small x too.   dx = g / (1 + x)"""
    return np.log1p(x)


@op(lambda g, out, x: g * (out + 1), wide=True)
def expm1(x: Array) -> Value:
    """eˣ - 1, exact for small x too.   dx = g · eˣ"""
    return np.expm1(x)


@op(lambda g, out, x: 2 * g * x, wide=True)
def square(x: Array) -> Value:
    """x².   dx = 2 g · x"""
    return np.square(x)


@op(lambda g, out, x: np.where(False, g, 0.0))
def sign(x: Array) -> Value:
    """1, 0 or -1.   dx = 0"""
    return np.sign(x)


@op(lambda g, out, x: g * np.cos(x))
def sin(x: Array) -> Value:
    """sin x, in radians.   dx = g · cos x"""
    return np.sin(x)


@op(lambda g, out, x: -g * np.sin(x))
def cos(x: Array) -> Value:
    """cos x, in radians.   dx = -g · sin x"""
    return np.cos(x)


@op(lambda g, out, x: g * (1 - out * out), wide=True)
def tanh(x: Array) -> Value:
    """tanh x.   dx = g · (1 - tanh² x)"""
    return np.tanh(x)


@op(lambda g, out, x: g * out * (1 - out), wide=True)
def sigmoid(x: Array) -> Value:
    """s = 1 / (1 + e⁻ˣ).   dx = g · s · (1 - s)"""
    e = np.exp(-np.abs(x := _floating(x)))  # of a number ≤ 0: it cannot overflow
    return np.where(np.less(x, 0), e, 1.0) / (1 + e)


@op(lambda g, out, x: np.where(x > 0, g, 0.0))
def relu(x: Array) -> Value:
    """max(x, 0).   dx = g where x > 0, else 0  (0 at 0)"""
    return np.maximum(x, 0)


@op(lambda g, out, x: np.where(x > 0, g, np.where(x < 0, -g, 0.0)))
def absolute(x: Array) -> Value:
    """|x|.   dx = g · sign x  (0 at 0)"""
    return np.abs(x)


@op(lambda g, out, x, dtype: g)
def astype(x: Array, dtype: Any) -> Value:
    """The same values in another dtype; integers are constants.   dx = g, in x's dtype"""
    return np.asarray(x).astype(dtype)


# --- choices -----------------------------------------------------------------------------------------


@op(lambda g, out, x, y: g * _win(x > y, x == y, g), lambda g, out, x, y: g * _win(y > x, x == y, g))
def maximum(x: Array, y: Array) -> Value:
    """The larger of x and y, element by element.   g goes to the larger; half each where they are equal"""
    return np.maximum(x, y)


@op(lambda g, out, x, y: g * _win(x < y, x == y, g), lambda g, out, x, y: g * _win(y < x, x == y, g))
def minimum(x: Array, y: Array) -> Value:
    """The smaller of x and y, element by element.   g goes to the smaller; half each where they are equal"""
    return np.minimum(x, y)


def _win(wins: Any, ties: Any, g: Any) -> Any:
    """1 where this input won, ½ where both are equal."""
    return (wins + ties / 2).astype(g.dtype)


@op(
    None,
    lambda g, out, condition, x, y: np.where(condition, g, 0.0),
    lambda g, out, condition, x, y: np.where(condition, 0.0, g),
)
def where(condition: Array, x: Array, y: Array) -> Value:
    """x where condition holds, else y.   dx = g where it holds,  dy = g where not

    A NaN or inf derivative in the branch not taken still spoils the gradient (0 · inf = NaN, as in PyTorch and JAX):
    make the argument safe first, as in where(ok, f(where(ok, x, 1)), y).
    """
    return np.where(condition, x, y)


@op(lambda g, out, x, mask, value: np.where(mask, 0.0, g), None, lambda g, out, x, mask, value: np.where(mask, g, 0.0))
def masked_fill(x: Array, mask: Array, value: Array) -> Value:
    """value where mask is True, else x (as in PyTorch: the mask says what is overwritten).   dx = g where not mask"""
    if np.asarray(mask).dtype != bool:
        raise TypeError(f"the mask is {np.asarray(mask).dtype}, not boolean: use mask.astype(bool)")
    return np.where(mask, value, x)


def clip(x: TensorLike, a_min: TensorLike | None = None, a_max: TensorLike | None = None) -> Tensor:
    """x, held between two bounds (None: no bound).   dx = g where x is within the bounds; else the bound gets g"""
    x = +as_tensor(x)
    x = x if a_min is None else where(x < a_min, a_min, x)
    return x if a_max is None else where(x > a_max, a_max, x)


# --- reductions --------------------------------------------------------------------------------------


@op(lambda g, out, x, axis, keepdims: np.broadcast_to(_expand(g, x, axis, keepdims), x.shape), wide=True)
def sum(x: Array, axis: Axis = None, keepdims: bool = False) -> Value:
    """Σ x over axis (all: None).   dx = g, for every summed element"""
    return np.sum(x, axis, keepdims=keepdims)


@op(lambda g, out, x, axis, **how: np.broadcast_to(_expand(g, x, axis, **how) / _count(x, axis), x.shape), wide=True)
def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Value:
    """Σ x / N over axis; NaN for N = 0.   dx = g / N"""
    n = _count(x, axis)
    return np.sum(x, axis, keepdims=keepdims) / n if squares_fit(x) else np.sum(x / n, axis, keepdims=keepdims)


def _spread(g: Any, x: Any, axis: Axis, keepdims: bool, ddof: int, size: Any = None) -> Any:
    d = x - on(x, mean)(x, axis, True)
    d = d if size is None else d / _expand(size, x, axis, keepdims)
    return _expand(g, x, axis, keepdims) * (2 / _count(x, axis, ddof)) * d


@op(lambda g, out, x, **how: _spread(g, x, **how), wide=True)
def var(x: Array, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> Value:
    """Σ (x - mean)² / (N - ddof) over axis.   dx = g · 2 (x - mean) / (N - ddof)"""
    d, exponent = centred(x - on(x, mean)(x, axis, True), axis)
    out = np.ldexp(np.sum(d * d, axis, keepdims=True) / _count(x, axis, ddof), 2 * exponent)
    return out if keepdims else np.squeeze(out, axis)


@op(lambda g, out, x, **how: _spread(g, x, **how, size=np.where(out == 0, np.inf, 2 * out)), wide=True)
def std(x: Array, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> Value:
    """√var over axis.   dx = g · (x - mean) / ((N - ddof) · std)  (0 where all are equal)"""
    d, exponent = centred(x - on(x, mean)(x, axis, True), axis)
    out = np.ldexp(np.sqrt(on(x, var)(d, axis, True, ddof)), exponent)
    return out if keepdims else np.squeeze(out, axis)


@op(lambda g, out, x, axis, keepdims: _expand(g, x, axis, keepdims) * _ties(out, x, axis, keepdims))
def max(x: Array, axis: Axis = None, keepdims: bool = False) -> Value:
    """The largest value along axis.   dx = g at the maximum, split evenly over ties"""
    return np.max(x, axis, keepdims=keepdims)


@op(lambda g, out, x, axis, keepdims: _expand(g, x, axis, keepdims) * _ties(out, x, axis, keepdims))
def min(x: Array, axis: Axis = None, keepdims: bool = False) -> Value:
    """The smallest value along axis.   dx = g at the minimum, split evenly over ties"""
    return np.min(x, axis, keepdims=keepdims)


def prod(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Π x over axis, by multiplying halves: no division, so its derivatives hold for factors of 0 too."""
    x = as_tensor(x)
    if x.dtype in (np.float16, np.float32):  # a part of the product may leave its range
        return prod(x.astype(float), axis, keepdims).astype(x.dtype)
    axes = _axes(x, axis if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, builtins.max(x.ndim, 1)))
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    last = x.transpose(kept + axes).reshape(*(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes))
    while (n := last.shape[-1]) > 1:
        pairs = last[..., : n // 2] * last[..., n // 2 : 2 * (n // 2)]
        last = concatenate([pairs, last[..., -1:]], -1) if n % 2 else pairs
    last = sum(last, -1) if last.shape[-1] else sum(last, -1) + 1  # one factor left, or none
    return last.reshape(_kept_shape(x, axis)) if keepdims else last


@op(lambda g, out, x, axis: np.flip(np.cumsum(np.flip(g, axis), axis), axis), wide=True)
def _cumsum(x: Array, axis: int) -> Value:
    return np.cumsum(x, axis)


def cumsum(x: TensorLike, axis: int | None = None) -> Tensor:
    """yᵢ = x₀ + … + xᵢ along axis (None: flattened first).   dxᵢ = gᵢ + gᵢ₊₁ + …"""
    return _cumsum(ravel(x), 0) if axis is None else _cumsum(x, axis)


def _axes(x: Any, axis: Axis) -> tuple[int, ...]:
    """axis as counted from the front."""
    if not (rank := _rank(x)) or axis is None:
        return tuple(range(rank))
    return tuple([a % rank for a in (axis if isinstance(axis, tuple) else (axis,))])


def _kept_shape(x: Any, axis: Axis) -> Shape:
    """x's shape with the reduced axes at length 1."""
    axes = _axes(x, axis)
    return tuple([1 if i in axes else n for i, n in enumerate(x.shape)])


def _expand(g: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    """Put the reduced axes back, with length 1: then g broadcasts against x."""
    return g if keepdims else g.reshape(_kept_shape(x, axis))


def _count(x: Any, axis: Axis, ddof: int = 0) -> float:
    """How many elements a reduction over axis joins, less ddof; NaN if none: then there is no mean."""
    return builtins.max(math.prod(np.shape(x)[a] for a in _axes(x, axis)) - ddof, 0) or math.nan


def _ties(out: Any, x: Any, axis: Axis, keepdims: bool) -> Any:
    """The share of the gradient that each element gets: 1 at a single extreme, 1/k at each of k equal ones."""
    hit = x == _expand(out, x, axis, keepdims)
    return (hit / hit.sum(axis, keepdims=True)).astype(x.dtype)


# --- softmax and its relatives -----------------------------------------------------------------------


@op(lambda g, out, x, axis: out * (g - (g * out).sum(axis, keepdims=True)), wide=True)
def softmax(x: Array, axis: Axis = -1) -> Value:
    """p = eˣ / Σ eˣ along axis: positive, sums to 1.   dx = p · (g - Σ g · p)

    A line of nothing but -inf (all masked) gives zeros, with zero gradient.
    """
    x = _floating(x)
    e = np.asarray(x - _top(x, axis))  # the largest exponent is 0: no overflow, and p is unchanged
    np.exp(e, out=e)
    e /= np.maximum(e.sum(axis, keepdims=True), 1)  # Σ ≥ e⁰ = 1; only if all is masked, Σ = 0
    return e


@op(lambda g, out, x, axis: g - np.exp(out) * g.sum(axis, keepdims=True), wide=True)
def log_softmax(x: Array, axis: Axis = -1) -> Value:
    """log p = x - log Σ eˣ along axis, without underflow.   dx = g - p · Σ g"""
    x = _floating(x)
    shifted = x - _top(x, axis)
    return np.subtract(shifted, np.log(np.exp(shifted).sum(axis, keepdims=True)))


@op(lambda g, out, x, axis, keepdims: _expand(g, x, axis, keepdims) * on(x, softmax)(x, axis), wide=True)
def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Value:
    """log Σ eˣ over axis.   dx = g · softmax(x); zeros for a line of nothing but -inf, whose value is -inf"""
    x = _floating(x)
    top = _top(x, axis)
    top = np.where(top == np.inf, 0, top)  # so that an inf in x gives inf, not inf - inf
    with np.errstate(divide="ignore"):
        out = np.log(np.exp(x - top).sum(axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis)


def _floating(x: Any) -> Value:
    x = np.asarray(x)
    return x if x.dtype.kind == "f" else x.astype(float)


def _top(x: Array, axis: Axis) -> Value:
    """The maximum along axis, kept as length 1. If all is -inf, it is the lowest float, so that x - top is -inf."""
    return x.max(axis, keepdims=True, initial=np.finfo(x.dtype).min)


# --- shapes ------------------------------------------------------------------------------------------


@op(lambda g, out, x, shape: g.reshape(x.shape))
def reshape(x: Array, shape: int | Shape) -> Value:
    """The same elements in another shape; one length may be -1.   dx = g, reshaped back"""
    return np.reshape(x, shape)


def ravel(x: TensorLike) -> Tensor:
    """All elements along one axis.   dx = g, reshaped back"""
    return reshape(x, -1)


@op(lambda g, out, x, axis: np.flip(g, axis))
def flip(x: Array, axis: Axis = None) -> Value:
    """Axes (None: all) in the opposite order.   dx = g, turned back"""
    return np.flip(x, axis)


@op(lambda g, out, x, shift, axis: np.roll(g, np.negative(shift), axis))
def roll(x: Array, shift: int | Shape, axis: Axis = None) -> Value:
    """Elements moved by shift along axis (None: flattened); the last ones go to the start.   dx = g, moved back"""
    return np.roll(x, shift, axis)


@op(lambda g, out, x, axes: g.transpose(None if axes is None else _inverse(axes, x.ndim)))
def _transpose(x: Array, axes: tuple[int, ...] | None) -> Value:
    """Axes in another order.   dx = g, with the order undone"""
    return np.transpose(x, axes)


def transpose(x: TensorLike, axes: int | Sequence[int] | None = None) -> Tensor:
    """Axes in another order (None: reversed).   dx = g, with the order undone"""
    return _transpose(x, axes if axes is None else (axes,) if isinstance(axes, int) else tuple(axes))


def _inverse(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    return tuple(np.argsort([a % ndim for a in axes]).tolist())


@op(lambda g, out, x, axis1, axis2: g.swapaxes(axis1, axis2))
def swapaxes(x: Array, axis1: int, axis2: int) -> Value:
    """Two axes exchanged.   dx = g, exchanged back"""
    return np.swapaxes(x, axis1, axis2)


@op(lambda g, out, x: g.mT)
def _mT(x: Array) -> Value:
    """Each matrix (the last two axes) transposed.   dX = Gᵀ"""
    return x.mT


@op(lambda g, out, x, axis: g.reshape(x.shape))
def expand_dims(x: Array, axis: int | tuple[int, ...]) -> Value:
    """A new axis of length 1.   dx = g, without it"""
    return np.expand_dims(x, axis)


@op(lambda g, out, x, axis: g.reshape(x.shape))
def squeeze(x: Array, axis: Axis = None) -> Value:
    """Without axes of length 1 (None: all of them).   dx = g, with them"""
    return np.squeeze(x, axis)[...]  # a view, also if there is nothing to squeeze


@op(lambda g, out, x, shape: g)
def broadcast_to(x: Array, shape: int | Shape) -> Value:
    """x stretched to shape by repeating it.   dx = Σ g over the copies (the engine takes this sum for every op)"""
    return np.broadcast_to(x, shape)


def _put_back(g: Any, shape: Shape, index: Any) -> Any:
    return on(g, _scatter)(g, shape, index)


@op(lambda g, out, x, index: _put_back(g, x.shape, index))
def _getitem(x: Array, index: Any) -> Value:
    """x[index].   dx: g added up at index, zeros elsewhere (an element taken twice gets both)"""
    return np.asarray(x)[index]


@op(lambda g, out, x, shape, index: g[index], wide=True)
def _scatter(x: Array, shape: Shape, index: Any) -> Value:
    """Zeros of shape with x added at index: the transpose of getitem.   dx = g[index]"""
    out = np.zeros(shape, np.float32 if x.dtype == np.float16 else x.dtype)
    if _is_basic(index):
        out[index] = x
    else:
        np.add.at(out, index, x)  # out[index] += x would keep only the last of repeated indices
    return out


def _is_basic(index: Any) -> bool:
    """Whether index takes no element twice: integers, slices, None, …, and boolean masks."""
    parts = index if isinstance(index, tuple) else (index,)
    simple = (int, np.integer, slice, type(None), type(...))
    return all(isinstance(i, simple) or (hasattr(i, "dtype") and i.dtype.kind == "b") for i in parts)


def _own(index: Any) -> Any:
    """An index that nobody else can change: arrays are copied, tensors and lists become arrays."""
    if isinstance(index, tuple):
        return tuple(_own(list(i)) if isinstance(i, tuple) else _own(i) for i in index)
    if isinstance(index, Tensor):
        return index.numpy()
    if isinstance(index, list):
        index = np.array(array(index, "an index"))
        return index if index.size else index.astype(np.intp)  # an empty list selects nothing; NumPy makes floats of it
    return index.copy() if isinstance(index, np.ndarray) else index


def _indexed(x: TensorLike, index: Any) -> Tensor:
    """x[index], with NumPy's slices, integers, boolean masks, integer arrays, None and …"""
    return _getitem(x, _own(index))


def _pieces(g: Any, out: Any, *xs: Any, extra: None, needs: list[bool], axis: int) -> list[Any]:
    """The piece of g where each x went."""
    ends = itertools.accumulate((x.shape[axis] for x in xs), initial=0)
    lead = (slice(None),) * (axis % g.ndim)
    return [g[(*lead, slice(a, b))] if need else None for (a, b), need in zip(itertools.pairwise(ends), needs)]


@op(pull=_pieces)
def _concatenate(*xs: Array, axis: int) -> tuple[Value, None]:
    """Arrays joined end to end along axis.   dxᵢ = the piece of g where xᵢ went"""
    return np.concatenate(xs, axis), None


def concatenate(arrays: Sequence[TensorLike], axis: int | None = 0) -> Tensor:
    """Arrays joined end to end along an axis they have (None: flattened first).   dxᵢ = the piece of g where xᵢ went"""
    if axis is None:
        arrays, axis = [as_tensor(x).reshape(-1) for x in arrays], 0
    return _concatenate(*arrays, axis=axis)


def stack(arrays: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Arrays of equal shape, joined along a new axis.   dxᵢ = g's slice i"""
    return _concatenate(*(expand_dims(x, axis) for x in arrays), axis=axis)


def _take(x: TensorLike, index: Any, axis: int) -> Tensor:
    return _indexed(x, (*(slice(None),) * axis, index))


def repeat(x: TensorLike, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
    """Each element several times in a row, along axis (None: flattened first).   dx = Σ g over the copies"""
    x = ravel(x) if axis is None else as_tensor(x)
    axis = np.lib.array_utils.normalize_axis_index(axis or 0, x.ndim)
    return _take(x, np.repeat(np.arange(x.shape[axis]), repeats), axis)


def tile(x: TensorLike, reps: int | Sequence[int]) -> Tensor:
    """The whole several times along each axis, as in NumPy.   dx = Σ g over the copies"""
    x, times = as_tensor(x), (reps,) if isinstance(reps, int) else tuple(reps)
    x = reshape(x, (1,) * (len(times) - x.ndim) + x.shape)
    for axis, n in enumerate(times, x.ndim - len(times)):
        x = _take(x, np.tile(np.arange(x.shape[axis]), n), axis)
    return x


def split(x: TensorLike, sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along axis into equal sections, or at the given positions: views by getitem."""
    x = as_tensor(x)
    axis = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(sections, int):
        if n % sections:
            raise ValueError(f"axis {axis} of shape {x.shape} cannot be cut into {sections} equal sections")
        sections = range(n // sections, n, n // sections) if n else [0] * (sections - 1)
    cuts = [0, *sections, n]
    lead = (slice(None),) * axis
    return [x[(*lead, slice(a, b))] for a, b in itertools.pairwise(cuts)]


# --- registration ---------------------------------------------------------------------------------------

abs = absolute

# Names without underscore are public: as ta.f, and np.f of a Tensor calls them. Methods: the list in methods.py.
_public = {n: f for n, f in globals().items() if n[0] != "_" and getattr(f, "__module__", None) == __name__}
_public |= {n: explained(f) for n, f in _public.items() if not (hasattr(f, "op") or f is matmul)}  # hot
globals().update(_public)
NUMPY.update(_public)
globals()["__all__"] = list(_public)  # not `__all__ =`: type checkers know the public names better without it


def _swapped(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, other: function(other, self)


def _on_values(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @explained
    def comparison(self: Tensor, other: Any) -> Any:
        return compare(self._data, other._data if isinstance(other, Tensor) else other)

    return comparison


_special: dict[str, Any] = {
    "reshape": lambda self, *shape: reshape(self, shape[0] if len(shape) == 1 else shape),
    "transpose": lambda self, *axes: transpose(self, axes[0] if len(axes) == 1 else axes or None),
    "T": property(transpose, doc="All axes reversed."),
    "mT": property(_mT, doc=_mT.__doc__),
    "flatten": ravel,
    "dot": dot,
    "__getitem__": _indexed,
    "__neg__": negative,
    "__pos__": positive,
    "__abs__": absolute,
}
for _name, _function in {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "pow": power}.items():
    _special |= {f"__{_name}__": _function, f"__r{_name}__": _swapped(_function)}
_special |= {"__matmul__": matmul, "__rmatmul__": _swapped(matmul)}
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):  # to boolean arrays, which have no gradient
    _special[f"__{_name}__"] = _on_values(getattr(operator, _name))

for _name in Methods.__annotations__:
    setattr(Tensor, _name, _special.get(_name) or globals()[_name])
