"""Before attention: recurrent networks. They keep all that they have read in one vector of fixed size."""

from __future__ import annotations

import math

import numpy as np

from ..arguments import generator, whole
from ..graph import Tensor, as_tensor
from ..ops import sigmoid, split, stack, tanh
from ..values import Rng, TensorLike
from .layers import Linear
from .module import Module

__all__ = ["GRU", "RNN"]


class RNN(Module):
    """A recurrent network (Elman 1990): h = tanh(Wx x + bx + Wh h + bh). The vector h holds all that was read.

    x (B, T, d_in) -> all states (B, T, d_hidden); the last one, [:, -1], is the summary.
    """

    gates = 1

    def __init__(self, d_in: int, d_hidden: int, *, rng: Rng = None) -> None:
        rng, d_in, d_hidden = generator(rng), whole(d_in, "d_in"), whole(d_hidden, "d_hidden")
        self.input = Linear(d_in, self.gates * d_hidden, rng=rng)
        self.state = Linear(d_hidden, self.gates * d_hidden, rng=rng)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        """The next state, from this position's projected input (B, gates · d_hidden) and the state (B, d_hidden)."""
        return tanh(x + self.state(h))

    def forward(self, x: TensorLike, h: TensorLike | None = None) -> Tensor:
        x = as_tensor(x)
        if x.ndim != 3:
            raise ValueError(f"x of shape {x.shape}: a recurrent network reads (B, T, d_in); for one text use x[None]")
        projected = self.input(x)  # (B, T, d_in) -> (B, T, gates · d_hidden), all positions at once
        B, T, _ = projected.shape
        state = Tensor(np.zeros((B, self.state.weight.shape[1]), projected.dtype)) if h is None else as_tensor(h)
        if state.shape != (B, self.state.weight.shape[1]):
            raise ValueError(f"h of shape {state.shape}: it is the state before, {(B, self.state.weight.shape[1])}")
        states = []
        stride = math.isqrt(T) or 1  # cut in two stages, because a slice's gradient is as large as the array it is from
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
