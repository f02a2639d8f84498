"""Pictures: computation graphs, and attention weights as heatmaps."""

from __future__ import annotations

import html
import shutil
import sys
import sysconfig
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .tensor import Array, Tensor, gradients, op_name

if TYPE_CHECKING:
    import graphviz

# Viridis in nine steps: readable in greyscale and by colour-blind eyes.
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


def _color(fraction: float) -> tuple[str, str]:
    """A fill and the text colour that is readable on it; 0 is dark, 1 is bright."""
    fraction = min(max(fraction, 0.0), 1.0)
    return VIRIDIS[round(fraction * (len(VIRIDIS) - 1))], "#ffffff" if fraction < 0.55 else "#000000"


def _tell(message: str) -> None:
    print(message, file=sys.stderr)


# --- computation graphs ------------------------------------------------------------------------------

SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**", "matmul": "@", "negative": "-"}
COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
OPERATION, PARAMETER, CONSTANT, NOT_FINITE = "#d6e6f4", "#fddcae", "#ececec", "#ff8f8f"
PICTURES, TEXTS = (".svg", ".png", ".pdf"), (".dot", ".gv")
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
    path: str | PathLike[str] | None = None,
) -> graphviz.Digraph:
    """Draw how output (a Tensor, or several) was computed. A notebook shows the returned Digraph by itself.

    show: what a node tells beside its op: "shapes"; "values" (their range, where they are many); or "gradients",
        dL/d(node), from a backward pass of its own that touches no `.grad` (L = output, or the sum of several;
        gradient= as in `backward` for an L that is no scalar). The colour is the median of |dL/dx| over the
        elements that are not 0, on a log scale: a mean would hide, behind a few that are large, that most died.
    limits: lowest and highest gradient of the colour scale, to make pictures comparable; 8 decades by default.
    direction: "TB" (from top to bottom), "LR", "BT" or "RL".
    max_nodes: of a larger graph the middle is left out, and a note in the picture says how much.
    path: .svg, .png, .pdf: draw it there; .dot, .gv: the DOT text, which needs neither the package graphviz nor its
        program. Where these are missing, a picture's text is written instead, and one line says what to install.
    Raises RuntimeError on an output without a graph: nothing needed gradients, or backward() released it.
    """
    outputs = [output] if isinstance(output, Tensor) else list(output)
    suffix = Path(path).suffix if path is not None else ".svg"
    _check_choice("show", show, ("shapes", "values", "gradients"))
    _check_choice("direction", direction, ("TB", "LR", "BT", "RL"))
    _check_choice("the ending of path", suffix, PICTURES + TEXTS)
    body = _dot_lines(outputs, show, gradient, limits, direction, max_nodes, title)

    digraph, missing = None, NO_PACKAGE
    try:
        import graphviz
    except ImportError:
        if path is None:
            raise ImportError(f"{NO_PACKAGE}. The DOT text needs neither: draw_graph(…, path='graph.dot')") from None
    else:
        digraph, missing = graphviz.Digraph(body=body), "" if _find_program() else NO_PROGRAM
        if missing:  # what a notebook shows, in place of a long trace
            digraph._repr_mimebundle_ = lambda **_: {"text/plain": f"{NO_PROGRAM}. The DOT text is in .source"}
    if path is not None and suffix in PICTURES and not missing:
        Path(path).write_bytes(digraph.pipe(format=suffix[1:], quiet=True))
    elif path is not None:
        target = Path(path) if suffix in TEXTS else Path(path).with_suffix(".dot")
        target.write_text("".join(["digraph {\n", *body, "}\n"]), encoding="utf-8")
        if suffix in PICTURES:
            _tell(f"{path} is not drawn: {missing}. The graph's DOT text is in {target}")
    return digraph


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"draw_graph: {name} is {value!r}; it may be {', '.join(allowed)}")


def _find_program() -> bool:
    """Whether graphviz has a program to call: the system's dot, else graphviz-pure, which it is then told of."""
    from graphviz.backend import dot_command

    if shutil.which(dot_command.DOT_BINARY):
        return True
    scripts = sysconfig.get_path("scripts")  # an environment need not be activated to be used
    program = shutil.which("graphviz-pure") or shutil.which("graphviz-pure", path=scripts)
    if program:
        dot_command.DOT_BINARY = Path(program)
    return program is not None


