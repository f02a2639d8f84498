"""The attacks on n²: the same attention without its n × m matrix, and one that gives the matrix up.

Three are exact and share one kernel, `_tiled`: it walks over the score matrix tile by tile, holds a few of them at a
time, and carries a running softmax along (Milakov & Gimelshein 2018; FlashAttention, Dao et al. 2022). They differ in
which tiles are visited: all or those under the diagonal (flash), a band (sliding window), a list (block-sparse).
Linear attention replaces the softmax's exponential by a product of features; then the sums over the past fit into
a matrix of fixed size.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..attention import scaled_dot_product_attention, scores_shape
from ..masks import split_mask
from ..ops import _like, concatenate, exp, expand_dims, masked_fill, where
from ..tensor import Array, Tensor, as_tensor, fused, op, region

__all__ = [
    "bigbird_blocks",
    "block_sparse_attention",
    "flash_attention",
    "global_blocks",
    "linear_attention",
    "linear_attention_step",
    "local_blocks",
    "longformer_blocks",
    "random_blocks",
    "sliding_window_attention",
]

FAR = 1 << 60  # farther than any key: the end of a band that is open

# --- three exact forms --------------------------------------------------------------------------------


def flash_attention(
    Q: Any, K: Any, V: Any, *, causal: bool = False, mask: Any = None, scale: float | None = None, block_size: int = 512
) -> Tensor:
    """softmax(Q Kᵀ · scale) V, exactly, in memory that grows with n + m instead of n · m (Dao et al. 2022).

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv), and mask, scale, empty rows and NaN as in
    `scaled_dot_product_attention`. causal: query i sees key j ≤ i + m - n, and whatever mask allows of these.
    block_size: the side of a tile. Four tiles are the most that is held of the scores, however long the sequences; any
        size gives the same result.
    """
    Q, K, V, scale = _inputs(Q, K, V, scale)
    shape = scores_shape(Q, K, V)
    if mask is not None:
        split_mask(mask, shape, Q.dtype)  # an error if it does not fit
    side = operator.index(block_size)
    if side < 1:
        raise ValueError(f"block_size {side}: a tile has at least one row; with fewer than 128 the time is Python's")
    inputs = (Q, K, V) if mask is None else (Q, K, V, mask)
    return _tiled(*inputs, plan=_Plan(scale, (side, side), (0 if causal else -FAR, FAR), edge=-(-side // 4)))


def sliding_window_attention(
    Q: Any, K: Any, V: Any, window: int, *, causal: bool = True, scale: float | None = None
) -> Tensor:
    """Attention to the window positions that end with one's own: time and memory n · window (Beltagy et al. 2020).

    Q, K (..., n, dk), V (..., n, dv) -> (..., n, dv): query i sees i - window < j ≤ i; without causal |i - j| < window.
    Equals `scaled_dot_product_attention` under `sliding_window_mask`. Raises ValueError for n ≠ m or window < 1.
    """
    Q, K, V, scale = _inputs(Q, K, V, scale)
    *_, n, m = scores_shape(Q, K, V)
    if n != m:
        raise ValueError(
            f"{n} queries and {m} keys: a window slides along one sequence, so both must be equally many. "
            "Use flash_attention with mask=sliding_window_mask(n, window, m)"
        )
    if window < 1:
        raise ValueError(f"window {window}: it counts the query's own position, so it is at least 1")
    window = min(operator.index(window), n)
    side = min(max(window, 64), 256)  # of a tile: a few per block of queries cover its band
    return _tiled(Q, K, V, plan=_Plan(scale, (side, side), (0 if causal else 1 - window, window - 1)))


def block_sparse_attention(
    Q: Any, K: Any, V: Any, block_mask: Any, block_size: int, *, scale: float | None = None
) -> Tensor:
    """Attention between listed blocks of queries and keys only: the cost is that of the blocks listed.

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv).
    block_mask: booleans (⌈n / block_size⌉, ⌈m / block_size⌉), or with the leading axes of the scores before them:
        True where the queries of block I may attend to the keys of block J. See `longformer_blocks`, `bigbird_blocks`.
    Raises TypeError for a block mask that is not boolean, ValueError for one that does not fit.
    """
    Q, K, V, scale = _inputs(Q, K, V, scale)
    *lead, n, m = scores_shape(Q, K, V)
    block_size = operator.index(block_size)
    blocks = np.array(block_mask)  # a copy: the way back reads it again
    if blocks.dtype != bool:
        raise TypeError(f"block_mask is {blocks.dtype}, not boolean (True = may attend): use block_mask.astype(bool)")
    if block_size < 1:
        raise ValueError(f"block_size {block_size}: a block has at least one position")
    wanted = (*lead, -(-n // block_size), -(-m // block_size))
    if blocks.ndim not in (2, len(wanted)) or not _broadcasts(blocks.shape, wanted):
        raise ValueError(
            f"block mask of shape {blocks.shape} for {n} queries and {m} keys in blocks of {block_size}: "
            f"it must be {wanted[-2:]}, or broadcast to {wanted}"
        )
    wide = max(block_size, 512 // block_size * block_size)  # neighbouring blocks make one tile up to this wide
    return _tiled(Q, K, V, plan=_Plan(scale, (block_size, wide), blocks=np.broadcast_to(blocks, wanted)))


def _inputs(Q: Any, K: Any, V: Any, scale: Any) -> tuple[Tensor, Tensor, Tensor, float]:
    """As tensors, and the scale as a number; one that is a Tensor becomes part of Q."""
    Q, K, V = as_tensor(Q), as_tensor(K), as_tensor(V)
    if isinstance(scale, Tensor):
        return Q * scale, K, V, 1.0
    return Q, K, V, 1 / math.sqrt(Q.shape[-1] or 1) if scale is None else float(scale)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


# --- their kernel: tiles with a running softmax ---------------------------------------------------------


class _Plan(NamedTuple):
    """Which tiles are visited, and the scale of the scores in them."""

    scale: float
    size: tuple[int, int]  # of a tile: queries, keys
    band: tuple[int, int] = (-FAR, FAR)  # how far a key may lie behind its query, from … to
    blocks: Array | None = None  # (..., ⌈n / r⌉, ⌈m / r⌉) booleans, for tiles of r queries
    edge: int = FAR  # most queries of a tile that a causal edge cuts: the smaller, the less is computed in vain


def _plain(Q: Any, K: Any, V: Any, mask: Any = None, *, plan: _Plan) -> Any:
    """What the tiles compute, with the whole matrix at once: the twin for second derivatives."""
    n, m = Q.shape[-2], K.shape[-2]
    forbidden = _forbidden(n, m, m - n, plan.band)
    if plan.blocks is not None:
        r = plan.size[0]
        forbidden = forbidden | ~plan.blocks[..., np.arange(n)[:, None] // r, np.arange(m) // r]
    if mask is None or mask.dtype == bool:
        allowed = ~forbidden if mask is None else (mask.numpy() if isinstance(mask, Tensor) else mask) & ~forbidden
        return scaled_dot_product_attention(Q, K, V, allowed, scale=plan.scale)
    return scaled_dot_product_attention(Q, K, V, masked_fill(mask, forbidden, -np.inf), scale=plan.scale)


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
    plan: _Plan,
) -> tuple[Any, ...]:
    """The way back. Each tile of P = e^(S - top) is computed again. The softmax is P / total, row by row; it is g that
    gets divided, G = g / total, as that has fewer columns:

    dV = Pᵀ G,   dS = P ∘ (G Vᵀ - D),   dQ = dS K · scale,   dK = dSᵀ Q · scale,   dmask = dS

    D, the row sums of P ∘ G Vᵀ over total, would need the whole row; but they are the row sums of G ∘ out. And as
    G Vᵀ - D = [G, -D] [V, 1]ᵀ, one more column in a product subtracts them instead of one more pass over the tile.
    """
    Q, K, V, top, total, kept = extra
    dtype, dv = out.dtype, V.shape[-1]
    dQ, dK, dV = np.zeros(Q.shape, dtype), np.zeros(K.shape, dtype), np.zeros(V.shape, dtype)
    dmask = np.zeros((1,) * (Q.ndim - mask.ndim) + mask.shape, dtype) if mask is not None and needs[3] else None
    spare, V1 = _room(Q, K, plan, dtype), np.ones((min(plan.size[1], K.shape[-2]), dv + 1), dtype)
    again, shifted = iter(kept), top.any()
    for head, rows, q, tiles in _walk(Q, K, mask, plan, dtype):
        G1, dq = np.empty((len(q), dv + 1), dtype), dQ[head][rows]
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
            else:  # it was kept, with the top of its time: each row lacks a factor
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
    return dQ, dK, dV, dmask


@fused(_plain, _tiled_backward)
def _tiled(Q: Array, K: Array, V: Array, mask: Array | None = None, *, plan: _Plan) -> tuple[Array, Any]:
    """The softmax of a row from its pieces. Of the scores s seen so far a row keeps three things:

        top = max s,   total = Σ e^(s - top),   out = Σ e^(s - top) v

    A piece that raises the maximum shrinks what was summed under the old one by e^(old - new); the rest is addition.
    At the end out / total is the attention. For the way back top and total stay. (The paper keeps one number, their
    log-sum-exp top + log total; where scores are large it has too few digits left for the total.)

    The maximum only keeps e^s within the dtype's range. Where |s| ≤ |q| |k| promises that already, top is just 0.
    Where tiles are few, the first of them, two tiles' worth, are kept for the way back, with the top of their time.
    """
    dtype = np.result_type(Q, K, V, 0.0)
    lead, n, dv = np.broadcast_shapes(Q.shape[:-2], K.shape[:-2], V.shape[:-2]), Q.shape[-2], V.shape[-1]
    Q, K, V = (x if x.shape[:-2] == lead else np.broadcast_to(x, lead + x.shape[-2:]) for x in (Q, K, V))
    q_norms, longest = _norms(Q, dtype), _norms(K, dtype).max(-1, initial=0)  # (..., n) and (...)
    largest = np.abs(V, dtype=dtype).max(initial=0)
    if plan.blocks is None and not all(np.isfinite(x).all() for x in (q_norms, longest, largest)):
        Q, K, V = _without_unused(Q, K, V, mask, plan.band)
    out = np.zeros((*lead, n, dv), dtype)
    top, total = np.full((*lead, n, 1), -np.inf, dtype), np.zeros((*lead, n, 1), dtype)
    ones = np.ones((min(plan.size[1], K.shape[-2]), 1), dtype)
    kept: list[tuple[Array, Array]] = []
    tile, all_scores = math.prod(plan.size), top.size * K.shape[-2]
    budget = 2 * tile if all_scores <= 16 * tile else 0  # of scores to keep: at least an eighth of all, or none
    most = max(1, K.shape[-2]) * (1 + largest)  # times e^s: what the sums may reach
    # A quarter of the way to overflow, in logarithms: gradients over the sums, of 1e-26 to 1e29, have room as well.
    limit = np.log(np.finfo(dtype).max / most) / 4 if most < np.inf and (mask is None or mask.dtype == bool) else 0
    for head, rows, _, tiles in _walk(Q, K, mask, plan, dtype):
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
                shift = np.where(np.isfinite(new), new, 0)  # a row that has seen nothing yet: -inf - (-inf) is NaN
                S -= shift
                shrink = np.exp(old - shift)
                t *= shrink
                o *= shrink
                old[...] = new
            P = np.exp(S, out=S)
            t += P @ ones[: P.shape[1]]  # the row sums, at the speed of a product
            o += P @ V[head][cols]  # (r, c) @ (c, dv)
            if budget >= 0:
                kept.append((P, old.copy()))
    total[total == 0] = 1  # rows that saw nothing: 0 / 1, and e^(-inf - 0) on the way back
    top[top == -np.inf] = 0
    out /= total
    return out, (Q, K, V, top, total, kept)


def _walk(
    Q: Array,
    K: Array,
    mask: Array | None,
    plan: _Plan,
    dtype: Any,
) -> Iterator[tuple[Any, slice, Array, Iterator[tuple[slice, slice, Callable[..., Array]]]]]:
    """By heads and blocks of queries: (head, rows, q · scale, tiles), the tiles as (part of the rows, columns, scores).

    scores() is -inf where the band or a boolean mask forbids; a float mask is added. All tiles share one array in turn,
    but for fresh ones.
    """
    n, m = Q.shape[-2], K.shape[-2]
    if mask is not None:
        mask = np.broadcast_to(mask, (*Q.shape[:-1], m))
    room = _room(Q, K, plan, dtype)
    forbidden = functools.cache(_forbidden)  # along the band's edge one tile looks like another

    def scores(head: Any, rows: slice, q: Array, part: slice, cols: slice, fresh: bool = False) -> Array:
        x, k = q[part], K[head][cols]
        S = np.empty((len(x), len(k)), dtype) if fresh else room[: len(x) * len(k)].reshape(len(x), len(k))
        np.matmul(x, k.T, out=S)  # (r, dk) @ (dk, c)
        if mask is not None:
            values = mask[head][rows][part, cols]
            if mask.dtype == bool:
                np.copyto(S, -np.inf, where=~values)
            else:
                S += values
        ahead = rows.start + part.start + m - n - cols.start  # how far the first key lies behind the first query
        if ahead - len(k) + 1 < plan.band[0] or ahead + len(x) - 1 > plan.band[1]:
            np.copyto(S, -np.inf, where=forbidden(*S.shape, ahead, plan.band))
        return S

    for head in np.ndindex(Q.shape[:-2]):
        for i in range(0, n, plan.size[0]):
            rows = slice(i, min(i + plan.size[0], n))
            q = Q[head][rows] * plan.scale
            yield (
                head,
                rows,
                q,
                (
                    (*place, functools.partial(scores, head, rows, q, *place))
                    for place in _places(head, rows, m, m - n, plan)
                ),
            )


def _places(head: Any, rows: slice, m: int, offset: int, plan: _Plan) -> Iterator[tuple[slice, slice]]:
    """Where the tiles of a block of queries lie: (part of the rows, columns)."""
    r, first = rows.stop - rows.start, rows.start + offset  # first: the position of the first query among the keys
    if plan.blocks is not None:
        edges = np.flatnonzero(np.diff(plan.blocks[head][rows.start // plan.size[0]], prepend=False, append=False))
        runs = [(slice(0, r), start, min(stop, m)) for start, stop in (edges * plan.size[0]).reshape(-1, 2).tolist()]
    else:

        def end(position: int) -> int:
            """The keys before it are not too late for the queries before position."""
            return max(0, min(position - plan.band[0], m))

        # Keys that are not too late for any row; then, part by part, what is left (nothing where the band has no end).
        runs = [(slice(0, r), max(0, first - plan.band[1]), end(first))]
        parts = [slice(i, min(i + plan.edge, r)) for i in range(0, r, plan.edge)]
        runs += [(part, end(first), end(first + part.stop)) for part in parts]
    for part, start, stop in runs:
        for j in range(start, stop, plan.size[1]):
            yield part, slice(j, min(j + plan.size[1], stop))


def _room(Q: Array, K: Array, plan: _Plan, dtype: Any) -> Array:
    """Room for one tile."""
    return np.empty(min(plan.size[0], Q.shape[-2]) * min(plan.size[1], K.shape[-2]), dtype)


def _norms(x: Array, dtype: Any) -> Array:
    """|x| of each row, inf where its square is out of range."""
    with np.errstate(over="ignore"):
        return np.sqrt(np.vecdot(x, x, dtype=dtype))  # type: ignore[no-any-return]


def _forbidden(n: int, m: int, ahead: int, band: tuple[int, int]) -> Array:
    """(n, m) booleans, True outside the band: key j lies i + ahead - j positions behind query i."""
    i, j = np.arange(ahead, n + ahead)[:, None], np.arange(m)
    forbidden: Array = (i - band[0] < j) | (i - band[1] > j)
    return forbidden


def _without_unused(
    Q: Array, K: Array, V: Array, mask: Array | None, band: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """Zeros for keys and values that no query may attend to, and for queries that may attend to none: a NaN there must
    not meet a weight of 0."""
    n, m = Q.shape[-2], K.shape[-2]
    mask = np.broadcast_to(True if mask is None else mask, (*(() if mask is None else mask.shape[:-2]), n, m))
    used, busy = np.zeros((*mask.shape[:-2], m), bool), np.zeros((*mask.shape[:-2], n), bool)
    for i in range(n):  # a row at a time: no second (n, m) array
        row = mask[..., i, :] if mask.dtype == bool else mask[..., i, :] != -np.inf
        row = row & ~_forbidden(1, m, i + m - n, band)[0]
        used |= row
        busy[..., i] = row.any(-1)
    return np.where(busy[..., None], Q, 0), np.where(used[..., None], K, 0), np.where(used[..., None], V, 0)


def _add_tile(total: Array, head: tuple[int, ...], rows: slice, cols: slice, tile: Array) -> None:
    """total[head][rows, cols] += tile, summed over the axes that total has broadcast from length 1."""
    target = total[tuple(i if length > 1 else 0 for i, length in zip(head, total.shape))]
    for axis, length in enumerate(target.shape):
        if length == 1:
            tile = tile.sum(axis, keepdims=True)
    target[rows if len(target) > 1 else slice(1), cols if target.shape[1] > 1 else slice(1)] += tile


# --- patterns of blocks ---------------------------------------------------------------------------------


def local_blocks(n: int, reach: int = 1) -> Array:
    """(n, n) booleans: each block and its `reach` neighbours on either side."""
    I = np.arange(n)
    mask: Array = abs(I[:, None] - I) <= reach
    return mask


def global_blocks(n: int, count: int = 1) -> Array:
    """(n, n) booleans: the first `count` blocks attend to all, and all to them."""
    I = np.arange(n)
    mask: Array = (I[:, None] < count) | (count > I)
    return mask


def random_blocks(n: int, count: int, rng: np.random.Generator) -> Array:
    """(n, n) booleans: `count` random blocks in each row."""
    mask: Array = rng.permuted(np.broadcast_to(np.arange(n) < count, (n, n)), axis=1)
    return mask


def longformer_blocks(n: int, reach: int = 1, count: int = 1) -> Array:
    """Local and global blocks (Beltagy et al. 2020): any two positions are two steps apart, by way of a global one."""
    return local_blocks(n, reach) | global_blocks(n, count)


def bigbird_blocks(n: int, rng: np.random.Generator, reach: int = 1, count: int = 1, random: int = 3) -> Array:
    """Local, global and random blocks (BigBird, Zaheer et al. 2020): random links keep paths short."""
    return longformer_blocks(n, reach, count) | random_blocks(n, random, rng)


# --- linear attention -----------------------------------------------------------------------------------


def elu_plus_one(x: Any) -> Tensor:
    """φ(x) = x + 1 for x > 0, eˣ otherwise: positive, so that weights are."""
    x = as_tensor(x)
    positive = x > 0
    return where(positive, x + 1, exp(masked_fill(x, positive, 0.0)))


@region
def linear_attention(
    Q: Any,
    K: Any,
    V: Any,
    *,
    causal: bool = False,
    feature_map: Callable[[Any], Any] = elu_plus_one,
    key_mask: Any = None,
) -> Tensor:
    """Attention with weights φ(q)·φ(k) / Σ φ(q)·φ(k) in place of the softmax: time n + m (Katharopoulos et al. 2020).

        out = φ(Q) (φ(K)ᵀ V) / φ(Q) (φ(K)ᵀ 1)

    The brackets are the whole idea: (φ(Q) φ(K)ᵀ) V is n × m × d; bracketed to the right nothing is n × m. The price:
    what is read of the past is a matrix of fixed size, φ(K)ᵀ V, in which many keys cannot be told apart.

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv). causal: query i sees key j ≤ i + m - n.
    feature_map: φ, (..., dk) -> (..., f), ≥ 0. key_mask: booleans (..., m), True = may attend.
    A query that sees no key gets zeros.
    """
    Q, K, V = as_tensor(Q), as_tensor(K), as_tensor(V)
    *lead, n, m = scores_shape(Q, K, V)
    masked = None if key_mask is None else ~_key_mask(key_mask, (*lead, m))[..., None]  # (..., m, 1)
    if masked is not None:  # before φ, as a NaN there would spoil the gradient
        K, V = masked_fill(K, masked, 0.0), masked_fill(V, masked, 0.0)
    q, k, v = feature_map(Q), feature_map(K), _with_ones(V)
    if masked is not None:
        k = masked_fill(k, masked, 0.0)
    return _normalised(_prefix_product(q, k, v, m - n) if causal else q @ (k.mT @ v))


def linear_attention_step(
    q: Any, k: Any, v: Any, state: Any = None, *, feature_map: Callable[[Any], Any] = elu_plus_one
) -> tuple[Tensor, Tensor]:
    """Causal linear attention as a recurrent network: one position, and a state of fixed size.

        state ← state + φ(k) [v, 1]ᵀ,      out = φ(q) state, its last column dividing the others

    q, k (..., dk), v (..., dv), state (..., f, dv + 1) or None at the start -> (out (..., dv), state).
    """
    k, v = expand_dims(feature_map(k), -1), expand_dims(_with_ones(as_tensor(v)), -2)
    state = k * v if state is None else state + k * v  # (..., f, 1) · (..., 1, dv + 1)
    out = _normalised(expand_dims(feature_map(q), -2) @ state)  # (..., 1, f) @ (..., f, dv + 1)
    return out[..., 0, :], state


def _with_ones(v: Tensor) -> Tensor:
    """[v, 1]: the sum of weights then comes out of the same product as the weighted sum."""
    return concatenate([v, np.ones((*v.shape[:-1], 1), v.dtype)], -1)


def _normalised(sums: Tensor) -> Tensor:
    """The weighted sums over the sum of weights, the last column; zeros where that is 0."""
    weight = sums[..., -1:]
    return sums[..., :-1] / masked_fill(weight, weight == 0, 1.0)


def _key_mask(key_mask: Any, shape: tuple[int, ...]) -> Array:
    mask: Array = key_mask.numpy() if isinstance(key_mask, Tensor) else np.asarray(key_mask)
    if mask.dtype != bool:
        raise TypeError(f"key_mask is {mask.dtype}, not boolean (True = may attend): use key_mask.astype(bool)")
    if not mask.ndim or not _broadcasts(mask.shape, shape):
        raise ValueError(f"key_mask of shape {mask.shape}: it says which keys count, so it must broadcast to {shape}")
    return mask


CHUNK = 128


@op(
    lambda g, out, q, k, v, offset: _like(g, _prefix_product)(g, v, k, offset),
    lambda g, out, q, k, v, offset: _later(g, v, g, q, offset + q.shape[-2] - k.shape[-2]),
    lambda g, out, q, k, v, offset: _later(g, k, q, g, offset + q.shape[-2] - k.shape[-2]),
)
def _prefix_product(q: Array, k: Array, v: Array, offset: int) -> Any:
    """outᵢ = Σ over j ≤ i + offset of (qᵢ·kⱼ) vⱼ, with a running state Σ kⱼ vⱼᵀ in place of the sum.

    Chunk by chunk: what lies before a chunk is in the state, what lies inside it is a small triangle of scores.
    The derivatives are of the same form, so the op is its own way back:
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
        scores *= ~_forbidden(rows.shape[-2], keys.shape[-2], i + offset - first, (0, FAR))
        out[..., i : i + CHUNK, :] = rows @ state + scores @ v[..., first:last, :]
    return out


def _later(g: Any, q: Any, k: Any, v: Any, offset: int) -> Any:
    """The prefix product from the far end: over later positions instead of earlier ones."""
    q, k, v = (x[..., ::-1, :] for x in (q, k, v))
    return _like(g, _prefix_product)(q, k, v, offset)[..., ::-1, :]
