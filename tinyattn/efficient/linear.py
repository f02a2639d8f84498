"""Linear attention: weights φ(q)·φ(k) in place of e^(q·k), so that the whole past fits into one matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import array, told
from ..attention import scores_shape
from ..calling import on, op
from ..graph import Tensor, as_tensor
from ..habits import explained
from ..masks import broadcasts
from ..modes import region
from ..ops import concatenate, exp, expand_dims, masked_fill, where
from ..values import Array, TensorLike

CHUNK = 128


def elu_plus_one(x: TensorLike) -> Tensor:
    """φ(x) = x + 1 for x > 0, eˣ otherwise: positive, so that the weights are positive."""
    x = as_tensor(x)
    positive = x > 0
    return where(positive, x + 1, exp(masked_fill(x, positive, 0.0)))


@explained
@region
def linear_attention(
    Q: TensorLike,
    K: TensorLike,
    V: TensorLike,
    *,
    causal: bool = False,
    feature_map: Callable[[Tensor], Any] = elu_plus_one,
    key_mask: TensorLike | None = None,
) -> Tensor:
    """Attention with weights φ(q)·φ(k) / Σ φ(q)·φ(k) in place of the softmax: time n + m (Katharopoulos et al. 2020).

        out = φ(Q) (φ(K)ᵀ V) / φ(Q) (φ(K)ᵀ 1)

    The brackets are the whole idea: (φ(Q) φ(K)ᵀ) V needs an n × m matrix, φ(Q) (φ(K)ᵀ V) does not. The price: the past
    is one matrix of fixed size, φ(K)ᵀ V. If it holds many keys, they cannot be told apart.

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv). causal: query i sees key j ≤ i + m - n.
    feature_map: φ, (..., dk) -> (..., f), ≥ 0. key_mask: booleans (..., m), True = may attend.
    A query that sees no key gets zeros.
    """
    Q, K, V = as_tensor(Q), as_tensor(K), as_tensor(V)
    *lead, n, m = scores_shape(Q, K, V)
    masked = None if key_mask is None else ~_key_mask(key_mask, (*lead, m))[..., None]  # (..., m, 1)
    if masked is not None:  # before φ, because a NaN there would spoil the gradient
        K, V = masked_fill(K, masked, 0.0), masked_fill(V, masked, 0.0)
    q, k, v = _features(feature_map, Q), _features(feature_map, K), _single(_with_ones(V))
    if masked is not None:
        k = masked_fill(k, masked, 0.0)
    return _normalised(_prefix_product(q, k, v, m - n) if causal else q @ (k.mT @ v), V.dtype)


@explained
def linear_attention_step(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    state: TensorLike | None = None,
    *,
    feature_map: Callable[[Tensor], Any] = elu_plus_one,
) -> tuple[Tensor, Tensor]:
    """Causal linear attention as a recurrent network: one position, and a state of fixed size.

        state ← state + φ(k) [v, 1]ᵀ,      out = φ(q) state, whose last column divides the others

    q, k (..., dk), v (..., dv), state (..., f, dv + 1) or None at the start -> (out (..., dv), state).
    """
    q, k, v = as_tensor(q), as_tensor(k), as_tensor(v)
    if not (q.ndim and k.ndim and v.ndim) or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q {q.shape}, k {k.shape}, v {v.shape}: each is one vector, and q and k are equally long")
    new = expand_dims(_features(feature_map, k), -1) * expand_dims(_single(_with_ones(v)), -2)  # (..., f, dv + 1)
    if state is not None and (shape := as_tensor(state).shape)[-2:] != new.shape[-2:]:
        raise ValueError(f"state {shape}: of these keys and values it ends in {new.shape[-2:]}. None starts a new one")
    state = new if state is None else state + new
    out = _normalised(expand_dims(_features(feature_map, q), -2) @ state, v.dtype)  # (..., 1, f) @ (..., f, dv + 1)
    return out[..., 0, :], state


def _features(feature_map: Callable[[Tensor], Any], x: Tensor) -> Tensor:
    """φ(x): for each vector of x a vector of features."""
    if not callable(feature_map):
        raise TypeError(f"feature_map = {told(feature_map)} is no function: it makes features (..., f) of (..., dk)")
    features = as_tensor(feature_map(x))
    if features.shape[:-1] != x.shape[:-1]:
        raise ValueError(f"feature_map made {features.shape} of {x.shape}: only the last axis may get another length")
    return _single(features)


def _with_ones(v: Tensor) -> Tensor:
    """[v, 1]: one product then gives the weighted sum, and the sum of weights in the last column."""
    return concatenate([v, np.ones((*v.shape[:-1], 1), v.dtype)], -1)


def _normalised(sums: Tensor, dtype: Any) -> Tensor:
    """The weighted sums divided by the sum of weights, the last column; zeros where that is 0."""
    weight = sums[..., -1:]
    out = sums[..., :-1] / masked_fill(weight, weight == 0, 1.0)
    return out.astype(dtype) if dtype == np.float16 else out


def _single(x: Tensor) -> Tensor:
    """Half precision as float32: sums over the past leave its range."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _key_mask(key_mask: Any, shape: tuple[int, ...]) -> Array:
    mask: Array = array(key_mask, "key_mask")
    if mask.dtype != bool:
        raise TypeError(f"key_mask is {mask.dtype}, not boolean (True = may attend): use key_mask.astype(bool)")
    if not mask.ndim or not broadcasts(mask.shape, shape):
        raise ValueError(f"key_mask of shape {mask.shape}: it says which keys count, so it must broadcast to {shape}")
    return mask


