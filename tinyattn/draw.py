"""Pictures: attention weights as heatmaps, in the terminal and as files."""

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Viridis in nine steps: readable in greyscale and by colour-blind eyes.
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


def _color(fraction: float) -> tuple[str, str]:
    """A fill and the text colour that is readable on it; 0 is dark, 1 is bright."""
    fraction = min(max(fraction, 0.0), 1.0)
    return VIRIDIS[round(fraction * (len(VIRIDIS) - 1))], "#ffffff" if fraction < 0.55 else "#000000"


def _tell(message: str) -> None:
    print(message, file=sys.stderr)


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
    cells = np.asarray(getattr(weights, "data", weights), dtype=float)
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
