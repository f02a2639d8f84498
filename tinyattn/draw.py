"""Pictures: computation graphs, and attention weights as heatmaps."""

from __future__ import annotations

import importlib.util
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .tensor import Array, Tensor, gradients, op_name

if TYPE_CHECKING:
    import graphviz

__all__ = ["draw_graph", "heatmap"]

# Viridis in nine steps: readable in greyscale and to colour-blind eyes.
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
PICTURES = (".svg", ".png")


def _color(fraction: float) -> tuple[str, str]:
    """A fill and the text colour that is readable on it; 0 is dark, 1 is bright."""
    fraction = min(max(fraction, 0.0), 1.0)
    return VIRIDIS[round(fraction * (len(VIRIDIS) - 1))], "#ffffff" if fraction < 0.55 else "#000000"


# --- computation graphs ----------------------------------------------------------------------------------------

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
        ordered = len(inputs) > 1 and op_name(node.op) not in COMMUTATIVE
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
    return _style(x, *_color((np.log10(size) - low) / (high - low))) if np.isfinite(size) else _style(x, NOT_FINITE)


def _typical(slope: Array) -> float:
    """The median size of the elements that are not 0; 0 where all are."""
    sizes = np.abs(slope[slope != 0])
    return float(np.median(sizes)) if sizes.size else 0.0


def _heading(x: Any) -> str:
    if not isinstance(x, Tensor):
        return f"{x:.4g}" if np.ndim(x) == 0 else "array"
    if x._node is None:
        return f"<B>{_escape(x.name or ('parameter' if x.requires_grad else 'constant'))}</B>"
    name = op_name(x._node.op)
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
    return _cut(_printable(text), 60).translate(ESCAPES)


def _padded(text: str) -> str:
    """With room on both sides: the viewer's font may be wider than the one that the layout was computed for."""
    space = " " * (1 + len(text) // 5)
    return space + _escape(text) + space


# --- heatmaps --------------------------------------------------------------------------------------------------

SHADES = " ·░▒▓█"  # exactly 0 is blank, then a fifth of the scale each
NAN = "×"
Line = list[tuple[str, float | None]]  # of the terminal's table: pieces of text, with their place on the scale


def heatmap(
    weights: Any,
    row_labels: Iterable[object] | None = None,
    column_labels: Iterable[object] | None = None,
    *,
    title: str = "attention weights",
    path: str | os.PathLike[str] | None = None,
) -> str:
    """Print attention weights as a table, rows are queries and columns are keys, and return its text.

    weights (..., n, m), on the fixed scale 0 to 1: a Tensor, an array or a boolean mask. Each index of the leading
        axes (batch, heads) is a map of its own, never an average: heads differ, and a mean hides it.
    row_labels, column_labels: the n and m tokens; 0, 1, 2, … unless given.
    path: .svg, .png: draw it there too, with matplotlib.
    Coloured on a terminal (by rich). Where the figures are too wide for it, one shade a cell, then pieces.
    NaN is marked, and so is a row without any weight: a query that may attend to nothing.
    """
    cells = np.asarray(weights.numpy() if isinstance(weights, Tensor) else weights, dtype=float)
    if cells.ndim < 2 or cells.size == 0:
        raise ValueError(f"heatmap of weights of shape {cells.shape}: it takes (..., queries, keys), none of them 0")
    if path is not None and os.path.splitext(path)[1] not in PICTURES:
        raise ValueError(f"heatmap: the ending of path {str(path)!r} may be {', '.join(PICTURES)}")
    rows = _labels("row_labels", row_labels, cells.shape[-2], "rows (queries)")
    columns = _labels("column_labels", column_labels, cells.shape[-1], "columns (keys)")
    axes = ["head"] if cells.ndim == 3 else ["batch", "head"] if cells.ndim == 4 else [""] * (cells.ndim - 2)
    maps = {}
    for index in np.ndindex(cells.shape[:-2]):
        maps[", ".join([_printable(title), *(f"{axis} {i}".strip() for axis, i in zip(axes, index))])] = cells[index]
    lines: list[Line] = []
    for heading, values in maps.items():
        lines += [[(heading, None)], *_table(values, rows, columns), []]
    text = _print_lines(lines[:-1])
    if path is not None:
        _save_heatmap(maps, rows, columns, path)
    return text


def _labels(name: str, labels: Iterable[object] | None, count: int, what: str) -> list[str]:
    labels = range(count) if labels is None else list(labels)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} {name} for {count} {what}: give one label each")
    return [_printable(label) for label in labels]


