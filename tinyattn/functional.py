"""Functions composed of ops: activations, normalisation, losses. Some are also fused, for speed.

A fused function stands beside its plain composition and must equal it. The engine runs the fused way back
for gradients. If the gradient is to be differentiated in turn, it differentiates the composition.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .arguments import LARGEST, flag, generator, integers, number, told, whole
from .calling import on, op
from .erf import erf
from .graph import Tensor, as_tensor
from .habits import explained
from .modes import region
from .ops import _flat, log_softmax, mean, sqrt, tanh, var
from .values import Array, Rng, TensorLike, centred, squares_fit

__all__ = ["cross_entropy", "dropout", "embedding", "erf", "gelu", "layer_norm", "linear", "rms_norm", "rotary"]


def floating(x: TensorLike) -> Tensor:
    """x as a tensor of floats. Integers and booleans become float64: their own dtype would cut results off."""
    t = as_tensor(x)
    return t if t._data.dtype.kind == "f" else t.astype(float)


# --- linear maps and lookups -------------------------------------------------------------------------


@op(
    lambda g, out, x, weight, bias=None: (_flat(g) @ weight).reshape(x.shape),
    lambda g, out, x, weight, bias=None: _flat(g).mT @ _flat(x),
    lambda g, out, x, weight, bias: np.ones(len(_flat(g)), g.dtype) @ _flat(g),
    wide=True,
)
def _linear(x: Array, weight: Array, bias: Array | None = None) -> Any:
    """X Wᵀ + b, all leading axes in one product.   dX = G W,  dW = Gᵀ X,  db = 1ᵀ G"""
    out = _flat(x) @ weight.T  # (N, in) @ (in, out) -> (N, out)
    if bias is not None:
        out = np.add(out, bias, out=out if out.dtype.kind == "f" else None)
    return out.reshape(*x.shape[:-1], len(weight))


def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """x Wᵀ + b: (..., in), (out, in), (out,) -> (..., out), as in torch.nn.functional.linear."""
    x, weight = as_tensor(x), as_tensor(weight)
    bias = bias if bias is None else as_tensor(bias)
    rows, offset = weight._data.shape, None if bias is None else bias._data.shape
    if len(rows) != 2 or (bias is not None and offset != rows[:1]):
        raise ValueError(
            f"weights {rows}, bias {offset}: the weights have one row for each output, (out, in), and the bias one "
            "number, (out,)"
        )
    if x._data.shape[-1:] != rows[1:]:
        raise ValueError(
            f"x of shape {x.shape} for weights {rows}: each row of the weights meets the last axis of x, so that must "
            f"be {rows[1]} long"
        )
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return _linear(*inputs)


@explained
def embedding(ids: TensorLike, weight: TensorLike) -> Tensor:
    """Row ids[...] of the table: (...) integers, (vocab, d) -> (..., d).   dW: g added up at each id

    Raises TypeError for ids that are not integers, IndexError for ids outside 0 … vocab - 1.
    """
    ids, weight = integers(ids, "token ids"), as_tensor(weight)
    if weight.ndim != 2:
        raise ValueError(f"a table of shape {weight.shape}: it has one row per id, (vocab, d)")
    vocab = weight.shape[0]
    if ids.size and (ids.min() < 0 or ids.max() >= vocab):
        bad = ids.min() if ids.min() < 0 else ids.max()
        raise IndexError(
            f"token id {bad} is outside the table of {vocab} rows (ids run from 0 to {vocab - 1}): "
            "check the tokenizer against the vocabulary size"
        )
    return _embedding(weight, ids=ids.astype(int))


def _put_back(g: Any, ids: Array, vocab: int) -> Any:
    return on(g, _add_rows)(g, ids=ids, vocab=vocab)


@op(lambda g, out, weight, ids: _put_back(g, ids, weight.shape[0]))
def _embedding(weight: Array, ids: Array) -> Any:
    """Row ids[...] of the table.   dW: g added up at each id"""
    return np.asarray(weight)[ids]


@op(lambda g, out, rows, ids, vocab: g[ids], wide=True)
def _add_rows(rows: Array, ids: Array, vocab: int) -> Any:
    """Zeros (vocab, d) with each row added at its id. Sorting first is far faster than np.add.at.   drows = g[ids]"""
    order = np.argsort(ids, axis=None)
    used, starts = np.unique(ids.ravel()[order], return_index=True)
    dtype = np.float32 if rows.dtype == np.float16 else rows.dtype
    out = np.zeros((vocab, rows.shape[-1]), dtype)
    out[used] = np.add.reduceat(_flat(rows)[order], starts, axis=0, dtype=dtype)
    return out


@explained
def dropout(x: TensorLike, p: float, training: bool = True, rng: Rng = None) -> Tensor:
    """Each element zeroed with probability p, the rest divided by 1 - p, so that the mean is unchanged.

    (Srivastava et al. 2014.) Without training, x is returned. rng: a seed or generator, to zero the same ones again.
    """
    p, t = number(p, "the probability p", 0, 1), floating(x)
    if p == 0 or not flag(training, "training"):
        return t
    keep = generator(rng).random(t.shape) >= p
    dropped: Tensor = t * (keep / (1 - p) if p < 1 else keep).astype(t.dtype)
    return dropped


# --- activations --------------------------------------------------------------------------------------

_C, _A, _ROOT_HALF = math.sqrt(2 / math.pi), 0.044715, math.sqrt(0.5)


@explained
def gelu(x: TensorLike, approximate: str = "tanh") -> Tensor:
    """x Φ(x), Φ the normal distribution function (Hendrycks & Gimpel 2016).

    approximate: "tanh" for x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), "none" for the exact x/2 · (1 + erf(x/√2)).
    """
    if not isinstance(approximate, str) or approximate not in ("tanh", "none"):
        raise ValueError(f'approximate = {told(approximate)}: use "tanh" or "none" (exact)')
    x = floating(x)
    return _gelu_tanh(x) if approximate == "tanh" else _gelu_exact(x)


def gelu_composed(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + tanh(_C * (x + _A * x * x * x)))


def _gelu_pullback(g: Array, out: Array, x: Array, *, extra: Array, needs: Any) -> tuple[Array]:
    """dx = g · (s + x s (1 - s) · 2 √(2/π) (1 + 3 · 0.044715 x²)), with s the sigmoid and x s the output"""
    s = extra
    with np.errstate(over="ignore"):  # to inf, far out
        dx = x * x
    np.minimum(dx, 1e4, out=dx)  # there 1 - s or out is 0, and inf · 0 is NaN
    dx *= 6 * _A * _C
    dx += 2 * _C
    dx *= 1 - s
    dx *= out
    dx += s
    dx *= g
    return (dx,)


@op(pull=_gelu_pullback, twin=gelu_composed, wide=True)
def _gelu_tanh(x: Array) -> tuple[Array, Array]:
    """x s with s = (1 + tanh u) / 2 = 1 / (1 + e^(-2u)), because e^x is faster than tanh x; until exp, s holds -2u."""
    with np.errstate(over="ignore"):  # to inf, far left: s = 0
        s = np.multiply(x, x, out=np.empty_like(x, dtype=np.result_type(x, np.float16)))
        s *= -2 * _A * _C
        s -= 2 * _C
        s *= x
        np.exp(s, out=s)
    s += 1
    np.reciprocal(s, out=s)
    return x * s, s


def _bell(x: Any) -> Any:
    """e^(-x²/2) / √(2π), the slope of Φ. (Beyond |x| = 40 it is 0, and x² could be out of range.)"""
    return np.exp(-0.5 * np.minimum(np.abs(x), 40.0) ** 2) / math.sqrt(2 * math.pi)


@op(lambda g, out, x: g * (0.5 + 0.5 * on(x, erf)(x * _ROOT_HALF) + x * _bell(x)), wide=True)
def _gelu_exact(x: Array) -> Any:
    """x Φ(x).   dx = g · (Φ(x) + x Φ′(x))"""
    return x * (0.5 + 0.5 * on(x, erf)(x * _ROOT_HALF))


# --- normalisation ------------------------------------------------------------------------------------


@explained
def layer_norm(
    x: TensorLike, weight: TensorLike | None = None, bias: TensorLike | None = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / √(var + ε) · weight + bias over the last axis (Ba et al. 2016); var has divisor N."""
    x, eps = floating(x), number(eps, "eps", 0)
    _check_features(x, weight, bias)
    return _layer_norm(x, 1.0 if weight is None else weight, 0.0 if bias is None else bias, eps=eps)


