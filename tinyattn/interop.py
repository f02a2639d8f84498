"""To PyTorch and back: state dicts under its names, and masks from the conventions of other libraries.

Nothing here imports torch: its CPU tensors are read as arrays, and `torch.from_numpy` reads ours.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .arguments import array, told, whole
from .masks import behind
from .values import Array, Mask, TensorLike

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

    For Linear, LayerNorm, Embedding, MultiheadAttention, TransformerEncoderLayer, TransformerDecoderLayer, and models
    that hold them under the same names. PyTorch's in_proj is three projections in one: it is cut into q_, k_, v_proj.
    """
    new = []
    for name, value in _items(state):
        for theirs, ours in _NAMES.items():
            name = f".{name}".replace(f".{theirs}.", f".{ours}.")[1:]
        stem, packed, kind = name.rpartition("in_proj_")  # kind: weight or bias
        if not packed:
            new.append((name, value))
        elif value.ndim == 0 or len(value) % 3:
            raise ValueError(f"{name} of shape {value.shape} cannot be cut in three, for queries, keys and values")
        else:
            new += [(f"{stem}{p}_proj.{kind}", part) for p, part in zip("qkv", np.split(value, 3))]
    return _unique(new)


def state_to_torch(state: Mapping[str, Any]) -> dict[str, Array]:
    """The way back: `{name: torch.from_numpy(a) for name, a in state_to_torch(module.state_dict()).items()}`.

    Raises ValueError for grouped-query heads, which MultiheadAttention does not have.
    """
    new: list[tuple[str, Array]] = []
    packed: dict[str, dict[str, Array]] = {}
    for name, value in _items(state):
        for theirs, ours in _NAMES.items():
            name = f".{name}".replace(f".{ours}.", f".{theirs}.")[1:]
        stem, found, kind = name.rpartition("_proj.")
        if found and stem.endswith(("q", "k", "v")):
            packed.setdefault(f"{stem[:-1]}in_proj_{kind}", {})[stem[-1]] = value
        else:
            new.append((name, value))
    for name, parts in packed.items():
        if len({part.shape for part in parts.values()}) != 1 or len(parts) != 3:
            raise ValueError(
                f"{name} is made of projections of equal shape for queries, keys and values, got "
                f"{ {p: part.shape for p, part in parts.items()} }"
            )
        new.append((name, np.concatenate([np.atleast_1d(parts[p]) for p in "qkv"])))
    return _unique(new)


def _items(state: Any) -> Iterator[tuple[str, Array]]:
    if not isinstance(state, Mapping):
        raise TypeError(f"a state is a dictionary of arrays by name, as state_dict() gives, not {told(state)}")
    for name, value in state.items():
        if not isinstance(name, str):
            raise TypeError(f"the name {told(name)} is no string: a state is a dictionary of arrays by name")
        yield name, array(value.detach() if hasattr(value, "detach") else value, repr(name))


