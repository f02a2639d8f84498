"""What the engine refuses, and in which words. A function here returns what it got, if it finds nothing wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import habits
from .arguments import array, told

# Tensors, nodes and ops are `Any` here: graph.py, which defines them, imports this file.


def unfit_data(t: Any, new: np.ndarray) -> np.ndarray:
    if new.shape != t.shape:
        raise ValueError(
            f"new data of shape {new.shape} for a tensor of shape {t.shape}: graphs and "
            "optimisers rely on the shape. Make a new Tensor instead."
        )
    if t.requires_grad and new.dtype.kind != "f":
        raise TypeError(f"new data is {new.dtype}, but this tensor requires gradients: use .astype(float)")
    return new


def cut_off(data: Any) -> Any:
    """Tensor(data) refuses a computed tensor: its graph would end there."""
    if getattr(data, "_node", None) is not None:
        raise TypeError(
            "Tensor(h) of a computed tensor would cut its graph without a word: use h itself, or h.detach() if no "
            "gradient is to go further back"
        )
    return data


def not_a_float(out: np.ndarray, name: str) -> None:
    if out.dtype.kind != "f":
        raise TypeError(
            f"ta.{name} gives {out.dtype} here, which has no gradient, from a tensor that requires gradients: the "
            "graph would end without a word. Write t.detach() first"
        )


def in_place(symbol: str) -> Any:
    """A method such as __isub__. t -= u gives the name t to a new tensor: not if t is a parameter."""

    def refuse(self: Any, other: Any) -> Any:
        if self._needs and self._node is None:
            raise TypeError(
                f"p {symbol}= … would make a new tensor and leave the parameter p, a leaf that requires gradients, as "
                f"it is: write p.data {symbol}= …, as in p.data -= lr * p.grad.numpy(), or use ta.optim"
            )
        return NotImplemented

    return refuse


def unfit_for_gradients(t: Any, value: bool) -> bool:
    if value and t.dtype.kind != "f":
        raise TypeError(
            f"a {t.dtype} tensor cannot require gradients: a derivative needs values that can "
            "change a little. Use floats: Tensor(data.astype(float), requires_grad=True)"
        )
    if t._node is not None and not value:
        raise RuntimeError(
            "requires_grad of a computed tensor cannot be switched off: its graph leads further back. Use t.detach()"
        )
    return value


def unfit_gradient(t: Any, value: Any) -> Any:
    if value.shape != t.shape:
        raise ValueError(
            f"a gradient of shape {value.shape} for a tensor of shape {t.shape}: it holds one "
            "number per element, so the shapes must be equal"
        )
    return value


def failed(error: Exception, op: Any, inputs: Sequence[Any], params: dict[str, Any]) -> Exception:
    """The same kind of error. It also names the op and its inputs, and says what was probably meant."""
    shapes = [f"{tuple(x.shape)} {x.dtype}" if hasattr(x, "shape") else repr(x) for x in inputs]
    told = ", ".join(shapes + [f"{k}={v!r}" for k, v in params.items() if not isinstance(v, np.ndarray)])
    meant = habits.advice(op.forward, params) or _meant(op.name, inputs, params)
    return habits.kind(error)(f"ta.{op.name} of {told}: {error}" + f". {meant}" * bool(meant))


def _meant(name: str, inputs: Sequence[Any], params: dict[str, Any]) -> str:
    if name == "transpose" and len(params["axes"] or ()) == 2:
        return "It takes all axes in their new order; to exchange two of them write swapaxes{}".format(params["axes"])
    if name == "matmul":
        x, y = (np.asarray(x) for x in inputs)
        if not (x.ndim and y.ndim):
            return "A matrix product takes matrices or vectors; numbers are multiplied by *"
        if y.ndim > 2 and x.shape[-1] == y.shape[0] and x.shape[-1] != y.shape[-1]:
            return ".T reverses all axes; .mT exchanges the last two, as in Q @ K.mT"
        if x.shape[-1] == y.shape[-1]:
            return "Write x @ y.mT for all products of rows of x with rows of y"
    return ""


def constant(output: Any) -> None:
    if not output._needs:
        raise RuntimeError(
            "the output needs no gradient: it is constant. Nothing it was computed from has requires_grad=True, or it "
            "was computed inside no_grad. Or it is the gradient of something linear: that does not depend on the "
            "inputs, so its derivative is 0 (grad with materialize_grads=True gives zeros)"
        )


def released(t: Any, ends: Sequence[Any]) -> bool:
    """Whether the graph behind t is gone. That is an error, unless t is one of the ends, where the walk stops."""
    gone = t._node.inputs is None
    if gone and not any(t is end for end in ends):
        raise RuntimeError(
            "this graph has been run backward already and was released to save memory: pass "
            "retain_graph=True to the first backward(), or compute the output again"
        )
    return bool(gone)


def ends(output: Any, inputs: Any) -> tuple[Any, ...]:
    """inputs as a tuple, if they are tensors, as output must be."""
    single = isinstance(inputs, np.ndarray) or hasattr(inputs, "_node") or not isinstance(inputs, Iterable)
    found = (inputs,) if single else tuple(inputs)
    for name, t in (("output", output), *(("input", x) for x in found)):
        if not hasattr(t, "_node"):
            raise TypeError(f"the {name} is {told(t)}, not a Tensor: only a Tensor has a graph, and gradients in it")
    return found


def not_on_the_way(output: Any, inputs: Sequence[Any], path: Sequence[Any]) -> None:
    found = set(path)
    if inputs:
        constant(output)
    for i, t in enumerate(inputs):
        if t not in found:
            raise RuntimeError(
                f"output does not depend on input {i} ({t!r}), so it has no gradient: was it used in computing output, "
                "with requires_grad=True and outside no_grad? (materialize_grads=True gives zeros)"
            )


def unfit_start(output: Any, gradient: Any, path: Sequence[Any], unrecorded: bool = False) -> Any:
    """The gradient with which the walk along a path starts: 1 for an output of one element, if none is given."""
    if path:
        constant(output)
    if unrecorded:
        raise RuntimeError(
            "create_graph=True inside no_grad would record nothing: leave no_grad for this backward pass"
        )
    if gradient is None:
        if output._data.size != 1:
            raise RuntimeError(
                f"the output has shape {output.shape}, not one element, so 'its gradient' is not one number per input: "
                "take a scalar, e.g. (output * weights).sum(), or pass gradient= of that shape"
            )
        return output._wrap(np.ones(output.shape, output.dtype))
    gradient = gradient if hasattr(gradient, "_node") else array(gradient, "the gradient")
    shape = gradient.shape
    if shape != output.shape:
        raise ValueError(
            f"gradient of shape {shape} for an output of shape {output.shape}: it holds one number per "
            "element of the output, so the shapes must be equal"
        )
    return gradient


def changed(path: Sequence[Any], wanted: set[Any], since: int) -> None:
    """The tensors of a path, oldest first, must still have the values that its nodes have read and written."""
    for t in path:
        node = t._node
        if node is None:
            continue
        if node.order > since:
            break  # it has read the present arrays, as have all that follow
        tensors = [(x, read) for x, read in zip((t, *(node.inputs or ())), node.saved) if hasattr(x, "_node")]
        if not any(x in wanted for x, _ in tensors[1:]):
            continue  # no gradient goes through it
        for x, read in tensors:
            if x._data is not read and not np.array_equal(x._data, read, equal_nan=True):
                raise RuntimeError(
                    f"the data of {x!r} changed after ta.{node.op.name} read or wrote it, so the gradient would be "
                    "that of other values: change data after backward(), or compute the output again"
                )


def no_rule(x: Any, name: str) -> Any:
    raise NotImplementedError(
        f"ta.{name} has no derivative rule for {x!r}: the gradient would "
        "be lost. Write the rule, or detach() that input"
    )


def wrong_share(g: Any, summed: Any, x: Any, name: str) -> Any:
    """A rule's g, after its broadcast axes are summed, must have x's shape."""
    extra = g.ndim - x.ndim
    if extra < 0 or summed.shape[extra:] != x.shape:
        raise AssertionError(
            f"a derivative rule of ta.{name} is wrong: it returned shape {g.shape} for an input of shape {x.shape}"
        )
    return summed.reshape(x.shape)
