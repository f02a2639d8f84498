"""The steps of a computation as records, for drawings and for `explain`."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import refusals, values
from ..graph import Tensor, as_tensor, shares, wrap
from ..nn import Module
from ..values import Array

__all__ = ["Frame", "Step", "collect", "dies", "formula", "rules", "slopes", "typical"]


@dataclass(eq=False)
class Frame:
    """A call that is drawn as one box: of a function, of a module, or the steps inside a fused op."""

    name: str
    outer: Frame | None
    module: Module | None = None
    path: str = ""  # the module's path in the outermost module

    @functools.cached_property
    def path_of_frames(self) -> tuple[Frame, ...]:
        """The frames around it and itself, outermost first."""
        return (*(self.outer.path_of_frames if self.outer else ()), self)


@dataclass(eq=False)
class Step:
    """A result and how it was made, or a leaf, or a constant (an array or a number)."""

    value: Any
    name: str
    frame: Frame | None
    inputs: list[Step] = field(default_factory=list)
    path: str = ""  # of a module's parameter: its name in the outermost module
    slope: Array | None = None  # dL/d(it)
    shares: list[Array | None] = field(default_factory=list)  # what it passes on to each input, summed as broadcast
    rounding: bool = False  # whether the slope is rounding noise around 0
    shown: bool = False  # whether it is an output, which always has a box

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.frame.path_of_frames if self.frame else ()

    @property
    def node(self) -> Any:
        """How the engine made it; None for leaves and constants."""
        return self.value._node if isinstance(self.value, Tensor) else None

    @property
    def op(self) -> str:
        return self.node.op.name if self.node else ""

    @property
    def passes(self) -> bool:
        """Whether it has no box: it has no name and only rearranges its input's numbers, so an edge can say it."""
        return self.op in REARRANGED and not self.name and not self.shown

    @property
    def transposes(self) -> bool:
        """Whether it holds the matrices of its input, transposed."""
        x = self.inputs[0].data if self.op in REARRANGED else None
        return x is not None and x.ndim > 1 and _is_transposed(self.data, x)

    @property
    def data(self) -> Any:
        return self.value._data if isinstance(self.value, Tensor) else np.asarray(self.value)

    def argument(self, i: int) -> str:
        """What the op's formula calls its input i."""
        names = _definition(self.node.op)[1]
        return names[i] if i < len(names) else ""

    @property
    def wanted(self) -> set[Tensor]:
        """The inputs that need a gradient."""
        return {x for x in self.node.inputs if isinstance(x, Tensor) and x.requires_grad}

    @property
    def needs(self) -> bool:
        return isinstance(self.value, Tensor) and self.value.requires_grad


def collect(outputs: Sequence[Tensor], opened: Callable[[str, int], bool]) -> tuple[list[Step], list[Step]]:
    """All steps behind the outputs, inputs before results; and the steps of the outputs.

    opened(name, level): whether to show the steps inside a fused op of that name, which stands in `level` frames.
    A tensor is one step, however often it is used; so is an array. A number is one step for each use.
    Raises TypeError if an output is no Tensor, RuntimeError if it has no graph, or a released one.
    """
    for t in outputs:
        if not isinstance(t, Tensor):
            raise TypeError(f"draw_graph draws a Tensor, or several: a {type(t).__name__} has no graph")
        if not t.requires_grad:
            raise RuntimeError(
                f"{t!r} has no graph to draw: nothing that it was computed from has requires_grad=True, "
                "or it was computed inside no_grad"
            )
    collection = _Collection(opened)
    collection.add(outputs, None, None)
    ends = [collection.known[t] for t in outputs]
    for end in ends:
        end.shown = True
    return collection.steps, ends