def _check_features(x: Tensor, *per_feature: Any) -> None:
    for p in per_feature:
        if p is not None and (shape := as_tensor(p).shape) != x.shape[-1:]:
            raise ValueError(
                f"x of shape {x.shape} with a weight or bias of shape {shape}: there is one per feature, "
                f"so its shape must be {x.shape[-1:]}"
            )


@region
def layer_norm_composed(x: Tensor, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5) -> Tensor:
    normal: Tensor = (x - mean(x, -1, keepdims=True)) / sqrt(var(x, -1, keepdims=True) + eps)
    out: Tensor = normal * weight + bias
    return out


def _layer_norm_pullback(
    g: Array, out: Array, x: Array, weight: Array, bias: Array, *, extra: Any, needs: Any, eps: float
) -> tuple[Any, Any, Any]:
    """With y = (x - mean) r,  r = 1/√(var + ε),  h = g · weight:   dx = r (h - mean h - y · mean(h · y))"""
    y, r = extra
    dx = None
    if needs[0]:
        dx = g * weight
        along = np.vecdot(dx, y)[..., None] / y.shape[-1]
        dx -= _row_mean(dx)
        dx -= y * along
        dx *= r
    return dx, np.einsum("nd,nd->d", _flat(g), _flat(y)) if needs[1] else None, g if needs[2] else None


