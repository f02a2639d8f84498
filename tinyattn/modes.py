"""What holds for all ops inside a block: `no_grad` records nothing, `region` is drawn as one box."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

__all__ = ["no_grad"]

P = ParamSpec("P")
R = TypeVar("R")
Region = tuple[str, Any, Any]  # (name, what tells one call from another, the region around it)

recording: ContextVar[bool] = ContextVar("recording", default=True)
current_region: ContextVar[Region | None] = ContextVar("current_region", default=None)


class no_grad(ContextDecorator):
    """Inside `with no_grad():`, or in a function it decorates, nothing is recorded: faster, and no memory kept."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = super().__new__(cls)
        self._tokens = []
        return self if function is None else self(function)  # @no_grad is @no_grad()

    _tokens: list[Any]

    def __enter__(self) -> None:
        self._tokens.append(recording.set(False))

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        recording.reset(self._tokens.pop())

    def _recreate_cm(self) -> Any:  # a decorated function may run in several threads: tokens of their own
        return no_grad()


def region(function: Callable[P, R], label: str | None = None) -> Callable[P, R]:
    """Decorate a composed function: what it records is drawn as one box (draw). Calls may nest."""
    name = label or function.__name__

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = current_region.set((name, object(), current_region.get()))
        try:
            return function(*args, **kwargs)
        finally:
            current_region.reset(token)

    return call
