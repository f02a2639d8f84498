"""Computation graphs as pictures."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import Tensor, gradients
from ..text import VIRIDIS, color, cut, printable
from ..values import Array

if TYPE_CHECKING:
    import graphviz

__all__ = ["PICTURES", "draw_graph"]

PICTURES = (".svg", ".png")
SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**", "matmul": "@", "negative": "-"}
COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
COMPUTED, PARAMETER, CONSTANT, NOT_FINITE = "#d6e6f4", "#fddcae", "#ececec", "#ff8f8f"
ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": r"\\"})
NO_PACKAGE = "the package graphviz is missing: pip install graphviz graphviz-pure"
NO_PROGRAM = "Graphviz's program dot is missing: pip install graphviz-pure, or see https://graphviz.org/download"


def draw_graph(
    output: Tensor | Sequence[Tensor],
    *,
    show: str = "shapes",
    gradient: Any = None,
    limits: tuple[float, float] | None = None,
    direction: str = "TB",
    max_nodes: int = 400,
    title: str = "",
    path: str | os.PathLike[str] | None = None,
) -> graphviz.Digraph:
    """Draw how output (a Tensor, or several) was computed. A notebook shows the returned Digraph by itself.

    show: what a node tells beside its op: "shapes"; "values" (where they are many, their range); or "gradients",
        dL/d(node), from a backward pass of its own that touches no `.grad` (L = output, or the sum of several;
        gradient= as in `backward` for an L that is no scalar). The colour is the median of |dL/dx| over the elements
        that are not 0, on a log scale: a mean would hide behind a few large ones that most have died.
    limits: lowest and highest gradient of the colours, to make pictures comparable; 8 decades unless given.
    direction: "TB" (from top to bottom), "LR", "BT" or "RL".
    max_nodes: of a larger graph the middle is left out, and a note in the picture says how much.
    path: .svg, .png: draw it there; .dot, .gv: the DOT text, which needs neither the package graphviz nor its
        program. Where these are missing, a picture's text is written instead, and one line says what to install.
    Raises RuntimeError on an output without a graph: nothing needed gradients, or backward() released it.
    """
    stem, suffix = ("", ".svg") if path is None else os.path.splitext(path)
    for name, choice, choices in (
        ("show", show, ("shapes", "values", "gradients")),
        ("direction", direction, ("TB", "LR", "BT", "RL")),
        ("the ending of path", suffix, (*PICTURES, ".dot", ".gv")),
    ):
        if choice not in choices:
            raise ValueError(f"draw_graph: {name} is {choice!r}; it may be {', '.join(choices)}")
    if limits is not None and not 0 < limits[0] < limits[1]:
        raise ValueError(f"draw_graph: limits {limits} are the ends of a log scale: 0 < lowest < highest")
    outputs = [output] if isinstance(output, Tensor) else list(output)
    body = _dot_lines(outputs, show, gradient, limits, direction, max_nodes, title)

    digraph: Any = None
    missing = NO_PACKAGE
    try:
        import graphviz
    except ImportError:
        if path is None:
            raise ImportError(f"{NO_PACKAGE}. The DOT text alone: draw_graph(…, path='graph.dot')") from None
    else:
        digraph, missing = graphviz.Digraph(body=body), "" if _find_program() else NO_PROGRAM
        if missing:  # what a notebook shows, in place of a long trace
            digraph._repr_mimebundle_ = lambda **_: {"text/plain": f"{NO_PROGRAM}. The DOT text is in .source"}
    if path is not None and suffix in PICTURES and not missing:
        picture = digraph.pipe(format=suffix[1:], quiet=True)
        with open(path, "wb") as file:
            file.write(picture)
    elif path is not None:
        target = stem + (".dot" if suffix in PICTURES else suffix)
        with open(target, "w", encoding="utf-8") as text:
            text.writelines(["digraph {\n", *body, "}\n"])
        if suffix in PICTURES:
            print(f"{path} is not drawn: {missing}. The graph's DOT text is in {target}", file=sys.stderr)
    return digraph


def _find_program() -> bool:
    """Whether graphviz has a program to call: the system's dot, else graphviz-pure, which it is then told of."""
    import shutil
    import sysconfig

    from graphviz.backend import dot_command

    if shutil.which(dot_command.DOT_BINARY):
        return True
    scripts = sysconfig.get_path("scripts")  # an environment need not be activated to be used
    program = shutil.which("graphviz-pure") or shutil.which("graphviz-pure", path=scripts)
    if program:
        dot_command.DOT_BINARY = program
    return program is not None


