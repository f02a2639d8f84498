"""Masks: which query may attend to which key. In every mask here True means: may attend."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arguments import LARGEST, array, flag, told, whole
from .graph import Tensor
from .habits import explained
from .text import Shown
from .values import Array, Mask, Shape

__all__ = ["causal_mask", "padding_mask", "show_mask", "sliding_window_mask"]


def behind(n: int, m: int) -> Array:
    """(n, m) integers, i + m - n - j: how far key j lies behind query i. If negative, the key lies ahead.

    The last query stands at the last key: if m > n, the queries are the newest n positions, as in cached decoding.
    """
    n, m = whole(n, "n", 0), whole(m, "m", 0)
    return np.arange(m - n, m)[:, None] - np.arange(m)


def causal_mask(n: int, m: int | None = None) -> Array:
    """(n, m) booleans: query i may attend to key j ≤ i + m - n. For m > n the n queries are the newest positions."""
    n, m = whole(n, "n", 0), whole(n if m is None else m, "m", 0)
    return np.tri(n, m, m - n, dtype=bool)  # the same as behind(n, m) >= 0, but faster


def sliding_window_mask(n: int, window: int, m: int | None = None, causal: bool = True) -> Array:
    """(n, m) booleans: query i sees W = window positions, up to its own: i - W < j ≤ i; without causal, |i - j| < W.

    For m > n the n queries are the newest positions, as in `causal_mask`.
    """
    window = whole(window, "window", -LARGEST)
    if window < 1:
        raise ValueError(f"window {window}: it counts the query's own position, so it is at least 1")
    distance = behind(n, n if m is None else m)
    mask: Array = (distance >= 0 if flag(causal, "causal") else distance > -window) & (distance < window)
    return mask


def padding_mask(lengths: ArrayLike, m: int) -> Array:
    """(B, 1, 1, m) booleans: the first lengths[b] keys of sequence b are real, the rest is padding. Combine with &."""
    lengths, m = array(lengths, "lengths"), whole(m, "m", 0)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or ((lengths < 0) | (lengths > m)).any():
        raise ValueError(f"lengths {told(lengths)} must be whole numbers between 0 and m = {m}, one per sequence")
    mask: Array = np.arange(m) < lengths[:, None, None, None]
    return mask


def split_mask(mask: Mask, shape: Shape, dtype: Any) -> tuple[Array, Any]:
    """Any mask as (allowed, bias): booleans of at least two axes, and the numbers to add to the scores, or None.

    shape: the shape of the scores, (..., n, m).
    Raises TypeError for integers, ValueError for a float mask of 0s and 1s and for a shape that does not fit.
    """
    if callable(mask):
        raise TypeError(f"mask is a function, not what it returns: call it, as in {getattr(mask, '__name__', 'it')}(n)")
    if not isinstance(mask, Tensor):
        mask = array(mask, "mask")
    if mask.ndim not in (1, 2, len(shape)) or not broadcasts(mask.shape, shape):
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


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Does an array of this shape broadcast to that one?"""
    try:
        return shape == to[len(to) - len(shape) :] or np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


@explained
def show_mask(mask: Mask) -> Shown:
    """Print a mask as a grid and return the text: ■ may attend, · may not; rows are queries, columns are keys."""
    values = array(mask, "mask")
    grid, _ = split_mask(mask, np.atleast_2d(values).shape, values.dtype)  # refuses what attention would refuse
    grids = grid.reshape(-1, *grid.shape[-2:])
    rows = [[" ".join("■" if a else "·" for a in row) for row in g] for g in grids]
    return Shown([[(line, "")] for i, g in enumerate(rows) for line in ([""] if i else []) + g]).show()