def _collect(outputs: list[Tensor]) -> tuple[list[Any], list[Any], list[tuple[int, int]]]:
    """What outputs were computed from, inputs before results; the region of each; the edges, as pairs of positions.

    A tensor is one item however often it is used, a constant one for each use.
    """
    for t in outputs:
        if not t.requires_grad:
            raise RuntimeError(f"{t!r} has no graph to draw: nothing that it was computed from has requires_grad=True, "
                               "or it was computed inside no_grad")  # fmt: skip
    found, stack = dict.fromkeys(outputs), list(outputs)
    while stack:
        node = stack.pop()._node
        if node is not None and node.inputs is None:
            raise RuntimeError("this graph was released by backward(), nothing of it is left to draw: draw it before, or "
                               "call backward(retain_graph=True)")  # fmt: skip
        for x in node.inputs or () if node is not None else ():
            if isinstance(x, Tensor) and x not in found:
                found[x] = None
                stack.append(x)

    items: list[Any] = []
    regions: list[Any] = []
    edges: list[tuple[int, int, int]] = []
    place: dict[Tensor, int] = {}

    def put(x: Any, region: Any) -> int:
        if isinstance(x, Tensor):
            place[x] = len(items)
        items.append(x)
        regions.append(region)
        return len(items) - 1

    for t in sorted((t for t in found if t._node is not None), key=lambda t: t._node.order):
        # a leaf stands just before its first use, and belongs to no function
        sources = [
            place[x] if isinstance(x, Tensor) and x in place
            else put(x, None if isinstance(x, Tensor) else t._node.region)
            for x in t._node.inputs
        ]  # fmt: skip
        target = put(t, t._node.region)
        ordered = len(sources) > 1 and op_name(t._node.op) not in COMMUTATIVE
        edges += [(source, target, k if ordered else 0) for k, source in enumerate(sources, 1)]
    for t in outputs:
        if t not in place:
            put(t, None)
    return items, regions, edges


def _sum_of_gradients(outputs: list[Tensor], gradient: Any) -> dict[Tensor, Array]:
    seeds = [gradient] if len(outputs) == 1 else gradient or [None] * len(outputs)
    total: dict[Tensor, Array] = {}
    for output, seed in zip(outputs, seeds, strict=True):
        for t, g in gradients(output, seed).items():
            total[t] = total[t] + g if t in total else g
    return total


