"""Attention weights as heatmaps."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from ..graph import Tensor
from ..habits import explained
from ..text import Line, Shown, color, cut, fit, printable, width
from ..values import Array

__all__ = ["heatmap"]

PICTURES = (".svg", ".png")
SHADES = " ·░▒▓█"  # exactly 0 is blank, then a fifth of the scale each
NAN, MARK = "×", ">"
GREY = "#d0d0d0"  # exactly 0 in a picture
ZERO = "#8a8a8a on #1c1c1c"  # and on a terminal, where dark is little
MAPS_AT_MOST = 16  # up to so many are printed one by one


@explained
def heatmap(
    weights: Any,
    row_labels: Iterable[object] | None = None,
    column_labels: Iterable[object] | None = None,
    *,
    title: str = "attention weights",
    mark: Iterable[tuple[int, ...]] = (),
    path: str | os.PathLike[str] | None = None,
) -> Shown:
    """Show attention weights as a table, rows are queries and columns are keys, and return its text.

    weights (..., n, m), on the fixed scale 0 to 1: a Tensor, an array or a boolean mask. Each index of the leading
        axes (batch, heads) is a map of its own, never an average, because a mean hides how heads differ. A list of
        arrays has one for each layer. More than 16 maps are printed as one grid: the mean of the rows' largest weights.
    row_labels, column_labels: the n and m tokens; 0, 1, 2, … unless given.
    mark: cells to point out: (i, j) in every map, or with the indices of the leading axes before it, in one.
    path: .svg, .png: draw it there too, with matplotlib.
    In a script it is printed, coloured on a terminal (by rich); in a notebook it is displayed. If two digits a cell are
    too wide, each cell is one shade, scaled to the largest weight, beside each row's best key; if wider, in pieces.
    NaN is marked, and so is a row without any weight: a query that may attend to nothing. Exactly 0 is grey.
    """
    layers = isinstance(weights, (list, tuple)) and np.ndim(_array(weights[0])) > 1 if len(weights) else False
    cells = np.stack([_array(w) for w in weights]) if layers else _array(weights)
    if cells.ndim < 2 or cells.size == 0:
        raise ValueError(f"heatmap of weights of shape {cells.shape}: it takes (..., queries, keys), none of them 0")
    if path is not None and os.path.splitext(path)[1] not in PICTURES:
        raise ValueError(f"heatmap: the ending of path {str(path)!r} may be {', '.join(PICTURES)}")
    rows = _labels("row_labels", row_labels, cells.shape[-2], "rows (queries)")
    columns = _labels("column_labels", column_labels, cells.shape[-1], "columns (keys)")
    axes = ["layer"] * layers + ["batch", "head"][4 - cells.ndim + layers :]
    axes = axes if len(axes) == cells.ndim - 2 else [""] * (cells.ndim - 2)
    marks = _marks(mark, cells.shape)
    maps = []
    for index in np.ndindex(cells.shape[:-2]):
        name = ", ".join(f"{axis} {i}".strip() for axis, i in zip(axes, index))
        maps.append(Map(name, cells[index], {m[-2:] for m in marks if m[:-2] in ((), index)}))
    name = printable(title)
    lines: list[Line] = []
    if len(maps) > MAPS_AT_MOST:
        lines += [[(f"{name}: the mean of the rows' largest weights, map by map", "")], *_overview(cells, axes), []]
    else:
        for m in maps:
            lines += [[(", ".join(filter(None, [name, m.name])), "")], *as_table(m, rows, columns), []]
    shown = Shown(lines[:-1]).show()
    if path is not None:
        _save(maps, rows, columns, name, cells.shape[:-2], path)
    return shown


class Map(NamedTuple):
    name: str  # its place on the leading axes
    values: Array  # (n, m)
    marked: Collection[tuple[int, ...]] = ()


def _array(weights: Any) -> Array:
    return np.asarray(weights.numpy() if isinstance(weights, Tensor) else weights, dtype=float)


def _labels(name: str, labels: Iterable[object] | None, count: int, what: str) -> list[str]:
    labels = range(count) if labels is None else list(labels)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} {name} for {count} {what}: give one label each")
    return [printable(label) for label in labels]


def _marks(mark: Iterable[tuple[int, ...]], shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    found = set()
    for cell in mark:
        sizes = shape[len(shape) - len(cell) :]
        if len(cell) not in (2, len(shape)) or any(not -n <= i < n for i, n in zip(cell, sizes)):
            raise ValueError(f"heatmap: mark {tuple(cell)} is no cell (query, key) of weights of shape {shape}")
        found.add(tuple(int(i) % n for i, n in zip(cell, sizes)))
    return found


# --- text -----------------------------------------------------------------------------------------------


def as_table(m: Map, rows: list[str], columns: list[str]) -> list[Line]:
    """A map as lines of text, for the terminal's width."""
    values = m.values
    corner = max(min(16, max(map(width, rows))), len("queries ↓"))
    import shutil

    room = max(shutil.get_terminal_size().columns - corner - 1, 10)
    short = 5 * len(columns) > room
    need = 1 + max(len(_figure(w, short)) for w in values.flat)
    cell = max(need, min(9, max(max(map(width, columns)) + 1, 5), room // len(columns)))
    figures = cell * len(columns) <= room
    best = min(10, max(map(width, columns)))  # the columns of the best key's name
    step = len(columns) if figures else max(room - best - 8, 10)  # keys in one piece
    finite = values[np.isfinite(values)]
    top = 1.0 if figures else min(finite.max(initial=0.0), 1.0) or 1.0  # of the scale
    lines: list[Line] = []
    for start in range(0, len(columns), step):
        part = slice(start, start + step)
        piece = f" {start} to {min(start + step, len(columns)) - 1}" if step < len(columns) else ""
        lines.append([(" " * (corner + 1) + f"keys →{piece}", "")])
        if figures:
            heads = ["".join(" " + fit(label, cell - 1, "right") for label in columns)]
        else:  # one character a column: its label is written downwards above it
            tall = min(8, max(map(len, columns[part])))
            upright = [cut(label, tall).rjust(tall) for label in columns[part]]
            heads = ["".join(c if width(c) == 1 else "?" for c in letters) for letters in zip(*upright)]
        lines += [[(" " * (corner + 1) + head, "")] for head in heads[:-1]]
        lines.append([(f"{fit('queries ↓', corner)} {heads[-1]}", "")])
        for i, (label, row) in enumerate(zip(rows, values)):
            line: Line = [(fit(label, corner) + " ", "")]
            for j, w in enumerate(row[part], start):
                marked = (i, j) in m.marked
                if figures:
                    line.append(((MARK * marked + _figure(w, short)).rjust(cell), _style(w) + " bold" * marked))
                else:  # in colour the fill alone shows the weight: the shade has the same colour
                    fill = _fill(w / top)
                    line.append((MARK, f"bold #ff5f5f on {fill}") if marked else (_shade(w / top), f"{fill} on {fill}"))
            if not row.any():
                line.append((" ← empty row", ""))
            elif not figures and part.stop >= len(columns) and not np.isnan(row).all():
                j = int(np.nanargmax(row))
                line.append((f" → {cut(columns[j], best)} {_figure(row[j])}", ""))
            lines.append(line)
    ends = " ".join(f"{top * k / 5:.2g}".replace("0.", ".", 1) for k in range(1, 6))
    scale = "0 is exactly 0" if figures else f"blank 0, {' '.join(SHADES[1:])} up to {ends}"
    nan, outside = np.isnan(values).sum(), ((values < 0) | (values > 1)).sum()
    remarks = (f"; {NAN} is NaN: {nan}" if nan else "") + (f"; outside the scale: {outside}" if outside else "")
    legend = f"rows: queries, columns: keys, scale 0 to {_figure(top)} ({scale}){remarks}"
    terminal = room + corner + 1  # one line, unless the terminal is narrower than most
    return [*lines, *([(line, "")] for line in textwrap.wrap(legend, terminal if terminal < 80 else 200))]


def _overview(cells: Array, axes: list[str]) -> list[Line]:
    """One number for each map; the rows are the axis before the heads."""
    grid = cells.max(-1).mean(-1)  # how sharply the rows of a map look at one key
    grid = grid.reshape(-1, grid.shape[-1])
    lines: list[Line] = [[(f"{axes[-2] if len(axes) > 1 else '':<9} {axes[-1] or 'map'} →", "")]]
    lines.append([(" " * 9 + "".join(f"{j:>5}" for j in range(grid.shape[1])), "")])
    for i, row in enumerate(grid):
        lines.append([(f"{i:>8} ", ""), *((_figure(w).rjust(5), _style(w)) for w in row)])
    return lines


def _fill(fraction: float) -> str:
    return "default" if np.isnan(fraction) else ZERO[-7:] if fraction == 0 else color(fraction)[0]


def _style(w: float) -> str:
    return "" if np.isnan(w) else ZERO if w == 0 else "{1} on {0}".format(*color(w))


def _figure(w: float, short: bool = False) -> str:
    if np.isnan(w):
        return NAN
    text = f"{w:.0f}" if w in (0, 1) else f"{w:.2f}".replace("0.", ".", 1)
    return "1.0" if short and text == "1.00" else text


def _shade(w: float) -> str:
    return NAN if np.isnan(w) else SHADES[int(np.ceil(min(max(w, 0), 1) * (len(SHADES) - 1) - 1e-9))]


# --- pictures -------------------------------------------------------------------------------------------


def _save(maps: list[Map], rows: list[str], columns: list[str], title: str, grid: tuple[int, ...], path: Any) -> None:
    if import_matplotlib() is None:
        print(f"{path} is not drawn: matplotlib is missing: pip install matplotlib", file=sys.stderr)
        return
    across = grid[-1] if len(grid) > 1 and grid[-1] > 1 else None  # layers under each other, heads side by side
    settings: dict[str, Any] = {"svg.fonttype": "none"}  # labels stay text: searchable, small, in the viewer's fonts
    if os.path.splitext(path)[1] == ".png":
        fonts = Fonts([title, *rows, *columns])
        settings["font.family"] = fonts.families
        title, rows, columns = fonts.shown(title), [*map(fonts.shown, rows)], [*map(fonts.shown, columns)]
    with own_style(**settings):
        _picture(maps, rows, columns, title, across).savefig(path, dpi=150)


def _picture(maps: list[Map], rows: list[str], columns: list[str], title: str, across: int | None) -> Any:
    """Maps in a grid, as large as 16 × 12 inches allow; labels and figures where a cell has room for them."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    n, m = len(rows), len(columns)

    def side(across: int) -> float:  # of a cell, in inches
        return min(0.4, (16 / across - 1) / m, (12 / -(-len(maps) // across) - 1) / n)

    across = across or max(range(1, len(maps) + 1), key=side)
    down, cell = -(-len(maps) // across), max(side(across), 0.3 / max(n, m))
    labelled = cell * max(n, m) > 0.8 and cell >= 0.04
    size = (
        across * (cell * m + (1.1 if labelled else 0.15)) + 1.2,
        down * (cell * n + (1.1 if labelled else 0.35)) + 0.8,
    )
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    whole = True  # whether each map has its title
    for k, (ax, one) in enumerate(zip(axes, maps)):
        values = one.values
        image = ax.imshow(np.ma.masked_equal(values, 0), cmap="viridis", vmin=0, vmax=1, aspect="auto")
        ax.set_facecolor(GREY)  # cells that are exactly 0 are transparent
        heading = ", ".join(filter(None, [title, one.name]))
        if len(maps) > 1 and width(heading) > 13 * cell * m + 8 * labelled:  # wider than the map below it
            heading, whole = one.name, False
        if not labelled:  # as in a table: layers at the left, heads on top
            layer, _, heading = one.name.rpartition(", ")
            ax.set_ylabel(layer if k % across == 0 else "", fontsize=7)
            heading = heading if k < across else ""
        room = max(int((13 * cell * m + 8 * labelled) * (1 if labelled else 2)), 24)
        heading = "\n".join(textwrap.wrap(heading, room, max_lines=4, placeholder=" …"))
        ax.set_title(heading, parse_math=False, fontsize=10 if labelled else 7)  # a token $x$ is no formula
        for axis, labels in ((ax.xaxis, columns), (ax.yaxis, rows)):
            step = int(np.ceil(0.16 / cell)) if labelled else len(labels) + 1  # no label overlaps the next
            ticks = range(0, len(labels), step) if labelled else []
            axis.set_ticks(ticks, [cut(labels[i], 14) for i in ticks], parse_math=False, fontsize=8)
        ax.tick_params(axis="x", rotation=90)
        empty, missing = np.flatnonzero(~values.any(axis=-1)).tolist(), np.argwhere(np.isnan(values)).tolist()
        for y in empty:
            ax.add_patch(Rectangle((-0.5, y - 0.5), m, 1, fill=False, hatch="///", edgecolor="white"))
        for y, x in one.marked:  # red on white: every eye sees one of them on every colour
            for ink, wide in (("white", 2.2), ("#d62728", 1)):
                frame = Rectangle((x - 0.45, y - 0.45), 0.9, 0.9, fill=False, edgecolor=ink)
                frame.set_linewidth(max(6 * cell, 1) * wide)
                ax.add_patch(frame)
        for y, x in missing:
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="white", edgecolor="none"))
            ax.text(x, y, NAN, ha="center", va="center", color="crimson", fontsize=30 * cell)
        if cell >= 0.26:
            for (i, j), w in np.ndenumerate(values):
                if w > 0:
                    ax.text(j, i, _figure(w), ha="center", va="center", color=color(w)[1], fontsize=min(7, 22 * cell))
        told = [f"{NAN}: NaN"] * (len(missing) > 0) + ["hatched: empty row"] * (len(empty) > 0)
        told += ["grey: exactly 0"] * bool((values == 0).any() and len(empty) < n and len(maps) == 1)
        if labelled:
            ax.set(xlabel="\n".join(filter(None, ["keys", ", ".join(told[::-1])])), ylabel="queries")
    for ax in axes[len(maps) :]:
        ax.set_axis_off()
    if not (whole and labelled):
        figure.suptitle("\n".join(textwrap.wrap(title, int(11 * size[0]))), parse_math=False, fontsize=11)
    figure.colorbar(image, ax=axes, label="weight", aspect=4 * size[1])
    return figure


class Fonts:
    """matplotlib's default font and, for the characters that it lacks, other installed ones; else their escapes."""

    def __init__(self, texts: Iterable[str]) -> None:
        from matplotlib import font_manager, ft2font

        plain = ("normal", 400, "normal")  # of a family without such a font matplotlib would take another, and say so
        installed = {f.name for f in font_manager.fontManager.ttflist if (f.style, f.weight, f.stretch) == plain}
        others = sorted(name for name in installed if not re.search("Emoji|Last Resort", name))
        self.families, self.missing = ["DejaVu Sans"], set()
        glyphs: dict[str, Any] = {}
        for c in sorted({c for text in texts for c in text if not c.isascii()}):
            for family in [*self.families, *others]:
                if family not in glyphs:  # of a family's files the one that will draw
                    glyphs[family] = ft2font.FT2Font(font_manager.findfont(family)).get_charmap()
                if ord(c) in glyphs[family]:
                    self.families += [family] * (family not in self.families)
                    break
            else:
                self.missing.add(c)

    def shown(self, text: str) -> str:
        return "".join(c.encode("unicode_escape").decode() if c in self.missing else c for c in text)


def import_matplotlib() -> Any:
    """matplotlib, for any MPLBACKEND, because a Figure needs no backend; None if it is not installed."""
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    except ImportError:
        return None
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    with suppress(ValueError):  # a notebook's backend, whose packages this environment lacks
        matplotlib.rcParams["backend"] = backend or matplotlib.rcParams["backend"]
    return matplotlib


@contextmanager
def own_style(**settings: Any) -> Iterator[None]:
    """matplotlib's defaults with these settings: what a matplotlibrc asks for, such as LaTeX, may be missing."""
    matplotlib = import_matplotlib()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # labels may be of any script
        yield
