"""Scaled dot-product attention and its masks: softmax(Q Kᵀ / √dk) V (Vaswani et al. 2017, section 3.2.1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .functional import dropout as _dropout
from .ops import masked_fill, softmax
from .tensor import Array, Tensor, as_tensor, fused, region

__all__ = [
    "causal_mask",
    "fused_attention",
    "padding_mask",
    "scaled_dot_product_attention",
    "show_mask",
    "sliding_window_mask",
]


@region
def scaled_dot_product_attention(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    return_weights: bool = False,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
) -> Any:
    """softmax(Q Kᵀ · scale) V: each query's mean of the values, weighted by how well the keys match it.

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv); leading axes broadcast. Arrays or Tensors.
    mask: boolean, True = may attend; or floats, added to the scores (a Tensor gets its gradient). Of shape (n, m), or
        of the scores' rank. A query that may attend to nothing gets zeros, and no gradient.
    scale: 1/√dk unless given; 1.0 takes the scaling away.
    return_weights: also return the softmax, (..., n, m), before dropout; rows are queries and sum to 1.
    dropout: the probability with which each weight is zeroed, see `ta.dropout`.
    A NaN in a key or value that nobody may attend is harmless; in one that somebody attends it reaches every row,
    as 0 · NaN is NaN.
    """
    Q, K, V, scale, blocked, bias = _prepare(Q, K, V, scale, mask)
    scores = Q @ K.mT * scale  # (..., n, dk) @ (..., dk, m) -> (..., n, m)
    if bias is not None:
        scores = scores + bias
    if blocked is not None:
        scores = masked_fill(scores, blocked, -np.inf)
    weights = softmax(scores, axis=-1)
    kept = _dropout(weights, dropout, rng=rng) if dropout else weights
    out = kept @ V  # (..., n, m) @ (..., m, dv) -> (..., n, dv)
    return (out, weights) if return_weights else out


def _prepare(Q: Any, K: Any, V: Any, scale: float | None, mask: Any) -> tuple[Tensor, Tensor, Tensor, float, Any, Any]:
    """The inputs as tensors that fit together, the scale, and the mask as (blocked, bias), each may be None."""
    Q, K, V = as_tensor(Q), as_tensor(K), as_tensor(V)
    shape = scores_shape(Q, K, V)
    if scale is None:
        scale = 1 / math.sqrt(Q.shape[-1] or 1)
    if mask is None:
        return Q, K, V, scale, None, None
    allowed, bias = split_mask(mask, shape, Q.dtype)
    unused = ~np.any(allowed, axis=-2, keepdims=True).mT  # (..., m, 1)
    if unused.any():  # keys for nobody: their NaN must not meet a weight of 0
        K, V = masked_fill(K, unused, 0.0), masked_fill(V, unused, 0.0)
    idle = ~np.any(allowed, axis=-1, keepdims=True)  # (..., n, 1)
    if idle.any():  # nor may the NaN of a query that attends to nobody
        Q = masked_fill(Q, idle, 0.0)
    return Q, K, V, scale, ~allowed, bias


# --- the same in one op -------------------------------------------------------------------------------


def fused_attention(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    return_weights: bool = False,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
) -> Any:
    """`scaled_dot_product_attention` as a single op: the same answer sooner, in one (..., n, m) array instead of four.

    It cannot show its steps in a graph. With a float mask, one with more leading axes than Q Kᵀ, a Tensor as scale,
    return_weights or dropout the steps are taken after all.
    """
    if not (return_weights or dropout or isinstance(scale, Tensor)):
        q, k, v, factor, blocked, bias = _prepare(Q, K, V, scale, mask)
        leading = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        if bias is None and (blocked is None or np.broadcast_shapes(blocked.shape[:-2], leading) == leading):
            return _attention(q, k, v, scale=factor, blocked=blocked)
    return scaled_dot_product_attention(
        Q, K, V, mask, scale=scale, return_weights=return_weights, dropout=dropout, rng=rng
    )


def _attention_composed(Q: Tensor, K: Tensor, V: Tensor, scale: float, blocked: Array | None) -> Any:
    return scaled_dot_product_attention(Q, K, V, None if blocked is None else ~blocked, scale=scale)


def _attention_pullback(
    g: Array, out: Array, Q: Array, K: Array, V: Array, *, extra: Any, needs: Any, scale: float, blocked: Any
) -> tuple[Array, Array, Array]:
    """With W = E r, h = g r:   dV = Eᵀ h,  dS = E · (h Vᵀ - Σ h · out),  dQ = scale · dS K,  dK = scale · dSᵀ Q

    The softmax's Σⱼ dWᵢⱼ Wᵢⱼ is Σ g · out of row i: dW = g Vᵀ and out = W V.
    """
    E, r = extra
    h = g * r
    dS = h @ V.mT  # (..., n, dv) @ (..., dv, m) -> (..., n, m)
    dS -= np.vecdot(h, out)[..., None]
    dS *= E
    dQ, dK, dV = _matmul_as(Q, dS, K), _matmul_as(K, dS.mT, Q), _matmul_as(V, E.mT, h)
    dQ *= scale
    dK *= scale
    return dQ, dK, dV


@fused(_attention_composed, _attention_pullback)
def _attention(Q: Array, K: Array, V: Array, scale: float, blocked: Array | None) -> tuple[Array, Any]:
    """E V · r with E = e^(S - max S), r = 1 / Σ E: the softmax divides at the end, n · dv numbers instead of n · m."""
    E = np.matmul(Q * scale, K.mT)  # (..., n, dk) @ (..., dk, m) -> (..., n, m); scores S, turned into E in place
    if blocked is not None:
        np.copyto(E, -np.inf, where=blocked)
    E -= E.max(-1, keepdims=True, initial=np.finfo(E.dtype).min)
    np.exp(E, out=E)
    r = 1 / np.maximum(E.sum(-1, keepdims=True), 1)  # Σ ≥ e⁰ = 1, unless all is masked and Σ = 0
    out = _matmul_as(Q, E, V)
    out *= r
    return out, (E, r)


def _matmul_as(like: Array, x: Array, y: Array) -> Array:
    """x @ y with its axes in memory as those of `like`: heads that are views of one array will join without a copy."""
    fits = like.shape == (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    return np.matmul(x, y, out=np.empty_like(like, dtype=np.result_type(x, y)) if fits else None)


# --- shapes and masks ---------------------------------------------------------------------------------


def scores_shape(Q: Tensor, K: Tensor, V: Tensor) -> tuple[int, ...]:
    """(..., n, m), the shape of Q Kᵀ; ValueError where Q, K and V do not fit together."""
    q, k, v = Q.shape, K.shape, V.shape
    if min(len(q), len(k), len(v)) < 2:
        problem = "each needs rows of vectors, (..., length, width); for one vector use x[None]"
    elif q[-1] != k[-1]:
        problem = (
            "a query and a key are compared by their dot product, so the last axes of Q and K must be equal: "
            f"{q[-1]} is not {k[-1]}"
        )
    elif k[-2] != v[-2]:
        problem = f"each key hands over one value, so K and V must be equally long, not {k[-2]} and {v[-2]}"
    elif q[:-2] == k[:-2] == v[:-2]:
        return (*q[:-1], k[-2])
    else:
        try:
            return (*np.broadcast_shapes(q[:-2], k[:-2], v[:-2]), q[-2], k[-2])
        except ValueError:
            problem = "the leading axes (batch, heads) do not broadcast together"
    raise ValueError(f"Q {q}, K {k}, V {v}: {problem}")


def split_mask(mask: Any, shape: tuple[int, ...], dtype: Any) -> tuple[Array, Any]:
    """Any mask as (allowed, bias): booleans of at least two axes, and what is added to the scores, or None.

    Raises TypeError for integers, ValueError for a float mask of 0s and 1s and for a shape that does not fit.
    """
    if not isinstance(mask, Tensor):
        mask = np.asarray(mask)
    fits = mask.ndim in (1, 2, len(shape)) and mask.ndim <= len(shape)
    if fits:
        try:
            fits = np.broadcast_shapes(mask.shape, shape) == shape
        except ValueError:
            fits = False
    if not fits:
        hint = ""
        if mask.ndim > 2 and mask.ndim < len(shape):
            hint = f" A mask per batch entry has a heads' axis: {(mask.shape[0], 1, *mask.shape[1:])}, mask[:, None]."
        raise ValueError(
            f"mask of shape {mask.shape} for scores of shape {shape}: it must be {shape[-2:]}, rows being "
            f"queries, or have the scores' {len(shape)} axes.{hint}"
        )
    values = mask._data if isinstance(mask, Tensor) else mask
    if values.dtype == bool:
        return np.atleast_2d(values), None
    if values.dtype.kind != "f":
        raise TypeError(
            f"an {values.dtype} mask could mean 'may attend' or numbers to add: use mask.astype(bool) "
            "(True = may attend) or a float mask (added to the scores)"
        )
    learned = isinstance(mask, Tensor) and mask.requires_grad
    if not learned and values.size and (values == 1).any() and ((values == 0) | (values == 1)).all():
        raise ValueError(
            "a float mask of nothing but 0s and 1s would be added to the scores and mask nothing: use mask.astype(bool)"
        )
    return np.atleast_2d(values != -np.inf), mask.astype(dtype) if values.dtype != dtype and dtype.kind == "f" else mask


def causal_mask(n: int, m: int | None = None) -> Array:
    """(n, m) booleans: query i may attend to key j ≤ i + m - n. For m > n the n queries are the newest positions."""
    m = n if m is None else m
    return np.tri(n, m, m - n, dtype=bool)


def padding_mask(lengths: Any, m: int) -> Array:
    """(B, 1, 1, m) booleans: of sequence b the first lengths[b] keys are real, the rest padding. Combine with &."""
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or ((lengths < 0) | (lengths > m)).any():
        raise ValueError(f"lengths {lengths!r} must be whole numbers between 0 and m = {m}, one per sequence")
    mask: Array = np.arange(m) < lengths[:, None, None, None]
    return mask


def sliding_window_mask(n: int, window: int, m: int | None = None, causal: bool = True) -> Array:
    """(n, m) booleans: the window positions that end with the query's own, i - W < j ≤ i; without causal |i - j| < W.

    For m > n the n queries are the newest positions, as in `causal_mask`.
    """
    if window < 1:
        raise ValueError(f"window {window}: it counts the query's own position, so it is at least 1")
    m = n if m is None else m
    behind = np.arange(n)[:, None] + (m - n) - np.arange(m)  # (n, m): how far key j lies before query i
    mask: Array = (behind >= 0 if causal else behind > -window) & (behind < window)
    return mask


def show_mask(mask: Any) -> str:
    """Print a mask as a grid and return the text: ■ may attend, · may not; rows are queries, columns are keys."""
    values = mask._data if isinstance(mask, Tensor) else np.asarray(mask)
    grid, _ = split_mask(mask, np.atleast_2d(values).shape, values.dtype)  # refuses what attention would refuse
    rows = [[" ".join("■" if a else "·" for a in row) for row in g] for g in grid.reshape(-1, *grid.shape[-2:])]
    text = "\n\n".join("\n".join(g) for g in rows)
    print(text)
    return text