def _dot_lines(outputs: list[Tensor], show: str, gradient: Any, limits: tuple[float, float] | None, direction: str,
               max_nodes: int, title: str) -> list[str]:  # fmt: skip
    """What stands between the braces of `digraph { }`. Nodes are numbered: names may repeat, or hold anything."""
    items, regions, edges = _collect(outputs)
    hidden = range(max_nodes // 2, len(items) - max_nodes // 2)  # empty where the graph is small
    shown = [i for i in range(len(items)) if i not in hidden]
    slopes = _sum_of_gradients(outputs, gradient) if show == "gradients" else {}
    sizes = {i: _typical(slopes[items[i]]) for i in shown if isinstance(items[i], Tensor) and items[i] in slopes}
    high = max((size for size in sizes.values() if np.isfinite(size)), default=0.0) or 1.0
    low, high = np.log10(limits) if limits else (np.log10(high) - 8, np.log10(high))

    def node(i: int) -> str:
        x = items[i]
        rows = [f"<B>{_heading(x)}</B>", *_details(x, show, slopes.get(x) if isinstance(x, Tensor) else None)]
        fill, style = _kind(x)
        ink = "#000000"
        if show == "gradients":
            fill, ink, extra = _gradient_colors(sizes.get(i), low, high)
            style += extra
        rim = " peripheries=2" if any(x is output for output in outputs) else ""
        return f'n{i} [label=<{"<BR/>".join(rows)}> style="{style}" fillcolor="{fill}" fontcolor="{ink}"{rim}]'

    lines = [
        f"rankdir={direction} fontname=Helvetica fontsize=12 labelloc=t nodesep=0.3 ranksep=0.35 ordering=in",
        f"label=<{_legend(show, low, high, title)}>",
        'node [fontname=Helvetica fontsize=12 shape=box color="#555555" margin="0.17,0.05" width=0.4 height=0.3]',
        'edge [color="#555555" arrowsize=0.7 fontname=Helvetica fontsize=9 fontcolor="#777777" labeldistance=1.4]',
        'graph [style="rounded,dashed" color="#777777" fontcolor="#555555" fontsize=10]',  # of the functions
    ]
    lines += [node(i) for i in shown if regions[i] is None]
    # Calls are nested in time, and results are in order of time: functions open and close like brackets.
    opened: list[Any] = []
    numbers: dict[int, int] = {}
    for i in shown:
        if regions[i] is None:
            continue
        path = _path(regions[i])
        while opened and (len(opened) > len(path) or opened[-1] is not path[len(opened) - 1]):
            opened.pop()
            lines.append("}")
        for region in path[len(opened) :]:
            opened.append(region)
            number = numbers.setdefault(id(region), len(numbers))
            lines.append(f"subgraph cluster{number} {{")
            lines.append(f"label=<{_padded(region[0])}>")
        lines.append(node(i))
    lines += ["}"] * len(opened)
    if hidden:
        note = f"{len(hidden):,} nodes in between are not drawn<BR/>(max_nodes={max_nodes})"
        lines.append(f'gap [label=<{note}> shape=note style=filled fillcolor="#fff7b0"]')
    arrows = []
    for a, b, k in edges:
        if a in hidden or b in hidden:
            arrows.append(f"{'gap' if a in hidden else f'n{a}'} -> {'gap' if b in hidden else f'n{b}'} [style=dashed]")
        else:
            arrows.append(f"n{a} -> n{b}" + (f' [headlabel="{k}"]' if k else ""))
    lines += arrows
    return [f"\t{line}\n" for line in lines]


def _path(region: Any) -> list[Any]:
    """The region and those around it, outermost first."""
    path = []
    while region is not None:
        path.append(region)
        region = region[2]
    return path[::-1]


def _heading(x: Any) -> str:
    if not isinstance(x, Tensor):
        return _escape(f"{x:.4g}") if np.ndim(x) == 0 else "array"
    if x._node is None:
        return _escape(x.name or ("parameter" if x.requires_grad else "constant"))
    name = op_name(x._node.op)
    return (f"{_escape(x.name)} = " if x.name else "") + SYMBOLS.get(name, name)


def _details(x: Any, show: str, slope: Array | None) -> list[str]:
    if np.ndim(x) == 0 and not isinstance(x, Tensor):
        return []  # a plain number is its own heading
    data = x._data if isinstance(x, Tensor) else x
    params = x._node.params if isinstance(x, Tensor) and x._node is not None else {}
    rows = [", ".join(f"{k}={_escape(v)}" for k, v in params.items() if _is_short(k, v))]
    rows += [f"{data.shape}" if data.dtype.kind == "f" else f"{data.shape} {data.dtype}"] if data.ndim else []
    if show == "values" or data.size == 1:
        rows += _numbers(data)
    if slope is not None and slope.size == 1:
        rows.append(f"grad {slope.item():.4g}")
    elif slope is not None:
        zeros = np.mean(slope == 0)
        rows.append(f"grad {_typical(slope):.1e}" if zeros < 1 else "grad 0")
        rows += [f"{zeros:.0%} are 0"] if 0 < zeros < 1 else []
    return [f'<FONT POINT-SIZE="10">{row}</FONT>' for row in rows if row]


def _is_short(name: str, value: Any) -> bool:
    """Whether a parameter tells something, as axis=-1 does, that the shape does not."""
    return name.startswith("ax") and value is not None or isinstance(value, str) or value is True


def _numbers(data: Array) -> list[str]:
    """A few values as they are, of many their range."""
    if data.size == 1:
        return [f"{data.item():.4g}"]
    if data.size <= 16 and data.ndim <= 2:
        rows = np.array2string(data, precision=3, suppress_small=True).splitlines()
        width = max(map(len, rows))
        return [f'<FONT FACE="Courier">{row.ljust(width)}</FONT>' for row in rows]
    finite = data[np.isfinite(data)]
    strange = [f"{data.size - finite.size} not finite"] if finite.size < data.size else []
    spread = [f"{float(finite.min()):.3g} to {float(finite.max()):.3g}"] if finite.size else []
    return [", ".join(spread + strange)]


def _typical(slope: Array) -> float:
    """The median size of the elements that are not 0; 0 where all are."""
    sizes = np.abs(slope[slope != 0])
    return float(np.median(sizes)) if sizes.size else 0.0


def _kind(x: Any) -> tuple[str, str]:
    """The colour and the form of a node: computed, to be trained, or constant."""
    if isinstance(x, Tensor) and x._node is not None:
        return OPERATION, "rounded,filled"
    return (PARAMETER if isinstance(x, Tensor) and x.requires_grad else CONSTANT), "filled"


def _gradient_colors(size: float | None, low: float, high: float) -> tuple[str, str, str]:
    """Fill, text colour and an extra style; low and high are powers of ten, size None where there is no gradient."""
    if size is None:
        return CONSTANT, "#000000", ""
    if size == 0:
        return "#ffffff", "#000000", ",dashed"
    if not np.isfinite(size):
        return NOT_FINITE, "#000000", ""
    return *_color((np.log10(size) - low) / (high - low)), ""


def _legend(show: str, low: float, high: float, title: str) -> str:
    if show == "gradients":
        scale = "".join(f'<TD BGCOLOR="{color}" WIDTH="18"></TD>' for color in VIRIDIS)
        cells = f"<TD>{_padded(f'median |dL/dx|:  {10**low:.1e} or less')}</TD>{scale}<TD>{_padded(f'{10**high:.1e}')}</TD>"
        cells += f'<TD BGCOLOR="{CONSTANT}">{_padded("no gradient")}</TD>'
        cells += f'<TD BORDER="1" STYLE="dashed">{_padded("all 0")}</TD>'
    else:
        kinds = {"computed": OPERATION, "requires_grad": PARAMETER, "constant": CONSTANT}
        cells = "".join(f'<TD BGCOLOR="{color}">{_padded(text)}</TD>' for text, color in kinds.items())
    table = f'<TABLE BORDER="0" CELLSPACING="2"><TR>{cells}</TR></TABLE>'
    heading = f'<TR><TD><FONT POINT-SIZE="14"><B>{_padded(title)}</B></FONT></TD></TR>' if title else ""
    return f'<TABLE BORDER="0">{heading}<TR><TD>{table}</TD></TR></TABLE>'


def _escape(text: object) -> str:
    """For the HTML-like labels of DOT: < and & are shown as they are; a very long text is cut."""
    return html.escape(_cut(_printable(text), 40))


def _padded(text: str) -> str:
    """With room on both sides: the viewer's font may be wider than the one the layout was computed for."""
    space = " " * (1 + len(text) // 5)
    return space + _escape(text) + space


# ---- heatmaps -------------------------------------------------------------------------------------------

SHADES = " ·░▒▓█"  # exactly 0 is blank, then a fifth of the scale each
NAN = "×"


def heatmap(
    weights: Any,
    row_labels: Iterable[object] | None = None,
    column_labels: Iterable[object] | None = None,
    *,
    title: str = "attention weights",
    path: str | PathLike[str] | None = None,
) -> str:
    """Print attention weights as a table of shades, rows are queries and columns are keys; return its text.

    weights (..., n, m), on the fixed scale 0 to 1: a Tensor, an array or a boolean mask. Each index of the
    leading axes (batch, heads) is a map of its own, never an average: heads differ, and a mean hides it.
    Labels are the n and m tokens, 0, 1, 2 … by default. Wide maps lose their figures, then are cut in pieces.
    NaN is marked, and so is a row without any weight (a query that may attend to nothing).
    `path` (.png, .svg or .pdf) draws the same picture with matplotlib.
    """
    cells = np.asarray(weights.numpy() if isinstance(weights, Tensor) else weights, dtype=float)
    if cells.ndim < 2 or cells.size == 0:
        raise ValueError(f"heatmap of weights of shape {cells.shape}: it takes (..., queries, keys)")
    rows = _labels("row_labels", row_labels, cells.shape[-2], "rows (queries)")
    columns = _labels("column_labels", column_labels, cells.shape[-1], "columns (keys)")
    if path is not None and Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"heatmap draws .png, .svg or .pdf, not {str(path)!r}")
    maps = {index: cells[index] for index in np.ndindex(cells.shape[:-2])}
    titles = [_map_title(title, index) for index in maps]
    lines: list[Line] = []
    for head, values in zip(titles, maps.values()):
        lines += [[(head, None)], *_table(values, rows, columns), []]
    text = _print_lines(lines[:-1])
    if path is not None:
        _save_heatmap(list(maps.values()), titles, rows, columns, Path(path))
    return text


def _labels(name: str, labels: Iterable[object] | None, count: int, what: str) -> list[str]:
    labels = range(count) if labels is None else list(labels)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} {name} for {count} {what}: give one label each")
    return [_printable(label) for label in labels]


