"""The transformer: blocks of attention and feed-forward, and a language model made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import generator, integers, number, whole
from ..functional import linear
from ..graph import Tensor
from ..masks import causal_mask
from ..modes import no_grad
from ..values import Array, Mask, Rng, TensorLike
from .attention import MultiHeadAttention
from .cache import KVCache, checked, left_padding
from .layers import Dropout, Embedding, FeedForward, LayerNorm, LearnedPositions, Linear
from .module import Module, resting

__all__ = ["GPT", "TransformerBlock"]


def attend(layer: Module, *inputs: Any, maps: list[Tensor] | None, **options: Any) -> Any:
    """layer(*inputs, **options). If maps is a list, the layer also returns its weights, and they are appended to it."""
    if maps is None:
        return layer(*inputs, **options)
    out, *weights = layer(*inputs, return_weights=True, **options)
    maps += weights
    return out


class TransformerBlock(Module):
    """Attention, then a feed-forward, each added to its input: x + layer(norm(x)); post-norm: norm(x + layer(x)).

    (Vaswani et al. 2017; pre-norm: Xiong et al. 2020.) block(x, mask=…, cache=…) is a block of an encoder, or, with a
    causal mask, of a GPT. With cross=True, block(x, context, mask=…, context_mask=…) is a block of a decoder: between
    attention and feed-forward, x attends to context.
    norm: makes a norm for d_model features: LayerNorm, RMSNorm, or a function that sets their options.
    attention, feed_forward: modules to use instead of MultiHeadAttention(d_model, num_heads), FeedForward(d_model).
    return_weights: also return the attention weights of each head, (..., h, n, m); those of cross attention come last.
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
        rng = generator(rng)
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
        x: TensorLike,
        context: TensorLike | None = None,
        *,
        mask: Mask = None,
        context_mask: Mask = None,
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
    positions: True: learned ones are added to the embeddings. False: the blocks have their own (rotary).
    block: a function that makes each block. norm: it makes the last norm, and those of the default blocks.
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
        rng = generator(rng)
        num_layers = whole(num_layers, "num_layers", 0)
        block = block or (lambda: TransformerBlock(d_model, num_heads, dropout=dropout, norm=norm, rng=rng))
        self.context = whole(context, "context")
        self.embedding = Embedding(vocab_size, d_model, std=0.02, rng=rng)
        self.positions = LearnedPositions(context, d_model, rng=rng) if positions else None
        self.dropout = Dropout(dropout, rng=rng)
        self.blocks = [block() for _ in range(num_layers)]
        self.norm = norm(d_model)
        self.head = None if tied else Linear(d_model, vocab_size, bias=False, rng=rng)

    def forward(
        self,
        ids: ArrayLike,
        *,
        padding: ArrayLike | None = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> Any:
        """padding: (B,) integers, how many places on the left of each text hold no token: nobody attends to them, and
            positions count from the first real token. With a cache, give it with the first piece of the texts.
        return_weights: also return the attention weights of each layer, a list of (B, h, T, m).
        """
        ids = integers(ids, "ids")
        if ids.ndim != 2:
            raise ValueError(f"ids have shape {ids.shape}, but (batch, time) is needed; for one text use ids[None]")
        B, T = ids.shape
        cache = checked(cache)
        start = 0 if cache is None else len(cache)
        if start + T > self.context:
            raise IndexError(
                f"{start + T} tokens are more than this model's context of {self.context}: "
                "feed fewer, or clear() the cache"
            )
        if cache is not None:
            padding = cache.advance(T, padding)
        elif padding is not None:
            padding = left_padding(padding, T)
        if padding is not None and padding.shape != (B,):
            raise ValueError(f"padding of shape {padding.shape} for {B} texts: one number is needed for each, ({B},)")
        x = self.embedding(ids)  # (B, T) -> (B, T, d_model)
        if self.positions is not None:
            x = self.positions(x, start if padding is None else start - padding)
        x = self.dropout(x)
        mask = causal_mask(T) if cache is None else None
        if padding is not None:
            mask = causal_mask(T, start + T) & (np.arange(start + T) >= padding[:, None, None, None])
        maps: list[Tensor] | None = [] if return_weights else None
        for block in self.blocks:
            x = attend(block, x, maps=maps, mask=mask, cache=cache)
        x = self.norm(x)
        logits = linear(x, self.embedding.weight) if self.head is None else self.head(x)
        return logits if maps is None else (logits, maps)

    def generate(
        self,
        ids: ArrayLike,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        padding: ArrayLike | None = None,
        rng: Rng = None,
    ) -> Array:
        """Continue texts: ids (B, T) -> (B, T + max_new_tokens). The same as `stream`, but all at once."""
        options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "padding": padding, "rng": rng}
        new = [tokens[:, None] for tokens in self.stream(ids, max_new_tokens, **options)]
        return np.concatenate([integers(ids, "ids"), *new], axis=1)

    def stream(
        self,
        ids: ArrayLike,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        padding: ArrayLike | None = None,
        rng: Rng = None,
    ) -> Iterator[Array]:
        """Yield the next tokens (B,), drawn from softmax(logits / temperature), one step at a time, with a KV cache.

        temperature: 0 takes the likeliest token. top_k: only the k likeliest are drawn from.
        padding: (B,), the places on the left of each text without a token, so that texts of several lengths make one
        batch. Dropout is off. When the context is full, its newer half is read again and the rest is forgotten.
        Raises ValueError if the logits are NaN or infinite (-inf alone forbids a token).
        """
        ids, rng = integers(ids, "ids"), generator(rng)
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise ValueError(f"ids have shape {ids.shape}, but (batch, time) is needed, with a token to start from")
        temperature = number(temperature, "temperature", 0)
        top_k = None if top_k is None else whole(top_k, "top_k")
        padding = None if padding is None else left_padding(padding, ids.shape[1])
        return self._continue(ids, whole(max_new_tokens, "max_new_tokens", 0), temperature, top_k, padding, rng)

    def _continue(
        self,
        ids: Array,
        count: int,
        temperature: float,
        top_k: int | None,
        padding: Array | None,
        rng: np.random.Generator,
    ) -> Iterator[Array]:
        cache, modules = KVCache(), list(self.modules())
        piece = ids[:, -self.context :]
        padding = None if padding is None else padding - (ids.shape[1] - piece.shape[1])
        for _ in range(count):
            if len(cache) + piece.shape[1] > self.context:
                kept = self.context // 2 or 1
                padding = None if padding is None else padding - (len(cache) + piece.shape[1] - kept)
                piece = ids[:, -kept:]
                cache.clear()
            left = {} if padding is None or len(cache) else {"padding": np.maximum(padding, 0)}
            with resting(modules), no_grad():
                logits = self(piece, cache=cache, **left)._data[:, -1]  # (B, vocab_size)
            token = _draw(logits, temperature, top_k, rng)
            yield token
            piece = token[:, None]
            ids = np.concatenate([ids, piece], axis=1)


def _draw(logits: Array, temperature: float, top_k: int | None, rng: np.random.Generator) -> Array:
    best = logits.max(-1, keepdims=True)
    if not np.isfinite(best).all():
        raise ValueError(
            f"the logits of {np.count_nonzero(~np.isfinite(best))} of {len(best)} texts have no finite largest one "
            "(NaN, inf, or nothing but -inf): no token can be drawn. Look for an overflow or a damaged checkpoint"
        )
    if temperature == 0:
        return np.asarray(logits.argmax(-1))
    if top_k is not None and top_k < logits.shape[-1]:
        logits = np.where(logits < np.partition(logits, -top_k, axis=-1)[:, -top_k, None], -np.inf, logits)
    noise = rng.gumbel(size=logits.shape)  # argmax of logits + Gumbel noise is a draw from their softmax
    with np.errstate(over="ignore"):  # at a temperature near 0 all but the likeliest become -inf
        return np.asarray(((logits - best) / temperature + noise).argmax(-1))