@op(pull=_layer_norm_pullback, twin=layer_norm_composed, wide=True)
def _layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> tuple[Array, Any]:
    y = x - _row_mean(x)  # two passes: mean(x²) - mean(x)² would cancel for a large mean
    y -= _row_mean(y)  # a large mean was rounded: subtract what is left of it
    y, r = _unit(y, eps, out=y)
    out = y * weight
    out += bias
    return out, (y, r)


def _unit(x: Array, eps: float, out: Array | None = None) -> tuple[Array, Array]:
    """x r and r = 1/√(mean x² + ε). If squares leave the range, computed from x / 2ᵉ and ε / 4ᵉ: x r is the same."""
    if eps > 1e-30 and squares_fit(x):
        r = 1 / np.sqrt(np.vecdot(x, x)[..., None] / x.shape[-1] + eps)
        return np.multiply(x, r, out=out), r
    x, e = centred(x, -1)
    r = 1 / np.sqrt(np.vecdot(x, x)[..., None] / x.shape[-1] + np.ldexp(x.dtype.type(eps), -2 * e))
    return np.multiply(x, r, out=out), np.ldexp(r, -e)


def _row_mean(x: Array) -> Any:
    """The mean over the last axis, kept as length 1. A matrix product is several times faster than np.mean."""
    d = x.shape[-1]
    return x @ np.full((d, 1), 1 / max(d, 1), np.result_type(x, np.float16))


@explained
def rms_norm(x: TensorLike, weight: TensorLike | None = None, eps: float = 1e-6) -> Tensor:
    """x / √(mean x² + ε) · weight over the last axis (Zhang & Sennrich 2019)."""
    x, eps = floating(x), number(eps, "eps", 0)
    _check_features(x, weight)
    return _rms_norm(x, 1.0 if weight is None else weight, eps=eps)


@region
def rms_norm_composed(x: Tensor, weight: Any = 1.0, eps: float = 1e-6) -> Tensor:
    out: Tensor = x / sqrt(mean(x * x, -1, keepdims=True) + eps) * weight
    return out


def _rms_norm_pullback(g: Array, out: Array, x: Array, weight: Array, *, extra: Any, needs: Any, eps: float) -> Any:
    """With y = x r,  r = 1/√(mean x² + ε),  h = g · weight:   dx = r (h - y · mean(h · y))"""
    y, r = extra
    dx = None
    if needs[0]:
        dx = g * weight
        dx -= y * (np.vecdot(dx, y)[..., None] / y.shape[-1])
        dx *= r
    return dx, np.einsum("nd,nd->d", _flat(g), _flat(y)) if needs[1] else None


@op(pull=_rms_norm_pullback, twin=rms_norm_composed, wide=True)
def _rms_norm(x: Array, weight: Array, eps: float) -> tuple[Array, Any]:
    y, r = _unit(x, eps)
    return y * weight, (y, r)


# --- positions ----------------------------------------------------------------------------------------