def _map_title(title: str, index: tuple[int, ...]) -> str:
    if not index:
        return title
    where = f"head {index[0]}" if len(index) == 1 else f"[{', '.join(map(str, index))}]"
    return f"{title}, {where}"


# A line of the terminal's table: pieces of text, each with its place on the colour scale where it has one.
Line = list[tuple[str, float | None]]


def _table(values: Array, rows: list[str], columns: list[str]) -> list[Line]:
    labels = [_fit(label, min(16, max(map(_width, rows)))) for label in rows]
    corner = max(_width(labels[0]), len("queries ↓"))
    room = max(shutil.get_terminal_size().columns - corner - 1, 10)
    cell = max(4, min(8, max(map(_width, columns)))) + 1
    figures = cell * len(columns) <= room
    step = len(columns) if figures else room  # columns in one piece
    lines: list[Line] = []
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        piece = "" if step >= len(columns) else f" {start} to {min(start + step, len(columns)) - 1}"
        lines.append([(" " * (corner + 1) + f"keys →{piece}", None)])
        if figures:
            heads = ["".join(" " + _fit_right(label, cell - 1) for label in columns)]
        else:  # one character a column: its label stands upright above it
            tall = min(8, max(map(len, columns[part])))
            upright = [_cut(label, tall).rjust(tall) for label in columns[part]]
            heads = ["".join(c if _width(c) == 1 else "?" for c in letters) for letters in zip(*upright)]
        for k, head in enumerate(heads):
            lines.append([(_fit("queries ↓" if k == len(heads) - 1 else "", corner) + " " + head, None)])
        for label, row in zip(labels, values):
            line: Line = [(_fit(label, corner) + " ", None)]
            line += [(_figure(w).rjust(cell) if figures else _shade(w), w) for w in row[part]]
            lines.append(line if row.any() else [*line, (" ← empty row", None)])
    scale = "0 is exactly 0" if figures else f"blank 0, {' '.join(SHADES[1:])} up to .2 .4 .6 .8 1"
    lines.append([(f"rows: queries, columns: keys, scale 0 to 1 ({scale}){_remarks(values)}", None)])
    return lines


