"""The kernel of the exact forms: the loops of flash.py, made fast. Read flash.py first.

What each trick gains: the time without it / the time with it, forward and back, one head, d = 64, float32, one thread
(`python benchmarks/tricks.py`; the figures vary by ± .02):

    n                                                                  512  causal   2,048  causal
    tiles on the causal edge are narrow: less is computed in vain      .99    1.35    1.00    1.14
    if tiles are few, the first two stay for the way back             1.23    1.27    1.03    1.04
    no maximum and no shrinking, if |q| |k| bounds e^s                1.02    1.03    1.04    1.05
    g is divided by ℓ, not P: it has fewer columns                    1.02    1.00    1.02    1.03
    D is subtracted by one more column of a product                   1.01    1.01    1.02    1.01
    the sums of a tile's rows are a product                           1.00    1.01    1.01    1.01
    the causal edge's mask is computed once                            .99     .98    1.00    1.03
    all tiles are written into one array                              1.00     .99    1.01    1.00

It also leaves out the tiles that the causal edge, the window or the block mask excludes. That is not a trick but the
purpose: a window costs n · window instead of n².
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..attention import scaled_dot_product_attention
from ..calling import op
from ..graph import Tensor
from ..ops import masked_fill
from ..values import Array, centred

FAR = 1 << 30  # farther than any key: the end of an open band. FAR plus a length fits into 32 bits


class Plan(NamedTuple):
    """Which tiles are visited, and the scale of the scores in them."""

    size: tuple[int, int]  # of a tile: queries, keys
    band: tuple[int, int] = (-FAR, FAR)  # how far a key may lie behind its query: (least, most)
    blocks: Array | None = None  # (..., ⌈n / r⌉, ⌈m / r⌉) booleans, for tiles of r queries
    edge: int = FAR  # the most queries of a tile that the causal edge cuts
    scale: float = 1.0

    def allowed(self, rows: slice, n: int, m: int) -> Array:
        """(..., r, m) booleans: the keys that these of the n queries may see."""
        inside = within(self.band, rows.stop - rows.start, m, rows.start + m - n)
        if self.blocks is not None:
            side = self.size[0]
            inside = inside & self.blocks[..., np.arange(rows.start, rows.stop)[:, None] // side, np.arange(m) // side]
        return inside

    def seen(self, n: int, m: int, mask: Any = True) -> tuple[Array, Array]:
        """(..., n, 1) and (..., m, 1) booleans: the queries that see a key, and the keys that a query sees."""
        values = np.asarray(mask._data if isinstance(mask, Tensor) else mask)
        values = np.broadcast_to(values, (*values.shape[:-2], n, m))
        busy, used = [], np.zeros(m, bool)
        for i in range(0, n, self.size[0]):  # a block at a time: no second (n, m) array
            rows = slice(i, min(i + self.size[0], n))
            allowed = values[..., rows, :] if values.dtype == bool else values[..., rows, :] != -np.inf
            allowed = allowed & self.allowed(rows, n, m)
            busy.append(allowed.any(-1))
            used = used | allowed.any(-2)
        return np.concatenate(busy, -1)[..., None], used[..., None]


def within(band: tuple[int, int], n: int, m: int, behind: int) -> Array:
    """(n, m) booleans: does the key lie in the query's band? behind: how far key 0 lies behind query 0."""
    i, j = np.arange(behind, behind + n)[:, None], np.arange(m)
    inside: Array = (i - band[1] <= j) & (j <= i - band[0])
    return inside


class Tile(NamedTuple):
    """A piece of the score matrix, within a block of queries."""

    part: slice  # its queries, counted from the first of the block
    cols: slice  # its keys
    scores: Callable[..., Array]  # q kᵀ · scale with the mask applied, -inf where the plan forbids


class Block(NamedTuple):
    """Neighbouring queries of one head, and the tiles that they visit."""

    head: tuple[int, ...]
    rows: slice
    q: Array  # (r, dk), times scale
    tiles: Iterator[Tile]


# --- forward and back -----------------------------------------------------------------------------------


def _plain(Q: Any, K: Any, V: Any, mask: Any = None, *, plan: Plan) -> Any:
    """The same as the tiles, but with the whole matrix at once: the twin, for second derivatives."""
    n, m = Q.shape[-2], K.shape[-2]
    allowed = plan.allowed(slice(0, n), n, m)
    if mask is None:
        mask = allowed
    elif mask.dtype == bool:
        mask = allowed & (mask.numpy() if isinstance(mask, Tensor) else mask)
    else:
        mask = masked_fill(mask, ~allowed, -np.inf)
    return scaled_dot_product_attention(Q, K, V, mask, scale=plan.scale)


