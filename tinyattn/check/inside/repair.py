"""The place where one right value makes a learner's program right.

A right value (a step of the right program, a size, a sign, a term left out) is put in the place of one
expression, and the learner's own code runs on. Where its output becomes right on every input given, the mistake
is there. Runs where the learner's code runs, and needs only the pickled job: inputs, right outputs, right steps.
"""

import ast
import contextlib
import itertools
import math
import operator
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .live import Program, text_of
from .rewrite import Site

Array = np.ndarray[Any, Any]
Change = Callable[[int, Any, dict[int, Any]], Any]  # occurrence, value, the operands' values -> what to go on with
Call = Callable[..., tuple[Array, ...]]
EVENTS = 20_000  # a run that sees more values than that is not looked into
LARGEST = 4_000  # numbers in a value that is looked at
OPERATORS: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}
INSTEAD: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.Div,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,),
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.GtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.LtE, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}


class Exhausted(BaseException):
    """The budget is spent; no `except Exception` of a learner's stops it."""


@dataclass
class Example:
    """An input, the right output, and the right values on the way, which have the same order on every input."""

    args: tuple[Any, ...]
    right: tuple[Array, ...]
    steps: list[tuple[str, str, Array, int]]  # words, text, value, its place in the order of the data
    numbers: dict[str, tuple[str, float]]
    passing: list[tuple[Array, int, str]] = field(default_factory=list)  # values that need not be wrong either
    lines: list[str] = field(default_factory=list)  # the words of those steps that the right program has lines for
    record: dict[int, list[Any]] = field(default_factory=dict)  # what each site saw
    order: dict[int, int] = field(default_factory=dict)  # when each site was first reached
    broken: bool = False  # it raised, or gave another shape


@dataclass
class Repair:
    """What makes the program right, and where."""

    sites: tuple[int, ...]
    sort: str  # number, step, input, operator, left out
    words: str
    text: str
    changes: Callable[[Example], dict[int, Change]]
    step: int = -1


def look_inside(call: Call, roots: list[Any], look: dict[str, Any]) -> dict[str, Any] | None:
    """What a job of place.py asks for, on the first inputs that give an answer."""
    program = Program(roots)
    if "args" in look:
        return watch(call, program, look["args"])

    def answer(*args: Any) -> tuple[Array, ...]:
        arrays = call(*args)
        return tuple(map(allowed, arrays[:1])) if look["causal"] else arrays

    found = (search(answer, program, look | {"examples": examples}) for examples in look["tries"])
    return next(filter(None, found), None)


def allowed(mask: Array) -> Array:
    """A mask of any convention as True where attending is allowed."""
    array = np.asarray(mask, dtype=float)
    array = array.reshape(array.shape[-2:])
    return np.asarray(array != 0 if np.isin(array, (0, 1)).all() else array == 0)


def search(call: Call, program: Program, job: dict[str, Any]) -> dict[str, Any] | None:
    """The likeliest place and what it needs, as a record for the report; None where nothing makes it right.

    `job`: examples (those on which the program is wrong), shown (the one whose numbers are told), seconds."""
    examples = [Example(**example) for example in job["examples"]]
    finder = Finder(call, program, examples, job.get("tolerance", 2e-5), job.get("seconds", 1.2))
    with program:
        repair = finder.found()
        return None if repair is None else finder.record(repair, Example(**job["shown"]))


def watch(call: Callable[..., Any], program: Program, args: tuple[Any, ...]) -> dict[str, Any] | None:
    """The place after which an argument is no longer what it was."""
    kept = [np.copy(a) if isinstance(a, np.ndarray) else None for a in args]
    given = [None if a is None else a.copy() for a in kept]
    found: list[int] = []

    def hook(number: int, value: Any) -> Any:
        for a, b in zip(kept, given):
            if not found and a is not None and b is not None and a.tobytes() != b.tobytes():
                found.append(number)
        return value

    with program, np.errstate(all="ignore"):
        program.hook = hook
        with contextlib.suppress(Exception, SystemExit):
            call(*(b if b is not None else a for a, b in zip(args, given)))
    return place(program.sites[found[0]]) if found else None


