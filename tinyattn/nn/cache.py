"""What a model has read already: keys and values, kept so that a text can be read piece by piece."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from ..arguments import array, integers, told, whole
from ..graph import Tensor
from ..ops import concatenate
from ..values import Array

__all__ = ["KVCache"]


class _Text(NamedTuple):
    tokens: int = 0
    layers: tuple[tuple[Tensor, Tensor], ...] = ()  # K (..., m, dk), V (..., m, dv), in the order of a call
    owners: tuple[weakref.ref[Any], ...] = ()  # the layers that made them
    padding: Array | None = None  # (B,): how many places on the left of each text hold no token


class KVCache:
    """The keys and values of the tokens read so far, for every attention layer of a model: pass it as `cache=`.

    The cache knows each layer by the order in which one call of the model reaches it. So a cache may be copied and
    pickled, a copy of the model may continue it, and one layer may stand at several depths. If a call fails anywhere,
    the cache stays as it was. If you call layers without a module around them, put `with cache:` around one pass.

    len(cache): the number of tokens read. clear() forgets them. copy() branches the text: both continue separately.
    select(rows): a new cache with the texts at these places of the batch, e.g. in the order of a beam search.
    """

    _text = _Text()  # replaced as a whole, when a call has ended well
    _ahead: _Text | None = None  # the text that the running call has read so far; None: no call runs
    _depth = 0

    def __len__(self) -> int:
        return self._text.tokens

    def clear(self) -> None:
        self._text = _Text()

    def copy(self) -> KVCache:
        new = KVCache()
        new._text = self._text
        return new

    def select(self, rows: Any) -> KVCache:
        """rows: integers, one per text of the new batch. Raises TypeError for others, IndexError outside the batch."""
        text, rows = self._text, array(rows, "rows")
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise TypeError(f"rows = {told(rows)}: they are places in the batch, a list of integers")
        sizes = [K.shape[0] for K, _ in text.layers if K.ndim > 3] + [len(p) for p in (text.padding,) if p is not None]
        if text.layers and not sizes:
            raise ValueError(f"keys of shape {text.layers[0][0].shape} have no batch axis: there are no rows to select")
        if sizes and rows.size and not (rows.min() >= 0 and rows.max() < sizes[0]):
            raise IndexError(f"rows = {told(rows)}: the batch has the rows 0 … {sizes[0] - 1}")
        rows = rows.astype(np.intp)
        new = KVCache()
        new._text = text._replace(
            layers=tuple((K[rows], V[rows]) for K, V in text.layers),
            padding=None if text.padding is None else text.padding[rows],
        )
        return new

    def __getstate__(self) -> dict[str, Any]:  # for copies and pickles: without the layers that made the keys
        return {"_text": self._text._replace(owners=())}

    # --- one call: kept when it ends well -----------------------------------------------------------

    def __enter__(self) -> KVCache:
        if self._depth == 0:
            self._ahead = _Text(self._text.tokens, padding=self._text.padding)
        self._depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._depth -= 1
        if self._depth or self._ahead is None:
            return
        ahead, self._ahead = self._ahead, None
        if kind is not None:
            return
        lengths = [K.shape[-2] for K, _ in ahead.layers]
        if any(n != ahead.tokens for n in lengths) or (self._text.tokens and len(lengths) != len(self._text.layers)):
            raise ValueError(
                f"after this call the attention layers would hold {lengths} keys for {ahead.tokens} tokens, "
                f"and {len(self._text.layers)} layers had keys before: a call reaches each layer once, with all tokens"
            )
        self._text = ahead

    def advance(self, tokens: int, padding: Any = None) -> Array | None:
        """The running call reads so many tokens. Returns the padding of each text, (B,), or None if there is none.

        padding: given with the first piece of the texts, and remembered. Attention layers call this themselves. A model
        without any calls it so that len(cache) counts its tokens.
        """
        if self._ahead is None:
            with self:
                return self.advance(tokens, padding)
        if padding is not None:
            if self._text.tokens:
                raise ValueError("padding lies left of a text: give it with the first piece, the cache remembers it")
            self._ahead = self._ahead._replace(padding=left_padding(padding, tokens))
        self._ahead = self._ahead._replace(tokens=self._text.tokens + whole(tokens, "tokens", 0))
        return self._ahead.padding

    def join(self, layer: Any, K: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of the whole text, (..., m, dk) and (..., m, dv): first the stored ones, then the new.

        layer: the attention layer that made the new ones.
        """
        if self._ahead is None:
            with self:
                return self.join(layer, K, V)
        self.advance(K.shape[-2])
        ahead, i = self._ahead, len(self._ahead.layers)
        if i < len(self._text.layers):
            old_K, old_V = self._text.layers[i]
            owner = self._text.owners[i]() if self._text.owners else None
            if owner is not None and owner is not layer and not _alike(owner, layer):
                raise ValueError(
                    f"attention layer {i} of this text was another one: a cache belongs to one model. If you call its "
                    "layers one by one, put `with cache:` around them"
                )
            if old_K.shape[:-2] != K.shape[:-2]:
                raise ValueError(
                    f"keys {K.shape} do not continue the cached {old_K.shape}: another batch? clear() the "
                    "cache before a new text"
                )
            K, V = concatenate([old_K, K], -2), concatenate([old_V, V], -2)
        self._ahead = ahead._replace(layers=(*ahead.layers, (K, V)), owners=(*ahead.owners, weakref.ref(layer)))
        return K, V


def checked(cache: Any) -> KVCache | None:
    """cache itself. TypeError if it is neither a cache nor None."""
    if cache is not None and not isinstance(cache, KVCache):
        raise TypeError(f"cache = {told(cache)}: it must be a KVCache, cache = ta.nn.KVCache(), or None")
    return cache


def left_padding(padding: Any, tokens: int) -> Array:
    """padding as (B,) integers: how many of these places, on the left of each text, hold no token."""
    counts = integers(padding, "padding")
    if counts.ndim != 1 or not ((counts >= 0) & (counts < tokens)).all():
        raise ValueError(
            f"padding = {told(counts)}: for each text it counts the places on its left without a token, from 0 to "
            f"{tokens - 1}"
        )
    return counts.astype(np.intp)


def _alike(a: Any, b: Any) -> bool:
    """Whether two layers make the same keys and values of the same text: a copy of a model continues its texts."""
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(np.array_equal(x[name], y[name], equal_nan=True) for name in x)
