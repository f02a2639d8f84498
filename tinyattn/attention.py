"""Scaled dot-product attention: softmax(Q Kᵀ / √dk) V (Vaswani et al. 2017, section 3.2.1)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .arguments import flag, number
from .calling import op
from .functional import dropout as _dropout
from .functional import floating
from .graph import Tensor, wrap
from .habits import explained
from .masks import broadcasts, split_mask
from .modes import region
from .ops import masked_fill, softmax
from .values import HALF, Array, Mask, Rng, Shape, TensorLike

__all__ = ["fused_attention", "scaled_dot_product_attention"]


@region
def scaled_dot_product_attention(
    Q: TensorLike,
    K: TensorLike,
    V: TensorLike,
    mask: Mask = None,
    *,
    scale: float | TensorLike | None = None,
    return_weights: bool = False,
    dropout: float = 0.0,
    rng: Rng = None,
) -> Any:
    """softmax(Q Kᵀ · scale) V: for each query a mean of the values, weighted by how well their keys match it.

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv); leading axes broadcast. Arrays or Tensors.
    mask: booleans, True = may attend; or floats, added to the scores (a Tensor gets its gradient). Its shape is (n, m),
        or it has as many axes as the scores. A query that may attend to nothing gets zeros, and no gradient.
    scale: 1/√dk unless given; 1.0 switches scaling off.
    return_weights: also return the softmax, (..., n, m), before dropout; rows are queries and sum to 1.
    dropout: each weight is zeroed with this probability, see `ta.dropout`.
    A NaN in a key or value that no query may attend to is harmless. Otherwise a NaN in a key makes each row NaN that
    may attend to it, and a NaN in a value makes every row NaN, because 0 · NaN is NaN.
    """
    dropout = number(dropout, "dropout", 0, 1)
    Q, K, V, scale, allowed, bias = _prepare(Q, K, V, scale, mask)
    half = Q._data.dtype is K._data.dtype is V._data.dtype is HALF
    if half:  # scores may leave its range before they are scaled: compute in float32, and round at the end
        Q, K, V = (x.astype(np.float32) for x in (Q, K, V))
    scores = Q @ K.mT  # (..., n, dk) @ (..., dk, m) -> (..., n, m)
    masked = scaled = scores * scale
    if bias is not None:
        masked = scaled + bias
    if allowed is not None:
        masked = masked_fill(masked, wrap(~allowed, "blocked = ~mask"), -np.inf)
    weights = softmax(masked, axis=-1)
    kept = _dropout(weights, dropout, rng=rng) if dropout else weights
    out = kept @ V  # (..., n, m) @ (..., m, dv) -> (..., n, dv)
    if half:
        out, weights = out.astype(np.float16), weights.astype(np.float16)
    scores.name, masked.name, scaled.name = "scores", "masked", "scaled"  # if two are one tensor, the later name stays
    kept.name, weights.name, out.name = "kept", "weights", "output"
    return (out, weights) if flag(return_weights, "return_weights") else out


class Inputs(NamedTuple):
    """What attention works on: tensors that fit together. allowed and bias come from the mask; each may be None."""

    Q: Tensor
    K: Tensor
    V: Tensor
    scale: Any
    allowed: Array | None  # booleans that broadcast to the scores, True = may attend
    bias: Any  # added to the scores


def _prepare(Q: TensorLike, K: TensorLike, V: TensorLike, scale: Any, mask: Mask) -> Inputs:
    """The inputs with the default scale, and with zeros where a NaN could only meet a weight of 0."""
    Q, K, V = floating(Q), floating(K), floating(V)
    shape = scores_shape(Q, K, V)
    for x, letter in zip((Q, K, V), "QKV"):
        if x._node is not None:
            x.name = x.name or letter  # as drawings and messages call them
    if scale is None:
        scale = 1 / math.sqrt(Q.shape[-1] or 1)
    elif not isinstance(scale, (Tensor, np.ndarray)):
        scale = number(scale, "scale")
    if mask is None:
        return Inputs(Q, K, V, scale, None, None)
    allowed, bias = split_mask(mask, shape, Q.dtype)
    unused = ~np.any(allowed, axis=-2, keepdims=True).mT  # (..., m, 1): keys that nobody may attend
    if unused.any():
        K, V = masked_fill(K, unused, 0.0), masked_fill(V, unused, 0.0)
    idle = ~np.any(allowed, axis=-1, keepdims=True)  # (..., n, 1): queries that may attend to nobody
    if idle.any():
        Q = masked_fill(Q, idle, 0.0)
    return Inputs(Q, K, V, scale, allowed, bias)


def scores_shape(Q: Tensor, K: Tensor, V: Tensor) -> Shape:
    """(..., n, m), the shape of Q Kᵀ; ValueError if Q, K and V do not fit together."""
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


# --- the same in one op -------------------------------------------------------------------------------


@explained
def fused_attention(
    Q: TensorLike,
    K: TensorLike,
    V: TensorLike,
    mask: Mask = None,
    *,
    scale: float | TensorLike | None = None,
    return_weights: bool = False,
    dropout: float = 0.0,
    rng: Rng = None,
) -> Any:
    """`scaled_dot_product_attention` as a single op: the same answer faster, in one (..., n, m) array instead of four.

    It cannot show its steps in a graph. It goes step by step all the same for return_weights, dropout, a scale that is
    no number, a float mask, and a mask with more leading axes than Q Kᵀ.
    """
    if number(dropout, "dropout", 0, 1) == 0 and not (return_weights or isinstance(scale, (Tensor, np.ndarray))):
        q, k, v, factor, allowed, bias = _prepare(Q, K, V, scale, mask)
        if bias is None and (allowed is None or broadcasts(allowed.shape[:-2], _leading(q, k))):
            return _attention(q, k, v, scale=factor, allowed=allowed)
    return scaled_dot_product_attention(
        Q, K, V, mask, scale=scale, return_weights=return_weights, dropout=dropout, rng=rng
    )


def _attention_composed(Q: Tensor, K: Tensor, V: Tensor, scale: float, allowed: Array | None) -> Any:
    return scaled_dot_product_attention(Q, K, V, allowed, scale=scale)


def _attention_pullback(
    g: Array, out: Array, Q: Array, K: Array, V: Array, *, extra: Any, needs: Any, scale: float, allowed: Any
) -> tuple[Array, Array, Array]:
    """With W = E r, h = g r:   dV = Eᵀ h,  dS = E · (h Vᵀ - Σ h · out),  dQ = scale · dS K,  dK = scale · dSᵀ Q

    The softmax's rule needs Σⱼ dWᵢⱼ Wᵢⱼ. It equals Σ g · out of row i, because dW = g Vᵀ and out = W V.
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


