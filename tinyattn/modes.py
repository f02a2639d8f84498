"""Two settings for all ops inside a block: `no_grad` records nothing, `region` is drawn as one box."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from . import habits

__all__ = ["no_grad"]

P = ParamSpec("P")
R = TypeVar("R")
Region = tuple[str, Any, Any]  # (name, what tells one call from another, the region around it)

recording: ContextVar[bool] = ContextVar("recording", default=True)
current_region: ContextVar[Region | None] = ContextVar("current_region", default=None)


class NoGrad(ContextDecorator):
    """Inside `with no_grad():`, or in a function it decorates, nothing is recorded: faster, and no memory is kept."""

    before: ContextVar[tuple[bool, ...]] = ContextVar("before", default=())  # what the blocks around it have found

    def __call__(self, function: Any = None) -> Any:  # with no_grad: and @no_grad are with no_grad(): and @no_grad()
        return self if function is None else super().__call__(function)

    def __enter__(self) -> None:
        self.before.set((*self.before.get(), recording.get()))
        recording.set(False)

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        *outer, found = self.before.get()
        self.before.set(tuple(outer))
        recording.set(found)


no_grad = NoGrad()


def region(function: Callable[P, R], label: str | None = None) -> Callable[P, R]:
    """Decorate a composed function: draw shows what it records as one box. Calls may nest."""
    name = label or function.__name__

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = current_region.set((name, object(), current_region.get()))
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            habits.explain(error, function, kwargs)
            raise
        finally:
            current_region.reset(token)

    return call