@op(
    lambda g, out, q, k, v, offset: _earlier(g, v, k, offset),
    lambda g, out, q, k, v, offset: _later(g, v, g, q, offset + q.shape[-2] - k.shape[-2]),
    lambda g, out, q, k, v, offset: _later(g, k, q, g, offset + q.shape[-2] - k.shape[-2]),
)
def _prefix_product(q: Array, k: Array, v: Array, offset: int) -> Any:
    """outᵢ = Σ over j ≤ i + offset of (qᵢ·kⱼ) vⱼ, with a running state Σ kⱼ vⱼᵀ in place of the sum.

    Chunk by chunk: the keys before a chunk are in the state, those inside it make a small triangle of scores.
    The derivatives have the same form, so the op is its own way back:
    dqᵢ = Σ (gᵢ·vⱼ) kⱼ over the same j;   dkⱼ = Σ (vⱼ·gᵢ) qᵢ and dvⱼ = Σ (kⱼ·qᵢ) gᵢ over the i that saw j
    """
    n, m = q.shape[-2], k.shape[-2]
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    out = np.zeros((*lead, n, v.shape[-1]), np.result_type(q, k, v))
    state, done = np.zeros((*lead, k.shape[-1], v.shape[-1]), out.dtype), 0
    for i in range(0, n, CHUNK):
        first, last = (min(max(x + offset, 0), m) for x in (i, min(i + CHUNK, n)))  # keys first … last - 1 are new
        state += k[..., done:first, :].mT @ v[..., done:first, :]  # (f, c) @ (c, dv)
        done = first
        rows, keys = q[..., i : i + CHUNK, :], k[..., first:last, :]
        scores = rows @ keys.mT  # (c, f) @ (f, c)
        scores *= np.tri(rows.shape[-2], keys.shape[-2], i + offset - first, dtype=bool)
        out[..., i : i + CHUNK, :] = rows @ state + scores @ v[..., first:last, :]
    return out


def _earlier(q: Any, k: Any, v: Any, offset: int) -> Any:
    return on(q, _prefix_product)(q, k, v, offset)


def _later(g: Any, q: Any, k: Any, v: Any, offset: int) -> Any:
    """The prefix product from the other end: over later positions instead of earlier ones."""
    q, k, v = (x[..., ::-1, :] for x in (q, k, v))
    return on(g, _prefix_product)(q, k, v, offset)[..., ::-1, :]
