"""To PyTorch and back: state dicts under the other's names, and masks from the other's conventions.

Nothing here imports torch: its CPU tensors are read as arrays, and `torch.from_numpy` reads ours.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from .masks import behind
from .values import Array

__all__ = ["mask_from_flash", "mask_from_huggingface", "mask_from_mha", "state_from_torch", "state_to_torch"]

# --- state dicts --------------------------------------------------------------------------------------

_NAMES = {  # torch.nn.TransformerEncoderLayer and TransformerDecoderLayer: ta.nn.TransformerBlock
    "self_attn": "attention",
    "multihead_attn": "cross_attention",
    "linear1": "feed_forward.up",
    "linear2": "feed_forward.down",
}


def state_from_torch(state: Mapping[str, Any]) -> dict[str, Array]:
    """A PyTorch module's state_dict() for load_state_dict() of ours.

    Of Linear, LayerNorm, Embedding, MultiheadAttention, TransformerEncoderLayer, TransformerDecoderLayer, and of models
    that hold them under the same names. in_proj, PyTorch's three projections in one, is cut into q_, k_ and v_proj.
    """
    new: dict[str, Array] = {}
    for name, value in state.items():
        for theirs, ours in _NAMES.items():
            name = f".{name}".replace(f".{theirs}.", f".{ours}.")[1:]
        stem, packed, kind = name.rpartition("in_proj_")  # kind: weight or bias
        if packed:
            new |= {f"{stem}{p}_proj.{kind}": part.copy() for p, part in zip("qkv", np.split(np.asarray(value), 3))}
        else:
            new[name] = np.asarray(value).copy()
    return new


def state_to_torch(state: Mapping[str, Any]) -> dict[str, Array]:
    """The way back: `{name: torch.from_numpy(a) for name, a in state_to_torch(module.state_dict()).items()}`.

    Raises ValueError for grouped-query heads, which MultiheadAttention does not have.
    """
    new: dict[str, Array] = {}
    packed: dict[str, dict[str, Array]] = {}
    for name, value in state.items():
        for theirs, ours in _NAMES.items():
            name = f".{name}".replace(f".{ours}.", f".{theirs}.")[1:]
        stem, found, kind = name.rpartition("_proj.")
        if found and stem.endswith(("q", "k", "v")):
            packed.setdefault(f"{stem[:-1]}in_proj_{kind}", {})[stem[-1]] = np.array(value)
        else:
            new[name] = np.array(value)
    for name, parts in packed.items():
        if len({part.shape for part in parts.values()}) != 1 or len(parts) != 3:
            raise ValueError(
                f"{name} is made of projections of equal shape for queries, keys and values, got "
                f"{ {p: part.shape for p, part in parts.items()} }"
            )
        new[name] = np.concatenate([parts[p] for p in "qkv"])
    return new


# --- masks: to ours, where True may attend and floats are added ---------------------------------------


def mask_from_mha(attn_mask: Any = None, key_padding_mask: Any = None, *, num_heads: int = 1) -> Array | None:
    """Of torch.nn.MultiheadAttention and the Transformer layers, where True may NOT attend.

    attn_mask (n, m) or (B · num_heads, n, m), key_padding_mask (B, m), booleans or floats -> one mask for both.
    """
    given = []
    if attn_mask is not None:
        mask = np.asarray(attn_mask)
        given.append(mask.reshape(-1, num_heads, *mask.shape[1:]) if mask.ndim == 3 else mask)
    if key_padding_mask is not None:
        given.append(np.asarray(key_padding_mask)[..., None, None, :])  # (B, m) -> (B, 1, 1, m)
    if not given:
        return None
    if all(mask.dtype == bool for mask in given):
        return ~functools.reduce(np.logical_or, given)
    return functools.reduce(np.add, [np.where(m, -np.inf, 0.0) if m.dtype == bool else m for m in given])


def mask_from_huggingface(attention_mask: Any) -> Array:
    """Of Hugging Face's models: (B, m) with 1 for tokens, 0 for padding -> (B, 1, 1, m) booleans.

    Or (B, 1, n, m) floats to be added, the blocked ones at the dtype's lowest number, which becomes -inf: a finite
    number is no mask where scores are as low, or where two of them meet.
    """
    mask = np.asarray(attention_mask)
    if mask.ndim == 2:
        return mask.astype(bool)[:, None, None, :]
    return mask if mask.dtype == bool else np.where(mask <= np.finfo(mask.dtype).min / 2, -np.inf, mask)


def mask_from_flash(n: int, m: int, *, causal: bool = False, window_size: tuple[int, int] = (-1, -1)) -> Array:
    """Of flash-attn's flags: (n, m) booleans. window_size: how many keys to the left and right are seen, -1: all.

    Both count from the query's own position, i + m - n: bottom-right, as ours. A window W of `sliding_window_mask`
    is (W - 1, 0).
    """
    left, right = (size if size >= 0 else max(n, m) for size in window_size)
    distance = behind(n, m)
    mask: Array = (distance <= left) & (distance >= (0 if causal else -right))
    return mask
