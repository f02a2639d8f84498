"""How an op is made of a formula, and how it is called.

    @op(lambda g, out, x: g * out)
    def exp(x: Array) -> Array:
        return np.exp(x)

makes exp a function from a TensorLike to a Tensor. The formula computes it; the rule is the way back,
dL/dx = g · exp'(x). To make it a method, list it in methods.py; to export it, in `__all__`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, overload

from . import habits
from .graph import Op, Tensor, apply, grad
from .values import Rule, TensorLike

P = ParamSpec("P")


Rule0 = Rule | None  # None: an input without derivative

# What type checkers know about an op: one tensor for each rule, then the params of its formula.


@overload
def op(
    x: Rule, /, *, wide: bool = False
) -> Callable[[Callable[Concatenate[Any, P], Any]], Callable[Concatenate[TensorLike, P], Tensor]]: ...
@overload
def op(
    x: Rule0, y: Rule0, /, *, wide: bool = False
) -> Callable[[Callable[Concatenate[Any, Any, P], Any]], Callable[Concatenate[TensorLike, TensorLike, P], Tensor]]: ...
@overload
def op(
    x: Rule0, y: Rule0, z: Rule0, /, *, wide: bool = False
) -> Callable[
    [Callable[Concatenate[Any, Any, Any, P], Any]], Callable[Concatenate[TensorLike, TensorLike, TensorLike, P], Tensor]
]: ...
@overload
def op(
    *, pull: Rule, twin: Callable[..., Any] | None = None, wide: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]: ...


def op(*rules: Rule0, pull: Rule0 = None, twin: Callable[..., Any] | None = None, wide: bool = False) -> Any:
    """Make an op of a formula: @op(rule, rule, …) with a rule per input, or @op(pull=…) with one for all of them.

    A rule gets (g, out, *inputs, **params), with g = dL/d(out), and returns dL/d(input). This may have out's shape:
        the engine sums over broadcast axes. None: this input has no derivative (a condition, a mask).
        The formula's arguments after the inputs are its params.
    pull: also gets extra= and needs=, and returns one gradient or None per input; `needs` says which are wanted.
        The formula then returns (out, extra), and takes its params by name.
    wide: if the first input is float16, the op computes in float32, forward and back, and rounds once. For sums, and
        for formulas that could overflow.
    twin: the same function in tinyattn's ops, if pull works on arrays alone: create_graph differentiates the twin.
    """

    way_back = pull if pull is None or twin is None else either(pull, twin)

    def define(forward: Callable[..., Any]) -> Callable[..., Tensor]:
        record = Op(forward.__name__.strip("_"), forward, rules, way_back, twin, wide)
        signature, count = inspect.signature(forward), len(rules)
        names = tuple(signature.parameters) if rules else ()
        has_params = len(names) > count
        defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}

        def call(*args: Any, **params: Any) -> Tensor:
            if len(args) < count and params:  # an input was given by name
                if unknown := habits.advice(forward, params):
                    raise TypeError(f"{forward.__name__}() has no such argument. {unknown}")
                args, params = signature.bind(*args, **params).args, {}
            if has_params:
                if len(args) > count:
                    given = dict(zip(names[count:], args[count:]))
                    if len(args) > len(names) or given.keys() & params.keys():
                        signature.bind(*args, **params)  # raises what Python would
                    args, params = args[:count], params | given
                params = defaults | params
            return apply(record, args, params)

        functools.update_wrapper(call, forward)
        told = [
            p.replace(annotation="TensorLike") if p.name in names[:count] else p for p in signature.parameters.values()
        ]
        vars(call).update(op=record, forward=forward)
        vars(call)["__signature__"] = signature.replace(parameters=told, return_annotation="Tensor")
        return call

    return define


def either(pull: Rule, twin: Callable[..., Any]) -> Rule:
    """The way back of a fused op: on arrays its pull; on Tensors the gradient of its twin, which is recorded."""

    @functools.wraps(pull)
    def pull_either(g: Any, out: Any, *inputs: Any, extra: Any, needs: list[bool], **params: Any) -> Any:
        if not isinstance(g, Tensor):
            return pull(g, out, *inputs, extra=extra, needs=needs, **params)
        ends = [+x if need else x for x, need in zip(inputs, needs)]  # new nodes: in f(x, x) each x gets its share
        wanted = [x for x, need in zip(ends, needs) if need]
        shares = iter(grad(twin(*ends, **params), wanted, g, create_graph=True, materialize_grads=True))
        return [next(shares) if need else None for need in needs]

    return pull_either


def on(x: Any, function: Callable[..., Tensor]) -> Callable[..., Any]:
    """What a rule calls for an op: the op itself if x is a Tensor, its formula if x is an array."""
    return function if isinstance(x, Tensor) else function.forward  # type: ignore[attr-defined]
