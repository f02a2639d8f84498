"""The transformer: blocks of attention and feed-forward, and a language model built of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..functional import linear
from ..graph import Tensor, no_grad
from ..masks import causal_mask
from ..values import Array
from .attention import KVCache, MultiHeadAttention
from .layers import Dropout, Embedding, FeedForward, LayerNorm, LearnedPositions, Linear
from .module import Module, Rng

__all__ = ["GPT", "TransformerBlock"]


def attend(layer: Module, *inputs: Any, maps: list[Tensor] | None, **options: Any) -> Any:
    """layer(*inputs, **options); where maps is a list, the layer is asked for its weights, and they are added to it."""
    if maps is None:
        return layer(*inputs, **options)
    out, *weights = layer(*inputs, return_weights=True, **options)
    maps += weights
    return out


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
        maps: list[Tensor] | None = [] if return_weights else None
        own = {"mask": mask, "cache": cache}
        x = self._add(x, self.norm1, lambda y: attend(self.attention, y, maps=maps, **own))
        if self.cross:
            x = self._add(
                x, self.norm2, lambda y: attend(self.cross_attention, y, context, maps=maps, mask=context_mask)
            )
        x = self._add(x, self.norm3 if self.cross else self.norm2, self.feed_forward)
        return x if maps is None else (x, *maps)

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
        maps: list[Tensor] | None = [] if return_weights else None
        for block in self.blocks:
            x = attend(block, x, maps=maps, mask=mask, cache=cache)
        x = self.norm(x)
        logits = linear(x, self.embedding.weight) if self.head is None else self.head(x)
        return logits if maps is None else (logits, maps)

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
