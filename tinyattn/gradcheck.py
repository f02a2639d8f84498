"""Finite differences: the derivative by its definition, to compare the engine's with.

    dL/dx ≈ (L(x + h) - L(x - h)) / 2h        with L = Σ c · f(x), c random

Central, because its error falls with h². Random c, because a plain sum hides mistakes: a softmax sums to 1 for every
input, so the gradient of the sum is 0, and a wrong rule that is a multiple of the right one gives 0 as well.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arguments import number, told
from .graph import Tensor, as_tensor, grad, gradients, way
from .habits import explained
from .values import Array

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

EVERY_ELEMENT = 1000  # an input with more elements is checked at 100 of them and along 10 random directions


class GradcheckError(AssertionError):
    """A gradient differs from its finite difference. The message says where, by how much, and what the cause may be."""


@explained
def gradcheck(
    f: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-7,
    rtol: float = 1e-5,
    raise_exception: bool = True,
) -> bool:
    """Compare f's gradients with central differences, (L(x+h) - L(x-h)) / 2h, in float64, with random cotangents.

    f takes the inputs as Tensors and returns a Tensor or a tuple of them; inputs: a Tensor or array, or several. Inputs
    that are no floats (token ids, a mask) are handed to f as they are.
    h = eps · max(1, |x|). An element passes if |rule - difference| ≤ rtol · |difference| + atol · min(1, largest) +
    rounding; largest is the largest gradient. If f computes in float32 or float16, steps are longer, rtol is at least
    1e-3, atol at least 1e-5. Of more than 1,000 elements it checks 100, and 10 random directions, and warns.
    Raises GradcheckError (or returns False), TypeError if no input is a float, ValueError if f gives two answers.
    """
    try:
        _check(*_of_floats(f, inputs), *_settings(eps, atol, rtol), warn=True)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


@explained
def gradgradcheck(
    f: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-7,
    rtol: float = 1e-5,
    raise_exception: bool = True,
) -> bool:
    """Gradcheck of the gradient: second derivatives, for the inputs and for the cotangents. Options as in `gradcheck`.

    The gradient under create_graph must also equal the usual one: a fused op computes the two in different ways.
    """
    f, inputs, names = _of_floats(f, inputs)
    eps, atol, rtol = _settings(eps, atol, rtol)
    rng = np.random.default_rng(1)
    cotangents = [
        Tensor(rng.normal(size=y.shape), name=f"the cotangent of output {k}") for k, y in enumerate(_outputs(f, inputs))
    ]

    def gradient(*args: Tensor, create_graph: bool = True) -> tuple[Tensor, ...]:
        xs = [+x if x.requires_grad else Tensor(x, requires_grad=True) for x in args[: len(inputs)]]
        total = sum(((y * c).sum() for y, c in zip(_outputs(f, xs), args[len(inputs) :])), start=Tensor(0.0))
        return tuple(_gradient(total, x, create_graph) for x in xs)

    try:
        both = [gradient(*inputs, *cotangents, create_graph=c) for c in (False, True)]
        for i, (usual, differentiable) in enumerate(zip(*both)):
            if not np.allclose(
                usual._data, differentiable._data, *_tolerances(usual.dtype, rtol, atol), equal_nan=True
            ):
                worst = np.abs(usual._data - differentiable._data).max()
                raise GradcheckError(
                    f"the gradient of {names[i]} under create_graph differs from the usual one by up to "
                    f"{worst:.3g}: a fused op and its composed twin disagree"
                )
        _check(
            gradient, [*inputs, *cotangents], [*names, *(str(c.name) for c in cotangents)], eps, atol, rtol, warn=False
        )
    except GradcheckError as error:
        if raise_exception:
            raise GradcheckError(f"second order: {error}") from None
        return False
    return True


def _settings(eps: float, atol: float, rtol: float) -> tuple[float, float, float]:
    return number(eps, "eps", np.finfo(float).tiny), number(atol, "atol", 0), number(rtol, "rtol", 0)


def _of_floats(f: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], list[Tensor], list[str]]:
    """f as a function of its float inputs alone, those inputs as Tensors, and their names; the others stay as given."""
    if not callable(f):
        raise TypeError(f"f = {told(f)} is no function: it takes the inputs as Tensors, and returns one")
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    tensors = [x if isinstance(x, Tensor) else np.asarray(x) for x in given]
    places = [i for i, x in enumerate(tensors) if x.dtype.kind == "f"]
    if not places:
        kinds = ", ".join(f"input {i} is {x.dtype}" for i, x in enumerate(tensors)) or "there is no input"
        raise TypeError(f"{kinds}: no small step can move it. Use .astype(float)")

    def of_floats(*floats: Tensor) -> Any:
        args = list(given)
        for i, x in zip(places, floats):
            args[i] = x
        return f(*args)

    names = [getattr(given[i], "name", None) or f"input {i}" for i in places]
    return of_floats, [as_tensor(given[i]) for i in places], names


def _outputs(f: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    out = f(*inputs)
    outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for y in outputs:
        if not isinstance(y, Tensor):
            raise TypeError(f"the function returned {type(y).__name__}, not a Tensor: its gradient cannot be checked")
    return outputs


def _gradient(output: Tensor, x: Tensor, create_graph: bool = False) -> Tensor:
    """d(output)/dx, or zeros if output does not depend on x."""
    return grad(output, x, create_graph=create_graph, retain_graph=True, materialize_grads=True)[0]


def _coarsest(output: Tensor) -> np.dtype[Any]:
    """Of all floats that a computation went through, the dtype with the largest rounding error."""
    arrays = [output._data] + [a for t in way(output) if t._node is not None for a in t._node.saved]
    dtypes = [a.dtype for a in arrays if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    return max(dtypes, key=lambda dtype: float(np.finfo(dtype).eps))


def _tolerances(dtype: np.dtype[Any], rtol: float, atol: float) -> tuple[float, float]:
    """The tolerances for float64, or those that coarser floats can meet."""
    return (rtol, atol) if np.finfo(dtype).eps < 1e-10 else (max(rtol, 1e-3), max(atol, 1e-5))


def _check(
    f: Callable[..., Any],
    inputs: list[Tensor],
    names: list[str],
    eps: float,
    atol: float,
    rtol: float,
    warn: bool,
) -> None:
    points = [np.array(t._data, dtype=float, order="C") for t in inputs]

    def values() -> list[Array]:
        return [y._data for y in _outputs(f, [Tensor(p) for p in points])]

    plain = values()
    _refuse_chance(plain, values())
    for k, value in enumerate(plain):
        of = f" of output {k}" if len(plain) > 1 else ""
        if not np.isfinite(value).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
            raise GradcheckError(f"the value{of} is {value[where]} at {where}: there is no derivative to check")
        c = np.random.default_rng(k).normal(size=value.shape)
        leaves = [Tensor(p, requires_grad=True, name=name) for p, name in zip(points, names)]
        loss = (_outputs(f, leaves)[k] * c).sum()
        coarsest = _coarsest(loss) if loss.requires_grad else value.dtype
        rounding = float(np.finfo(coarsest).eps)  # a float32 inside the function needs a longer step
        h = max(eps, np.cbrt(rounding)) if rounding > 1e-10 else eps
        noise = 10 * rounding * _largest_term(loss) / h  # of a difference, for a step of h
        for x, leaf, name in zip(points, leaves, names):
            probe = _Probe(functools.partial(_loss, values, k, c), x, h)
            analytic = _gradient(loss, leaf)._data
            inside = str(coarsest) if coarsest != np.float64 else ""
            try:
                _compare(probe, analytic, f"{name}{of}", noise, *_tolerances(coarsest, rtol, atol), warn, inside)
            except GradcheckError:
                _refuse_chance(plain, values(), values(), values())  # few random bits may agree once
                raise


def _refuse_chance(plain: list[Array], *again: list[Array]) -> None:
    if any(not np.array_equal(a, b, equal_nan=True) for others in again for a, b in zip(plain, others)):
        raise ValueError(
            "the function is not deterministic: two plain evaluations differ, so differences prove "
            "nothing. Fix its random numbers, with an rng made inside it"
        )


def _largest_term(loss: Tensor) -> float:
    """max Σ |t · dL/dt| over all t on the way to L: rounding t is an error ε t, and makes an error ε t · dL/dt in L."""
    ways = gradients(loss) if loss.requires_grad else {loss: 1.0}
    with np.errstate(invalid="ignore"):  # a masked score: -inf · 0
        terms = [np.abs(t._data * g) for t, g in ways.items()]
    return max(float(term[np.isfinite(term)].sum()) for term in terms)


def _loss(values: Callable[[], list[Array]], k: int, c: Array) -> float:
    return float((values()[k] * c).sum())


class _Probe:
    """Differences of a number that depends on the array x; x is moved and then put back."""

    def __init__(self, loss: Callable[[], float], x: Array, eps: float) -> None:
        self.loss, self.x, self.eps = loss, x, eps

    def along(self, direction: Array) -> float:
        """The central difference along a direction."""
        start = self.x.copy()
        h = self.eps * max(1.0, float(np.abs(start).max()))
        self.x[...] = start + h * direction
        up = self.loss()
        self.x[...] = start - h * direction
        down = self.loss()
        self.x[...] = start
        return (up - down) / (2 * h)

    def at(self, i: int, side: int = 0) -> float:
        """The difference for element i: central, or one-sided for side = 1 or -1. Divided by the step really taken."""
        flat = self.x.reshape(-1)
        start = flat[i]
        h = self.eps * max(1.0, abs(start))
        flat[i] = high = start + (h if side >= 0 else 0)
        up = self.loss()
        flat[i] = low = start - (h if side <= 0 else 0)
        down = self.loss()
        flat[i] = start
        return float((up - down) / (high - low))


def _compare(
    probe: _Probe, analytic: Array, name: str, noise: float, rtol: float, atol: float, warn: bool, inside: str
) -> None:
    size = analytic.size
    flat = analytic.reshape(-1)
    rng = np.random.default_rng(0)
    picked = np.arange(size) if size <= EVERY_ELEMENT else np.sort(rng.choice(size, 100, replace=False))
    numeric = np.array([probe.at(i) for i in picked])
    found = flat[picked]
    noises = noise / np.maximum(1, np.abs(probe.x.reshape(-1)[picked]))
    for kind, numbers in (("analytic", found), ("numeric", numeric)):
        if not np.isfinite(numbers).all():
            i = int(picked[np.flatnonzero(~np.isfinite(numbers))[0]])
            raise GradcheckError(
                f"the {kind} gradient of {name} is not finite at {_index(i, analytic)}: {flat[i]} by "
                f"the rules, {probe.at(i)} by differences"
            )
    largest = max(np.abs(found).max(initial=0), np.abs(numeric).max(initial=0))
    wrong = np.abs(found - numeric) > rtol * np.abs(numeric) + atol * min(1.0, largest) + noises
    if wrong.any():
        worst = int(np.argmax(np.where(wrong, np.abs(found - numeric), -1)))
        i = int(picked[worst])
        raise GradcheckError(
            f"gradient of {name} at {_index(i, analytic)}: {found[worst]:.10g} by the rules, "
            f"{numeric[worst]:.10g} by differences ({wrong.sum()} of {len(picked)} elements differ). "
            + _cause(probe, i, found, numeric, analytic.shape, noises[worst], inside)
        )
    if size > EVERY_ELEMENT:
        if warn:
            warnings.warn(
                f"{name} has {size} elements: checked at {len(picked)} of them and along 10 random directions",
                stacklevel=5,
            )
        for _ in range(10):
            direction = rng.normal(size=analytic.shape)
            expected, got = probe.along(direction), float((analytic * direction).sum())
            if abs(got - expected) > rtol * abs(expected) + (atol * min(1.0, largest) + noise) * np.sqrt(size):
                raise GradcheckError(
                    f"gradient of {name} along a random direction: {got:.10g} by the rules, "
                    f"{expected:.10g} by differences, but single elements agree"
                )
    elif warn and size and largest <= noises.max():
        warnings.warn(
            f"the output does not change with {name}: both gradients are 0, so this check proves nothing "
            "(is the function a plain sum of a softmax?)",
            stacklevel=5,
        )


def _index(i: int, a: Array) -> tuple[int, ...]:
    return tuple(int(j) for j in np.unravel_index(i, a.shape))


def _cause(
    probe: _Probe, i: int, found: Array, numeric: Array, shape: tuple[int, ...], noise: float, inside: str
) -> str:
    """The usual cause of such a difference."""
    if np.abs(numeric).max() <= noise:
        return "The differences are all 0: the output is constant in this input, but the rule passes something on."
    if not found.any():
        return "The rules say 0 everywhere: the graph has lost this input (detach, numpy(), no_grad, a missing rule)."
    right, left = probe.at(i, 1), probe.at(i, -1)
    if not inside and abs(right - left) > 0.1 * max(abs(right), abs(left)) + noise:
        return (
            f"The slopes to the right ({right:.4g}) and left ({left:.4g}) differ: a kink (relu, abs, ties), where "
            "no derivative exists. Move the input away from it."
        )
    square = len(shape) >= 2 and shape[-1] == shape[-2] and found.size == np.prod(shape)
    if square and np.allclose(found.reshape(shape).mT, numeric.reshape(shape), rtol=1e-3, atol=noise):
        return "It is the transpose of the right gradient: a transpose is missing, or one too many."
    clear = np.abs(numeric) > 10 * noise + 1e-3 * np.abs(numeric).max()
    ratio = found[clear] / numeric[clear] if clear.any() else np.array([0.0])
    factor = float(np.median(ratio))
    if abs(factor - 1) > 0.01 and factor and np.allclose(ratio, factor, rtol=1e-2):
        if abs(factor + 1) < 0.01:
            return "Every element has the wrong sign."
        if abs(factor - 2) < 0.02:
            return "Every element is twice too large: counted twice, or a factor ½ missing."
        if abs(factor - 0.5) < 0.005:
            return "Every element is half of what is right: a factor 2 missing (x² has 2x), or one of two uses lost."
        return (
            f"Every element is off by the factor {factor:.6g}: a constant missing in the rule, or a broadcast axis "
            "averaged, or not summed over."
        )
    if inside:
        return f"The function computes in {inside} inside, so differences are coarse: keep it in float64 for the check."
    if abs(factor - 1) <= 0.01 and np.allclose(ratio, factor, rtol=1e-2):
        return "They are close, and not equal: a constant with too few digits, a small term missing, an approximation."
    return "No simple pattern: check the rule term by term (a product rule's second half, an axis summed twice)."