def _remarks(values: Array) -> str:
    nan, outside = np.isnan(values).sum(), ((values < 0) | (values > 1)).sum()
    return (f"; {NAN} is NaN: {nan}" if nan else "") + (f"; outside the scale: {outside}" if outside else "")


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
    if _width(text) <= width:
        return text
    while _width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _fit(text: str, width: int) -> str:
    """Cut or padded on the right to the width."""
    text = _cut(text, width)
    return text + " " * (width - _width(text))


def _fit_right(text: str, width: int) -> str:
    text = _cut(text, width)
    return " " * (width - _width(text)) + text


def _print_lines(lines: list[Line]) -> str:
    """Print in colour where a terminal and rich are there, as plain text otherwise; return the plain text."""
    text = "\n".join("".join(piece for piece, _ in line).rstrip() for line in lines)
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.text import Text  # unlike a markup string, it shows [ ] as they are
        except ImportError:
            pass
        else:
            for line in lines:
                styled = Text()
                for piece, w in line:
                    styled.append(piece, None if w is None or np.isnan(w) else "{1} on {0}".format(*_color(w)))
                Console().print(styled, soft_wrap=True)
            return text
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))
    return text


def _save_heatmap(
    maps: Sequence[Array], titles: list[str], rows: list[str], columns: list[str], path: Path
) -> None:
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError:
        _tell(f"{path} is not drawn: matplotlib is missing; pip install matplotlib")
        return
    n, m = len(rows), len(columns)
    high, wide = min(0.4, 8 / n), min(0.4, 8 / m)  # of a cell, in inches
    across = max(1, min(len(maps), int(16 / (wide * m + 1.5))))
    down = -(-len(maps) // across)
    size = (across * (wide * m + 1.5) + 1, down * (high * n + 1.6))
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for ax, values, title in zip(axes, maps, titles):
        image = ax.imshow(values, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        # parse_math=False, here and below: a token such as $x$ is no formula.
        ax.set_title(_cut(title, 40), parse_math=False, fontsize=10)
        ax.set_facecolor("lightgrey")  # seen through NaN
        for axis, labels, side in ((ax.xaxis, columns, wide), (ax.yaxis, rows, high)):
            step = int(np.ceil(0.16 / side))  # no label overlaps the next
            names = [_cut(label, 14) for label in labels[::step]]
            axis.set_ticks(range(0, len(labels), step), names, parse_math=False, fontsize=8)
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
        marks = ["hatched: empty row"] * bool(len(empty)) + [f"{NAN}: NaN"] * bool(len(missing))
        ax.set(xlabel="keys" + "\n" * bool(marks) + ", ".join(marks), ylabel="queries")
    for ax in axes[len(maps) :]:
        ax.set_axis_off()
    figure.colorbar(image, ax=axes, label="weight", aspect=4 * size[1])
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # labels stay text: searchable, and small
        figure.savefig(path, dpi=150)
