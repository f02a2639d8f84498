"""Three exact forms of attention that store no n × m matrix: flash, sliding window, block-sparse. Kernel: tiles.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import array, number, whole
from ..attention import scores_shape
from ..graph import Tensor, as_tensor
from ..habits import explained
from ..masks import broadcasts, split_mask
from ..ops import masked_fill
from ..values import Mask, TensorLike
from .tiles import FAR, Plan, tiled


@explained
def flash_attention(
    Q: TensorLike,
    K: TensorLike,
    V: TensorLike,
    *,
    causal: bool = False,
    mask: Mask = None,
    scale: float | Tensor | None = None,
    block_size: int = 512,
) -> Tensor:
    """softmax(Q Kᵀ · scale) V, exactly, in memory that grows with n + m instead of n · m (Dao et al. 2022).

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv). mask, scale, empty rows and NaN are as in
    `scaled_dot_product_attention`. causal: query i sees key j ≤ i + m - n, if the mask also allows it.
    block_size: the side of a tile. At most four tiles of scores are in memory at once, however long the sequences are.
        The result is the same for every size.
    """
    Q, K, V = as_tensor(Q), as_tensor(K), as_tensor(V)
    shape = scores_shape(Q, K, V)
    if mask is not None:
        split_mask(mask, shape, Q.dtype)  # an error if it does not fit
    side = whole(block_size, "block_size", most=math.inf)
    plan = Plan((side, side), (0 if causal else -FAR, FAR), edge=-(-side // 4))
    return _attend(Q, K, V, scale, plan, *(() if mask is None else (mask,)))


@explained
def sliding_window_attention(
    Q: TensorLike,
    K: TensorLike,
    V: TensorLike,
    window: int,
    *,
    causal: bool = True,
    scale: float | Tensor | None = None,
) -> Tensor:
    """Attention to the last `window` positions, one's own included: time and memory n · window (Beltagy et al. 2020).

    Q, K (..., n, dk), V (..., n, dv) -> (..., n, dv): query i sees i - window < j ≤ i; without causal |i - j| < window.
    Equals `scaled_dot_product_attention` under `sliding_window_mask`. Raises ValueError for n ≠ m or window < 1.
    """
    Q, K, V = as_tensor(Q), as_tensor(K), as_tensor(V)
    *_, n, m = scores_shape(Q, K, V)
    if n != m:
        raise ValueError(
            f"{n} queries and {m} keys: a window slides along one sequence, so both must be equally many. "
            "Use flash_attention with mask=sliding_window_mask(n, window, m)"
        )
    window = min(whole(window, "window", most=math.inf), n)  # the query's own position counts
    side = min(max(window, 64), 256)  # of a tile: a few tiles per block of queries cover its band
    return _attend(Q, K, V, scale, Plan((side, side), (0 if causal else 1 - window, window - 1)))


@explained
def block_sparse_attention(
    Q: TensorLike,
    K: TensorLike,
    V: TensorLike,
    block_mask: ArrayLike,
    block_size: int,
    *,
    scale: float | Tensor | None = None,
) -> Tensor:
    """Attention between listed blocks of queries and keys only: only these blocks cost time.

    Q (..., n, dk), K (..., m, dk), V (..., m, dv) -> (..., n, dv).
    block_mask: booleans (⌈n / block_size⌉, ⌈m / block_size⌉), or with the leading axes of the scores before them:
        True where the queries of block I may attend to the keys of block J. See `longformer_blocks`, `bigbird_blocks`.
    Raises TypeError if the block mask is not boolean, ValueError if it does not fit.
    """
    Q, K, V = as_tensor(Q), as_tensor(K), as_tensor(V)
    *lead, n, m = scores_shape(Q, K, V)
    block_size = whole(block_size, "block_size", most=math.inf)
    blocks = array(block_mask, "block_mask").copy()  # the way back reads it again
    if blocks.dtype != bool:
        raise TypeError(f"block_mask is {blocks.dtype}, not boolean (True = may attend): use block_mask.astype(bool)")
    wanted = (*lead, -(-n // block_size), -(-m // block_size))
    if blocks.ndim not in (2, len(wanted)) or not broadcasts(blocks.shape, wanted):
        raise ValueError(
            f"block mask of shape {blocks.shape} for {n} queries and {m} keys in blocks of {block_size}: "
            f"it must be {wanted[-2:]}, or broadcast to {wanted}"
        )
    wide = max(block_size, 512 // block_size * block_size)  # neighbouring blocks make one tile up to this wide
    return _attend(Q, K, V, scale, Plan((block_size, wide), blocks=np.broadcast_to(blocks, wanted)))


def _attend(Q: Tensor, K: Tensor, V: Tensor, scale: Any, plan: Plan, *mask: Any) -> Tensor:
    """The kernel on inputs made safe for it. A NaN that no allowed pair reads becomes 0, because it must not meet a
    weight of 0. scale becomes a number: if it is a Tensor, Q is multiplied by it."""
    if not all(np.isfinite(np.vdot(x._data, x._data)) for x in (Q, K, V)):  # there is a NaN or inf, or a huge value
        busy, used = plan.seen(Q.shape[-2], K.shape[-2], *mask)
        Q, K, V = masked_fill(Q, ~busy, 0.0), masked_fill(K, ~used, 0.0), masked_fill(V, ~used, 0.0)
    if isinstance(scale, Tensor):
        if scale.ndim and scale.shape[-1] != 1:
            raise ValueError(f"scale of shape {scale.shape}: it multiplies each query, so its last axis must be 1")
        Q, scale = Q * scale, 1.0
    elif scale is None:
        scale = 1 / math.sqrt(Q.shape[-1] or 1)
    return tiled(Q, K, V, *mask, plan=plan._replace(scale=number(scale, "scale")))
