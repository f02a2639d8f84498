"""Layers: modules with parameters, and the transformer built of them. Files that keep what was learned.

Names, shapes and initial values are PyTorch's (weights are (out, in)), so that knowledge and state dicts carry over;
interop.py has the translation. Where a layer draws random numbers, `rng` takes a generator or a seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .attention import causal_mask, fused_attention
from .functional import dropout, embedding, gelu, layer_norm, linear, rms_norm, rotary
from .ops import concatenate, expand_dims, sigmoid, split, stack, tanh
from .tensor import Array, Tensor, _wrap, as_tensor, no_grad, region

__all__ = [
    "GPT",
    "GRU",
    "RNN",
    "Dropout",
    "Embedding",
    "FeedForward",
    "KVCache",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "RMSNorm",
    "SwiGLU",
    "TransformerBlock",
    "load",
    "save",
    "sinusoidal_positions",
]

Rng: TypeAlias = "np.random.Generator | int | None"  # in quotes: np.random is loaded when it is first used


class Module:
    """A part of a model. Its Tensor attributes are parameters, its Module attributes parts, alone or in lists.

    A subclass sets them in `__init__` and computes in `forward`; calling the module calls that.
    """

    training = True

    def __init_subclass__(cls) -> None:
        if "forward" in vars(cls):  # what a module records is drawn as one box
            setattr(cls, "forward", region(cls.forward, cls.__name__))  # noqa: B010

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward(): write what it computes there")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def _parts(self) -> Iterator[tuple[str, Tensor | Module]]:
        for name, value in vars(self).items():
            several = isinstance(value, (list, tuple))
            for path, part in ((f"{name}.{i}", v) for i, v in enumerate(value)) if several else [(name, value)]:
                if isinstance(part, (Tensor, Module)):
                    yield path, part

    def _walk(self, prefix: str = "") -> Iterator[tuple[str, Tensor | Module]]:
        """Every tensor and module below, with its dotted name; one that is used twice comes twice."""
        for name, part in self._parts():
            yield prefix + name, part
            if isinstance(part, Module):
                yield from part._walk(f"{prefix}{name}.")

    def modules(self) -> Iterator[Module]:
        """This module and all below."""
        yield self
        yield from (part for _, part in self._walk() if isinstance(part, Module))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, parameter), each parameter once, as in 'blocks.0.attention.q_proj.weight'."""
        seen = set()
        for name, part in self._walk():
            if isinstance(part, Tensor) and part not in seen:
                seen.add(part)
                yield name, part

    def parameters(self) -> list[Tensor]:
        return [p for _, p in self.named_parameters()]

    def state_dict(self) -> dict[str, Array]:
        """Copies of the parameters' values by name."""
        return {name: p.numpy() for name, p in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the parameters from arrays by name; each keeps its own dtype.

        Raises ValueError on missing or unexpected names, wrong shapes and what is no number; then nothing is changed.
        """
        mine = {name: p for name, p in self._walk() if isinstance(p, Tensor)}  # shared ones under each of their names
        new = {mine[name]: np.asarray(value) for name, value in state.items() if name in mine}
        missing = [name for name, p in self.named_parameters() if p not in new]
        unexpected = [name for name in state if name not in mine]
        if missing or unexpected:
            raise ValueError(
                f"this state does not fit {type(self).__name__}: missing {_few(missing)}; unexpected "
                f"{_few(unexpected)}. Was it saved from a model with the same options?"
            )
        wrong = [
            f"{name} {a.shape} {a.dtype} for {p.shape}"
            for name, p in mine.items()
            if (a := new[p]).shape != p.shape or a.dtype.kind not in "fiub"
        ]
        if wrong:
            raise ValueError(
                f"this state does not fit {type(self).__name__}: {_few(wrong)}. Was it saved from a model "
                "of another size?"
            )
        for p, array in new.items():
            p.data = array.astype(p.dtype)

    def train(self, mode: bool = True) -> Module:
        """Switch dropout on (or off), here and in all parts."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def zero_grad(self) -> None:
        for p in self.parameters():
            p.grad = None

    def astype(self, dtype: Any) -> Module:
        """Turn all parameters into another floating dtype, in place (float32 trains fastest); clears gradients."""
        if np.dtype(dtype).kind != "f":
            raise TypeError(f"parameters cannot become {np.dtype(dtype)}: gradients need a floating dtype")
        for p in self.parameters():
            p.grad = None
            p.data = p._data.astype(dtype)
        return self

    def __repr__(self) -> str:
        shown = [f"{name} {part.shape}" for name, part in self._parts() if isinstance(part, Tensor)]
        shown += [f"{name}={v}" for name, v in vars(self).items() if isinstance(v, (int, float)) and name != "training"]
        size = sum(p.size for p in self.parameters())
        lines = [f"{type(self).__name__}({', '.join(shown)})" + f"  {size:,} parameters" * (size > 0)]
        lines += [f"{name}: {part!r}".replace("\n", "\n  ") for name, part in self._parts() if isinstance(part, Module)]
        return "\n  ".join(lines)


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"


def _parameter(values: Any, name: str) -> Tensor:
    p = _wrap(values, name)
    p.requires_grad = True
    return p


# --- maps, norms, dropout -----------------------------------------------------------------------------


class Linear(Module):
    """x Wᵀ + b: (..., in_features) -> (..., out_features). Starts uniform within ±1/√in_features."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, rng: Rng = None) -> None:
        rng = np.random.default_rng(rng)
        bound = 1 / math.sqrt(in_features)
        self.weight = _parameter(rng.uniform(-bound, bound, (out_features, in_features)), "weight")
        self.bias = _parameter(rng.uniform(-bound, bound, out_features), "bias") if bias else None

    def forward(self, x: Any) -> Tensor:
        return linear(x, self.weight, self.bias)


class Embedding(Module):
    """A table with one learned vector per id: (...) integers -> (..., embedding_dim). Starts normal, deviation std."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, std: float = 1.0, rng: Rng = None) -> None:
        self.weight = _parameter(np.random.default_rng(rng).normal(0, std, (num_embeddings, embedding_dim)), "weight")

    def forward(self, ids: Any) -> Tensor:
        return embedding(ids, self.weight)


class LayerNorm(Module):
    """(x - mean) / √(var + ε) · weight + bias over the last axis (Ba et al. 2016)."""

    def __init__(self, d_model: int, eps: float = 1e-5, bias: bool = True) -> None:
        self.weight = _parameter(np.ones(d_model), "weight")
        self.bias = _parameter(np.zeros(d_model), "bias") if bias else None
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """x / √(mean x² + ε) · weight over the last axis (Zhang & Sennrich 2019)."""

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        self.weight = _parameter(np.ones(d_model), "weight")
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Dropout(Module):
    """In training each element is zeroed with probability p, the rest divided by 1 - p (Srivastava et al. 2014)."""

    def __init__(self, p: float = 0.5, *, rng: Rng = None) -> None:
        self.p = p
        self.rng = np.random.default_rng(rng)

    def forward(self, x: Any) -> Tensor:
        return dropout(x, self.p, self.training, self.rng)


class FeedForward(Module):
    """down(activation(up(x))), at each position alone: (..., d_model) -> d_ff -> d_model; d_ff is 4 d_model if None."""

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        *,
        activation: Callable[[Tensor], Tensor] = gelu,
        bias: bool = True,
        dropout: float = 0.0,
        rng: Rng = None,
    ) -> None:
        rng = np.random.default_rng(rng)
        d_ff = 4 * d_model if d_ff is None else d_ff
        self.up = Linear(d_model, d_ff, bias, rng=rng)
        self.down = Linear(d_ff, d_model, bias, rng=rng)
        self.dropout = Dropout(dropout, rng=rng)
        self.activation = activation

    def forward(self, x: Any) -> Any:
        return self.down(self.dropout(self.activation(self.up(x))))


