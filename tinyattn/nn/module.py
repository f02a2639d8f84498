"""A module: parameters, and modules in it, under their names."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..calling import current_region
from ..graph import Tensor, wrap
from ..values import Array

__all__ = ["Module"]

Rng: TypeAlias = "np.random.Generator | int | None"  # in quotes: np.random is loaded when it is first used


class Module:
    """A part of a model. Its Tensor attributes are parameters, its Module attributes parts, alone or in lists.

    A subclass sets them in `__init__` and computes in `forward`; calling the module calls that.
    """

    training = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward(): write what it computes there")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # what it records is drawn as one box
        token = current_region.set((type(self).__name__, weakref.ref(self), current_region.get()))
        try:
            return self.forward(*args, **kwargs)
        finally:
            current_region.reset(token)

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
                f"this state does not fit {type(self).__name__}: missing {few(missing)}; unexpected "
                f"{few(unexpected)}. Was it saved from a model with the same options?"
            )
        wrong = [
            f"{name} {a.shape} {a.dtype} for {p.shape}"
            for name, p in mine.items()
            if (a := new[p]).shape != p.shape or a.dtype.kind not in "fiub"
        ]
        if wrong:
            raise ValueError(
                f"this state does not fit {type(self).__name__}: {few(wrong)}. Was it saved from a model "
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


def few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"


def parameter(values: Any, name: str) -> Tensor:
    p = wrap(values, name)
    p.requires_grad = True
    return p
