"""Optimisers: what a step makes of the gradients. Formulas as in PyTorch, to the last digit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .graph import Tensor
from .values import Array

__all__ = ["SGD", "Adam", "AdamW", "clip_grad_norm", "warmup_cosine"]


class Optimizer:
    """params, and for each what earlier steps left behind. A parameter whose .grad is None is passed over.

    lr may be changed between steps. A step gives each parameter a new array: graphs that read the old one keep it.
    """

    kept: tuple[str, ...] = ()  # the names of what is remembered: one array per parameter each

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        self.params = list(params)
        self.lr = lr
        if not self.params:
            raise ValueError("no parameters to optimise: pass module.parameters() or a list of tensors")
        for i, p in enumerate(self.params):
            if not isinstance(p, Tensor) or p._node is not None or p.dtype.kind != "f":
                raise TypeError(f"parameter {i} is {p!r}: an optimiser changes floating-point leaf tensors")
        if len(set(self.params)) < len(self.params):
            raise ValueError("a parameter is listed twice: each step would move it twice")
        if not lr >= 0:
            raise ValueError(f"lr = {lr}: a learning rate is 0 or more")
        self._steps = [0] * len(self.params)
        self._kept: list[tuple[Array, ...]] = [()] * len(self.params)

    def step(self) -> None:
        """Move each parameter that has a gradient."""
        for i, p in enumerate(self.params):
            if p._grad is None:
                continue
            x, g = p._data, p._grad._data
            if not self._steps[i]:
                self._kept[i] = tuple(np.zeros_like(x) for _ in self.kept)
            self._steps[i] += 1
            p._bind(np.asarray(self.update(x, g, self._steps[i], *self._kept[i]), x.dtype))

    def update(self, x: Array, g: Array, t: int, *kept: Array) -> Array:
        """The new values, a new array, from the values, the gradient and the number t = 1, 2, … of this step."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        for p in self.params:
            p._grad = None

    def state_dict(self) -> dict[str, Array]:
        """What has been remembered, for ta.save: with it a run continues as if it had never stopped."""
        state = {"lr": np.array(self.lr), "steps": np.array(self._steps)}
        for i, arrays in enumerate(self._kept):
            state |= {f"{name}.{i}": a.copy() for name, a in zip(self.kept, arrays)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what state_dict() gave. Raises ValueError where it is from other parameters or another optimiser."""
        steps = [int(n) for n in state["steps"]] if "steps" in state else []
        expected = {
            f"{name}.{i}": self.params[i].shape
            for i, n in enumerate(steps[: len(self.params)])
            if n
            for name in self.kept
        }
        found = {name: np.shape(value) for name, value in state.items() if name not in ("lr", "steps")}
        if len(steps) != len(self.params) or "lr" not in state or found != expected:
            raise ValueError(
                f"this state does not fit {type(self).__name__} with {len(self.params)} parameters: it is "
                f"for {len(steps)}, or for other shapes, or from another optimiser"
            )
        self.lr, self._steps = float(state["lr"]), steps
        self._kept = [
            tuple(np.array(state[f"{name}.{i}"], p.dtype) for name in self.kept) if n else ()
            for i, (p, n) in enumerate(zip(self.params, steps))
        ]


class SGD(Optimizer):
    """x ← x - lr · b with b ← momentum · b + g, and g + weight_decay · x in place of g."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr)
        self.momentum, self.weight_decay = momentum, weight_decay
        self.kept = ("momentum",) if momentum else ()

    def update(self, x: Array, g: Array, t: int, *kept: Array) -> Array:
        if self.weight_decay:
            g = g + self.weight_decay * x
        for b in kept:
            b *= self.momentum
            b += g
            g = b
        return np.subtract(x, self.lr * g)


class Adam(Optimizer):
    """x ← x - lr · m̂ / (√v̂ + ε)   (Kingma & Ba 2015)

    m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²: running means, which start at 0;
    m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ) undo that start.
    """

    kept = ("m", "v")
    weight_decay = 0.0

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        super().__init__(params, lr)
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"betas = {betas}: each is a running mean's memory, 0 or more and below 1")
        self.betas, self.eps = betas, eps

    def update(self, x: Array, g: Array, t: int, *kept: Array) -> Array:
        (m, v), (b1, b2) = kept, self.betas
        m *= b1
        m += (1 - b1) * g
        v *= b2
        new = np.multiply(g, g, out=np.empty_like(x))
        new *= 1 - b2
        v += new
        np.sqrt(v, out=new)  # from here in one buffer: -lr · m̂ / (√v̂ + ε)
        new *= 1 / math.sqrt(1 - b2**t)
        new += self.eps
        np.divide(m, new, out=new)
        new *= -self.lr / (1 - b1**t)
        new += x if not self.weight_decay else x * (1 - self.lr * self.weight_decay)
        return new


class AdamW(Adam):
    """Adam, and x shrinks by lr · weight_decay · x in each step (Loshchilov & Hutter 2019)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps)
        self.weight_decay = weight_decay


def clip_grad_norm(params: Iterable[Tensor], max_norm: float) -> float:
    """Shrink all gradients together so that their norm, √Σ g², is at most max_norm. Returns the norm before.

    (Pascanu et al. 2013.) Raises ValueError where the norm is not finite: such a step would destroy the model.
    """
    given = [(p, p._grad._data) for p in params if p._grad is not None]
    norm = math.sqrt(sum(float(np.vdot(g, g)) for _, g in given))
    if not math.isfinite(norm):
        raise ValueError(f"the gradients' norm is {norm}: skip this step, and look for an overflow or a log of 0")
    if norm > max_norm:
        for p, g in given:
            p.grad = g * (max_norm / norm)
    return norm


def warmup_cosine(step: int, total: int, *, warmup: int = 0, final: float = 0.0) -> float:
    """The share of the full learning rate for step 0, 1, … total - 1: up in a line, then down along a cosine to final.

    (Loshchilov & Hutter 2017.) Use as optimizer.lr = lr · warmup_cosine(step, total, warmup=100).
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, total - 1 - warmup))
    return final + (1 - final) * (1 + math.cos(math.pi * done)) / 2