@op(pull=_attention_pullback, twin=_attention_composed, wide=True)
def _attention(Q: Array, K: Array, V: Array, scale: float, allowed: Array | None) -> tuple[Array, Any]:
    """E V · r with E = e^(S - max S), r = 1 / Σ E. The softmax divides at the end: n · dv numbers instead of n · m."""
    E = np.matmul(Q * scale, K.mT)  # (..., n, dk) @ (..., dk, m) -> (..., n, m); scores S, turned into E in place
    if allowed is not None:
        np.copyto(E, -np.inf, where=~allowed)
    E -= E.max(-1, keepdims=True, initial=np.finfo(E.dtype).min)
    np.exp(E, out=E)
    r = 1 / np.maximum(E.sum(-1, keepdims=True), 1)  # Σ ≥ e⁰ = 1; only if all is masked, Σ = 0
    out = _matmul_as(Q, E, V)
    out *= r
    return out, (E, r)


def _leading(x: Any, y: Any) -> Shape:
    """The leading axes of x @ y. (If they are equal, broadcast_shapes would take longer than the product.)"""
    lead = x.shape[:-2]
    return lead if lead == y.shape[:-2] else np.broadcast_shapes(lead, y.shape[:-2])


def _matmul_as(like: Array, x: Array, y: Array) -> Array:
    """x @ y in the memory layout of `like`: if heads are views of one array, they then join without a copy."""
    fits = like.shape == (*_leading(x, y), x.shape[-2], y.shape[-1])
    return np.matmul(x, y, out=np.empty_like(like, dtype=np.result_type(x, y)) if fits else None)
