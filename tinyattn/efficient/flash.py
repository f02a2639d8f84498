"""Flash attention as its papers have it (Dao et al. 2022; loops in the order of FlashAttention-2, Dao 2023).

A row of attention is softmax(s) V. The softmax needs the maximum of all scores and the sum of all e^s. So it seems that
the whole row must exist before one value can be weighted. But three things about the scores seen so far are enough:

    m = max s,   ℓ = Σ e^(s - m),   O = Σ e^(s - m) v

A tile that raises the maximum from m to m′ shrinks ℓ and O by e^(m - m′); the rest is addition. At the end the output
is O / ℓ. The way back computes each tile of the softmax again, from m and ℓ. Nothing of size (n, m) is ever stored.

Plain NumPy, for reading; all leading axes are equal. `ta.efficient.flash_attention` has a fast kernel (tiles.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def forward(Q: Array, K: Array, V: Array, causal: bool = False, tile: int = 64) -> tuple[Array, Array, Array]:
    """Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> out (..., n, dv), and top, total (..., n, 1) for `backward`."""
    out = np.zeros((*Q.shape[:-1], V.shape[-1]))  # O
    top = np.full((*Q.shape[:-1], 1), np.finfo(float).min)  # m: lower than any score; not -inf, as -inf - (-inf) is NaN
    total = np.zeros_like(top)  # ℓ
    for rows, cols, S in tiles(Q, K, causal, tile):
        o, t, old = out[..., rows, :], total[..., rows, :], top[..., rows, :]  # views, to write to
        new = np.maximum(old, S.max(-1, keepdims=True))  # (..., r, 1)
        shrink = np.exp(old - new)
        P = np.exp(S - new)  # (..., r, c)
        t[...] = shrink * t + P.sum(-1, keepdims=True)
        o[...] = shrink * o + P @ V[..., cols, :]  # (..., r, c) @ (..., c, dv)
        old[...] = new
    total = np.maximum(total, 1)  # the highest score adds e⁰ = 1; only a query that sees no key has less: 0
    return out / total, top, total


def backward(
    g: Array, Q: Array, K: Array, V: Array, out: Array, top: Array, total: Array, causal: bool = False, tile: int = 64
) -> tuple[Array, Array, Array]:
    """dQ, dK, dV from g = dL/dout (dO), with P = softmax(S):

    dV = Pᵀ g,   dS = P ∘ (g Vᵀ - D),   dQ = dS K / √dk,   dK = dSᵀ Q / √dk

    The softmax's rule needs the sum of P ∘ g Vᵀ over the whole row. It equals D = Σ g ∘ out: no whole row is needed.
    """
    dQ, dK, dV = np.zeros(Q.shape), np.zeros(K.shape), np.zeros(V.shape)
    D = (g * out).sum(-1, keepdims=True)  # (..., n, 1)
    for rows, cols, S in tiles(Q, K, causal, tile):
        q, k, v, h = Q[..., rows, :], K[..., cols, :], V[..., cols, :], g[..., rows, :]
        P = np.exp(S - top[..., rows, :]) / total[..., rows, :]  # (..., r, c), again
        dV[..., cols, :] += P.mT @ h  # (..., c, r) @ (..., r, dv)
        dS = P * (h @ v.mT - D[..., rows, :])  # (..., r, dv) @ (..., dv, c)
        dQ[..., rows, :] += dS @ k / math.sqrt(k.shape[-1])
        dK[..., cols, :] += dS.mT @ q / math.sqrt(q.shape[-1])
    return dQ, dK, dV


def tiles(Q: Array, K: Array, causal: bool, tile: int) -> Iterator[tuple[slice, slice, Array]]:
    """(rows, columns, their S = Q Kᵀ / √dk). If causal, S is -inf for each key that comes later than its query."""
    n, m = Q.shape[-2], K.shape[-2]
    for i in range(0, n, tile):
        for j in range(0, m, tile):
            rows, cols = slice(i, i + tile), slice(j, j + tile)
            S = Q[..., rows, :] @ K[..., cols, :].mT / math.sqrt(Q.shape[-1])  # (..., r, dk) @ (..., dk, c)
            behind = np.arange(n)[rows, None] + m - n - np.arange(m)[cols]  # how far each key lies behind each query
            yield rows, cols, np.where(behind >= 0, S, -np.inf) if causal else S
