"""Optimisers: how a step uses the gradients. The formulas are PyTorch's, to the last digit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import habits
from .arguments import array, integers, number, told, whole
from .graph import Tensor
from .values import Array

__all__ = ["SGD", "Adam", "AdamW", "clip_grad_norm", "warmup_cosine"]


class Optimizer:
    """params, and what earlier steps remember of each. A parameter that is frozen or has no gradient is not changed.

    lr may be changed between steps. A step gives each parameter a new array: graphs that read the old one keep it.
    For a float16 parameter, the step and what is remembered are computed in float32.
    Raises TypeError if params is no list of leaves, ValueError for settings that make no sense.
    """

    kept: tuple[str, ...] = ()  # the names of what is remembered: for each name, one array per parameter

    def __init_subclass__(cls) -> None:
        cls.__init__ = habits.explained(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        self.params = _leaves(params)
        self.lr = number(lr, "lr", 0)
        if not self.params:
            raise ValueError("no parameters to optimise: pass module.parameters() or a list of tensors")
        if len(set(self.params)) < len(self.params):
            raise ValueError("a parameter is listed twice: each step would move it twice")
        self._steps = [0] * len(self.params)
        self._kept: list[tuple[Array, ...]] = [()] * len(self.params)

    def step(self) -> None:
        """Move each parameter that has a gradient and is not frozen."""
        number(self.lr, "lr", 0)
        for i, p in enumerate(self.params):
            if p._grad is None or not p._needs:
                continue
            x, g = p._data, p._grad._data
            if x.itemsize < 4 or g.dtype != x.dtype:
                x, g = (a.astype(_at_least_float32(p), copy=False) for a in (x, g))
            if not self._steps[i]:
                self._kept[i] = tuple(np.zeros_like(x) for _ in self.kept)
            self._steps[i] += 1
            p._bind(np.asarray(self.update(x, g, self._steps[i], *self._kept[i]), p._data.dtype))

    def update(self, x: Array, g: Array, t: int, *kept: Array) -> Array:
        """A new array of values, from the old values, the gradient, and the number t = 1, 2, … of this step."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        for p in self.params:
            p._grad = None

    def state_dict(self) -> dict[str, Array]:
        """What the steps remember, for ta.save: with it a run continues as if it had never stopped."""
        state = {"lr": np.array(self.lr), "steps": np.array(self._steps)}
        for i, arrays in enumerate(self._kept):
            state |= {f"{name}.{i}": a.copy() for name, a in zip(self.kept, arrays)}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what state_dict() gave. ValueError if that is of other parameters or of another optimiser."""
        if not isinstance(state, Mapping):
            raise TypeError(f"a state is a dictionary of arrays by name, as state_dict() gives, not {told(state)}")
        arrays = {str(name): array(value, repr(name)) for name, value in state.items()}
        rate, steps = arrays.pop("lr", np.zeros(0)), integers(arrays.pop("steps", np.zeros(0)), "steps")
        expected = {
            f"{name}.{i}": self.params[i].shape
            for i, n in enumerate(steps.flat)
            if n and i < len(self.params)
            for name in self.kept
        }
        if steps.shape != (len(self.params),) or rate.size != 1 or {k: a.shape for k, a in arrays.items()} != expected:
            raise ValueError(
                f"this state does not fit {type(self).__name__} with {len(self.params)} parameters: it is "
                f"for {steps.size}, or for other shapes, or it is from another optimiser"
            )
        if steps.size and steps.min() < 0:
            raise ValueError(f"this state counts {steps.min()} steps: it is damaged")
        if bad := [name for name, a in arrays.items() if not np.isfinite(a).all()]:
            raise ValueError(f"this state holds NaN or inf, which every later step would keep: {', '.join(bad[:5])}")
        lr = number(rate.item(), "lr", 0)
        kept = [
            tuple(np.array(arrays[f"{name}.{i}"], _at_least_float32(p)) for name in self.kept) if n else ()
            for i, (p, n) in enumerate(zip(self.params, steps))
        ]
        self.lr, self._steps, self._kept = lr, steps.tolist(), kept


def _leaves(params: Any) -> list[Tensor]:
    """The tensors that training may change. TypeError if it can only be a mistake."""
    if hasattr(params, "parameters") or callable(params):
        raise TypeError(f"{told(params)} in place of parameters: pass module.parameters()")
    if isinstance(params, (Tensor, np.ndarray)) or not isinstance(params, Iterable):
        raise TypeError(f"{told(params)} in place of parameters: pass a list of tensors, [tensor] for one")
    leaves = list(params)
    for i, p in enumerate(leaves):
        if not isinstance(p, Tensor) or p._node is not None or p.dtype.kind != "f":
            raise TypeError(f"parameter {i} is {told(p)}: an optimiser changes floating-point leaf tensors")
    return leaves


def _at_least_float32(p: Tensor) -> Any:
    dtype = p._data.dtype
    return dtype if dtype.itemsize >= 4 else np.dtype(np.float32)


class SGD(Optimizer):
    """x ← x - lr · b with b ← momentum · b + g; with weight_decay, g + weight_decay · x stands in place of g."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr)
        self.momentum = number(momentum, "momentum", 0)
        self.weight_decay = number(weight_decay, "weight_decay", 0)
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

    m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²: running means that start at 0;
    m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ) correct for that start.
    """

    kept = ("m", "v")
    weight_decay = 0.0

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        super().__init__(params, lr)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"betas = {told(betas)}: two numbers are needed, the memories of the two running means")
        b1, b2 = (number(b, f"betas[{i}]", 0, 1, below=True) for i, b in enumerate(betas))
        self.betas, self.eps = (b1, b2), number(eps, "eps", 0)

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
        self.weight_decay = number(weight_decay, "weight_decay", 0)


def clip_grad_norm(params: Iterable[Tensor] | Tensor, max_norm: float) -> float:
    """Shrink all gradients together so that their norm, √Σ g², is at most max_norm. Returns the norm before.

    (Pascanu et al. 2013.) params: a list, or one tensor. A frozen one does not count; one that is listed twice counts
    once. max_norm may be inf: then the norm is only measured.
    Raises ValueError if the norm is not finite: such a step would destroy the model.
    """
    max_norm = max_norm if isinstance(max_norm, float) and max_norm == math.inf else number(max_norm, "max_norm", 0)
    leaves = _leaves([params] if isinstance(params, Tensor) else params)
    given = [(p, p._grad._data) for p in dict.fromkeys(leaves) if p._grad is not None and p.requires_grad]
    norm = _norm([g for _, g in given])
    if not math.isfinite(norm):
        raise ValueError(f"the gradients' norm is {norm}: skip this step, and look for an overflow or a log of 0")
    if norm > max_norm:
        share = max_norm / norm
        for p, g in given:  # in a dtype that holds the share
            dtype = np.result_type(g, np.float32 if share > 1e-30 else np.float64)
            p.grad = (g * dtype.type(share)).astype(g.dtype)
    return norm


def _norm(arrays: list[Array]) -> float:
    """√Σ g², also if the squares are out of range."""
    if all(g.itemsize >= 4 for g in arrays):
        total = sum(float(np.vdot(g, g)) for g in arrays)  # out of range without a warning
        if 1e-20 < total < 1e30:
            return math.sqrt(total)
    largest = max((float(np.abs(g).max(initial=0)) for g in arrays), default=0.0)
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(sum(float(np.square(g / np.float64(largest)).sum()) for g in arrays))


def warmup_cosine(step: int, total: int, *, warmup: int = 0, final: float = 0.0) -> float:
    """The share of the full learning rate at step 0, 1, … total - 1: up on a line, then down on a cosine to final.

    (Loshchilov & Hutter 2017.) Use as optimizer.lr = lr · warmup_cosine(step, total, warmup=100).
    """
    step, total, warmup = whole(step, "step", 0), whole(total, "total"), whole(warmup, "warmup", 0)
    final = number(final, "final", 0)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, total - 1 - warmup))
    return final + (1 - final) * (1 + math.cos(math.pi * done)) / 2


def __getattr__(name: str) -> Any:
    raise habits.no_attribute("ta.optim", name, __all__, habits.OPTIM)
