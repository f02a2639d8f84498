"""Computation graphs as pictures."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph import Tensor
from ..habits import explained
from ..text import VIRIDIS, color
from . import folding, page, render
from .folding import Box, Edge, Fold, Folded
from .steps import Frame, Step, collect, dies, slopes, typical
from .words import (
    closed,
    details,
    escaped,
    gradients_of,
    heading,
    inside,
    padded,
    quoted,
    rearranged,
    small,
    spread,
    tooltip,
    where,
)
from .words import title as title_of

if TYPE_CHECKING:
    import graphviz

__all__ = ["draw_graph"]

COMMUTATIVE = ("add", "multiply", "maximum", "minimum")
COMPUTED, PARAMETER, CONSTANT, NOT_FINITE = "#d6e6f4", "#fddcae", "#ececec", "#ff8f8f"
BACKWARD = "#cbaadd"  # darker than the others: its hue is lost on some eyes
MOST = 1_000  # boxes that are drawn: more take dot minutes, and nobody reads them
DYING = "#c1121f"  # an edge on which a gradient dies
FAINT = 1e-6  # beside the largest gradient
DECADES = 8  # of the colours, unless limits are given


@explained
def draw_graph(
    output: Tensor | Sequence[Tensor],
    *,
    show: str = "shapes",
    gradient: Any = None,
    limits: tuple[float, float] | None = None,
    direction: str = "TB",
    depth: int | None = None,
    fold: Fold = None,
    title: str = "",
    path: str | os.PathLike[str] | None = None,
) -> graphviz.Digraph:
    """Draw how output (a Tensor, or several) was computed. A notebook shows the returned Digraph by itself.

    show: what a node tells beside its op: "shapes"; "values" (if there are many, their range); or "gradients",
        dL/d(node), from a backward pass of its own that touches no `.grad` (L = output, or the sum of several;
        gradient= as in `backward` if L is no scalar). The colour is the median of |dL/dx| over the elements that are
        not 0, on a log scale: in a mean, a few large elements could hide that most are dead. An edge is as thick as
        the gradient that it carries; if several meet, each has its own number. The title says where the gradient
        dies: at an op that passes on less than a thousandth of what arrives; that edge is red.
    limits: lowest and highest gradient of the colours, so that pictures can be compared; 8 decades unless given.
    direction: "TB" (from top to bottom), "LR", "BT" or "RL".
    depth: how many frames (modules, functions, fused ops) inside each other are open; each other frame is a box. None:
        all are open, except fused ops other than attention. Above 32 boxes, layers of one op, such as Linear, are
        closed. In a graph that is even larger, as many are open as make an overview.
    fold: names of frames, or paths such as "blocks.0", that stay closed; True: repeated parts are drawn once, "× 4",
        as in overviews; False: nothing is folded.
    path: .svg, .png: draw it there; .html: a page whose boxes open and close; .dot, .gv: the DOT text, which needs
        neither the package graphviz nor its program. If these are missing, the text is written instead of the
        picture, and one line says what to install.
    An array is one node, however often it is used. An op that only rearranges it, such as a reshape, is on the edge.
    Each node has a tooltip (in SVG and HTML): formula, derivative, range and norm of values and gradient.
    Raises RuntimeError if output has no graph: nothing needed gradients, or backward() released it.
    """
    suffix = ".svg" if path is None else os.path.splitext(path)[1]
    for name, choice, choices in (
        ("show", show, ("shapes", "values", "gradients")),
        ("direction", direction, ("TB", "LR", "BT", "RL")),
        ("the ending of path", suffix, render.ENDINGS),
    ):
        if choice not in choices:
            raise ValueError(f"draw_graph: {name} is {choice!r}; it may be {', '.join(choices)}")
    if limits is not None and not 0 < limits[0] < limits[1]:
        raise ValueError(f"draw_graph: limits {limits} are the ends of a log scale: 0 < lowest < highest")
    if depth is not None and (not isinstance(depth, int) or depth < 0):
        raise ValueError(f"draw_graph: depth is {depth!r}; it counts frames that are open: 0, 1, 2, …")
    outputs = [output] if isinstance(output, Tensor) else list(output)
    fused = lambda name, level: level < depth if depth is not None else suffix == ".html" or name == "attention"
    steps, ends = collect(outputs, fused)
    if show == "gradients":
        try:
            slopes(steps, ends, gradient)
        except ValueError as error:
            raise ValueError(f"draw_graph: {error}") from None
    drawing = _Drawing(steps, ends, show, limits, direction, title)
    folded = folding.fold(steps, depth, fold)
    body, refused = drawing.lines(folded), ""
    if len(folded.boxes) > MOST:
        refused = f"{len(folded.boxes):,} boxes are too many for a picture: close some, with depth= or fold="
    digraph = render.digraph(body, refused)
    if digraph is None and path is None:
        raise ImportError(f"{render.NO_PACKAGE}. The DOT text alone: draw_graph(…, path='graph.dot')")
    if path is not None:
        draw = lambda kind: drawing.page() if kind == "html" else render.picture(digraph, kind)
        render.write(path, body, draw, refused)
    return digraph


class _Drawing:
    """How steps look: the labels, colours and tooltips of all boxes, open or closed."""

    def __init__(self, steps: list[Step], ends: list[Step], show: str, limits: Any, direction: str, title: str) -> None:
        self.steps, self.ends, self.show, self.direction, self.title = steps, set(ends), show, direction, title
        sizes = [typical(step.slope) for step in steps if step.slope is not None and not step.rounding]
        high = max((size for size in sizes if np.isfinite(size)), default=0.0) or 1.0
        self.low, self.high = np.log10(limits) if limits else (np.log10(high) - DECADES, np.log10(high))
        self.dying = {step for step in steps for k in range(len(step.shares)) if dies(step, k)}
        self.arriving: dict[Step, dict[Step, float]] = {}  # what each reader adds to a step's gradient, if one number
        for step in steps:
            for x, share in zip(step.inputs, step.shares):
                if share is not None:
                    parts = self.arriving.setdefault(x, {})
                    parts[step] = parts.get(step, 0.0) + (share.item() if share.size == 1 else 0.0)

    def lines(self, folded: Folded, link: Callable[[Frame], str] | None = None) -> list[str]:
        """The part inside the braces of `digraph { }`. Nodes are numbered: names may repeat, and hold any character.

        link: the address behind a frame, open or closed.
        """
        names = {box: f"n{i}" for i, box in enumerate(folded.boxes)}
        lines = [
            f"rankdir={self.direction} ordering=in nodesep=0.3 ranksep=0.35 fontname=Helvetica labelloc=t",
            "" if link else f"label=<{self.label()}>",  # a page tells it above its pictures
            'node [fontname=Helvetica fontsize=12 shape=box color="#555555" margin="0.17,0.05" width=0.4 height=0.3]',
            'edge [fontname=Helvetica fontsize=9 fontcolor="#555555" labeldistance=1.4 color="#555555" arrowsize=0.7]',
            'graph [style="rounded,dashed" color="#777777" fontcolor="#555555" fontsize=10]',  # frames
        ]
        beside = _beside(folded, names)
        for box in filter(lambda box: not box.frames, folded.boxes):
            lines += [self.node(box, names[box], link), *beside.get(box, ())]
        # Calls nest in time, and results are in the order of time: so frames open and close like brackets.
        opened: list[Frame] = []
        numbers: dict[Frame, int] = {}
        for box in filter(lambda box: box.frames, folded.boxes):
            while opened and opened[-1] not in box.frames:
                opened.pop()
                lines.append("}")
            for frame in box.frames[len(opened) :]:
                opened.append(frame)
                number = numbers.setdefault(frame, len(numbers))
                label = padded(title_of(frame, folded.counts.get(frame, 1)))
                address = f' URL="{link(frame.outer) if frame.outer else "#all"}" tooltip="close"' if link else ""
                hue = ' color="#8e5aa8" fontcolor="#8e5aa8"' if frame.name == "backward" else ""
                lines.append(f"subgraph cluster{number} {{ labelloc=t labeljust=l label=<{label}>{hue}{address}")
            lines += [self.node(box, names[box], link), *beside.get(box, ())]
        lines += ["}"] * len(opened)
        lines += [self.edge(names, edge) for edge in folded.edges]
        return [f"\t{text}\n" for text in lines]

    def node(self, box: Box, name: str, link: Callable[[Frame], str] | None) -> str:
        rows = [*closed(box, self.show)] if box.frame else [heading(box), *details(box, self.show)]
        if self.show == "gradients":
            rows += [small(escaped(row)) for row in self.gradient(box)]
        rows += [small(escaped(text)) for text in [box.frame and inside(box)] if text]
        rim = " peripheries=2" if self.ends & set(box.steps) else ""
        address = f' URL="{link(box.frame)}"' if link and box.frame else ""
        return f"{name} [label=<{'<BR/>'.join(rows)}> {self.style(box)}{rim}{address} tooltip={quoted(tooltip(box))}]"

    def edge(self, names: dict[Box, str], edge: Edge) -> str:
        start, end, step, k, between = edge
        told, label = [], rearranged(between)
        if len(step.inputs) > 1 and end.frame is None and step.op not in COMMUTATIVE:
            told.append(f"headlabel={k + 1}")  # the order of the operands matters
        share = step.shares[k] if step.shares else None
        if share is not None and step.slope is not None:
            x, size = step.inputs[k], typical(share)
            if share.size == step.slope.size == 1 and step.slope.item():
                label += f" × {share.item() / step.slope.item():.4g}"  # the slope of this one operation
            elif len(self.arriving[x]) > 1 and start.frame is None and end.frame is None:
                label += f" {size:.1e}" if size else " 0"
            if start.frame is None and end.frame is None and dies(step, k):
                label += f" dies: × {size / typical(step.slope):.0e}" if size else " dies"
                told.append(f'color="{DYING}" fontcolor="{DYING}"')
            told.append(f"penwidth={self.thickness(size):.1f}" + " style=dashed" * (size == 0))
            told.append(f"edgetooltip={quoted('what it carries back: ' + spread(share))}")
        told += [f'label=" {label} "'] if label else []
        return f"{names[start]} -> {names[end]}" + f" [{' '.join(told)}]" * bool(told)

    def thickness(self, size: float) -> float:
        return 0.4 + 3.6 * self.place(size) if np.isfinite(size) and size else 0.4

    def place(self, size: float) -> float:
        """The place of this gradient on the scale, from 0 to 1."""
        return float(np.clip((np.log10(size) - self.low) / (self.high - self.low), 0, 1))

    def gradient(self, box: Box) -> list[str]:
        """What a box says about its gradient."""
        slope = box.step.slope
        if len(box.steps) > 1:
            sizes = [typical(g) for g in gradients_of(box)]
            alive = [size for size in sizes if size]
            ends = " … ".join(dict.fromkeys(f"{f(alive):.1e}" for f in (min, max))) if alive else "0"
            return [f"grad {ends}{self.beyond(min(alive, default=1))}"] if sizes else []
        if slope is None or not slope.size:
            return []
        size = typical(slope)
        if box.step.rounding:
            return [f"grad 0, but for rounding ({size:.0e})"]
        if slope.size == 1:
            parts = self.arriving.get(box.step, {})
            total = " + ".join(f"{part:.4g}" for part in list(parts.values())[:4]) + " + …" * (len(parts) > 4)
            return [f"grad {f'{total} = ' * (len(parts) > 1)}{slope.item():.4g}"]
        zeros = np.mean(slope == 0)
        rows = [f"grad {size:.1e}{self.beyond(size)}"] if zeros < 1 else ["grad 0"]
        return rows + ([f"{zeros:.0%} are 0"] if 0.005 <= zeros < 1 else [])

    def beyond(self, size: float) -> str:
        """A mark for what the colours cannot show."""
        if not np.isfinite(size) or not size:
            return ""
        return " ▼" if np.log10(size) < self.low - 0.05 else " ▲" if np.log10(size) > self.high + 0.05 else ""

    def style(self, box: Box) -> str:
        """Results have round corners; parameters and constants have none."""
        step = box.step
        kind = COMPUTED if step.node else PARAMETER if step.needs else CONSTANT
        kind = BACKWARD if any(frame.name == "backward" for frame in step.frames) and step.node else kind
        fill, ink, look = kind, "black", "rounded," * bool(step.node)
        if self.show == "gradients":
            found = gradients_of(box)
            slope = np.concatenate([g.ravel() for g in found]) if found else None
            size = None if slope is None else typical(slope)
            fill = CONSTANT
            if size is not None and not np.isfinite(size):
                fill = NOT_FINITE
            elif size and not (box.step.rounding and len(box.steps) == 1):
                fill, ink = color(self.place(size))
            elif size is not None:
                look += "dashed"
        look = look if look.endswith("dashed") else look + "filled"
        bold = " penwidth=2" + f' color="{DYING}"' * (not self.dying.isdisjoint(box.steps)) if box.frame else ""
        return f'style="{look}" fillcolor="{fill}" fontcolor="{ink}"{bold}'

    def legend(self) -> list[tuple[str, str]]:
        """(a text, what it stands on): a colour, "dashed" or nothing."""
        if self.show == "gradients":
            bar = [("", color) for color in VIRIDIS]
            cells = [
                (f"median |dL/dx|, zeros aside:  up to {10**self.low:.1e}", ""),
                *bar,
                (f"{10**self.high:.1e}", ""),
            ]
            cells += [("no gradient", CONSTANT), ("all 0, or rounding", "dashed")]
            sizes = [typical(step.slope) for step in self.steps if step.slope is not None and not step.rounding]
            marks = {self.beyond(size) for size in sizes} - {""}
            return cells + [(" ".join(sorted(marks)).strip() + " beyond the colours", "")] * bool(marks)
        kinds = {"computed": COMPUTED, "requires_grad": PARAMETER, "constant": CONSTANT}
        if any(frame.name == "backward" for step in self.steps for frame in step.frames):
            kinds["backward pass"] = BACKWARD
        return list(kinds.items())

    def label(self) -> str:
        """Title, legend and verdict, for DOT."""
        cells = ""
        for text, fill in self.legend():
            look = f' BGCOLOR="{fill}"' if fill[:1] == "#" else ' BORDER="1" STYLE="dashed"' if fill else ""
            look += ' WIDTH="18"' * (not text)
            cells += f"<TD{look}>{padded(text) if text else ''}</TD>"
        rows = [f'<TABLE BORDER="0" CELLSPACING="2"><TR>{cells}</TR></TABLE>']
        if self.title:
            rows.insert(0, f'<FONT POINT-SIZE="14" COLOR="black"><B>{padded(self.title, 120)}</B></FONT>')
        if verdict := self.verdict():
            ink = DYING if self.dying else "#555555"
            rows.append(f'<FONT COLOR="{ink}"><B>{padded(verdict, 120)}</B></FONT>')
        return f'<TABLE BORDER="0">{"".join(f"<TR><TD>{row}</TD></TR>" for row in rows)}</TABLE>'

    def verdict(self) -> str:
        """Where the gradient dies, in words; nothing for a few numbers without a problem."""
        if places := Counter(where(step) for step in self.dying if step.op):
            told = ", ".join(name + f" × {n}" * (n > 1) for name, n in places.most_common(2))
            return f"the gradient dies at {told}" + f", and {len(places) - 2} more" * (len(places) > 2)
        known = [step for step in self.steps if step.slope is not None and not step.rounding]
        sizes = {step: typical(step.slope) for step in known if step.slope is not None}
        alive = {step: size for step, size in sizes.items() if step.op and 0 < size < np.inf}
        least = min(alive, key=alive.__getitem__, default=None)
        if least and alive[least] < FAINT * max(alive.values()):
            return f"the gradient fades op by op, to {alive[least]:.0e} at {where(least)}"
        nil = [step.path or step.name for step in self.steps if step.rounding and not step.op]
        besides = f", but is 0 in theory for {nil[0]}" + f" and {len(nil) - 1} more" * (len(nil) > 1) if nil else ""
        return f"the gradient dies nowhere{besides}" if any(step.data.size > 1 for step in known) else ""

    def page(self) -> bytes:
        """An HTML page with a picture for each frame that can be opened: it and the frames around it are open."""
        numbers: dict[Frame | None, str] = {None: "all"}
        for step in self.steps:
            for frame in step.frames:
                numbers.setdefault(frame, f"f{len(numbers)}")
        pictures: dict[str, str] = {}
        waiting: list[Frame | None] = [None]
        for at in waiting:  # grows as closed boxes are found
            opened = {*at.path_of_frames} if at else set()
            folded = folding.boxes(self.steps, functools.partial(_shut, opened), True)
            body = self.lines(folded, lambda frame: f"#{numbers[frame]}")
            pictures[numbers[at]] = render.picture(render.digraph(body), "svg").decode()
            waiting += [box.frame for box in folded.boxes if box.frame and box.frame not in waiting]
        return page.html(pictures, self.title or "Computation graph", self.legend(), self.verdict()).encode()


def _shut(opened: set[Frame], level: int, frame: Frame) -> bool:
    return frame not in opened


def _beside(folded: Folded, names: dict[Box, str]) -> dict[Box, list[str]]:
    """Lines that put the operands of a product side by side as in the formula, Q left of K. They follow both nodes."""
    lines: dict[Box, list[str]] = {}
    for first, second in zip(folded.edges, folded.edges[1:]):
        a, b = first.start, second.start
        product = first.step is second.step and first.step.op == "matmul" and a is not b and a.frames == b.frames
        if product and a.step.needs and b.step.needs and not (_behind(a.step, b.step) or _behind(b.step, a.step)):
            later = max(a, b, key=folded.boxes.index)
            lines.setdefault(later, []).append(f"{{rank=same; {names[a]} -> {names[b]} [style=invis]}}")
    return lines


def _behind(step: Step, result: Step) -> bool:
    """Whether result was computed from step."""
    seen, stack = {result}, [result]
    while stack:
        for x in stack.pop().inputs:
            if x not in seen:
                seen.add(x)
                stack.append(x)
    return step in seen
