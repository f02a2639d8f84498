"""Layers that work on each position alone: linear maps, norms, dropout, feed-forwards; and the positions themselves."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import generator, integers, number, whole
from ..functional import dropout, embedding, gelu, layer_norm, linear, rms_norm
from ..graph import Tensor, as_tensor
from ..ops import sigmoid
from ..values import Array, Rng, TensorLike
from .module import Module, parameter

__all__ = [
    "Dropout",
    "Embedding",
    "FeedForward",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "RMSNorm",
    "SwiGLU",
    "sinusoidal_positions",
]


class Linear(Module):
    """x Wᵀ + b: (..., in_features) -> (..., out_features). Starts uniform within ±1/√in_features."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, rng: Rng = None) -> None:
        rng = generator(rng)
        in_features, out_features = whole(in_features, "in_features"), whole(out_features, "out_features")
        bound = 1 / math.sqrt(in_features)
        self.weight = parameter(rng.uniform(-bound, bound, (out_features, in_features)), "weight")
        self.bias = parameter(rng.uniform(-bound, bound, out_features), "bias") if bias else None

    def forward(self, x: TensorLike) -> Tensor:
        return linear(x, self.weight, self.bias)


class Embedding(Module):
    """A table with one learned vector per id: (...) integers -> (..., embedding_dim). Starts normal, deviation std."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, std: float = 1.0, rng: Rng = None) -> None:
        shape = whole(num_embeddings, "num_embeddings"), whole(embedding_dim, "embedding_dim")
        self.weight = parameter(generator(rng).normal(0, number(std, "std", 0), shape), "weight")

    def forward(self, ids: ArrayLike) -> Tensor:
        return embedding(ids, self.weight)


class LayerNorm(Module):
    """(x - mean) / √(var + ε) · weight + bias over the last axis (Ba et al. 2016)."""

    def __init__(self, d_model: int, eps: float = 1e-5, bias: bool = True) -> None:
        self.weight = parameter(np.ones(whole(d_model, "d_model")), "weight")
        self.bias = parameter(np.zeros(d_model), "bias") if bias else None
        self.eps = number(eps, "eps", 0)

    def forward(self, x: TensorLike) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """x / √(mean x² + ε) · weight over the last axis (Zhang & Sennrich 2019)."""

    def __init__(self, d_model: int, eps: float = 1e-6) -> None:
        self.weight = parameter(np.ones(whole(d_model, "d_model")), "weight")
        self.eps = number(eps, "eps", 0)

    def forward(self, x: TensorLike) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Dropout(Module):
    """In training each element is zeroed with probability p, the rest divided by 1 - p (Srivastava et al. 2014)."""

    def __init__(self, p: float = 0.5, *, rng: Rng = None) -> None:
        self.p = number(p, "p", 0, 1)
        self.rng = generator(rng)

    def forward(self, x: TensorLike) -> Tensor:
        return dropout(x, self.p, self.training, self.rng)


class FeedForward(Module):
    """down(activation(up(x))), at each position alone: (..., d_model) -> d_ff -> d_model. d_ff=None: 4 · d_model."""

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
        rng = generator(rng)
        d_ff = 4 * whole(d_model, "d_model") if d_ff is None else d_ff
        self.up = Linear(d_model, d_ff, bias, rng=rng)
        self.down = Linear(d_ff, d_model, bias, rng=rng)
        self.dropout = Dropout(dropout, rng=rng)
        self.activation = activation

    def forward(self, x: TensorLike) -> Tensor:
        out: Tensor = self.down(self.dropout(self.activation(self.up(x))))
        return out


class SwiGLU(Module):
    """down(s σ(s) · up(x)) with s = gate(x): a feed-forward whose hidden features are gated (Shazeer 2020)."""

    def __init__(self, d_model: int, d_ff: int, *, bias: bool = False, rng: Rng = None) -> None:
        rng = generator(rng)
        self.gate = Linear(d_model, d_ff, bias, rng=rng)
        self.up = Linear(d_model, d_ff, bias, rng=rng)
        self.down = Linear(d_ff, d_model, bias, rng=rng)

    def forward(self, x: TensorLike) -> Tensor:
        s = self.gate(x)
        out: Tensor = self.down(s * sigmoid(s) * self.up(x))
        return out


# --- positions: attention itself does not know the order of its keys ----------------------------------


def sinusoidal_positions(n: int, d_model: int) -> Array:
    """(n, d_model), to add to n embeddings: sines and cosines with wavelengths from 2π to 10,000 · 2π.

    (Vaswani et al. 2017, section 3.5.) [t, 2i] = sin(t / 10000^(2i / d_model)), [t, 2i + 1] = cos of the same.
    """
    n, d_model = whole(n, "n", 0), whole(d_model, "d_model")
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)  # (n, ⌈d/2⌉)
    table = np.empty((n, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


class LearnedPositions(Module):
    """x + weight[start : start + n]: a learned vector per position, (..., n, d_model) -> the same shape.

    start: the position where x begins, one number, or one for each text of x (B, n, d_model). Tokens before position 0
    get the vector of position 0. Raises IndexError beyond position context - 1.
    """

    def __init__(self, context: int, d_model: int, *, rng: Rng = None) -> None:
        shape = whole(context, "context"), whole(d_model, "d_model")
        self.weight = parameter(generator(rng).normal(0, 0.02, shape), "positions")

    def forward(self, x: TensorLike, start: int | Array = 0) -> Tensor:
        x = as_tensor(x)
        learned, width = self.weight.shape
        if x.ndim < 2 or x.shape[-1] != width:
            raise ValueError(f"x of shape {x.shape}: positions are added to vectors, (..., length, {width})")
        starts: Array | None = None if isinstance(start, int) else integers(start, "start")
        if starts is None or not starts.ndim:
            starts, start = None, whole(start, "start", 0)
        elif starts.ndim > 1 or x.ndim != 3 or len(starts) != len(x):
            raise ValueError(f"start of shape {starts.shape} for x {x.shape}: one position, or one for each text, (B,)")
        end = (start if starts is None else int(np.max(starts, initial=0))) + x.shape[-2]
        if end > learned:
            raise IndexError(
                f"position {end - 1} is asked for, but only {learned} positions, 0 … {learned - 1}, were "
                f"learned: feed at most {learned} tokens, or clear() the cache"
            )
        if starts is not None:
            rows = embedding(np.maximum(starts[:, None] + np.arange(x.shape[-2]), 0), self.weight)
        else:
            rows = self.weight[start:end]
        out: Tensor = x + rows
        return out
