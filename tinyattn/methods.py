"""The ops that are methods of a tensor: one line here makes the function of that name in ops.py a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

from .values import Array, Axis, Shape, TensorLike, Values

T = TypeVar("T", covariant=True)


class Unary(Protocol[T]):
    def __call__(self) -> T: ...


class Binary(Protocol[T]):
    def __call__(self, other: TensorLike, /) -> T: ...


class Reduction(Protocol[T]):
    def __call__(self, axis: Axis = None, keepdims: bool = False) -> T: ...


class Spread(Protocol[T]):
    def __call__(self, axis: Axis = None, keepdims: bool = False, ddof: int = 0) -> T: ...


class Along(Protocol[T]):
    def __call__(self, axis: int | None = None) -> T: ...


class Clip(Protocol[T]):
    def __call__(self, a_min: TensorLike | None = None, a_max: TensorLike | None = None) -> T: ...


class Repeat(Protocol[T]):
    def __call__(self, repeats: int | Sequence[int], axis: int | None = None) -> T: ...


class AlongAxis(Protocol[T]):
    def __call__(self, axis: Axis = -1) -> T: ...


class Index(Protocol[T]):
    def __call__(self, index: Any, /) -> T: ...


class Fill(Protocol[T]):
    def __call__(self, mask: TensorLike, value: TensorLike) -> T: ...


class Cast(Protocol[T]):
    def __call__(self, dtype: Any) -> T: ...


class Shaped(Protocol[T]):
    def __call__(self, *shape: int | Shape) -> T: ...


class Reordered(Protocol[T]):
    def __call__(self, *axes: int | Sequence[int] | None) -> T: ...


class Squeezed(Protocol[T]):
    def __call__(self, axis: Axis = None) -> T: ...


class Methods(Values):
    """The ops that are methods of a tensor, and how they are called: ops.py binds its functions of the same names."""

    __slots__ = ()
    __add__: Binary[Self]
    __radd__: Binary[Self]
    __sub__: Binary[Self]
    __rsub__: Binary[Self]
    __mul__: Binary[Self]
    __rmul__: Binary[Self]
    __truediv__: Binary[Self]
    __rtruediv__: Binary[Self]
    __pow__: Binary[Self]
    __rpow__: Binary[Self]
    __matmul__: Binary[Self]
    __rmatmul__: Binary[Self]
    __neg__: Unary[Self]
    __pos__: Unary[Self]
    __abs__: Unary[Self]
    __getitem__: Index[Self]
    __eq__: Callable[..., Any]  # comparisons give arrays of booleans, which have no gradient
    __ne__: Callable[..., Any]
    __lt__: Callable[..., Array]
    __le__: Callable[..., Array]
    __gt__: Callable[..., Array]
    __ge__: Callable[..., Array]
    exp: Unary[Self]
    log: Unary[Self]
    sqrt: Unary[Self]
    sin: Unary[Self]
    cos: Unary[Self]
    tanh: Unary[Self]
    sigmoid: Unary[Self]
    relu: Unary[Self]
    abs: Unary[Self]
    maximum: Binary[Self]
    minimum: Binary[Self]
    masked_fill: Fill[Self]
    clip: Clip[Self]
    dot: Binary[Self]
    sum: Reduction[Self]
    mean: Reduction[Self]
    var: Spread[Self]
    std: Spread[Self]
    cumsum: Along[Self]
    max: Reduction[Self]
    min: Reduction[Self]
    prod: Reduction[Self]
    logsumexp: Reduction[Self]
    softmax: AlongAxis[Self]
    log_softmax: AlongAxis[Self]
    astype: Cast[Self]
    flatten: Unary[Self]
    ravel: Unary[Self]
    repeat: Repeat[Self]
    reshape: Shaped[Self]
    broadcast_to: Shaped[Self]
    transpose: Reordered[Self]
    swapaxes: Reordered[Self]
    expand_dims: Squeezed[Self]
    squeeze: Squeezed[Self]
    T: Self
    mT: Self