def _tiled_backward(
    g: Array,
    out: Array,
    Q: Array,
    K: Array,
    V: Array,
    mask: Array | None = None,
    *,
    extra: Any,
    needs: Any,
    plan: Plan,
) -> tuple[Any, ...]:
    """The way back. Each tile of P = e^(S - top) is computed again. The softmax is P / total, row by row. Instead of P
    we divide g, G = g / total, because it has fewer columns:

    dV = Pᵀ G,   dS = P ∘ (G Vᵀ - D),   dQ = dS K · scale,   dK = dSᵀ Q · scale,   dmask = dS

    D, the row sums of P ∘ G Vᵀ / total, would need the whole row, but they equal the row sums of G ∘ out. Because
    G Vᵀ - D = [G, -D] [V, 1]ᵀ, one more column in the product subtracts them, instead of one more pass over the tile.
    """
    Q, K, V, out, top, total, kept, exponent = extra
    g, shift = centred(g.astype(out.dtype, copy=False))
    work, dv = out.dtype, V.shape[-1]
    dQ, dK, dV = np.zeros(Q.shape, work), np.zeros(K.shape, work), np.zeros(V.shape, work)
    dmask = np.zeros((1,) * (Q.ndim - mask.ndim) + mask.shape, work) if mask is not None and needs[3] else None
    spare, V1 = _room(Q, K, plan), np.ones((min(plan.size[1], K.shape[-2]), dv + 1), work)
    again, shifted = iter(kept), top.any()
    for head, rows, q, tiles in _walk(Q, K, mask, plan):
        G1, dq = np.empty((len(q), dv + 1), work), dQ[head][rows]
        G = np.divide(g[head][rows], total[head][rows], out=G1[:, :-1])  # (r, dv)
        np.negative(np.vecdot(G, out[head][rows]), out=G1[:, -1])  # -D
        for part, cols, scores in tiles:
            g1, final = G1[part], top[head][rows][part]
            P, then = next(again, (None, None))
            if P is None:
                S = scores()  # (r, c)
                if shifted:
                    S -= final
                P = np.exp(S, out=S)
            else:  # it was kept, with the top of that time: each row lacks a factor
                g1 = g1 * np.exp(then - final)
            dV[head][cols] += P.T @ g1[:, :-1]  # (c, r) @ (r, dv)
            v = V1[: P.shape[1]]
            v[:, :-1] = V[head][cols]
            dS = np.matmul(g1, v.T, out=spare[: P.size].reshape(P.shape))  # (r, dv + 1) @ (dv + 1, c)
            dS *= P
            dq[part] += dS @ K[head][cols]  # (r, c) @ (c, dk)
            dK[head][cols] += dS.T @ q[part]  # (c, r) @ (r, dk)
            if dmask is not None:
                _add_tile(dmask, head, slice(rows.start + part.start, rows.start + part.stop), cols, dS)
    dQ *= plan.scale
    if shift or exponent:
        dQ, dK, dV = np.ldexp(dQ, shift + exponent), np.ldexp(dK, shift + exponent), np.ldexp(dV, shift)
        dmask = None if dmask is None else np.ldexp(dmask, shift + exponent)
    return dQ, dK, dV, dmask


@op(pull=_tiled_backward, twin=_plain, wide=True)
def tiled(Q: Array, K: Array, V: Array, mask: Array | None = None, *, plan: Plan) -> tuple[Array, Any]:
    """Attention under a plan, and under a mask: booleans, or floats that are added. See flash.forward.

    The maximum only keeps e^s within the dtype's range. If |s| ≤ |q| |k| already ensures that, top is simply 0.
    If there are few tiles, the first of them, as many scores as two tiles hold, stay for the way back, with their top.
    top and total stay for the way back. (FlashAttention-2 keeps one number, their log-sum-exp top + log total. If
    scores are large, it has too few digits left for the total.)
    Half precision is computed in float32 and rounded once.
    """
    dtype = np.result_type(Q, K, V, 0.0)
    work = np.result_type(dtype, np.float32)
    lead, n, dv = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2]), Q.shape[-2], V.shape[-1]
    Q, K, V = (x.astype(work, copy=False) for x in (Q, K, V))
    Q, K, V = (x if x.shape[:-2] == lead else np.broadcast_to(x, lead + x.shape[-2:]) for x in (Q, K, V))
    V, exponent = centred(V)
    q_norms, longest = _norms(Q), _norms(K).max(-1, initial=0)  # (..., n) and (...)
    out = np.zeros((*lead, n, dv), work)
    top, total = np.full((*lead, n, 1), -np.inf, work), np.zeros((*lead, n, 1), work)
    ones = np.ones((min(plan.size[1], K.shape[-2]), 1), work)
    kept: list[tuple[Array, Array]] = []
    tile, all_scores = math.prod(plan.size), top.size * K.shape[-2]
    budget = 2 * tile if all_scores <= 16 * tile else 0  # of scores to keep: at least an eighth of all, or none
    # A quarter of the way to overflow, in logarithms: then sums, and gradients divided by them, stay in range too.
    limit = np.log(np.finfo(work).max / max(1, K.shape[-2])) / 4 if mask is None or mask.dtype == bool else 0
    for head, rows, _, tiles in _walk(Q, K, mask, plan):
        with np.errstate(invalid="ignore"):  # 0 · inf
            safe = q_norms[head][rows].max() * abs(plan.scale) * longest[head] < limit
        if safe:
            top[head][rows] = 0
        for part, cols, scores in tiles:
            budget -= (part.stop - part.start) * (cols.stop - cols.start)
            S = scores(fresh=budget >= 0)  # (r, c)
            o, t, old = out[head][rows][part], total[head][rows][part], top[head][rows][part]  # views, to write to
            if not safe:
                new = np.maximum(old, S.max(axis=-1, keepdims=True))
                shift = np.where(np.isfinite(new), new, 0)  # in a row that has seen nothing yet, -inf - (-inf) is NaN
                S -= shift
                shrink = np.exp(old - shift)
                t *= shrink
                o *= shrink
                old[...] = new
            P = np.exp(S, out=S)
            t += P @ ones[: P.shape[1]]  # the row sums
            o += P @ V[head][cols]  # (r, c) @ (c, dv)
            if budget >= 0:
                kept.append((P, old.copy()))
    total[total == 0] = 1  # rows that saw nothing: 0 / 1, and e^(-inf - 0) on the way back
    top[top == -np.inf] = 0
    out /= total
    result = (np.ldexp(out, exponent) if exponent else out).astype(dtype, copy=False)
    return result, (Q, K, V, out, top, total, kept, exponent)


