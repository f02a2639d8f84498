"""What the boxes of a drawing say: headings, shapes, values and tooltips, escaped for DOT."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..graph import Tensor
from ..text import cut, printable
from ..values import Array
from .folding import Box
from .steps import Frame, Step, formula, rules

SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**", "matmul": "@", "negative": "-"}
SYMBOLS |= {"gelu_tanh": "gelu", "mT": "transpose"}
LETTERS = {"dscores": "dS (scores)", "dweights": "dP (weights)", "doutput": "dO (output)"}  # as papers write them
LANDMARKS = {
    "softmax": "softmax",
    "attention": "softmax",
}  # ops by which a reader knows a part
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": r"\\"})


def gradients_of(box: Box) -> list[Array]:
    """The gradients that a box shows: for a closed one those of its parameters; if it has none, that of its result."""
    own = [step for step in box.steps if step.path] if box.frame else box.steps
    found = [step for step in own or [box.step] if step.slope is not None and step.slope.size]
    return [step.slope for step in [s for s in found if not s.rounding] or found if step.slope is not None]


def title(frame: Frame, count: int) -> str:
    path = frame.path
    if frame.outer and frame.outer.path:
        path = path.removeprefix(frame.outer.path + ".")
    if count > 1:
        path = path.rstrip("0123456789.")
    name = f"{path}: {frame.name}" if path else frame.name
    return name + f" × {count:,}" * (count > 1)


def heading(box: Box) -> str:
    step = box.step
    name = step.name
    if step.node is None:
        if not isinstance(step.value, Tensor):
            return f"{step.value:.4g}" if np.ndim(step.value) == 0 else "array"
        own = step.path and name in ("", step.path.rpartition(".")[2])  # a layer's, called weight or bias
        told = step.path if own else name or ("parameter" if step.needs else "constant")
    elif step.transposes and step.inputs[0].name and not name:
        told = f"{step.inputs[0].name}ᵀ"
    else:
        told = result(step)
    return f"<B>{escaped(told)}{f' × {box.count:,}' * (box.count > 1)}</B>"


def closed(box: Box, show: str) -> list[str]:
    """Name, parameters and the shape of the result."""
    frame, data = box.frame, box.step.data
    assert frame is not None
    rows = []
    size = sum(step.data.size for step in box.steps if step.needs and step.node is None and step.path)
    if size:
        rows.append(f"{size // len(box.of):,} parameters" + " each" * (len(box.of) > 1))
    rows.append(f"→ {data.shape}")
    values = numbers(data) if show == "values" else []
    return [f"<B>{escaped(title(frame, box.count))}</B>", *map(small, [*map(escaped, rows), *values])]


def inside(box: Box) -> str:
    """What a closed box holds, in order: parameters, and parts with their best known op: attention (softmax)."""
    assert box.frame is not None
    depth = len(box.frames) + 1
    parts: dict[str, list[str]] = {}
    for step in box.steps:
        known = step.path and step.name and step.path.rpartition(".")[2] != step.name  # as Wq
        landmark = step.name if known else LANDMARKS.get(step.op, "")
        part = step.frames[depth] if len(step.frames) > depth else None
        if part and (part.module or landmark):
            found = parts.setdefault(re.sub(r"\.\d+$", "", title(part, 1).partition(":")[0]), [])
            found += [landmark] * (landmark not in ("", *found))
        elif not part and (landmark or step.path):
            parts.setdefault(landmark or step.path.rpartition(".")[2], [])
    return ", ".join(
        f"{part} ({' '.join(known)})" if len(known) > 1 else (known or [part])[0] for part, known in parts.items()
    )


def details(box: Box, show: str) -> list[str]:
    step = box.step
    if np.ndim(step.value) == 0 and not isinstance(step.value, Tensor):
        return []  # a plain number is its own heading
    data, params = step.data, step.node.params if step.node else {}
    told = [f"{k}={v}" for k, v in params.items() if (k[:2] == "ax" and v is not None) or isinstance(v, str)]
    rows = [escaped(", ".join(told))] if told and step.op not in ("swapaxes", "transpose", "mT") else []
    if step.path and step.name and step.path.rpartition(".")[2] != step.name:
        rows.append(escaped(step.path))
    if data.ndim:
        rows.append(f"{data.shape}" if data.dtype.kind == "f" else f"{data.shape} {data.dtype}")
    if show == "values" or data.size == 1:
        rows += numbers(data)
    return list(map(small, rows))


def called(step: Step) -> str:
    """A step in a formula: its name, else its op, else its number."""
    number = step.node is None and np.ndim(step.value) == 0 and not isinstance(step.value, Tensor)
    if step.passes:
        return rearranged_name(called(step.inputs[0]), step)
    return (
        f"{step.value:.4g}"
        if number
        else step.name.partition(" = ")[0] or step.op or ("constant" if not step.needs else "parameter")
    )


def rearranged_name(source: str, step: Step) -> str:
    return f"{source}ᵀ" if step.transposes else f"{source} as {step.data.shape}"


def rearranged(between: Sequence[Step]) -> str:
    """What happens to a result on the way to the next step: "as (2, 8, 4), transposed"."""
    ways: list[str] = []
    for step in reversed(between):
        if step.transposes:
            ways = ways[:-1] if ways[-1:] == ["transposed"] else [*ways, "transposed"]
        else:
            ways = [*(ways if ways and ways[-1] == "transposed" else ways[:-1]), f"as {step.data.shape}"]
    return ", ".join(ways)


def where(step: Step) -> str:
    """A step with the module, or else the outermost function, around it: "attention: weights = softmax"."""
    modules = [frame.path or frame.name for frame in step.frames if frame.module]
    around = [*(frame.name for frame in step.frames[:1]), *modules][-1:]
    return ": ".join([*around, result(step)])


def result(step: Step) -> str:
    """What a result is called: "dP (weights) = @"."""
    name = LETTERS.get(step.name, step.name)
    return f"{name} = " * bool(name) + SYMBOLS.get(step.op, step.op.replace("_", " "))


def small(row: str) -> str:
    return f'<FONT POINT-SIZE="10">{row}</FONT>'


def numbers(data: Array) -> list[str]:
    """A few values in full, or the range of many."""
    if data.size == 1:
        return [f"{data.item():.4g}"]
    if data.size <= 16 and data.ndim <= 2:
        rows = np.array2string(data, precision=3, suppress_small=True).splitlines()
        width = max(map(len, rows))
        return [f'<FONT FACE="Courier">{row.ljust(width)}</FONT>' for row in rows]
    finite = data[np.isfinite(data)]
    spread = [f"{float(finite.min()):.3g} to {float(finite.max()):.3g}"] if finite.size else []
    strange = [f"{data.size - finite.size} not finite"] if finite.size < data.size else []
    return [", ".join(spread + strange)]


def tooltip(box: Box) -> str:
    """Formula, derivative, and range and norm of values and gradient."""
    step = box.step
    lines = [box.frame.path or box.frame.name] if box.frame else [step.path or step.name or step.op or "constant"]
    if step.node and not box.frame:
        told = ", ".join(map(called, step.inputs))
        lines = [f"{step.name or step.op} = {step.op}({told})", formula(step.node.op)]
        one_for_all, written = rules(step.node.op)
        lines += [one_for_all, *(f"{name} = {rule}" for name, rule in written.items())]
    lines.append(f"{step.data.shape} {step.data.dtype}: {spread(step.data)}")
    if step.slope is not None:
        lines.append(f"gradient: {spread(step.slope)}" + ", rounding around 0" * step.rounding)
    return "\n".join(filter(None, lines))


def spread(data: Array) -> str:
    finite = data[np.isfinite(data)].astype(float)
    if not finite.size:
        return "no finite values" if data.size else "empty"
    return f"{finite.min():.3g} to {finite.max():.3g}, norm {np.linalg.norm(finite):.3g}"


def escaped(text: object, most: int = 60) -> str:
    r"""For the HTML-like labels of DOT, in which < and & and \N have a meaning. A very long text is cut."""
    return cut(printable(text), most).translate(ESCAPES)


def quoted(text: str) -> str:
    """For an attribute of DOT; line breaks stay."""
    lines = [printable(line).translate(ESCAPES).replace('"', "&quot;") for line in text.splitlines()]
    return '"' + "\\n".join(lines) + '"'


def padded(text: str, most: int = 60) -> str:
    """With space on both sides: the viewer's font may be wider than the font of the layout."""
    space = " " * (1 + len(text) // 5)
    return space + escaped(text, most) + space