class _Collection:
    def __init__(self, opened: Callable[[str, int], bool]) -> None:
        self.opened = opened
        self.steps: list[Step] = []
        self.known: dict[Tensor, Step] = {}
        self.constants: dict[Any, Step] = {}
        self.owners: dict[int, tuple[Array, str]] = {}  # of memory, by id: the first constant in it, and its name
        self.frames: dict[int, tuple[Any, Frame]] = {}
        self.backward: dict[Frame | None, Frame] = {}
        self.names: dict[int, tuple[Any, str]] = {}  # of modules and parameters: kept alive, so that ids stay theirs

    def add(self, outputs: Sequence[Tensor], around: Frame | None, base: Any) -> None:
        """The steps behind outputs that are not known yet. around: the frame they stand in; base: its region."""
        found, stack = dict.fromkeys(outputs), list(outputs)
        while stack:
            t = stack.pop()
            if t in self.known or t._node is None:
                continue
            if t._node.inputs is None:
                raise RuntimeError(
                    "this graph was released by backward(), nothing of it is left to draw: draw it before, "
                    "or call backward(retain_graph=True)"
                )
            for x in t._node.inputs:
                if isinstance(x, Tensor) and x not in found:
                    found[x] = None
                    stack.append(x)
        results = [(t._node.order, t, t._node) for t in found if t._node is not None and t not in self.known]
        for _, t, node in sorted(results, key=lambda result: result[0]):
            frame = self.frame(node.region, around, base)
            inputs = [self.input(x, frame) for x in node.inputs or ()]
            if _unchanged(node, inputs, t):
                self.known[t] = inputs[0]
                continue
            if frame is None and node.op.name in SUMS and _backward(inputs):
                frame = next(step.frame for step in inputs if step.frame)
            if not self.open(t, node, inputs, frame):
                self.keep(t, Step(t, t.name or "", frame, inputs))
        for t in outputs:
            if t not in self.known:
                self.keep(t, Step(t, t.name or "", None))

    def keep(self, key: Tensor | None, step: Step) -> Step:
        self.steps.append(step)
        if key is not None:
            self.known[key] = step
        return step

    def input(self, x: Any, frame: Frame | None) -> Step:
        if isinstance(x, Tensor) and x.requires_grad:
            if x not in self.known:
                home, path = self.home(x, frame)
                self.keep(x, Step(x, x.name or "", home, path=path))
            return self.known[x]
        if np.ndim(x) == 0 and not isinstance(x, Tensor):
            return self.keep(None, Step(x, "", frame))
        data, name = (x._data, x.name or "") if isinstance(x, Tensor) else (x, "")
        origin = values.source(data)  # an array that was copied at each use, and may have changed between the uses
        same = (id(data), name) if origin is data else (id(origin), data.shape, data.dtype.str, data.tobytes())
        if same not in self.constants:
            base, called = self.owners.setdefault(id(data if data.base is None else data.base), (data, name))
            turned = called and not name and data.ndim > 1 and _is_transposed(data, base)
            self.constants[same] = self.keep(None, Step(x, f"{called}ᵀ" if turned else name, frame))
        step = self.constants[same]
        if frame is not step.frame:  # used in several places: it stands in the frame around them all
            shared = [f for f in step.frames if frame and f in frame.path_of_frames]
            step.frame = shared[-1] if shared else None
        return step

    def open(self, t: Tensor, node: Any, inputs: list[Step], frame: Frame | None) -> bool:
        """Replace a fused op by the steps inside it, if these are wanted."""
        twin, name = node.op.twin, node.op.name
        if twin is None or not self.opened(name, len(frame.path_of_frames) if frame else 0):
            return False
        arguments = list(node.inputs)
        for i, x in enumerate(arguments):
            if isinstance(x, Tensor):
                arguments[i] = wrap(node.saved[1 + i])
                arguments[i].requires_grad = x.requires_grad
                self.known[arguments[i]] = inputs[i]
        out = twin(*arguments, **node.params)
        region = out._node.region  # where a twin is a region itself, its frame is the fused op's
        while region is not None and region[2] is not None:
            region = region[2]
        self.add([out], Frame((region[0] if region else name).removesuffix("_composed"), frame), region)
        self.known[t] = self.known[out]
        self.known[t].name = t.name or self.known[out].name
        return True

    def frame(self, region: Any, around: Frame | None, base: Any) -> Frame | None:
        if region is None or region is base:
            return around
        if id(region) not in self.frames:
            outer = self.frame(region[2], around, base)
            if region[0] == "backward":  # there is one for each op on the way back: together they are the pass
                if outer not in self.backward:
                    self.backward[outer] = outer if outer and outer.name == "backward" else Frame(region[0], outer)
                return self.backward[outer]
            made = Frame(region[0], outer, region[1] if isinstance(region[1], Module) else None)
            if made.module is not None:
                self.name(made.module, outer)
                made.path = self.names[id(made.module)][1]
            self.frames[id(region)] = region, made
        return self.frames[id(region)][1]

    def name(self, module: Module, outer: Frame | None) -> None:
        """Names for a module that is not yet known, and for all below it."""
        if id(module) not in self.names:
            self.names[id(module)] = module, ""
            for path, part in module._walk():
                self.names.setdefault(id(part), (part, path))

    def home(self, x: Tensor, frame: Frame | None) -> tuple[Frame | None, str]:
        """The innermost frame whose module has this parameter, and the parameter's path; a free leaf has neither."""
        for inner in reversed(frame.path_of_frames if frame else ()):
            if inner.module is not None and any(part is x for _, part in inner.module._walk()):
                return inner, self.names[id(x)][1]
        return None, ""