def _collect(outputs: list[Tensor]) -> tuple[dict[Any, tuple[Any, Any]], list[tuple[Any, Any, int]]]:
    """{key: (what is drawn, its region)}, inputs before results, and edges (key, key, operand's number or 0).

    A tensor is its own key, drawn once however often it is used; a constant is drawn for each use of it.
    The number is 0 where the operands' order does not matter.
    """
    for t in outputs:
        if not isinstance(t, Tensor):
            raise TypeError(f"draw_graph draws a Tensor, or several: a {type(t).__name__} has no graph")
        if not t.requires_grad:
            raise RuntimeError(
                f"{t!r} has no graph to draw: nothing that it was computed from has requires_grad=True, "
                "or it was computed inside no_grad"
            )
    found, stack = dict.fromkeys(outputs), list(outputs)
    while stack:
        node = stack.pop()._node
        if node is not None and node.inputs is None:
            raise RuntimeError(
                "this graph was released by backward(), nothing of it is left to draw: draw it before, "
                "or call backward(retain_graph=True)"
            )
        for x in (node and node.inputs) or ():
            if isinstance(x, Tensor) and x not in found:
                found[x] = None
                stack.append(x)

    items: dict[Any, tuple[Any, Any]] = {}
    edges: list[tuple[Any, Any, int]] = []
    results = [(t._node, t) for t in found if t._node is not None]
    for node, t in sorted(results, key=lambda result: result[0].order):
        inputs = node.inputs or ()
        ordered = len(inputs) > 1 and node.op.name not in COMMUTATIVE
        for k, x in enumerate(inputs, 1):
            key, region = (x, None) if isinstance(x, Tensor) else ((t, k), node.region)
            items.setdefault(key, (x, region))  # a leaf belongs to no function
            edges.append((key, t, k if ordered else 0))
        items[t] = (t, node.region)
    return items | {t: (t, None) for t in outputs if t not in items}, edges


def _sum_of_gradients(outputs: list[Tensor], gradient: Any) -> dict[Tensor, Array]:
    seeds = [gradient] if len(outputs) == 1 else [None] * len(outputs) if gradient is None else gradient
    if len(seeds) != len(outputs):
        raise ValueError(f"draw_graph: {len(seeds)} gradients for {len(outputs)} outputs: give one each")
    total: dict[Tensor, Array] = {}
    for output, seed in zip(outputs, seeds):
        for t, g in gradients(output, seed).items():
            total[t] = total[t] + g if t in total else g
    return total