def _unique(items: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Copies by name. ValueError if two arrays have the same new name, because one of them would be lost."""
    new: dict[str, Array] = {}
    for name, value in items:
        if name in new:
            raise ValueError(f"two arrays of this state would both be {name}: is it translated already?")
        new[name] = value.copy()
    return new


# --- masks: to ours, where True may attend and floats are added ---------------------------------------


def mask_from_mha(attn_mask: Mask = None, key_padding_mask: Mask = None, *, num_heads: int = 1) -> Array | None:
    """From masks of torch.nn.MultiheadAttention and the Transformer layers, in which True may NOT attend.

    attn_mask (n, m) or (B · num_heads, n, m), key_padding_mask (B, m), booleans or floats -> one mask for both.
    """
    num_heads, given = whole(num_heads, "num_heads"), []
    if attn_mask is not None:
        mask = _mask(attn_mask, "attn_mask", "True = may not attend")
        if mask.ndim not in (2, 3) or (mask.ndim == 3 and (len(mask) % num_heads or not mask.size)):
            raise ValueError(
                f"attn_mask of shape {mask.shape} for num_heads = {num_heads}: it is (n, m), or (B · num_heads, n, m)"
            )
        given.append(mask.reshape(-1, num_heads, *mask.shape[1:]) if mask.ndim == 3 else mask)
    if key_padding_mask is not None:
        mask = _mask(key_padding_mask, "key_padding_mask", "True = padding")
        if mask.ndim not in (1, 2):
            raise ValueError(f"key_padding_mask of shape {mask.shape}: it says which keys are padding, (B, m)")
        given.append(mask[..., None, None, :])  # (B, m) -> (B, 1, 1, m)
    if not given:
        return None
    try:
        np.broadcast_shapes(*(mask.shape for mask in given))
    except ValueError:
        raise ValueError(
            f"attn_mask and key_padding_mask, as {' and '.join(str(m.shape) for m in given)}, do not fit together: "
            f"their keys, or their batches with num_heads = {num_heads}, differ"
        ) from None
    if all(mask.dtype == bool for mask in given):
        return ~functools.reduce(np.logical_or, given)
    return functools.reduce(np.add, [np.where(m, -np.inf, 0.0) if m.dtype == bool else m for m in given])


def mask_from_huggingface(attention_mask: TensorLike) -> Array:
    """From masks of Hugging Face's models: (B, m), 1 token, 0 padding -> (B, 1, 1, m) booleans; (B, n, m) likewise.

    Or from (B, 1, n, m) floats to add to the scores. They block with the dtype's lowest number, which becomes -inf: a
    finite number does not block if scores are as low, or if two masks are added.
    Raises ValueError for numbers that could be either.
    """
    mask = array(attention_mask, "attention_mask")
    if mask.ndim not in (2, 3, 4):
        raise ValueError(f"attention_mask of shape {mask.shape}: it is (B, m), (B, n, m) or (B, 1, n, m)")
    if mask.dtype.kind == "f" and mask.ndim == 4:
        mask = _mask(mask, "attention_mask", "True = may attend")
        return np.where(mask <= np.finfo(mask.dtype).min / 2, -np.inf, mask)
    if mask.dtype != bool and (((mask != 0) & (mask != 1)).any() or (mask.dtype.kind == "f" and not (mask == 1).any())):
        raise ValueError(
            f"attention_mask {mask.shape} {mask.dtype} holds other numbers than 1 for tokens and 0 for padding. One "
            "to be added to the scores has four axes, (B, 1, n, m)"
        )
    mask = mask.astype(bool, copy=False)
    return mask if mask.ndim == 4 else mask[:, None, None, :] if mask.ndim == 2 else mask[:, None]


def _mask(mask: Any, name: str, meaning: str) -> Array:
    """Booleans, or floats to add to the scores. TypeError or ValueError if it could mean either."""
    values = array(mask, name)
    if values.dtype.kind in "iu":
        raise TypeError(
            f"{name} holds {values.dtype}: 1 means padding to some and a token to others. Use booleans ({meaning})"
        )
    if values.dtype.kind == "f" and (np.isnan(values) | (values == np.inf)).any():
        raise ValueError(f"{name} holds NaN or inf, which would destroy the scores: floats are added, -inf blocks")
    if values.dtype.kind == "f" and (values == 1).any() and ((values == 0) | (values == 1)).all():
        raise ValueError(f"{name} of nothing but 0.0 and 1.0 would be added to the scores: use booleans ({meaning})")
    return values


def mask_from_flash(n: int, m: int, *, causal: bool = False, window_size: tuple[int, int] = (-1, -1)) -> Array:
    """From flash-attn's flags: (n, m) booleans. window_size: how many keys to the left and right are seen, -1: all.

    Both count from the query's own position, i + m - n, as in our masks. A window W of `sliding_window_mask` is
    (W - 1, 0).
    """
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise TypeError(
            f"window_size = {told(window_size)}: two numbers are needed, of keys to the left and to the right"
        )
    n, m = whole(n, "n", 0), whole(m, "m", 0)
    left, right = (max(n, m) if whole(size, "window_size", -1) < 0 else size for size in window_size)
    distance = behind(n, m)
    mask: Array = (distance <= left) & (distance >= (0 if causal else -right))
    return mask