def _is_transposed(y: Array, x: Array) -> bool:
    """Whether y is the matrices of x transposed, in the same memory."""
    return y.shape == x.mT.shape and y.strides == x.mT.strides and np.shares_memory(x, y)


FALL = 1e-3  # a gradient dies if an op passes on less than this share of what arrives
REARRANGED = ("reshape", "swapaxes", "transpose", "mT", "expand_dims", "squeeze")
SUMS = ("add", "sum", "reshape", "astype")  # with these the engine adds up shares, outside of all rules


def _backward(inputs: Sequence[Step]) -> bool:
    computed = [step for step in inputs if step.node]
    return bool(computed) and all(step.frame and step.frame.name == "backward" for step in computed)


def _unchanged(node: Any, inputs: Sequence[Step], t: Tensor) -> bool:
    """Whether the op did nothing: a reshape to the same shape."""
    idle = node.op.name in ("reshape", "broadcast_to", "astype", "squeeze", "expand_dims")
    return idle and not t.name and inputs[0].data.shape == t.shape and inputs[0].data.dtype == t.dtype


# --- gradients ------------------------------------------------------------------------------------------


def slopes(steps: Sequence[Step], outputs: Sequence[Step], gradient: Any = None) -> None:
    """Fill in dL/d(step), what each step passes on to its inputs, and which slopes are rounding noise.

    L is the output, or the sum of several; gradient= as in `backward`, one each, if they are no scalars.
    A second walk changes every gradient in its last digits, and so tells noise from small numbers. A gradient that is
    large beside its own change is a number. The others have lost all their digits where larger ones cancelled.
    """
    seeds = [gradient] if len(outputs) == 1 else [None] * len(outputs) if gradient is None else gradient
    if len(seeds) != len(outputs):
        raise ValueError(f"{len(seeds)} gradients for {len(outputs)} outputs: give one each")
    path = [step.value for step in steps if step.needs]
    refusals.changed(path, set(path), values.last_change)
    start = []
    for step, given in zip(outputs, seeds):
        first = as_tensor(refusals.unfit_start(step.value, given, [step.value]))
        start.append((step, first._data.astype(step.value.dtype, copy=False)))
    rng = np.random.default_rng(0)
    for step, g in _walk(steps, start, lambda g: g):
        step.slope = g
    kept = [(step, step.shares) for step in steps]

    def shaken(g: Array) -> Array:
        change = 16 * np.finfo(g.dtype).eps * rng.choice([-1, 1], g.shape)
        return np.asarray(g * (1 + change), g.dtype)

    for step, g in _walk(steps, start, shaken):
        assert step.slope is not None
        with np.errstate(all="ignore"):
            change, size = np.linalg.norm(g - step.slope), np.linalg.norm(step.slope)
        step.rounding = bool(np.isfinite(size) and size > 0 and change > size / 10)
    for step, passed_on in kept:
        step.shares = passed_on


