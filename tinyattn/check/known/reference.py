"""The right programs, in plain NumPy: what a learner's own is compared with, and what `--solution` shows.

A mistake is an edit of one of these lines (see mutants.py), so each line that can be got wrong
carries a name, `#: scale`, by which the edit finds it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def attention_weights(Q: Array, K: Array, mask: Array | None = None) -> Array:
    """softmax(Q Kᵀ / √dk), one row per query; mask (n, m) is True where attending is allowed."""
    dk = Q.shape[-1]
    scores = Q @ K.swapaxes(-1, -2)  #: scores     (..., n, dk) @ (..., dk, m) -> (..., n, m)
    scores = scores / np.sqrt(dk)  #: scale
    if mask is not None:  #: when
        allowed = mask  #: which
        scores = np.where(allowed, scores, -np.inf)  #: mask
    scores = scores - scores.max(axis=-1, keepdims=True)  #: shift
    weights: Array = np.exp(scores)  #: exp
    weights = weights / weights.sum(axis=-1, keepdims=True)  #: normalise
    return weights


def scaled_dot_product_attention(Q: Array, K: Array, V: Array, mask: Array | None = None) -> Array:
    """softmax(Q Kᵀ / √dk) V.   Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv)"""
    weights = attention_weights(Q, K, mask)
    return weights @ V  #: mix


def causal_mask(n: int) -> Array:
    """True where position i may attend to position j: j ≤ i."""
    return np.tril(np.ones((n, n), dtype=bool))  #: causal


def multi_head_attention(
    X: Array, Wq: Array, Wk: Array, Wv: Array, Wo: Array, num_heads: int, mask: Array | None = None
) -> Array:
    """[head₁ … head_h] Wo, where head i attends with its own block of the features of X Wq, X Wk, X Wv."""
    *batch, n, d_model = X.shape
    if d_model % num_heads:  #: divides
        raise ValueError(f"num_heads = {num_heads} does not divide d_model = {d_model}")

    def split(A: Array) -> Array:
        return A.reshape(*batch, n, num_heads, -1).swapaxes(-2, -3)  #: split     -> (..., heads, n, d_head)

    Q, K, V = split(X @ Wq), split(X @ Wk), split(X @ Wv)  #: project
    heads = scaled_dot_product_attention(Q, K, V, mask)  #: attend
    joined = heads.swapaxes(-2, -3).reshape(*batch, n, d_model)  #: join     -> (..., n, d_model)
    return joined @ Wo  #: output


def cross_attention(X: Array, context: Array, Wq: Array, Wk: Array, Wv: Array) -> Array:
    """X asks, the context answers.   X (..., n, d), context (..., m, d) -> (..., n, dv)"""
    Q, K, V = X @ Wq, context @ Wk, context @ Wv  #: sources
    return scaled_dot_product_attention(Q, K, V)


def scaled_dot_product_attention_backward(
    dO: Array, Q: Array, K: Array, V: Array, mask: Array | None = None
) -> tuple[Array, Array, Array]:
    """dO = dL/d(out)  ->  dL/dQ, dL/dK, dL/dV.   With P the weights, dS = P ∘ (dP − rowsum(dP ∘ P))."""
    P = attention_weights(Q, K, mask)
    dV = P.swapaxes(-1, -2) @ dO  #: dV     (..., m, n) @ (..., n, dv) -> (..., m, dv)
    dP = dO @ V.swapaxes(-1, -2)  #: dP     (..., n, dv) @ (..., dv, m) -> (..., n, m)
    dS = P * (dP - (dP * P).sum(axis=-1, keepdims=True))  #: dS
    dQ = dS @ K / np.sqrt(Q.shape[-1])  #: dQ
    dK = dS.swapaxes(-1, -2) @ Q / np.sqrt(Q.shape[-1])  #: dK
    return sum_to(dQ, Q.shape), sum_to(dK, K.shape), sum_to(dV, V.shape)  #: sum


def sum_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """A broadcast input was used once per copy: its gradient is the sum over the copies."""
    extra = tuple(range(gradient.ndim - len(shape)))
    stretched = tuple(len(extra) + i for i, size in enumerate(shape) if size == 1)
    summed: Array = gradient.sum(axis=extra + stretched, keepdims=True)
    return summed.reshape(shape)


def softmax(x: Array) -> Array:
    """Shares of 1 along the last axis."""
    scores = x
    scores = scores - scores.max(axis=-1, keepdims=True)  #: shift
    weights: Array = np.exp(scores)  #: exp
    weights = weights / weights.sum(axis=-1, keepdims=True)  #: normalise
    return weights


def attention_layer(
    X: Array,
    Xk: Array,
    Xv: Array,
    Wq: Array,
    Wk: Array,
    Wv: Array,
    Wo: Array,
    num_heads: int = 1,
    num_kv_heads: int = 1,
    mask: Array | None = None,
) -> Array:
    """Any layer of attention: own sources for queries, keys and values, heads, and shared key/value heads."""
    *batch, n, _ = X.shape
    d_model = Wo.shape[0]

    def split(A: Array, count: int = num_heads) -> Array:
        return A.reshape(*A.shape[:-1], count, -1).swapaxes(-2, -3)  #: split     -> (..., heads, n, d_head)

    Q, K, V = split(X @ Wq), split(Xk @ Wk, num_kv_heads), split(Xv @ Wv, num_kv_heads)  #: project
    K, V = (np.repeat(A, num_heads // num_kv_heads, axis=-3) for A in (K, V))  #: share
    heads = scaled_dot_product_attention(Q, K, V, mask)  #: attend
    joined = heads.swapaxes(-2, -3).reshape(*batch, n, d_model)  #: join     -> (..., n, d_model)
    return joined @ Wo  #: output


def self_attention_backward(dO: Array, X: Array, Wq: Array, Wk: Array, Wv: Array) -> tuple[Array, Array, Array, Array]:
    """dO = dL/d(out)  ->  dL/dX, dL/dWq, dL/dWk, dL/dWv.   X feeds Q, K and V: its gradient has three parts."""
    Q, K, V = X @ Wq, X @ Wk, X @ Wv
    P = attention_weights(Q, K)
    dV = P.swapaxes(-1, -2) @ dO  #: dV
    dP = dO @ V.swapaxes(-1, -2)  #: dP
    dS = P * (dP - (dP * P).sum(axis=-1, keepdims=True))  #: dS
    dQ = dS @ K / np.sqrt(Q.shape[-1])  #: dQ
    dK = dS.swapaxes(-1, -2) @ Q / np.sqrt(Q.shape[-1])  #: dK
    dX = dQ @ Wq.T + dK @ Wk.T + dV @ Wv.T  #: dX
    return dX, X.T @ dQ, X.T @ dK, X.T @ dV  #: dW


class Affine:
    """A weight with a bias, used as a weight is: X @ Affine(W, b) = X W + b."""

    __array_ufunc__ = None

    def __init__(self, weight: Array, bias: Array):
        self.weight, self.bias, self.shape, self.size = weight, bias, weight.shape, weight.size + bias.size

    def __rmatmul__(self, X: Array) -> Array:
        product: Array = X @ self.weight
        return product + self.bias

    @property
    def T(self) -> "Affine":
        return Affine(self.weight.T, self.bias)