def _table(values: Array, rows: list[str], columns: list[str]) -> list[Line]:
    import shutil

    corner = max(min(16, max(map(_width, rows))), len("queries ↓"))
    room = max(shutil.get_terminal_size().columns - corner - 1, 10)
    cell = max(5, min(9, max(map(_width, columns)) + 1, room // len(columns)))
    figures = cell * len(columns) <= room
    step = len(columns) if figures else room  # columns in one piece
    lines: list[Line] = []
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        piece = f" {start} to {min(start + step, len(columns)) - 1}" if step < len(columns) else ""
        lines.append([(" " * (corner + 1) + f"keys →{piece}", None)])
        if figures:
            heads = ["".join(" " + _fit(label, cell - 1, "right") for label in columns)]
        else:  # one character a column: its label stands upright above it
            tall = min(8, max(map(len, columns[part])))
            upright = [_cut(label, tall).rjust(tall) for label in columns[part]]
            heads = ["".join(c if _width(c) == 1 else "?" for c in letters) for letters in zip(*upright)]
        lines += [[(" " * (corner + 1) + head, None)] for head in heads[:-1]]
        lines.append([(f"{_fit('queries ↓', corner)} {heads[-1]}", None)])
        for label, row in zip(rows, values):
            line: Line = [(_fit(label, corner) + " ", None)]
            line += [(_figure(w).rjust(cell) if figures else _shade(w), w) for w in row[part]]
            lines.append(line if row.any() else [*line, (" ← empty row", None)])
    scale = "0 is exactly 0" if figures else f"blank 0, {' '.join(SHADES[1:])} up to .2 .4 .6 .8 1"
    nan, outside = np.isnan(values).sum(), ((values < 0) | (values > 1)).sum()
    remarks = (f"; {NAN} is NaN: {nan}" if nan else "") + (f"; outside the scale: {outside}" if outside else "")
    return [*lines, [(f"rows: queries, columns: keys, scale 0 to 1 ({scale}){remarks}", None)]]


def _figure(w: float) -> str:
    if np.isnan(w):
        return NAN
    return f"{w:.0f}" if w in (0, 1) else f"{w:.2f}".replace("0.", ".", 1)


def _shade(w: float) -> str:
    return NAN if np.isnan(w) else SHADES[int(np.ceil(min(max(w, 0), 1) * (len(SHADES) - 1)))]


def _printable(label: object) -> str:
    """The label on one line: line breaks and other control characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(label))


def _width(text: str) -> int:
    """Terminal columns: East Asian wide characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _cut(text: str, width: int) -> str:
    """The text, its end replaced by … where it is wider."""
    text = text[: 4 * width]
    while _width(text) > width:
        text = text[:-2] + "…"
    return text


def _fit(text: str, width: int, align: str = "left") -> str:
    """Cut or padded to the width."""
    text = _cut(text, width)
    space = " " * (width - _width(text))
    return text + space if align == "left" else space + text


def _print_lines(lines: list[Line]) -> str:
    """Print in colour where a terminal and rich are there, as plain text otherwise; return the plain text."""
    text = "\n".join("".join(piece for piece, _ in line).rstrip() for line in lines)
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        from rich.console import Console
        from rich.text import Text  # unlike a string with markup, it shows [ ] as they are

        console = Console()
        for line in lines:
            styled = Text()
            for piece, w in line:
                fill, ink = _color(w) if w is not None and w == w else ("default", "default")
                styled.append(piece, f"{ink} on {fill}")
            console.print(styled, soft_wrap=True)
        return text
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))
    return text


def _save_heatmap(maps: dict[str, Array], rows: list[str], columns: list[str], path: Any) -> None:
    if not importlib.util.find_spec("matplotlib"):
        print(f"{path} is not drawn: matplotlib is missing: pip install matplotlib", file=sys.stderr)
        return
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    n, m = len(rows), len(columns)
    high, wide = min(0.4, 8 / n), min(0.4, 8 / m)  # of a cell, in inches
    across = max(1, min(len(maps), int(16 / (wide * m + 1.5))))
    down = -(-len(maps) // across)
    size = (across * (wide * m + 1.5) + 1, down * (high * n + 1.6))
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for ax, (heading, values) in zip(axes, maps.items()):
        image = ax.imshow(values, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        ax.set_title(_cut(heading, 40), parse_math=False, fontsize=10)  # parse_math: a token like $x$ is no formula
        ax.set_facecolor("lightgrey")  # seen through NaN
        for axis, labels, side in ((ax.xaxis, columns, wide), (ax.yaxis, rows, high)):
            step = int(np.ceil(0.16 / side))  # no label overlaps the next
            ticks = [_cut(label, 14) for label in labels[::step]]
            axis.set_ticks(range(0, len(labels), step), ticks, parse_math=False, fontsize=8)
        ax.tick_params(axis="x", rotation=90)
        empty, missing = np.flatnonzero(~values.any(axis=-1)), np.argwhere(np.isnan(values))
        for i in empty:
            ax.add_patch(Rectangle((-0.5, i - 0.5), m, 1, fill=False, hatch="///", edgecolor="white"))
        for i, j in missing:
            ax.text(j, i, NAN, ha="center", va="center", color="crimson", fontsize=30 * min(high, wide))
        if max(n, m) <= 12:
            for (i, j), w in np.ndenumerate(values):
                if w > 0:
                    ax.text(j, i, _figure(w), ha="center", va="center", color=_color(w)[1], fontsize=7)
        marks = ["hatched: empty row"] * (len(empty) > 0) + [f"{NAN}: NaN"] * (len(missing) > 0)
        ax.set(xlabel="\n".join(filter(None, ["keys", ", ".join(marks)])), ylabel="queries")
    for ax in axes[len(maps) :]:
        ax.set_axis_off()
    figure.colorbar(image, ax=axes, label="weight", aspect=4 * size[1])
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # labels stay text: searchable, and small
        figure.savefig(path, dpi=150)