def place(site: Site) -> dict[str, Any]:
    """Where it is, and what is written there."""
    code = text_of(site.file).splitlines()
    line = code[site.line - 1] if len(code) >= site.line else site.text
    return {"file": site.file, "line": site.line, "column": site.column, "text": site.text, "code": line}


def numeric(value: Any) -> Array | None:
    """A value as an array, whatever holds it; None for what is none."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" and value.size <= LARGEST else None
    if isinstance(value, (bool, int, float, np.generic)):
        array = np.asarray(value)
        return array if array.dtype.kind in "biuf" else None
    if isinstance(value, slice):
        ends = (value.start or 0, value.stop)
        return np.array(ends) if all(isinstance(end, (int, np.integer)) for end in ends) else None
    if callable(getattr(value, "detach", None)):
        value = value.detach()
    if callable(getattr(value, "numpy", None)):
        return numeric(value.numpy())
    if isinstance(value, (list, tuple)) and 0 < len(value) <= 200:
        parts = [numeric(item) for item in value]
        if all(part is not None and part.shape == parts[0].shape for part in parts):  # type: ignore[union-attr]
            return np.array(parts)
    return None


def like(value: Any, array: Array) -> Any:
    """An array in the form of a learner's value: a list, a float, a tensor of the same dtype."""
    if isinstance(value, slice):
        return slice(*(int(end) for end in array))
    if isinstance(value, (list, tuple)):
        inner = value[0] if value else 0.0
        return type(value)([like(inner, item) for item in array])
    if isinstance(value, np.ndarray):
        kept = value.dtype if value.dtype.kind == array.dtype.kind else array.dtype
        return array.astype(kept)
    if isinstance(value, (bool, np.bool_)):
        return bool(array)
    if isinstance(value, (int, float, np.generic)) and array.ndim:
        return array.copy()
    if isinstance(value, (int, float, np.generic)):
        number = float(array)
        whole = isinstance(value, (int, np.integer)) and number.is_integer()
        return int(number) if whole else number
    if callable(getattr(value, "new_tensor", None)):
        dtype = value.dtype if value.is_floating_point() and array.dtype.kind == "f" else None
        return value.new_tensor(array.tolist(), **({"dtype": dtype} if dtype else {}))
    return type(value)(array) if callable(getattr(value, "numpy", None)) else array.copy()


def same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, 1e-7, 1e-9, equal_nan=True))