def rotary(x: TensorLike, start: int = 0, base: float = 10000.0) -> Tensor:
    """Turn each pair of features (i, i + d/2) of the vector at position t by the angle t / base^(2i/d).

    (Su et al. 2021.) (..., n, d) with even d, positions start … start + n - 1 -> the same shape. The dot product of a
    turned query and a turned key depends only on the difference of their positions. The pairs are halves, as in Hugging
    Face's Llama; models that pair neighbours, (2i, 2i + 1), have the rows of Wq and Wk in another order.
    """
    x, start = floating(x), whole(start, "start", -LARGEST)
    if x.ndim < 2 or x.shape[-1] % 2:
        raise ValueError(f"x of shape {x.shape}: rotary positions turn pairs of features of (..., n, d), so d is even")
    cos, sin = _rotations(start, *x.shape[-2:], number(base, "base", np.finfo(float).tiny), x.dtype)
    return _rotate(x, cos=cos, sin=sin)


@functools.lru_cache(maxsize=8)
def _rotations(start: int, n: int, d: int, base: float, dtype: Any) -> tuple[Array, Array]:
    angles = np.arange(start, start + n)[:, None] * base ** (-np.arange(0, d, 2) / d)  # (n, d/2)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def _turn(x: Any, cos: Array, sin: Array) -> Any:
    return on(x, _rotate)(x, cos=cos, sin=sin)


@op(lambda g, out, x, cos, sin: _turn(g, cos, -sin))
def _rotate(x: Array, cos: Array, sin: Array) -> Any:
    """(a, b) -> (a cos - b sin, a sin + b cos) for the halves a, b of x.   dx = g, turned back"""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


# --- loss ---------------------------------------------------------------------------------------------


@explained
def cross_entropy(logits: TensorLike, targets: TensorLike, ignore_index: int = -100) -> Tensor:
    """The mean of -log softmax(logits)[target]: (..., C), (...) integers -> ().   dlogits = (p - onehot) / N

    Targets equal to ignore_index do not count. Raises TypeError for targets that are not integers, IndexError for
    classes outside 0 … C - 1, ValueError for wrong shapes and if no target counts.
    """
    logits = floating(logits)
    if not logits.ndim:
        raise ValueError("logits of shape (): the classes are its last axis, (..., C)")
    ignore_index = whole(ignore_index, "ignore_index", -LARGEST)
    targets = integers(targets, "targets")
    if targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"targets of shape {targets.shape} for logits of shape {logits.shape}: one class per row is "
            f"needed, shape {logits.shape[:-1]}; the classes are the last axis of the logits"
        )
    counted = targets[targets != ignore_index]
    if counted.size == 0:
        raise ValueError(f"every target is ignore_index={ignore_index}, or there is none: a mean of nothing is no loss")
    classes = logits.shape[-1]
    if counted.min() < 0 or counted.max() >= classes:
        raise IndexError(
            f"target {counted.min() if counted.min() < 0 else counted.max()} is outside the {classes} "
            f"classes 0 … {classes - 1} of the logits"
        )
    rows = np.flatnonzero(targets.ravel() != ignore_index)
    return _cross_entropy(logits, rows=rows, classes=counted)


@region
def cross_entropy_composed(logits: Any, rows: Array, classes: Array) -> Tensor:
    return -mean(log_softmax(_flat(logits)[rows])[np.arange(len(rows)), classes])


def _cross_entropy_pullback(
    g: Array, out: Array, logits: Array, *, extra: Array, needs: Any, rows: Array, classes: Array
) -> tuple[Array]:
    d = np.zeros((logits.size // logits.shape[-1], logits.shape[-1]), logits.dtype)
    d[rows] = extra
    d[rows, classes] -= 1
    d *= g / len(rows)
    return (d.reshape(logits.shape),)


@op(pull=_cross_entropy_pullback, twin=cross_entropy_composed, wide=True)
def _cross_entropy(logits: Array, rows: Array, classes: Array) -> tuple[Array, Array]:
    z = logits.reshape(-1, logits.shape[-1])[rows]  # (N, C), a copy
    top = z.max(-1, keepdims=True)
    z -= np.where(np.isinf(top), 0, top).astype(z.dtype)
    picked = z[np.arange(len(rows)), classes]
    p = np.exp(z, out=z)
    total = p.sum(-1, keepdims=True)
    p /= total
    return np.mean(np.log(total[:, 0]) - picked), p