class SwiGLU(Module):
    """down(s σ(s) · up(x)) with s = gate(x): a feed-forward whose hidden features are gated (Shazeer 2020)."""

    def __init__(self, d_model: int, d_ff: int, *, bias: bool = False, rng: Rng = None) -> None:
        rng = np.random.default_rng(rng)
        self.gate = Linear(d_model, d_ff, bias, rng=rng)
        self.up = Linear(d_model, d_ff, bias, rng=rng)
        self.down = Linear(d_ff, d_model, bias, rng=rng)

    def forward(self, x: Any) -> Any:
        s = self.gate(x)
        return self.down(s * sigmoid(s) * self.up(x))


# --- positions: attention itself does not know the order of its keys ----------------------------------


def sinusoidal_positions(n: int, d_model: int) -> Array:
    """(n, d_model), to be added to n embeddings: sines and cosines of wavelengths from 2π to 10,000 · 2π.

    (Vaswani et al. 2017, section 3.5.) [t, 2i] = sin(t / 10000^(2i / d_model)), [t, 2i + 1] = cos of the same.
    """
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)  # (n, ⌈d/2⌉)
    table = np.empty((n, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


class LearnedPositions(Module):
    """x + weight[start : start + n]: a learned vector per position, (..., n, d_model) -> the same shape.

    Raises IndexError beyond position context - 1.
    """

    def __init__(self, context: int, d_model: int, *, rng: Rng = None) -> None:
        self.weight = _parameter(np.random.default_rng(rng).normal(0, 0.02, (context, d_model)), "positions")

    def forward(self, x: Any, start: int = 0) -> Tensor:
        x = as_tensor(x)
        context, end = len(self.weight), start + x.shape[-2]
        if end > context:
            raise IndexError(
                f"position {end - 1} is asked for, but only {context} positions, 0 … {context - 1}, were "
                f"learned: feed at most {context} tokens, or clear() the cache"
            )
        out: Tensor = x + self.weight[start:end]
        return out


# --- attention ----------------------------------------------------------------------------------------


class KVCache:
    """The keys and values of the tokens seen so far, for every attention layer of a model: pass it as `cache=`.

    len(cache) is the number of tokens; clear() forgets them.
    """

    def __init__(self) -> None:
        self._seen: dict[Module, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return max((K.shape[-2] for K, _ in self._seen.values()), default=0)

    def clear(self) -> None:
        self._seen.clear()

    def length(self, layer: Module) -> int:
        """How many tokens this layer has seen; len(cache) is ahead of it while a model runs."""
        return int(self._seen[layer][0].shape[-2]) if layer in self._seen else 0

    def join(self, layer: Module, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values that layer has seen, (..., m, dk) and (..., m, dv), with the new ones behind them."""
        if layer not in self._seen:
            return K, V
        old_K, old_V = self._seen[layer]
        if old_K.shape[:-2] != K.shape[:-2]:
            raise ValueError(
                f"keys {K.shape} do not continue the cached {old_K.shape}: another batch? clear() the "
                "cache before a new text"
            )
        return concatenate([old_K, K], -2), concatenate([old_V, V], -2)

    def keep(self, layer: Module, K: Tensor, V: Tensor) -> None:
        """Remember what join() returned, once it was of use: a call that fails leaves the cache as it was."""
        self._seen[layer] = K, V


class MultiHeadAttention(Module):
    """h attentions side by side, each on its own d_model/h features: heads joined, times Wo (Vaswani et al. 2017).

    mha(x) is self attention: queries, keys and values come from x, (..., n, d_model) -> (..., n, d_model).
    mha(x, context) is cross attention: keys and values come from context, (..., m, d_model).
    mask: as in `scaled_dot_product_attention`, for scores (..., h, n, m). None: no mask, except with a cache.
    cache: a KVCache. x continues the text in it; with no mask, causally.
    return_weights: also return the softmax of each head, (..., h, n, m), before dropout.

    num_kv_heads: fewer heads for keys and values, each shared by h / num_kv_heads queries' heads (Ainslie et al. 2023).
    rotary: base of rotary positions (10000.0, say), see `ta.rotary`; None: none.
    attention: what computes each head, called as attention(Q, K, V, mask=…), mask only where there is one:
        `scaled_dot_product_attention` to see its steps in a drawn graph, or one of ta.efficient, whose other arguments
        functools.partial sets.
    Head i owns the features i·dk … (i + 1)·dk - 1 of each projection.
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
        kv = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or d_model % num_heads:
            fits = [h for h in range(1, d_model + 1) if d_model % h == 0]
            raise ValueError(
                f"d_model = {d_model} cannot be shared by num_heads = {num_heads}: each head gets "
                f"d_model / num_heads features. What fits: {_few([str(h) for h in fits])}"
            )
        if kv < 1 or num_heads % kv:
            raise ValueError(
                f"num_heads = {num_heads} cannot share num_kv_heads = {kv}: each head of keys and values "
                "serves the same number of query heads"
            )
        rng = np.random.default_rng(rng)
        d_kv = d_model // num_heads * kv
        self.q_proj = Linear(d_model, d_model, bias, rng=rng)
        self.k_proj = Linear(d_model, d_kv, bias, rng=rng)
        self.v_proj = Linear(d_model, d_kv, bias, rng=rng)
        self.out_proj = Linear(d_model, d_model, bias, rng=rng)
        for letter, part in zip("qkvo", (self.q_proj, self.k_proj, self.v_proj, self.out_proj)):
            part.weight.name = f"W{letter}"  # as the paper and the drawings call them
        self.num_heads, self.num_kv_heads = num_heads, kv
        self.dropout, self.rotary, self.attention, self.rng = dropout, rotary, attention, rng

    def forward(
        self,
        x: Any,
        context: Any = None,
        *,
        mask: Any = None,
        return_weights: bool = False,
        cache: KVCache | None = None,
    ) -> Any:
        x = as_tensor(x)
        source = x if context is None else as_tensor(context)
        self._check(x, source, cross=context is not None, cache=cache)
        Q = _split_heads(self.q_proj(x), self.num_heads)  # (..., n, d_model) -> (..., h, n, dk)
        K = _split_heads(self.k_proj(source), self.num_kv_heads)  # (..., m, d_kv) -> (..., kv, m, dk)
        V = _split_heads(self.v_proj(source), self.num_kv_heads)
        if self.rotary is not None:
            start = cache.length(self) if cache is not None else 0
            Q, K = rotary(Q, start, self.rotary), rotary(K, start, self.rotary)
        if cache is not None:
            K, V = all_K, all_V = cache.join(self, K, V)  # (..., kv, m, dk), m now counts all tokens so far
            if mask is None and x.shape[-2] > 1:
                mask = causal_mask(x.shape[-2], K.shape[-2])
        group = self.num_heads // self.num_kv_heads
        if group > 1:  # queries (..., kv, group, n, dk) meet keys (..., kv, 1, m, dk)
            Q, K, V = _split_axis(Q, group), expand_dims(K, -3), expand_dims(V, -3)
            if mask is not None and np.ndim(mask) > 2:
                mask = _split_axis(mask, group) if mask.shape[-3] > 1 else mask[..., None, :, :]

        options: dict[str, Any] = {} if mask is None else {"mask": mask}
        if self.training and self.dropout:
            options |= {"dropout": self.dropout, "rng": self.rng}
        if return_weights:
            heads, weights = self.attention(Q, K, V, return_weights=True, **options)
        else:
            heads, weights = self.attention(Q, K, V, **options), None
        if cache is not None:
            cache.keep(self, all_K, all_V)
        if group > 1:
            heads = _merge_axis(heads)  # (..., kv, group, n, dk) -> (..., h, n, dk)
            weights = None if weights is None else _merge_axis(weights)
        joined = heads.swapaxes(-3, -2).reshape(x.shape)  # (..., h, n, dk) -> (..., n, d_model)
        out = self.out_proj(joined)
        return (out, weights) if return_weights else out

    def _check(self, x: Tensor, source: Tensor, cross: bool, cache: KVCache | None) -> None:
        d_model = self.out_proj.weight.shape[0]
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
                "cross attention has no use for a cache or for rotary positions: both are about one "
                "stream of tokens. Leave them out, or leave out context"
            )


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """(..., n, h·dk) -> (..., h, n, dk). First cut the features, then swap: a reshape alone would cut up tokens."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-3, -2)


def _split_axis(x: Any, group: int) -> Any:
    """(..., h, n, m) -> (..., h/group, group, n, m)"""
    return x.reshape(*x.shape[:-3], x.shape[-3] // group, group, *x.shape[-2:])


def _merge_axis(x: Any) -> Any:
    """(..., kv, group, n, m) -> (..., kv·group, n, m)"""
    return x.reshape(*x.shape[:-4], x.shape[-4] * x.shape[-3], *x.shape[-2:])


# --- transformers -------------------------------------------------------------------------------------


class TransformerBlock(Module):
    """Attention, then a feed-forward, each added to its input: x + layer(norm(x)); post-norm: norm(x + layer(x)).

    (Vaswani et al. 2017; pre-norm: Xiong et al. 2020.) block(x, mask=…, cache=…) is an encoder's block, or with a
    causal mask a GPT's. With cross=True, block(x, context, mask=…, context_mask=…) is a decoder's: between the
    two, x attends to context.
    norm: makes a norm for d_model features: LayerNorm, RMSNorm, or a function that sets their options.
    attention, feed_forward: modules to use instead of MultiHeadAttention(d_model, num_heads), FeedForward(d_model).
    return_weights: also return the attention weights of each head, (..., h, n, m), those of cross attention last.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        pre_norm: bool = True,
        cross: bool = False,
        dropout: float = 0.0,
        norm: Callable[[int], Module] = LayerNorm,
        attention: Module | None = None,
        feed_forward: Module | None = None,
        rng: Rng = None,
    ) -> None:
        rng = np.random.default_rng(rng)
        self.norm1 = norm(d_model)
        self.attention = attention or MultiHeadAttention(d_model, num_heads, dropout=dropout, rng=rng)
        self.norm2 = norm(d_model)
        if cross:
            self.cross_attention = MultiHeadAttention(d_model, num_heads, dropout=dropout, rng=rng)
            self.norm3 = norm(d_model)
        self.feed_forward = feed_forward or FeedForward(d_model, dropout=dropout, rng=rng)
        self.dropout = Dropout(dropout, rng=rng)
        self.pre_norm, self.cross = pre_norm, cross

    def forward(
        self,
        x: Any,
        context: Any = None,
        *,
        mask: Any = None,
        context_mask: Any = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> Any:
        if self.cross != (context is not None):
            raise ValueError(
                f"this block was made with cross={self.cross}, so it is called with"
                f"{'' if self.cross else 'out'} a context"
            )
        weights = []

        def attend(layer: Module, *inputs: Any, **options: Any) -> Any:
            if return_weights:
                out, w = layer(*inputs, return_weights=True, **options)
                weights.append(w)
                return out
            return layer(*inputs, **options)

        x = self._add(x, self.norm1, lambda y: attend(self.attention, y, mask=mask, cache=cache))
        if self.cross:
            x = self._add(x, self.norm2, lambda y: attend(self.cross_attention, y, context, mask=context_mask))
        x = self._add(x, self.norm3 if self.cross else self.norm2, self.feed_forward)
        return (x, *weights) if return_weights else x

    def _add(self, x: Any, norm: Module, layer: Callable[[Any], Any]) -> Any:
        return x + self.dropout(layer(norm(x))) if self.pre_norm else norm(x + self.dropout(layer(x)))


class GPT(Module):
    """A causal language model: ids (B, T) -> logits (B, T, vocab_size) for the next token at each position.

    (Radford et al. 2019.) context: the longest text it can read, in tokens.
    tied: the output layer is the embedding table, transposed.
    positions: learned ones are added to the embeddings; False where the blocks bring their own (rotary).
    block: a function that makes each block; norm: makes the last norm, and those of the default blocks.
    """

    def __init__(
        self,
        vocab_size: int,
        context: int,
        d_model: int,
        num_heads: int,
        num_layers: int,
        *,
        dropout: float = 0.0,
        tied: bool = False,
        positions: bool = True,
        norm: Callable[[int], Module] = LayerNorm,
        block: Callable[[], Module] | None = None,
        rng: Rng = None,
    ) -> None:
        rng = np.random.default_rng(rng)
        block = block or (lambda: TransformerBlock(d_model, num_heads, dropout=dropout, norm=norm, rng=rng))
        self.context = context
        self.embedding = Embedding(vocab_size, d_model, std=0.02, rng=rng)
        self.positions = LearnedPositions(context, d_model, rng=rng) if positions else None
        self.dropout = Dropout(dropout, rng=rng)
        self.blocks = [block() for _ in range(num_layers)]
        self.norm = norm(d_model)
        self.head = None if tied else Linear(d_model, vocab_size, bias=False, rng=rng)

    def forward(self, ids: Any, *, cache: KVCache | None = None, return_weights: bool = False) -> Any:
        """return_weights: also return the attention weights of each layer, a list of (B, h, T, m)."""
        ids = np.asarray(ids.data if isinstance(ids, Tensor) else ids)
        if ids.ndim != 2:
            raise ValueError(f"ids have shape {ids.shape}, but (batch, time) is needed; for one text use ids[None]")
        start = 0 if cache is None else len(cache)
        if start + ids.shape[1] > self.context:
            raise IndexError(
                f"{start + ids.shape[1]} tokens are more than this model's context of {self.context}: "
                "feed fewer, or clear() the cache"
            )
        x = self.embedding(ids)  # (B, T) -> (B, T, d_model)
        x = self.dropout(x if self.positions is None else self.positions(x, start))
        mask = causal_mask(ids.shape[1]) if cache is None else None
        maps = []
        for block in self.blocks:
            x = block(x, mask=mask, cache=cache, return_weights=return_weights)
            if return_weights:
                x, weights = x
                maps.append(weights)
        x = self.norm(x)
        logits = linear(x, self.embedding.weight) if self.head is None else self.head(x)
        return (logits, maps) if return_weights else logits

    def generate(
        self, ids: Any, max_new_tokens: int, *, temperature: float = 1.0, top_k: int | None = None, rng: Rng = None
    ) -> Array:
        """Continue texts: ids (B, T) -> (B, T + max_new_tokens). As `stream`, all at once."""
        ids = np.asarray(ids)
        new = [t[:, None] for t in self.stream(ids, max_new_tokens, temperature=temperature, top_k=top_k, rng=rng)]
        return np.concatenate([ids, *new], axis=1)

    def stream(
        self, ids: Any, max_new_tokens: int, *, temperature: float = 1.0, top_k: int | None = None, rng: Rng = None
    ) -> Iterator[Array]:
        """Yield the next tokens (B,), drawn from softmax(logits / temperature), one step at a time, with a KV cache.

        temperature: 0 takes the likeliest token. top_k: only the k likeliest are drawn from.
        Dropout is off. Where the context is full, the newer half of it is read again and the rest forgotten.
        """
        if temperature < 0 or (top_k is not None and top_k < 1):
            raise ValueError(f"temperature = {temperature} must be 0 or more, and top_k = {top_k} at least 1 or None")
        ids = np.asarray(ids)
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise ValueError(f"ids have shape {ids.shape}, but (batch, time) is needed, with a token to start from")
        rng = np.random.default_rng(rng)
        cache = KVCache()
        piece = ids[:, -self.context :]
        for _ in range(max_new_tokens):
            if len(cache) + piece.shape[1] > self.context:
                cache.clear()
                piece = ids[:, -(self.context // 2 or 1) :]
            training = self.training
            if training:
                self.eval()
            try:
                with no_grad():
                    logits = self(piece, cache=cache)._data[:, -1]  # (B, vocab_size)
            finally:
                if training:
                    self.train()
            token = _draw(logits, temperature, top_k, rng)
            yield token
            piece = token[:, None]
            ids = np.concatenate([ids, piece], axis=1)


def _draw(logits: Array, temperature: float, top_k: int | None, rng: np.random.Generator) -> Array:
    if temperature == 0:
        return np.asarray(logits.argmax(-1))
    if top_k is not None and top_k < logits.shape[-1]:
        logits = np.where(logits < np.partition(logits, -top_k, axis=-1)[:, -top_k, None], -np.inf, logits)
    noise = rng.gumbel(size=logits.shape)  # argmax of logits + Gumbel noise is a draw from their softmax
    return np.asarray((logits / temperature + noise).argmax(-1))


# --- before attention ---------------------------------------------------------------------------------


class RNN(Module):
    """A recurrent network (Elman 1990): h = tanh(Wx x + bx + Wh h + bh), all that was read in one vector of fixed size.

    x (B, T, d_in) -> all states (B, T, d_hidden); the last one, [:, -1], is the summary.
    """

    gates = 1

    def __init__(self, d_in: int, d_hidden: int, *, rng: Rng = None) -> None:
        rng = np.random.default_rng(rng)
        self.input = Linear(d_in, self.gates * d_hidden, rng=rng)
        self.state = Linear(d_hidden, self.gates * d_hidden, rng=rng)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        """The next state, from this position's projected input (B, gates · d_hidden) and the state (B, d_hidden)."""
        return tanh(x + self.state(h))

    def forward(self, x: Any, h: Any = None) -> Tensor:
        projected = self.input(x)  # (B, T, d_in) -> (B, T, gates · d_hidden), all positions at once
        B, T, _ = projected.shape
        state = Tensor(np.zeros((B, self.state.weight.shape[1]), projected.dtype)) if h is None else as_tensor(h)
        states = []
        stride = math.isqrt(T) or 1  # cut in two stages: a slice's gradient is as large as what it was cut from
        for piece in split(projected, range(stride, T, stride), axis=1):
            for t in range(piece.shape[1]):
                state = self.step(piece[:, t], state)
                states.append(state)
        return stack(states, axis=1)


class GRU(RNN):
    """A recurrent network that learns what to keep (Cho et al. 2014), as in PyTorch:

    r = σ(…), z = σ(…), c = tanh(Wx x + bx + r · (Wh h + bh)),  h = (1 - z) · c + z · h
    """

    gates = 3

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        n = h.shape[-1]
        s = self.state(h)
        gate = sigmoid(x[:, : 2 * n] + s[:, : 2 * n])
        r, z = gate[:, :n], gate[:, n:]
        candidate = tanh(x[:, 2 * n :] + r * s[:, 2 * n :])
        return candidate + z * (h - candidate)


# --- files --------------------------------------------------------------------------------------------


def save(state: Any, path: str | os.PathLike[str]) -> None:
    """Write a state dict, or that of a module or optimiser, to a .npz or .safetensors file (by the path's suffix).

    The file appears complete or not at all. Raises ValueError for another suffix, TypeError for what is no array of
    numbers. Never pickle.
    """
    path = Path(path)
    arrays = {}
    for name, value in (state if isinstance(state, Mapping) else state.state_dict()).items():
        arrays[name] = np.array(value._data if isinstance(value, Tensor) else value, order="C")
        if not isinstance(name, str) or arrays[name].dtype.kind not in "fiub":
            raise TypeError(f"{name!r} holds {arrays[name].dtype}: a state is a dictionary of names and number arrays")
    _check_suffix(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.suffix == ".npz":
            _write_npz(arrays, part)
        else:
            _safetensors().save_file(arrays, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_npz(arrays: dict[str, Array], path: Path) -> None:
    """As np.savez, which would take the names 'file' and 'allow_pickle' for its own arguments."""
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def load(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a state dict, arrays by name, from a .npz or .safetensors file; module.load_state_dict takes it.

    Raises FileNotFoundError, and ValueError for a damaged or foreign file.
    """
    path = Path(path)
    _check_suffix(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: check the path, or save() first")
    reader = np.load if path.suffix == ".npz" else _safetensors().load_file
    try:
        return {str(name): array for name, array in reader(path).items()}
    except Exception as error:  # the libraries raise a dozen kinds, from zlib.error to SafetensorError
        raise ValueError(
            f"{path} cannot be read as {path.suffix}: damaged, cut short, or not such a file ({error})"
        ) from error


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"{path}: the suffix chooses the format, .npz (NumPy) or .safetensors")


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("for .safetensors files: pip install safetensors. A .npz file needs nothing more") from error
    return safetensors.numpy
