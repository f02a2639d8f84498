"""Which boxes a drawing has: a closed frame is one box, and repeated parts are drawn once, as "× 4"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from .steps import Frame, Step

__all__ = ["Box", "Edge", "Fold", "Folded", "boxes", "fold"]

AT_A_GLANCE = 32  # up to so many boxes everything is open, unless depth is given
OPEN_AT_MOST = 80  # the same, if only the steps of functions could be closed
ELSE_AT_MOST = 16  # boxes of an overview
LONGEST = 16  # steps in one round of a loop that is recognised

Fold: TypeAlias = "bool | str | Collection[str] | None"


@dataclass(eq=False)
class Box:
    """What is drawn as one: a step, or a closed frame with all its steps; and their repetitions."""

    step: Step
    frame: Frame | None = None  # the closed one
    steps: list[Step] = field(default_factory=list)
    frames: tuple[Frame, ...] = ()  # the open ones around it
    count: int = 1  # the rounds that it stands for
    of: set[Any] = field(default_factory=set)  # the frames or steps that are in it


class Edge(NamedTuple):
    start: Box
    end: Box
    step: Step  # that reads
    k: int  # which of its inputs this is
    between: list[Step]  # steps that only rearrange, and have no box: the nearest to the reader first


@dataclass(eq=False)
class Folded:
    boxes: list[Box]
    edges: list[Edge]
    counts: dict[Any, int]  # how many a step or frame stands for


def fold(steps: Sequence[Step], depth: int | None, closed: Fold) -> Folded:
    """The boxes and edges of a drawing.

    depth: how many frames inside each other are open. closed: names of frames that are not; True: repeated parts are
    drawn once; False: nothing is folded. None: all is open if that makes few boxes. Else each layer of one op, such as
    Linear, is a box with its parameters. If there are still many boxes, an overview.
    """
    names = {closed} if isinstance(closed, str) else set() if closed is None or isinstance(closed, bool) else {*closed}

    def to(depth: int | None, repeats: bool) -> Folded:
        return boxes(steps, lambda level, frame: level == depth or bool(_called(frame) & names), repeats)

    if closed is False or depth is not None:
        return to(depth, closed is not False)
    whole = to(None, closed is True)
    if len(whole.boxes) <= AT_A_GLANCE:
        return whole
    results = Counter(frame for step in steps if step.op for frame in step.frames)
    calls = Counter(frame.module for frame in results)
    layers = {frame for frame in results if frame.module and calls[frame.module] == results[frame] == 1}
    most = AT_A_GLANCE if layers else OPEN_AT_MOST
    some = boxes(steps, lambda level, frame: frame in layers or bool(_called(frame) & names), closed is True)
    if len(some.boxes) <= most:
        return some
    deepest = max((len(step.frames) for step in steps), default=0)
    overviews = [to(d, True) for d in range(min(deepest, 8), -1, -1)]
    return next((found for found in overviews if len(found.boxes) <= ELSE_AT_MOST), overviews[-1])


def boxes(steps: Sequence[Step], shut: Callable[[int, Frame], bool], repeats: bool) -> Folded:
    """What is drawn if shut(level, frame) says which frames are closed; repetitions are drawn once, or not."""
    stands, counts = _repetitions(steps) if repeats else ({}, {})
    made: dict[Any, Box] = {}
    box_of: dict[Step, Box] = {}
    for step in steps:
        first = step
        while first in stands:
            first = stands[first]
        level = next((i for i, frame in enumerate(first.frames) if shut(i, frame)), None)
        key: Any = first if level is None else first.frames[level]
        inner = first.frame if level is None else key.outer
        if key not in made:
            shown = key if isinstance(key, Frame) else None
            made[key] = Box(step, shown, frames=inner.path_of_frames if inner else (), count=counts.get(key, 1))
        box = box_of[step] = made[key]
        box.steps.append(step)
        box.of.add(step if level is None else step.frames[level])
        if box.frame in step.frames and step.op:
            box.step = step  # a closed frame shows its last result
    place = {box: i for i, box in enumerate(made.values())}
    edges, seen = [], set()
    for step in steps:
        for k, x in enumerate(step.inputs):
            a, b = box_of[x], box_of[step]
            plain = b.frame is None and b.step is step  # then x · x has two edges
            if place[a] < place[b] and (plain or (a, b) not in seen):
                edges.append((a, b, step, k))
                seen.add((a, b))
    hidden = {box for box in made.values() if box.frame is None and box.step.passes}
    source = {b: a for a, b, _, _ in edges if b in hidden}
    passed = []
    for a, b, step, k in edges:
        between = []
        while a in hidden and a in source:
            between.append(a.step)
            a = source[a]
        if b not in hidden:
            passed.append(Edge(a, b, step, k, between))
    read = {edge.start for edge in passed} | {edge.end for edge in passed}
    return Folded([box for box in made.values() if box not in hidden or box in read], passed, counts)


def _called(frame: Frame) -> set[str]:
    return {frame.name, frame.path, frame.path.rpartition(".")[2]}


# --- repetitions ----------------------------------------------------------------------------------------


def _repetitions(steps: Sequence[Step]) -> tuple[dict[Any, Any], dict[Any, int]]:
    """{step or frame of a later round: that of the first round, which stands for it}, and how many rounds there are.

    A loop makes the same steps in each round, and each round reads a result of the one before. (Three projections of
    one input look the same too, but do not read each other.)
    """
    inside: dict[Frame | None, list[Any]] = {}  # steps and frames directly in a frame, in order of time
    placed = set()
    for step in steps:
        if step.frame is None and not step.inputs and step.needs:
            continue  # a leaf that belongs to no round
        item: Any = step
        for frame in reversed((None, *step.frames)):
            if item in placed:
                break
            placed.add(item)
            inside.setdefault(frame, []).append(item)
            item = frame
    signs: dict[Any, int] = {}
    numbers: dict[Any, int] = {}
    for frame in [*sorted((f for f in inside if f), key=lambda f: -len(f.path_of_frames)), None]:
        for item in inside.get(frame, ()):
            if isinstance(item, Step):
                told: Any = (item.op, item.data.shape, _params(item), [x.data.shape for x in item.inputs])
            else:
                told = (item.name, [signs[x] for x in inside[item]])
            signs[item] = numbers.setdefault(repr(told), len(numbers))

    stands: dict[Any, Any] = {}
    counts: dict[Any, int] = {}
    place = {step: i for i, step in enumerate(steps)}

    def same(item: Any, first: Any) -> None:
        stack = [(item, first)]
        while stack:
            item, first = stack.pop()
            stands[item] = first
            if isinstance(item, Frame):
                stack += zip(inside[item], inside[first])

    waiting: list[Frame | None] = [None]
    while waiting:
        items = inside.get(waiting.pop(), [])
        kept = []
        i = 0
        while i < len(items):
            period, rounds = _rounds(items, signs, i)
            if rounds > 1 and _carries(items[i : i + 2 * period], inside, place):
                for j in range(i + period, i + period * rounds):
                    same(items[j], items[i + (j - i) % period])
                counts |= dict.fromkeys(items[i : i + period], rounds)
            else:
                period, rounds = 1, 1
            kept += items[i : i + period]
            i += period * rounds
        waiting += [item for item in kept if isinstance(item, Frame)]
    return stands, counts


def _params(step: Step) -> str:
    return (
        str({k: v for k, v in step.node.params.items() if isinstance(v, (int, float, str, tuple))}) if step.op else ""
    )


def _rounds(items: Sequence[Any], signs: dict[Any, int], i: int) -> tuple[int, int]:
    """(length of a round, how many follow each other from items[i] on); the shortest round with any repetition."""
    for period in range(1, min(LONGEST, (len(items) - i) // 2) + 1):
        j = i
        while j + period < len(items) and signs[items[j]] == signs[items[j + period]]:
            j += 1
        if j - i >= period:
            return period, (j - i) // period + 1
    return 1, 1


def _carries(items: Sequence[Any], inside: dict[Any, list[Any]], place: dict[Step, int]) -> bool:
    """Whether something in the second round was computed from the same thing in the first."""
    period = len(items) // 2
    both = sorted(_all(items, inside), key=place.__getitem__)
    for before, after in zip(items[:period], items[period:]):
        made = set(_all([before], inside))
        for step in both:
            if any(x in made for x in step.inputs):
                made.add(step)
        if any(step in made for step in _all([after], inside)):
            return True
    return False


def _all(items: Sequence[Any], inside: dict[Any, list[Any]]) -> list[Step]:
    steps, stack = [], list(items)
    while stack:
        item = stack.pop()
        if isinstance(item, Step):
            steps.append(item)
        else:
            stack += inside[item]
    return steps