class Finder:
    """One program, two inputs or more, and the repairs that are tried."""

    def __init__(self, call: Call, program: Program, examples: list[Example], tolerance: float, seconds: float):
        self.call, self.program, self.examples = call, program, examples
        self.tolerance, self.end = tolerance, time.process_time() + seconds
        self.first = examples[0]
        self.wrong: list[int] = []
        self.tried = 0
        self.parents: dict[int, ast.AST] = {}
        self.distinct = _distinct([value for _, _, value, _ in self.first.steps])

    # Running

    def run(self, example: Example, hook: Callable[[int, Any], Any]) -> tuple[Array, ...] | None:
        self.program.hook = hook
        try:
            with np.errstate(all="ignore"):
                return self.call(*(np.copy(a) if isinstance(a, np.ndarray) else a for a in example.args))
        except (Exception, SystemExit, Exhausted):
            return None

    def look(self, example: Example) -> bool:
        """Write down what every site sees; whether the output is wrong, and looking was possible."""
        record: dict[int, list[Any]] = defaultdict(list)
        events = 0

        def hook(number: int, value: Any) -> Any:
            nonlocal events
            events += 1
            if events > EVENTS:
                raise Exhausted
            if (array := numeric(value)) is not None:
                example.order.setdefault(number, events)
                record[number].append((array.copy(), value if isinstance(value, (list, tuple, slice)) else type(value)))
            return value

        arrays = self.run(example, hook)
        example.record = record
        example.broken = arrays is None or [a.shape for a in arrays][: len(example.right)] != [
            r.shape for r in example.right
        ]
        if arrays is not None and not example.broken:
            self.wrong = (
                self.wrong or [i for i in range(len(example.right)) if not self.right(example, arrays, [i])][:1]
            )
        return events <= EVENTS and not (arrays is not None and self.right(example, arrays, None))

    def attempt(self, example: Example, changes: dict[int, Change]) -> bool:
        """Whether the program is right on this input with these changes."""
        count: dict[int, int] = defaultdict(int)
        needed = {part for number in changes for part in self.program.sites[number].parts.values()}
        operands: dict[int, Any] = {}
        events = 0

        def hook(number: int, value: Any) -> Any:
            nonlocal events
            events += 1
            if events > EVENTS:
                raise Exhausted
            if number in needed:
                operands[number] = value
            if number in changes:
                count[number] += 1
                return changes[number](count[number] - 1, value, operands)
            return value

        arrays = self.run(example, hook)
        return arrays is not None and self.right(example, arrays, self.wrong)

    def right(self, example: Example, arrays: tuple[Array, ...], which: list[int] | None) -> bool:
        """Whether these of the outputs are right (all, if none is named)."""
        if len(arrays) < len(example.right):
            return False
        for i in which or range(len(example.right)):
            got, want = np.asarray(arrays[i], dtype=float), example.right[i]
            if got.shape != want.shape:
                return False
            scale = float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
            if not np.allclose(got, want, 0, self.tolerance * scale, equal_nan=True):
                return False
        return True

    def works(self, repair: Repair) -> bool:
        for example in self.examples:
            self.tried += 1
            if self.tried % 32 == 0 and time.process_time() > self.end:  # a slow clock on some systems
                raise Exhausted
            try:
                changes = repair.changes(example)
            except (KeyError, IndexError, ValueError, TypeError):
                return False
            if not self.attempt(example, changes):
                return False
        return True

    # Searching

    def found(self) -> Repair | None:
        """The likeliest repair that works on all examples."""
        for example in self.examples:
            if not self.look(example):
                return None
        repairs: list[Repair] = []
        try:
            numbers = sorted(self.first.order, key=self.first.order.__getitem__)
            wrong = [n for n in numbers if self.first.record[n][0][0].ndim > 1 and self.label(n) is None]
            whole = [n for n in numbers[::-1] if self.program.sites[n].whole]
            for number in [*wrong, *whole]:  # one that is sure, before time runs out
                repairs += itertools.islice(filter(self.works, self.steps(number)), 1)
                if repairs:
                    break
            for number in numbers:
                repairs += filter(self.works, self.candidates(number))
            if not repairs or self.late(self.best(repairs)):
                repairs += filter(self.works, self.together())
        except Exhausted:
            pass
        before = {number: len(seen) for number, seen in self.first.record.items()}
        if not repairs or not self.look(self.first) or before.keys() != self.first.record.keys():
            return None  # it has a memory: right by now without a change, or on another way
        return self.best(repairs)

    def late(self, repair: Repair) -> bool:
        """Whether values cease to be right before this place."""
        where = self.first.order[repair.sites[0]]
        statement = self.program.sites[repair.sites[0]].statement
        for number, when in self.first.order.items():
            seen = self.first.record[number]
            apart = when < where and self.program.sites[number].statement != statement
            if apart and seen[0][0].ndim > 1 and self.label(number) is None:
                return True
        return False

    def candidates(self, number: int) -> Iterator[Repair]:
        """What might be put in the place of one site."""
        seen = self.first.record[number]
        array = seen[0][0]
        if array.dtype.kind == "b" and array.ndim == 0 and len(seen) == 1:
            for value in (True, False):
                if bool(array) != value:
                    yield self.constant(number, "flag", str(value), str(value), value)
        elif array.ndim == 0 and array.dtype.kind != "b":
            yield from self.numbers(number, array)
        yield from self.steps(number)
        if array.ndim > 1 and len(seen) > 1:
            for choice in range(3):
                yield from self.kin((number,), choice)
            yield from self.in_turn(number)
        yield from self.structure(number)

    def constant(self, number: int, sort: str, words: str, text: str, value: Any) -> Repair:
        return Repair((number,), sort, words, text, lambda example: {number: lambda k, old, _: value})

    def numbers(self, number: int, array: Array) -> Iterator[Repair]:
        site, value = self.program.sites[number], float(array)
        measured = isinstance(self.parent(number), ast.BinOp) or site.whole or array.dtype.kind == "f"
        for words, (text, other) in self.first.numbers.items():
            if other != value and (measured or other.is_integer() or math.isinf(other)):

                def changes(example: Example, words: str = words) -> dict[int, Change]:
                    right = np.array(example.numbers[words][1])
                    return {number: lambda k, old, _: like(old, right)}

                yield Repair((number,), "number", words, text, changes)
        if isinstance(site.node, ast.Constant) or array.dtype.kind == "f":
            return
        for more in (1, -1):
            words = f"{site.text} {'+-'[more < 0]} 1"
            yield Repair((number,), "number", words, words, lambda example, d=more: {number: lambda k, old, _: old + d})  # type: ignore[misc]

    def parent(self, number: int) -> ast.AST | None:
        if not self.parents:
            self.parents = {part: site.node for site in self.program.sites for part in site.parts.values()}
        return self.parents.get(number)

    def steps(self, number: int) -> Iterator[Repair]:
        """The right values that have a fitting shape; of equal ones, all, since another input may tell them apart."""
        for i in self.distinct:
            words, text, *_ = self.first.steps[i]
            for shaped in (False, True):
                values = self.fitted(self.first, number, i, shaped)
                seen = self.first.record[number]
                if values is None or (shaped and values[0].shape == self.first.steps[i][2].shape):
                    continue
                if all(same(v, o) for v, (o, _) in zip(values, seen)):
                    continue

                def changes(example: Example, i: int = i, shaped: bool = shaped) -> dict[int, Change]:
                    fitted = self.fitted(example, number, i, shaped)
                    if fitted is None:
                        raise KeyError(number)
                    return {number: lambda k, old, _: like(old, fitted[k])}

                yield Repair((number,), "step", words, text, changes, i)

    def fitted(self, example: Example, number: int, step: int, shaped: bool) -> list[Array] | None:
        """A right value for each time that the site is reached: the same each time, or row by row, head by
        head, number by number. `shaped`: in the shape of the learner's value, where only 1s differ."""
        seen, right = example.record.get(number), example.steps[step][2]
        if not seen or (seen[0][0].dtype.kind == "b") != (right.dtype.kind == "b"):
            return None
        shape, times = seen[0][0].shape, len(seen)
        made = isinstance(self.program.sites[number].node, (ast.Name, ast.Call))
        if made and times == 1 and shape and np.ptp(np.asarray(seen[0][0], float)) == 0 < seen[0][0].size - 1:
            return None  # not zeros that are to be filled
        values = [right] * times
        for axes in range(1, right.ndim + 1):
            parts = math.prod(right.shape[:axes])
            if right.shape[axes:] == shape and (parts == times > 1 or (example.broken and parts > times)):
                values = [*right.reshape(parts, *right.shape[axes:])]
        column = shape == () and times == 1 and right.ndim == 2 and right.shape[1] == 1
        if values[0].shape == shape or (column and not shaped):
            return values
        if _squeezed(values[0].shape) == _squeezed(shape):
            return [value.reshape(shape) for value in values] if shaped else values
        leaf = isinstance(self.program.sites[number].node, (ast.Name, ast.Attribute))
        free = values[0].size == seen[0][0].size or (leaf and right.ndim > 1) or example.broken
        return values if free and shape and values[0].ndim and not shaped else None

    def in_turn(self, number: int) -> Iterator[Repair]:
        """The heads of Q, of K and of V, where one place makes all three."""
        each = "the heads of {}, each with its own block of features{}"
        named = {words: i for i, (words, *_) in enumerate(self.first.steps)}
        for view in ("", ", transposed", ", the heads' axis moved"):
            three = [named.get(each.format(name, view)) for name in "QKV"]
            chosen = [i for i in three if i is not None]
            if len(chosen) != 3 or len(self.first.record[number]) != 3:
                continue

            def changes(example: Example, chosen: list[int] = chosen) -> dict[int, Change]:
                return {number: lambda k, old, _: like(old, example.steps[chosen[k]][2])}

            text = self.first.steps[chosen[0]][1]
            yield Repair((number,), "order", each.format("Q, K and V", view), text, changes, chosen[0])

    def structure(self, number: int) -> Iterator[Repair]:
        """A term left out, or another operator between the same two operands."""
        site = self.program.sites[number]
        node, parts = site.node, site.parts

        def again(part: int) -> Callable[[Example], dict[int, Change]]:
            return lambda example: {number: lambda k, old, operands: operands[part]}

        for name in ("left", "right", "operand", "value", "0"):
            part = parts.get(name)
            if part is not None and not isinstance(node, ast.Compare) and self.first.record.get(part):
                text = self.program.sites[part].text
                yield Repair((number,), "left out", f"`{text}` alone", text, again(part))
        left, right = parts.get("left"), parts.get("right")
        op = type(getattr(node, "op", None) or (getattr(node, "ops", None) or [None])[0])
        for other in INSTEAD.get(op, ()) if left is not None and right is not None else ():
            sign, function = OPERATORS[other]
            assert left is not None
            assert right is not None

            def changes(
                example: Example, function: Callable[[Any, Any], Any] = function, a: int = left, b: int = right
            ) -> dict[int, Change]:
                return {number: lambda k, old, operands: function(operands[a], operands[b])}

            text = f"{self.program.sites[left].text} {sign} {self.program.sites[right].text}"
            yield Repair((number,), "operator", f"{sign} between the two", text, changes)

    def together(self) -> Iterator[Repair]:
        """The same mistake made several times side by side: each time, the right value with the same numbers in
        it, or the right value of which the first is there already."""
        yield from self.exchanged()
        groups: dict[str, list[int]] = defaultdict(list)
        for number in self.first.order:
            site = self.program.sites[number]
            groups[_shape(site.node)].append(number)
        for numbers in groups.values():
            numbers.sort(key=self.first.order.__getitem__)
            for start, number in enumerate(numbers):
                near = [n for n in numbers[start:] if abs(self._line(n) - self._line(number)) <= 2]
                for group in {tuple(near[:size]): 0 for size in (1, 2, 3)}:
                    for choice in range(3):
                        yield from self.kin(group, choice)
                    if len(group) > 1:
                        yield from self.alike(group)

    def _line(self, number: int) -> int:
        return self.program.sites[number].line

    def kin(self, group: tuple[int, ...], choice: int) -> Iterator[Repair]:
        """The right values with the same numbers in another order."""

        def changes(example: Example) -> dict[int, Change]:
            order = {number: self.relatives(example, number, choice) for number in group}
            return {n: lambda k, old, _, n=n: like(old, order[n][k][1]) for n in group}  # type: ignore[misc]

        try:
            found = [self.relatives(self.first, number, choice) for number in group]
        except KeyError:
            return
        first = self.first.steps[found[0][0][0]]
        yield Repair(group, "order", first[0], first[1], changes, found[0][0][0])

    def relatives(self, example: Example, number: int, choice: int) -> list[tuple[int, Array]]:
        if not hasattr(example, "by_numbers"):
            example.by_numbers = defaultdict(list)  # type: ignore[attr-defined]
            for i, (*_, value, _at) in enumerate(example.steps):
                example.by_numbers[_numbers(value)].append(i)  # type: ignore[attr-defined]
        found = []
        for array, _ in example.record[number]:
            if array.ndim < 2 or array.dtype.kind == "b":
                raise KeyError(number)
            fitting: list[int] = example.by_numbers.get(_numbers(array), [])  # type: ignore[attr-defined]
            fitting = [i for i in fitting if not same(example.steps[i][2], array)]
            exact = [i for i in fitting if example.steps[i][2].shape == array.shape] or fitting
            if choice >= len(exact):
                raise KeyError(number)
            found.append((exact[choice], example.steps[exact[choice]][2]))
        return found

    def alike(self, group: tuple[int, ...]) -> Iterator[Repair]:
        """The same change at each: a term left out, or a right value that is there the first time only."""
        for pieces in zip(*(list(self.structure(number)) for number in group)):
            if len({(p.sort, p.words.split("`")[0]) for p in pieces}) == 1:

                def changes(example: Example, pieces: tuple[Repair, ...] = pieces) -> dict[int, Change]:
                    return {n: change for piece in pieces for n, change in piece.changes(example).items()}

                yield Repair(group, pieces[0].sort, pieces[0].words, pieces[0].text, changes)
        begun = [self.begun(number) for number in group]
        if all(begun):
            steps = [found[0] for found in begun]

            def each(example: Example) -> dict[int, Change]:
                values = {n: self.fitted(example, n, i, False) or [] for n, i in zip(group, steps)}
                return {n: lambda k, old, _, n=n: like(old, values[n][k]) for n in group}  # type: ignore[misc]

            words, text, *_ = self.first.steps[steps[0]]
            yield Repair(group, "order", words, text, each, steps[0])

    def exchanged(self) -> Iterator[Repair]:
        """Inputs that have changed places, in one line or in lines beside each other."""
        given = {i: step for i, step in enumerate(self.first.steps) if step[3] == 0 and step[0].isidentifier()}
        leaves: dict[int, list[int]] = {}
        for number in self.first.order:
            label, seen = self.label(number), self.first.record[number]
            if len(seen) == 1 and label and label[1].isidentifier() and seen[0][0].ndim > 1:
                sort = label[1].startswith("W")
                leaves[number] = [
                    i for i, step in given.items() if step[0].startswith("W") == sort and step[0] not in ("mask", "Wo")
                ]
        numbers = sorted(leaves, key=self.first.order.__getitem__)
        for start, number in enumerate(numbers):
            near = [n for n in numbers[start:] if abs(self._line(n) - self._line(number)) <= 4]
            near = [n for n in near if leaves[n] == leaves[number]][:3]
            if near[:1] == [number] and len(near) > 1:
                for chosen in itertools.product(*(leaves[n] for n in near)):
                    yield from self.exchange(near, chosen)

    def exchange(self, numbers: list[int], chosen: tuple[int, ...]) -> Iterator[Repair]:
        now = [self.first.record[n][0][0] for n in numbers]
        put = {n: i for n, i, old in zip(numbers, chosen, now) if not same(self.first.steps[i][2], old)}
        if len(put) < 2:
            return

        def changes(example: Example) -> dict[int, Change]:
            return {n: lambda k, old, _, i=i: like(old, example.steps[i][2]) for n, i in put.items()}  # type: ignore[misc]

        words = ", ".join(self.first.steps[i][0] for i in put.values())
        yield Repair(tuple(put), "order", words, words, changes)

    def begun(self, number: int) -> list[int]:
        """Steps whose first part (head, row) the site has, and not the others."""
        seen = self.first.record[number]
        if len(seen) < 2 or seen[0][0].ndim < 2:
            return []
        fits = [(i, self.fitted(self.first, number, i, False)) for i in range(len(self.first.steps))]
        return [i for i, v in fits if v and same(v[0], seen[0][0]) and not same(v[1], seen[1][0])]

    # Choosing

    def label(self, number: int) -> tuple[int, str] | None:
        """The place and the words of the right value that a site has already."""
        parts = [array for array, _ in self.first.record[number]]
        if not hasattr(self, "_places"):
            known = [(value, place, words) for words, _, value, place in self.first.steps]
            self._places: dict[Any, tuple[int, str]] = {}
            for value, place, words in [*known, *self.first.passing]:
                self._places.setdefault(_print(value), (place, words))
        if len({part.shape for part in parts}) > 1:
            return None
        if parts[0].dtype.kind == "f" and parts[0].dtype.itemsize < 8:
            every = [(words, value, place) for words, _, value, place in self.first.steps]
            close = [
                (place, words)
                for words, value, place in every
                if value.shape == parts[0].shape and np.allclose(parts[0], value, 1e-4, 1e-5, equal_nan=True)
            ]
            return close[0] if close else None
        found = self._places.get(_print(np.array(parts)), self._places.get(_print(parts[0])))
        if found is None and self.first.broken:  # it ended before it was through
            begun = np.array(parts).ravel()
            for words, _, value, place in self.first.steps:
                if same(value.ravel()[: begun.size], begun):
                    return place, words
        return found

    def best(self, repairs: list[Repair]) -> Repair:
        """The first place in the order of the run, where values cease to be those of a right program. A right
        value that is only missing has its place right after the one before it; the maximum, at the exp."""
        place_of = {words: place for words, _, _, place in reversed(self.first.steps)}
        masked = place_of.get("the scores with −∞ where attending is forbidden", 10**9)
        scaled = place_of.get("the scores divided by √dk", -1)
        shift = place_of.get("the scores less each row's maximum", -1)
        lines = sorted(place_of[words] for words in self.first.lines if words in place_of)
        last = max((place for *_, place in self.first.steps), default=0)
        changing, masking = [], []
        adding: dict[int, list[Repair]] = defaultdict(list)
        at_once = set()
        for repair in repairs:
            place, has = self.move(repair)
            if has is None or (has > place and not self.unmasked(repair)):
                changing.append(repair)
            elif has < masked <= place or self.unmasked(repair):
                masking.append(repair)
            else:
                adding[place].append(repair)
                between = [line for line in lines if has < line < place]
                at_once |= {place} if has < place != shift and not between else set()
        own = [r for r in changing if r.step < 0 or self.first.steps[r.step][3] < last]
        masking.sort(key=lambda r: (self.unmasked(r), -(self.move(r)[1] or 0)))  # where the mask is due, not later
        pool = masking[:1] if masking and not own else changing
        steps = {self.first.steps[r.step][3] for r in changing if r.sort == "step"}
        added = {p: same_step for p, same_step in adding.items() if p == scaled or p not in steps}
        pool = pool + [same_step[0 if place in at_once else -1] for place, same_step in added.items()]
        order = self.first.order
        first = min(pool, key=lambda r: order[r.sites[0]])
        where = self.program.sites[first.sites[0]]
        return min((r for r in pool if self._same_statement(r, where)), key=self.plainness)

    def unmasked(self, repair: Repair) -> bool:
        """Whether it puts the mask into a value that was right but for the mask."""
        label = self.label(repair.sites[0]) if repair.sort == "step" else None
        return label is not None and label[1] == "without the mask"

    @staticmethod
    def base(words: str) -> str:
        return "mask" if "mask" in words or words.startswith(("0 where", "np.tri")) else words.split(",")[0].rstrip("ᵀ")

    def move(self, repair: Repair) -> tuple[int, int | None]:
        """From which place in the order of the data to which: None for what is no right value."""
        if repair.sort == "number":
            value = float(self.first.record[repair.sites[0]][0][0])
            size = next((w for w, (_, v) in self.first.numbers.items() if v == value and "," in w), "-")
            return -1, -1 if "√" + size.split(",")[0] in repair.words else None
        if repair.step < 0 or repair.sort != "step":
            return 0, None
        words, _, _, place = self.first.steps[repair.step]
        label = self.label(repair.sites[0])
        if place or label is None:
            return place, label and label[0]
        return (-2 - repair.step, -2 - repair.step) if self.base(label[1]) == self.base(words) else (0, None)

    def _same_statement(self, repair: Repair, where: Site) -> bool:
        site = self.program.sites[repair.sites[0]]
        return (site.file, site.statement) == (where.file, where.statement)

    def plainness(self, repair: Repair) -> tuple[float, int, int]:
        """Of several repairs of one statement, the one that says most."""
        site = self.program.sites[repair.sites[0]]
        leaf = isinstance(site.node, (ast.Name, ast.Attribute))
        cost = {"number": 0.0, "flag": 1.0, "operator": 1.0, "left out": 1.1, "step": 2.0, "order": 2.0}[repair.sort]
        size = "√" in repair.words or "," in repair.words
        if repair.sort == "number" and isinstance(site.node, ast.Constant):
            cost = 1.2 if size else 1.0
        elif repair.sort == "number" and not size:
            cost = 1.6
        if repair.sort == "step" and self.first.steps[repair.step][3] == 0 and leaf:
            cost = 0.5 if "transposed" not in repair.words else 0.8
        return cost, len(site.text), self.first.order[repair.sites[0]]

    def record(self, repair: Repair, shown: Example) -> dict[str, Any]:
        """The repair as the report tells it, with the numbers on the input that is shown if it works there."""
        number = repair.sites[0]
        told = place(self.program.sites[number])
        told |= {
            "needed": repair.words,
            "instead": repair.text,
            "sort": repair.sort,
            "which": self.wrong[0] if self.wrong else 0,
        }
        for example in (shown, self.first):
            pair = self.numbers_of(repair, example)
            if pair is not None:
                return told | {"yours": pair[0].tolist(), "right": pair[1].tolist(), "shown": example is shown}
        return told

    def numbers_of(self, repair: Repair, example: Example) -> tuple[Array, Array] | None:
        """What the place has, and what makes it right, the first time that they differ."""
        pairs: list[tuple[Array, Array]] = []
        if not example.record:
            self.look(example)
        try:
            changes = repair.changes(example)
        except (KeyError, IndexError, ValueError, TypeError):
            return None
        main = changes[repair.sites[0]]

        def noted(k: int, old: Any, operands: dict[int, Any]) -> Any:
            new = main(k, old, operands)
            a, b = numeric(old), numeric(new)
            if a is not None and b is not None and not same(a, b):
                pairs.append((a.copy(), b.copy()))
            return new

        if not self.attempt(example, {**changes, repair.sites[0]: noted}):
            return None
        return pairs[0] if pairs else None


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _distinct(values: list[Array]) -> list[int]:
    """The numbers of those that no earlier one equals."""
    seen = {(v.shape, v.dtype.kind, v.tobytes()): i for i, v in reversed([*enumerate(values)])}
    return sorted(seen.values())


def _numbers(array: Array) -> bytes:
    """The same for arrays that hold the same numbers in any order."""
    return np.sort(np.round(np.asarray(array, float).ravel(), 9) + 0.0).tobytes()


_WEIGHTS = np.random.default_rng(7).normal(size=LARGEST * 4)


def _print(array: Array) -> tuple[int, str]:
    """A fingerprint of the numbers in their order, whatever the shape."""
    flat = np.nan_to_num(np.asarray(array, float).ravel(), nan=3e3, posinf=5e3, neginf=-7e3)
    return flat.size, f"{float(flat @ _WEIGHTS[: flat.size]):.8g}"


def _shape(node: ast.AST) -> str:
    """An expression with its names left out."""
    parts = [type(n).__name__ if isinstance(n, (ast.Name, ast.arg)) else _own(n) for n in ast.walk(node)]
    return " ".join(parts)


def _own(node: ast.AST) -> str:
    """A node without the nodes below it."""
    fields = [str(v) for k, v in ast.iter_fields(node) if not isinstance(v, (ast.AST, list))]
    return f"{type(node).__name__}({','.join(fields)})"