# --- the walk over the tiles ----------------------------------------------------------------------------


def _walk(Q: Array, K: Array, mask: Array | None, plan: Plan) -> Iterator[Block]:
    """Block after block of queries, head by head. All tiles use one array in turn, except fresh ones."""
    n, m = Q.shape[-2], K.shape[-2]
    if mask is not None:
        mask = np.broadcast_to(mask, (*Q.shape[:-1], m))
    room = _room(Q, K, plan)
    allowed = functools.cache(within)  # along the band's edge all tiles look alike

    def scores(head: Any, rows: slice, q: Array, part: slice, cols: slice, fresh: bool = False) -> Array:
        x, k = q[part], K[head][cols]
        S = np.empty((len(x), len(k)), q.dtype) if fresh else room[: len(x) * len(k)].reshape(len(x), len(k))
        np.matmul(x, k.T, out=S)  # (r, dk) @ (dk, c)
        if mask is not None:
            values = mask[head][rows][part, cols]
            if mask.dtype == bool:
                np.copyto(S, -np.inf, where=~values)
            else:
                S += values
        behind = rows.start + part.start + m - n - cols.start  # how far the first key lies behind the first query
        if behind - len(k) + 1 < plan.band[0] or behind + len(x) - 1 > plan.band[1]:
            np.copyto(S, -np.inf, where=~allowed(plan.band, *S.shape, behind))
        return S

    for head in np.ndindex(Q.shape[:-2]):
        for i in range(0, n, plan.size[0]):
            rows = slice(i, min(i + plan.size[0], n))
            q = Q[head][rows] * plan.scale
            places = _places(head, rows, m, m - n, plan)
            tiles = (Tile(*place, functools.partial(scores, head, rows, q, *place)) for place in places)
            yield Block(head, rows, q, tiles)


def _places(head: Any, rows: slice, m: int, offset: int, plan: Plan) -> Iterator[tuple[slice, slice]]:
    """Where the tiles of a block of queries lie: (part of the rows, columns). Query i has position i + offset."""
    r, first = rows.stop - rows.start, rows.start + offset
    if plan.blocks is not None:
        edges = np.flatnonzero(np.diff(plan.blocks[head][rows.start // plan.size[0]], prepend=False, append=False))
        runs = [(slice(0, r), start, min(stop, m)) for start, stop in (edges * plan.size[0]).reshape(-1, 2).tolist()]
    else:

        def end(position: int) -> int:
            """Keys before the returned one are not too late for the query just before position."""
            return max(0, min(position - plan.band[0], m))

        # Keys that are not too late for any row; then, part by part, the rest (nothing, if the band is open).
        runs = [(slice(0, r), max(0, first - plan.band[1]), end(first))]
        parts = [slice(i, min(i + plan.edge, r)) for i in range(0, r, plan.edge)]
        runs += [(part, end(first), end(first + part.stop)) for part in parts]
    for part, start, stop in runs:
        for j in range(start, stop, plan.size[1]):
            yield part, slice(j, min(j + plan.size[1], stop))


def _room(Q: Array, K: Array, plan: Plan) -> Array:
    """Room for one tile."""
    return np.empty(min(plan.size[0], Q.shape[-2]) * min(plan.size[1], K.shape[-2]), Q.dtype)


def _norms(x: Array) -> Array:
    """|x| of each row, inf where its square is out of range."""
    with np.errstate(over="ignore"):
        return np.sqrt(np.vecdot(x, x))  # type: ignore[no-any-return]


def _add_tile(total: Array, head: tuple[int, ...], rows: slice, cols: slice, tile: Array) -> None:
    """total[head][rows, cols] += tile, summed over the axes that total has broadcast from length 1."""
    target = total[tuple(i if length > 1 else 0 for i, length in zip(head, total.shape))]
    for axis, length in enumerate(target.shape):
        if length == 1:
            tile = tile.sum(axis, keepdims=True)
    target[rows if len(target) > 1 else slice(1), cols if target.shape[1] > 1 else slice(1)] += tile