def _walk(steps: Sequence[Step], start: Any, seen: Callable[[Array], Array]) -> Iterable[tuple[Step, Array]]:
    total: dict[Step, Any] = {}
    for step, g in start:
        total[step] = total[step] + g if step in total else g
    for step in reversed(steps):
        if step not in total:
            continue
        g = total.pop(step)
        yield step, g
        if step.node is None:
            continue
        passed_on = iter(shares(step.value, step.node, seen(g), step.wanted))
        step.shares = []
        for x, from_step in zip(step.node.inputs, step.inputs):
            dx = None
            if isinstance(x, Tensor) and x.requires_grad:
                dx = values.unbroadcast(next(passed_on)[1], x, step.node.op.name)
                total[from_step] = total[from_step] + dx if from_step in total else dx
            step.shares.append(dx)


def dies(step: Step, k: int) -> bool:
    """Whether a step passes on to its input k less than a thousandth of the gradient that arrives at it.

    Less in size; or, if one number is spread over many, as by a mean, less in total. A gradient that is 0 except for
    rounding does not die: it is 0 in theory, like that of a key's bias. Nor does a share of exactly 0 beside others.
    """
    share = step.shares[k] if step.shares else None
    x = step.inputs[k]
    if share is None or step.slope is None or x.rounding or not (share.any() or x.slope is None or not x.slope.any()):
        return False
    arrived, passed = typical(step.slope), typical(share)
    spread = max(1.0, np.count_nonzero(share) / (np.count_nonzero(step.slope) or 1))
    return bool(passed * spread < FALL * arrived < np.inf)


def typical(slope: Array) -> float:
    """The median size of the elements that are not 0; 0 if all are 0."""
    sizes = np.abs(slope[slope != 0])
    return float(np.median(sizes)) if sizes.size else 0.0


# --- what an op computes, in the words of the table -----------------------------------------------------------


@functools.cache
def _definition(op: Any) -> tuple[str, list[str], list[str]]:
    """(the docstring, the names of the inputs, the rules' source) of an op."""
    try:
        inputs = list(inspect.signature(op.forward).parameters)
        if op.pull:
            return inspect.getdoc(op.forward) or "", inputs, [" ".join((inspect.getdoc(op.pull) or "").split())]
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(op.forward)))
    except (ValueError, TypeError, OSError):  # a user's op without source: typed in, or made from a ufunc
        return inspect.getdoc(op.forward) or "", [], []
    definition = ast.parse(source).body[0]
    written = []
    own = isinstance(definition, ast.FunctionDef) and definition.name == op.forward.__name__
    for call in definition.decorator_list if isinstance(definition, ast.FunctionDef) and own else []:
        for rule in [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []:
            body = rule.body if isinstance(rule, ast.Lambda) else rule
            written.append(" ".join((ast.get_source_segment(source, body) or "").split()))
    return inspect.getdoc(op.forward) or "", inputs, written


def formula(op: Any) -> str:
    """What an op computes and its derivative in symbols: its docstring's first paragraph."""
    return " ".join(_definition(op)[0].partition("\n\n")[0].split())


def rules(op: Any) -> tuple[str, dict[str, str]]:
    """What is said about the way back for all inputs, and {"dx": the source of x's rule} as in the table."""
    _, inputs, written = _definition(op)
    if op.pull:
        return "".join(written), {}
    return "", {f"d{x}": text for x, text in zip(inputs, written) if text != "None"}
