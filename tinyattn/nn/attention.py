"""Multi-head attention: project, attend, join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import LARGEST, array, generator, number, whole
from ..attention import fused_attention
from ..functional import rotary
from ..graph import Tensor, as_tensor
from ..masks import causal_mask
from ..ops import expand_dims
from ..values import Mask, Rng, TensorLike
from .cache import KVCache, checked
from .layers import Linear
from .module import Module, few

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Module):
    """h attentions side by side, each on its own d_model/h features; the joined heads meet Wo (Vaswani et al. 2017).

    mha(x) is self attention: queries, keys and values come from x, (..., n, d_model) -> (..., n, d_model).
    mha(x, context) is cross attention: keys and values come from context, (..., m, d_model).
    mask: as in `scaled_dot_product_attention`, for scores (..., h, n, m). None: no mask, except with a cache.
    cache: a KVCache. x is the text after what the cache holds. Without a mask, attention is then causal.
    return_weights: also return the softmax of each head, (..., h, n, m), before dropout.

    num_kv_heads: fewer heads for keys and values; h / num_kv_heads query heads share each (Ainslie et al. 2023).
    rotary: the base of rotary positions, e.g. 10000.0, see `ta.rotary`; None: no rotary positions.
    attention: the function of each head, called as attention(Q, K, V, mask=…), without mask if there is none. Use
        `scaled_dot_product_attention` to see its steps in a drawn graph, or one of ta.efficient: functools.partial
        sets its other arguments.
    Head i has the features i·dk … (i + 1)·dk - 1 of each projection.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: float | None = None,
        attention: Callable[..., Any] = fused_attention,
        rng: Rng = None,
    ) -> None:
        d_model, num_heads = whole(d_model, "d_model"), whole(num_heads, "num_heads", -LARGEST)
        kv = num_heads if num_kv_heads is None else whole(num_kv_heads, "num_kv_heads", -LARGEST)
        if num_heads < 1 or d_model % num_heads:
            fits = [h for h in range(1, d_model + 1) if d_model % h == 0]
            raise ValueError(
                f"d_model = {d_model} cannot be shared by num_heads = {num_heads}: each head gets "
                f"d_model / num_heads features. What fits: {few([str(h) for h in fits])}"
            )
        if kv < 1 or num_heads % kv:
            raise ValueError(
                f"num_heads = {num_heads} cannot share num_kv_heads = {kv}: each head of keys and values "
                "serves the same number of query heads"
            )
        rng = generator(rng)
        d_kv = d_model // num_heads * kv
        self.q_proj = Linear(d_model, d_model, bias, rng=rng)
        self.k_proj = Linear(d_model, d_kv, bias, rng=rng)
        self.v_proj = Linear(d_model, d_kv, bias, rng=rng)
        self.out_proj = Linear(d_model, d_model, bias, rng=rng)
        for letter, part in zip("qkvo", (self.q_proj, self.k_proj, self.v_proj, self.out_proj)):
            part.weight.name = f"W{letter}"  # as the paper and the drawings call them
        self.num_heads, self.num_kv_heads = num_heads, kv
        self.dropout, self.attention, self.rng = number(dropout, "dropout", 0, 1), attention, rng
        self.rotary = None if rotary is None else number(rotary, "rotary", np.finfo(float).tiny)

    def forward(
        self,
        x: TensorLike,
        context: TensorLike | None = None,
        *,
        mask: Mask = None,
        return_weights: bool = False,
        cache: KVCache | None = None,
    ) -> Any:
        x = as_tensor(x)
        source = x if context is None else as_tensor(context)  # keys and values are made of it
        self._check(x, source, cross=context is not None, cache=checked(cache))
        Q, K, V = self._project(x, source, 0 if cache is None else len(cache))
        if cache is not None:
            K, V = cache.join(self, K, V)  # (..., kv, m, dk), m now counts all tokens so far
            if mask is None and x.shape[-2] > 1:
                mask = causal_mask(x.shape[-2], K.shape[-2])
        heads, weights = self._attend(Q, K, V, mask, return_weights)
        out = self.out_proj(_join_heads(heads))
        return (out, weights) if return_weights else out

    def _project(self, x: Tensor, source: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Q (..., h, n, dk), K and V (..., kv, m, dk). The first query and key stand at position start."""
        Q = _split_heads(self.q_proj(x), self.num_heads)  # (..., n, d_model) -> (..., h, n, dk)
        K = _split_heads(self.k_proj(source), self.num_kv_heads)  # (..., m, d_kv) -> (..., kv, m, dk)
        V = _split_heads(self.v_proj(source), self.num_kv_heads)
        if self.rotary is not None:
            Q, K = rotary(Q, start, self.rotary), rotary(K, start, self.rotary)
        Q.name, K.name, V.name = "Q", "K", "V"
        return Q, K, V

    def _attend(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask, return_weights: bool) -> tuple[Tensor, Any]:
        """What the heads return, (..., h, n, dk), and their weights, (..., h, n, m), or None."""
        group = self.num_heads // self.num_kv_heads
        if group > 1:  # queries (..., kv, group, n, dk) meet keys (..., kv, 1, m, dk)
            Q, K, V = _cut_heads(Q, group), expand_dims(K, -3), expand_dims(V, -3)
            mask = mask if mask is None or isinstance(mask, Tensor) else array(mask, "mask")
            if mask is not None and mask.ndim > 2:
                if mask.shape[-3] not in (1, self.num_heads):
                    raise ValueError(
                        f"mask of shape {mask.shape} for {self.num_heads} heads: (..., heads, n, m), or (n, m)"
                    )
                mask = _cut_heads(mask, group) if mask.shape[-3] > 1 else mask[..., None, :, :]
        options: dict[str, Any] = {} if mask is None else {"mask": mask}
        if self.training and self.dropout:
            options |= {"dropout": self.dropout, "rng": self.rng}
        if return_weights:
            options["return_weights"] = True
        out = self.attention(Q, K, V, **options)
        heads, weights = out if return_weights else (out, None)
        if group > 1:
            heads, weights = _merge_heads(heads), None if weights is None else _merge_heads(weights)
        return heads, weights

    def _check(self, x: Tensor, source: Tensor, cross: bool, cache: KVCache | None) -> None:
        d_model = self.out_proj.weight.shape[0]
        if cross and source.dtype == bool:
            raise TypeError("context is an array of booleans, as masks are: write mha(x, mask=mask)")
        for name, t in ("x", x), ("context", source):
            if t.ndim < 2 or t.shape[-1] != d_model:
                raise ValueError(
                    f"{name} has shape {t.shape}, but attention works on sequences of vectors, "
                    f"(..., length, {d_model}); for one vector use x[None]"
                )
        if x.shape[:-2] != source.shape[:-2]:
            raise ValueError(
                f"x {x.shape} and context {source.shape} differ in their leading axes: each sequence of "
                "x reads its own context"
            )
        if cross and (cache is not None or self.rotary is not None):
            raise ValueError(
                "cross attention has no use for a cache or for rotary positions: both belong to one "
                "stream of tokens. Leave them out, or leave out context"
            )


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """(..., n, h·dk) -> (..., h, n, dk). First cut the features, then swap: a reshape alone would cut up tokens."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-3, -2)


def _join_heads(heads: Tensor) -> Tensor:
    """(..., h, n, dk) -> (..., n, h·dk)"""
    joined = heads.swapaxes(-3, -2)
    return joined.reshape(*joined.shape[:-2], joined.shape[-2] * joined.shape[-1])


def _cut_heads(x: Any, group: int) -> Any:
    """(..., h, n, m) -> (..., h/group, group, n, m)"""
    return x.reshape(*x.shape[:-3], x.shape[-3] // group, group, *x.shape[-2:])


def _merge_heads(x: Tensor) -> Tensor:
    """(..., h/group, group, n, m) -> (..., h, n, m)"""
    return x.reshape(*x.shape[:-4], x.shape[-4] * x.shape[-3], *x.shape[-2:])