def _dot_lines(
    outputs: list[Tensor],
    show: str,
    gradient: Any,
    limits: tuple[float, float] | None,
    direction: str,
    max_nodes: int,
    title: str,
) -> list[str]:
    """What stands between the braces of `digraph { }`. Nodes are numbered: names may repeat, or hold anything."""
    items, edges = _collect(outputs)
    left_out = range(max_nodes // 2, len(items) - max_nodes // 2)  # empty where the graph is small
    names = {key: f"n{i}" for i, key in enumerate(items) if i not in left_out}
    slopes = _sum_of_gradients(outputs, gradient) if show == "gradients" else {}
    sizes = {key: _typical(slopes[key]) for key in names if key in slopes}
    high = max((size for size in sizes.values() if np.isfinite(size)), default=0.0) or 1.0
    low, high = np.log10(limits) if limits else (np.log10(high) - 8, np.log10(high))

    def line(key: Any) -> str:
        x = items[key][0]
        label = "<BR/>".join([_heading(x), *_details(x, show, slopes.get(key))])
        style = _gradient_style(x, sizes.get(key), low, high) if show == "gradients" else _style(x)
        rim = " peripheries=2" if any(x is t for t in outputs) else ""
        return f"{names[key]} [label=<{label}> {style}{rim}]"

    lines = [
        f"rankdir={direction} ordering=in nodesep=0.3 ranksep=0.35 fontname=Helvetica labelloc=t",
        f"label=<{_legend(show, low, high, title)}>",
        'node [fontname=Helvetica fontsize=12 shape=box color="#555555" margin="0.17,0.05" width=0.4 height=0.3]',
        'edge [fontname=Helvetica fontsize=9 fontcolor="#777777" labeldistance=1.4 color="#555555" arrowsize=0.7]',
        'graph [style="rounded,dashed" color="#777777" fontcolor="#555555" fontsize=10]',  # frames of functions
    ]
    lines += [line(key) for key in names if items[key][1] is None]
    # Calls nest in time, and results are in order of time: frames open and close like brackets.
    opened: list[Any] = []
    numbers: dict[int, int] = {}
    for key in names:
        frames = _frames(items[key][1])
        if frames:
            while opened and opened[-1] not in frames:
                opened.pop()
                lines.append("}")
            for frame in frames[len(opened) :]:
                opened.append(frame)
                number = numbers.setdefault(id(frame), len(numbers))
                lines.append(f"subgraph cluster{number} {{ labelloc=b labeljust=l label=<{_padded(frame[0])}>")
            lines.append(line(key))
    lines += ["}"] * len(opened)

    if left_out:
        note = f"{_padded(f'{len(left_out):,} nodes in between are not drawn')}<BR/>(max_nodes={max_nodes})"
        lines.append(f'gap [label=<{note}> shape=note style=filled fillcolor="#fff7b0"]')
    to_gap = set()
    for a, b, k in edges:
        ends = names.get(a, "gap"), names.get(b, "gap")
        if "gap" not in ends:
            lines.append(f"{ends[0]} -> {ends[1]}" + f" [headlabel={k}]" * (k > 0))
        elif ends not in to_gap and ends != ("gap", "gap"):
            to_gap.add(ends)
            lines.append(f"{ends[0]} -> {ends[1]} [style=dashed]")
    return [f"\t{text}\n" for text in lines]


def _frames(region: Any) -> list[Any]:
    """The region and those around it, outermost first."""
    frames = []
    while region is not None:
        frames.append(region)
        region = region[2]
    return frames[::-1]


def _style(x: Any, fill: str = "", ink: str = "black", dead: bool = False) -> str:
    """Of a node: what was computed has round corners, what is to be trained and what is constant has none."""
    computed = isinstance(x, Tensor) and x._node is not None
    kind = COMPUTED if computed else PARAMETER if isinstance(x, Tensor) and x.requires_grad else CONSTANT
    style = "rounded," * computed + ("dashed" if dead else "filled")
    return f'style="{style}" fillcolor="{fill or kind}" fontcolor="{ink}"'


def _gradient_style(x: Any, size: float | None, low: float, high: float) -> str:
    """low and high are powers of ten; size is None where there is no gradient."""
    if size is None or size == 0:
        return _style(x, CONSTANT, dead=size == 0)
    return _style(x, *color((np.log10(size) - low) / (high - low))) if np.isfinite(size) else _style(x, NOT_FINITE)


def _typical(slope: Array) -> float:
    """The median size of the elements that are not 0; 0 where all are."""
    sizes = np.abs(slope[slope != 0])
    return float(np.median(sizes)) if sizes.size else 0.0


def _heading(x: Any) -> str:
    if not isinstance(x, Tensor):
        return f"{x:.4g}" if np.ndim(x) == 0 else "array"
    if x._node is None:
        return f"<B>{_escape(x.name or ('parameter' if x.requires_grad else 'constant'))}</B>"
    name = x._node.op.name
    return f"<B>{f'{_escape(x.name)} = ' if x.name else ''}{SYMBOLS.get(name, name)}</B>"


def _details(x: Any, show: str, slope: Array | None) -> list[str]:
    if np.ndim(x) == 0 and not isinstance(x, Tensor):
        return []  # a plain number is its own heading
    data = x._data if isinstance(x, Tensor) else x
    params = x._node.params if isinstance(x, Tensor) and x._node is not None else {}
    told = [f"{k}={v}" for k, v in params.items() if (k[:2] == "ax" and v is not None) or isinstance(v, str)]
    rows = [_escape(", ".join(told))] if told else []
    if data.ndim:
        rows.append(f"{data.shape}" if data.dtype.kind == "f" else f"{data.shape} {data.dtype}")
    if show == "values" or data.size == 1:
        rows += _numbers(data)
    if slope is not None and slope.size == 1:
        rows.append(f"grad {slope.item():.4g}")
    elif slope is not None and slope.size:
        zeros = np.mean(slope == 0)
        rows.append(f"grad {_typical(slope):.1e}" if zeros < 1 else "grad 0")
        rows += [f"{zeros:.0%} are 0"] if 0.005 <= zeros < 1 else []
    return [f'<FONT POINT-SIZE="10">{row}</FONT>' for row in rows]


def _numbers(data: Array) -> list[str]:
    """A few values as they are, of many the range."""
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


def _legend(show: str, low: float, high: float, title: str) -> str:
    if show == "gradients":
        bar = "".join(f'<TD BGCOLOR="{color}" WIDTH="18"></TD>' for color in VIRIDIS)
        cells = f"<TD>{_padded(f'median |dL/dx|:  up to {10**low:.1e}')}</TD>{bar}<TD>{_padded(f'{10**high:.1e}')}</TD>"
        cells += f'<TD BGCOLOR="{CONSTANT}">{_padded("no gradient")}</TD>'
        cells += f'<TD BORDER="1" STYLE="dashed">{_padded("all 0")}</TD>'
    else:
        kinds = {"computed": COMPUTED, "requires_grad": PARAMETER, "constant": CONSTANT}
        cells = "".join(f'<TD BGCOLOR="{color}">{_padded(text)}</TD>' for text, color in kinds.items())
    table = f'<TABLE BORDER="0" CELLSPACING="2"><TR>{cells}</TR></TABLE>'
    heading = f'<TR><TD><FONT POINT-SIZE="14" COLOR="black"><B>{_padded(title)}</B></FONT></TD></TR>' if title else ""
    return f'<TABLE BORDER="0">{heading}<TR><TD>{table}</TD></TR></TABLE>'


def _escape(text: object) -> str:
    r"""For the HTML-like labels of DOT, in which < and & and \N have a meaning. A very long text is cut."""
    return cut(printable(text), 60).translate(ESCAPES)


def _padded(text: str) -> str:
    """With room on both sides: the viewer's font may be wider than the one that the layout was computed for."""
    space = " " * (1 + len(text) // 5)
    return space + _escape(text) + space
