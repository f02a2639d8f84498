"""Attention weights as heatmaps."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ..graph import Tensor
from ..text import Line, Shown, color, cut, fit, printable, width
from ..values import Array

__all__ = ["heatmap"]

PICTURES = (".svg", ".png")
SHADES = " ·░▒▓█"  # exactly 0 is blank, then a fifth of the scale each
NAN = "×"


def heatmap(
    weights: Any,
    row_labels: Iterable[object] | None = None,
    column_labels: Iterable[object] | None = None,
    *,
    title: str = "attention weights",
    path: str | os.PathLike[str] | None = None,
) -> Shown:
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
        maps[", ".join([printable(title), *(f"{axis} {i}".strip() for axis, i in zip(axes, index))])] = cells[index]
    lines: list[Line] = []
    for heading, values in maps.items():
        lines += [[(heading, "")], *_table(values, rows, columns), []]
    shown = Shown(lines[:-1]).show()
    if path is not None:
        _save_heatmap(maps, rows, columns, path)
    return shown


def _labels(name: str, labels: Iterable[object] | None, count: int, what: str) -> list[str]:
    labels = range(count) if labels is None else list(labels)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} {name} for {count} {what}: give one label each")
    return [printable(label) for label in labels]


def _table(values: Array, rows: list[str], columns: list[str]) -> list[Line]:
    corner = max(min(16, max(map(width, rows))), len("queries ↓"))
    room = max(shutil.get_terminal_size().columns - corner - 1, 10)
    cell = max(5, min(9, max(map(width, columns)) + 1, room // len(columns)))
    figures = cell * len(columns) <= room
    step = len(columns) if figures else room  # columns in one piece
    lines: list[Line] = []
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        piece = f" {start} to {min(start + step, len(columns)) - 1}" if step < len(columns) else ""
        lines.append([(" " * (corner + 1) + f"keys →{piece}", "")])
        if figures:
            heads = ["".join(" " + fit(label, cell - 1, "right") for label in columns)]
        else:  # one character a column: its label stands upright above it
            tall = min(8, max(map(len, columns[part])))
            upright = [cut(label, tall).rjust(tall) for label in columns[part]]
            heads = ["".join(c if width(c) == 1 else "?" for c in letters) for letters in zip(*upright)]
        lines += [[(" " * (corner + 1) + head, "")] for head in heads[:-1]]
        lines.append([(f"{fit('queries ↓', corner)} {heads[-1]}", "")])
        for label, row in zip(rows, values):
            line: Line = [(fit(label, corner) + " ", "")]
            line += [(_figure(w).rjust(cell) if figures else _shade(w), _style(w)) for w in row[part]]
            lines.append(line if row.any() else [*line, (" ← empty row", "")])
    scale = "0 is exactly 0" if figures else f"blank 0, {' '.join(SHADES[1:])} up to .2 .4 .6 .8 1"
    nan, outside = np.isnan(values).sum(), ((values < 0) | (values > 1)).sum()
    remarks = (f"; {NAN} is NaN: {nan}" if nan else "") + (f"; outside the scale: {outside}" if outside else "")
    return [*lines, [(f"rows: queries, columns: keys, scale 0 to 1 ({scale}){remarks}", "")]]


def _style(w: float) -> str:
    return "" if np.isnan(w) else "{1} on {0}".format(*color(w))


def _figure(w: float) -> str:
    if np.isnan(w):
        return NAN
    return f"{w:.0f}" if w in (0, 1) else f"{w:.2f}".replace("0.", ".", 1)


def _shade(w: float) -> str:
    return NAN if np.isnan(w) else SHADES[int(np.ceil(min(max(w, 0), 1) * (len(SHADES) - 1)))]


def _save_heatmap(maps: dict[str, Array], rows: list[str], columns: list[str], path: Any) -> None:
    if import_matplotlib() is None:
        print(f"{path} is not drawn: matplotlib is missing: pip install matplotlib", file=sys.stderr)
        return
    with own_style(**{"svg.fonttype": "none"}):  # labels stay text: searchable, and small
        _figure_of(maps, rows, columns).savefig(path, dpi=150)


def import_matplotlib() -> Any:
    """matplotlib, whatever MPLBACKEND asks for, since a Figure needs no backend; None where it is not installed."""
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    except ImportError:
        return None
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    with suppress(ValueError):  # a notebook's, whose packages this environment lacks
        matplotlib.rcParams["backend"] = backend or matplotlib.rcParams["backend"]
    return matplotlib


@contextmanager
def own_style(**settings: Any) -> Iterator[None]:
    """matplotlib's defaults and these settings: what a matplotlibrc asks for (LaTeX) may not be there."""
    matplotlib = import_matplotlib()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # labels may be of any script
        yield


def _figure_of(maps: dict[str, Array], rows: list[str], columns: list[str]) -> Any:
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
        ax.set_title(cut(heading, 40), parse_math=False, fontsize=10)  # parse_math: a token like $x$ is no formula
        ax.set_facecolor("lightgrey")  # seen through NaN
        for axis, labels, side in ((ax.xaxis, columns, wide), (ax.yaxis, rows, high)):
            step = int(np.ceil(0.16 / side))  # no label overlaps the next
            ticks = [cut(label, 14) for label in labels[::step]]
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
                    ax.text(j, i, _figure(w), ha="center", va="center", color=color(w)[1], fontsize=7)
        marks = ["hatched: empty row"] * (len(empty) > 0) + [f"{NAN}: NaN"] * (len(missing) > 0)
        ax.set(xlabel="\n".join(filter(None, ["keys", ", ".join(marks)])), ylabel="queries")
    for ax in axes[len(maps) :]:
        ax.set_axis_off()
    figure.colorbar(image, ax=axes, label="weight", aspect=4 * size[1])
    return figure
