"""What a tensor is to its user, to Python and to NumPy. Nothing here knows how gradients are computed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np

from . import habits, refusals
from .arguments import flag
from .methods import Methods
from .text import html_table, printed
from .values import Array, Shape, TensorLike, constant, numeric

NUMPY: dict[str, Callable[..., Any]] = {}  # what np.f(tensor) runs, by the name of f: ops.py and einsum.py fill it


def of_array(name: str) -> Any:
    return property(operator.attrgetter(f"_data.{name}"))


class Count(int):
    """A number of elements. Somebody who calls it expects PyTorch's size()."""

    def __call__(self, *axis: int) -> None:
        raise TypeError(f"t.size is a number here, {self}, as in NumPy: write t.shape")


def counted() -> Any:
    return property(lambda self: Count(self._data.size))


class Explained:
    """A name that people know from elsewhere: no attribute here, and the error says what to write instead."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, t: Any, kind: Any = None) -> Any:
        raise habits.no_attribute("a Tensor", self.name, (), habits.TENSOR)


class Elsewhere:
    """The names in habits.py that a tensor does not have. (A __getattr__ would slow down those that it has.)"""

    __slots__ = ()


IN_PLACE = "abs_ add_ clamp_ copy_ div_ exp_ fill_ log_ mul_ neg_ normal_ pow_ relu_ sqrt_ sub_ tanh_ uniform_"


def explain(names: Iterable[str]) -> None:
    """Let the error for these names say what to write instead, unless a tensor has them."""
    for name in names:
        setattr(Elsewhere, name, Explained(name))


explain([*habits.TENSOR, *IN_PLACE.split()])


class Face(Methods, Elsewhere):
    """A tensor without its way back: values, a gradient, a name; printing, conversions and NumPy's protocols."""

    __slots__ = ("__weakref__", "_grad", "_needs", "_node", "name")
    _node: Any
    _grad: Self | None
    _needs: bool
    name: str | None

    @habits.explained
    def __init__(self, data: TensorLike, requires_grad: bool = False, *, name: str | None = None) -> None:
        self._data, self._lent = numeric(refusals.cut_off(data)), False
        self._node, self._grad, self._needs, self.name = None, None, False, name
        if requires_grad:
            self.requires_grad = True

    @classmethod
    def _wrap(cls, array: Array, name: str | None = None) -> Self:
        """A constant around an array that nobody else has: no copy, no checks."""
        t = cls.__new__(cls)
        t._data = array
        t._lent = t._needs = False
        t._node = t._grad = None
        t.name = name
        return t

    @classmethod
    def _own(cls, g: Any, given: set[int], before: Any = None) -> Self:
        """before + g (an array, or a Tensor) as a tensor that shares nothing with the tensors given out so far."""
        if not isinstance(g, cls):
            return cls._wrap(np.array(g) if before is None else np.asarray(before._data + g))
        t: Self = +g if id(g) in given else g
        given.add(id(t))
        return t if before is None else before + t

    @classmethod
    def _from(cls, x: TensorLike) -> Self:
        return x if isinstance(x, cls) else cls._wrap(constant(x))

    @property
    def requires_grad(self) -> bool:
        return self._needs

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._needs = refusals.unfit_for_gradients(self, flag(value, "requires_grad"))

    @property
    def grad(self) -> Self | None:
        """The sum of what `backward()` has added, a tensor of this shape; None if cleared."""
        return self._grad

    @grad.setter
    def grad(self, value: TensorLike | None) -> None:
        g: Any = value if value is None or isinstance(value, type(self)) else type(self)(value)
        self._grad = None if g is None else refusals.unfit_gradient(self, g)

    shape: Shape = of_array("shape")
    ndim: int = of_array("ndim")
    size: int = counted()
    dtype: np.dtype[Any] = of_array("dtype")

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(vars(Elsewhere).get(name), Explained)]

    def retain_grad(self) -> None:
        """Ask `backward()` to fill `.grad` of this computed tensor too (leaves always get one)."""
        if not self._needs:
            raise RuntimeError("retain_grad() on a tensor that needs no gradient: nothing would be written")
        if self._node is not None:
            self._node.retains_grad = True

    def detach(self) -> Self:
        """The same values as a tensor that needs no gradient: a constant from here on."""
        return self._wrap(self._locked(), self.name)

    def item(self) -> float:
        """The value of a one-element tensor as a Python number."""
        return self._data.item()  # type: ignore[no-any-return]

    def numpy(self) -> Array:
        """A copy of the values as an array, outside the graph."""
        return self._data.copy()

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a 0-d tensor: it has no axis to count")
        return len(self._data)

    def __iter__(self) -> Iterator[Self]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d tensor: it has no axis to walk along")
        return (self[i] for i in range(len(self)))

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "a tensor's elements cannot be assigned: the graph would not see it. Build the result with "
            "ta.where, ta.masked_fill or ta.concatenate; or write to t.data before use"
        )

    __iadd__, __isub__, __imul__, __itruediv__, __ipow__, __imatmul__ = map(
        refusals.in_place, ("+", "-", "*", "/", "**", "@")
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
        """On one line: the numbers of a very small tensor, or the range of a larger one."""
        numbers = np.array2string(self._data, separator=", ") if self.size <= 10 else ""
        numbers = " ".join(numbers.split()).replace("[ ", "[")
        return self._told(numbers if len(numbers) <= 60 else "")

    def __str__(self) -> str:
        """What print shows: the numbers as NumPy prints them, up to 100 of them."""
        if self.size > 100:
            return repr(self)
        prefix = f"Tensor({self.name!r}, " if self.name else "Tensor("
        return self._told(np.array2string(self._data, separator=", ", prefix=prefix))

    def _repr_html_(self) -> str:
        """What a notebook shows: a table of up to 100 numbers, rows and columns as in the tensor."""
        if self.ndim in (1, 2) and 1 < self.size <= 100:
            return html_table(repr(self), np.atleast_2d(self._data))
        import html

        return f"<pre>{html.escape(str(self))}</pre>"

    def _told(self, numbers: str) -> str:
        x, finite = self._data, self._data[np.isfinite(self._data)]
        if x.size == 1:
            value = f"{x.item():.6g}"
        else:
            value = numbers or (f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "")
            missing = "no finite values" if not finite.size else f"{x.size - finite.size} not finite"
            value = ", ".join(filter(None, [value, missing * (finite.size < x.size)]))
        parts = [repr(self.name)] if self.name else []
        parts += [value, f"shape={x.shape}", str(x.dtype)]
        if self._needs:
            parts += [f"from {self._node.op.name}" if self._node else "leaf"]
            parts += ["has grad" if self._grad is not None else "no grad yet"]
        return printed(f"Tensor({', '.join(parts)})")

    def __format__(self, spec: str) -> str:
        return format(self._data.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    def __reduce__(self) -> tuple[Any, ...]:  # pickle, copy and deepcopy make a leaf, without the graph
        return functools.partial(type(self), name=self.name), (self.numpy(), self._needs)

    # --- NumPy's side: np.exp(t), array * t, np.asarray(t) ------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if self._needs:
            raise TypeError(
                "np.asarray of a tensor that requires gradients would drop them silently: "
                "use t.numpy() to leave the graph"
            )
        if copy is False:
            raise ValueError("a tensor gives NumPy a copy of its values, so copy=False is not possible")
        return self._data.astype(dtype or self.dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        if any(isinstance(t, Face) for t in out) or (out and any(isinstance(t, Face) and t._needs for t in args)):
            raise TypeError(
                f"np.{ufunc.__name__} cannot write into an array what a tensor computes: the graph would "
                "not see it. Write a = a + t instead of a += t"
            )
        if out:
            return getattr(ufunc, method)(*arrays_of(args), **kwargs)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return from_numpy(name, getattr(ufunc, method), args, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return from_numpy(function.__name__, function, args, kwargs)

    __hash__ = object.__hash__


# Functions of NumPy whose answers have no derivative: truth values, shapes, indices, fresh arrays.
NOT_DIFFERENTIABLE = {
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


def from_numpy(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """np.f(t): ta.f if there is one; else NumPy's own if t needs no gradient; else an error, never a lost gradient."""
    if name not in NOT_DIFFERENTIABLE:
        if name in NUMPY:
            return NUMPY[name](*args, **kwargs)
        if any(isinstance(t, Face) and t._needs for t in flatten((args, tuple(kwargs.values())))):
            raise TypeError(
                f"np.{name} has no derivative rule here: its result would lose the gradient. Compose it of "
                "ta.exp, ta.sum, … (see tinyattn/ops.py), or leave the graph with t.numpy()"
            )
    return function(*arrays_of(args), **{k: arrays_of(v) for k, v in kwargs.items()})


def flatten(x: Any) -> Iterator[Any]:
    if isinstance(x, (tuple, list)):
        for part in x:
            yield from flatten(part)
    else:
        yield x


def arrays_of(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return type(x)(arrays_of(part) for part in x)
    return x._data if isinstance(x, Face) else x
