"""How an op is called: its arguments, sorted; and what holds for all calls inside a block: no_grad and region."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Region = tuple[str, object, Any]  # (name, one object per call, the region around it)

recording: ContextVar[bool] = ContextVar("recording", default=True)  # off inside no_grad
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


def caller(
    forward: Callable[..., Any], count: int, run: Callable[[T, tuple[Any, ...], dict[str, Any]], R], op: T
) -> Any:
    """A function with forward's arguments that calls run(op, inputs, params).

    The first `count` arguments are inputs, the others params, which get their defaults and travel by name. With a
    count of 0 all positional arguments are inputs.
    """
    signature = inspect.signature(forward)
    names = tuple(signature.parameters) if count else ()
    defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}

    @functools.wraps(forward)
    def call(*args: Any, **params: Any) -> R:
        if len(args) < count and params:  # an input was given by name
            args, params = signature.bind(*args, **params).args, {}
        if len(names) > count:
            if len(args) > count:
                given = dict(zip(names[count:], args[count:]))
                if len(args) > len(names) or given.keys() & params.keys():
                    signature.bind(*args, **params)  # raises what Python would
                args, params = args[:count], params | given
            params = defaults | params
        return run(op, args, params)

    return call
