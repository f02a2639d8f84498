"""The command break: a right program with one bug put in. Predict what changes; then both programs are run.

Every question is one that a reader can answer from the text, and every answer is measured, on the program and on the
right one. Each bug has a question whose answer it changes (a test holds this for all of them).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..text import Line, is_terminal, show
from . import matrix
from .judge.outcome import Arrays, close, evaluate, finite
from .known.mutants import BY_ID, MUTANTS, Edit, Mutant, base_kind, source
from .known.probes import Probe, probes
from .known.reference import Array, causal_mask
from .report import finding_lines, wrap

SDPA, BACKWARD, TRIANGLE = "scaled_dot_product_attention", "scaled_dot_product_attention_backward", "causal_mask"
GROUPS = {  # of the checker's inputs: does the program give the right numbers there?
    "plain": "without a mask",
    "masked": "with a mask of True and False",
    "batch": "with a batch axis in front",
    "large": "where scores reach thousands",
    "fill": "where all scores that the mask allows lie at −50,000 or below",
    "dominated": "where a forbidden score is 100,000",
    "finite": "where all scores that the mask allows lie at −1e33",
}


class Answer(NamedTuple):
    """What the program with the bug does, what the right one does, and both in words."""

    yes: bool
    right: bool
    told: str = ""


Run = Callable[..., Arrays | None]  # a program on arguments; None: it raises


def questions(kind: str, edit: Edit) -> dict[str, Answer]:
    """Questions to predict, each answered by running both programs."""

    def program(*args: Any, before: tuple[Any, ...] = ()) -> Arrays | None:
        return evaluate(kind, (edit,), Probe("", "", args, before=before))

    def right(*args: Any, before: tuple[Any, ...] = ()) -> Arrays | None:
        return evaluate(kind, (), Probe("", "", args, before=before))

    asked: dict[str, Answer] = {}
    base = base_kind(kind)
    families = {SDPA: (_rows, _future, _width, _values), BACKWARD: (_differences,), TRIANGLE: (_pairs,)}
    for family in families.get(base, ()) if base == kind else ():
        for question, measure in family():
            (yes, told), (expected, right_told) = measure(program), measure(right)
            words = f"{told}; the right program: {right_told}" if told != right_told else told
            asked[question] = Answer(yes, expected, words)
    for group, words in GROUPS.items():
        inputs = [p for p in probes(kind) if p.group == group]
        if inputs:
            wrong = [p.name for p in inputs if not _same(program(*p.args), right(*p.args))]
            told = f"wrong on {len(wrong)} of {len(inputs)} tried" if wrong else f"right on all {len(inputs)} tried"
            asked[f"Does it give the right numbers {words}?"] = Answer(not wrong, True, told)
    first = next((p for p in probes(kind) if p.group in ("plain", "masked")), None)
    if first is not None:
        asked["Are its inputs the same after a call?"] = Answer(_untouched(kind, edit), True)
    return asked


def _same(a: Arrays | None, b: Arrays | None) -> bool:
    return a is b or (a is not None and b is not None and close(a, b))


def _untouched(kind: str, edit: Edit) -> bool:
    """Whether no input is written to, on any of the checker's inputs."""
    from .known.mutants import program

    function = program(kind, (edit,))
    assert function is not None
    for probe in probes(kind):
        if probe.group not in ("plain", "masked"):
            continue
        given = [np.copy(a) if isinstance(a, np.ndarray) else a for a in probe.args]
        with np.errstate(all="ignore"):
            try:
                function(*given)
            except Exception:
                continue
        if any(
            not np.array_equal(a, b, equal_nan=True) for a, b in zip(given, probe.args) if isinstance(b, np.ndarray)
        ):
            return False
    return True


# --- attention ----------------------------------------------------------------------------------------

Measure = Callable[[Run], tuple[bool, str]]


def _inputs(n: int = 4, m: int = 4, dk: int = 3, dv: int = 2) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, dk)), rng.normal(size=(m, dk)), rng.normal(size=(m, dv))


def _rows() -> Iterator[tuple[str, Measure]]:
    def sums(run: Run) -> tuple[bool, str]:
        Q, K, _ = _inputs()
        found = [run(Q, K, np.eye(4), *more) for more in ((), (causal_mask(4),))]
        rows = [x[0].sum(-1) for x in found if x is not None and x[0].ndim == 2]
        fine = len(rows) == 2 and all(np.allclose(r, 1) for r in rows)
        return bool(fine), "sums " + ", ".join(f"{r.min():.3g} to {r.max():.3g}" for r in rows) if rows else "it raises"

    yield "Does each row of the weights sum to 1, with a causal mask too?", sums


def _future() -> Iterator[tuple[str, Measure]]:
    def leaks(run: Run) -> tuple[bool, str]:
        Q, K, V = _inputs()
        before = run(Q, K, V, causal_mask(4))
        after = run(*(np.concatenate([x[:-1], x[-1:] + 3.0]) for x in (Q, K, V)), causal_mask(4))
        if before is None or after is None or before[0].shape != after[0].shape:
            return True, "it raises, or gives another shape"
        moved = [i for i in range(3) if not np.allclose(before[0][i], after[0][i], equal_nan=True)]
        return bool(moved), "rows that move: " + (
            ", ".join(str(i + 1) for i in moved) if moved else "none of the first 3"
        )

    yield "Under a causal mask, do earlier answers move if the last word (its Q, K and V) is another one?", leaks


def _width() -> Iterator[tuple[str, Measure]]:
    def largest(run: Run) -> float:
        rng = np.random.default_rng(0)
        out = run(rng.normal(size=(64, 512)), rng.normal(size=(64, 512)), np.eye(64))
        if out is None or out[0].shape != (64, 64):
            return float("nan")
        return float(np.median(out[0].max(-1)))

    def sharp(run: Run) -> tuple[bool, str]:
        return largest(run) > 0.9, f"{largest(run):.3g}"

    def flat(run: Run) -> tuple[bool, str]:
        return largest(run) < 0.05, f"{largest(run):.3g}"

    yield "At dk = 512 (unit normal), is the largest weight of a typical row above .9?", sharp
    yield "At dk = 512 (unit normal), is the largest weight of a typical row below .05?", flat


def _values() -> Iterator[tuple[str, Measure]]:
    def follows(run: Run) -> tuple[bool, str]:
        Q, K, V = _inputs(dv=3)
        once, twice = run(Q, K, V), run(Q, K, 2 * V)
        fine = once is not None and twice is not None and np.allclose(2 * once[0], twice[0])
        return bool(fine), ""

    def large(run: Run) -> tuple[bool, str]:
        Q, K, V = _inputs()
        found = [run(1e3 * s * Q, K, V) for s in (1, -1)]
        return any(x is not None and not finite(x) for x in found), ""

    def second(run: Run) -> tuple[bool, str]:
        Q, K, V = _inputs()
        masks = causal_mask(4), np.eye(4, dtype=bool)
        alone, after = run(Q, K, V, masks[1]), run(Q, K, V, masks[1], before=(Q, K, V, masks[0]))
        return alone is not None and after is not None and close(alone, after), ""

    yield "After a call with another mask of the same shape, is the answer the same as without that call?", second
    yield "If V is doubled, is the answer doubled?", follows
    yield "Do scores in the thousands give NaN or inf?", large


# --- the way back, the mask ---------------------------------------------------------------------------


def _differences() -> Iterator[tuple[str, Measure]]:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=shape) for shape in ((3, 2), (4, 2), (4, 5))]  # Q, K, V
    dO = rng.normal(size=(3, 5))

    def slopes(k: int) -> Array:
        def loss(x: Array) -> float:
            args = [x if i == k else a for i, a in enumerate(inputs)]
            return float((evaluate(SDPA, (), Probe("", "", tuple(args)))[0] * dO).sum())  # type: ignore[index]

        found = np.zeros_like(inputs[k])
        for i in np.ndindex(found.shape):
            step = np.zeros_like(found)
            step[i] = 1e-5
            found[i] = (loss(inputs[k] + step) - loss(inputs[k] - step)) / 2e-5
        return found

    for k, name in enumerate(("dQ", "dK", "dV")):

        def agrees(run: Run, k: int = k) -> tuple[bool, str]:
            found, expected = run(dO, *inputs), slopes(k)
            if found is None or found[k].shape != expected.shape:
                return False, "it raises, or has another shape"
            off = float(np.abs(found[k] - expected).max())
            return off < 1e-6, f"largest difference {off:.1g}"

        yield f"Do finite differences agree with its {name}?", agrees


def _pairs() -> Iterator[tuple[str, Measure]]:
    def allowed(run: Run) -> Array | None:
        out = run(4)
        return None if out is None or out[0].shape != (4, 4) else out[0]

    def count(run: Run) -> tuple[bool, str]:
        mask = allowed(run)
        return mask is not None and int(np.sum(mask != 0)) == 10, "" if mask is None else f"{int(np.sum(mask != 0))}"

    def itself(run: Run) -> tuple[bool, str]:
        mask = allowed(run)
        return mask is not None and bool(np.diagonal(mask).all()), ""

    def ahead(run: Run) -> tuple[bool, str]:
        mask = allowed(run)
        return mask is not None and bool(np.triu(mask, 1).any()), ""

    yield "Is causal_mask(4) True (or not 0) in exactly 10 places?", count
    yield "May each position attend to itself?", itself
    yield "May some position attend to a later one?", ahead


# --- the game -----------------------------------------------------------------------------------------


@cache
def asked_about(id: str) -> tuple[str, Edit, dict[str, Answer]]:
    """Where a mistake is made, the edit, and its questions with their answers."""
    kind, edit = matrix.home(BY_ID[id])
    return kind, edit, questions(kind, edit)


def chosen(asked: dict[str, Answer], count: int = 4) -> dict[str, Answer]:
    """What the player is asked: up to count - 1 questions that tell the bug from the right program, and one or more
    that do not, in the order of the questions."""
    telling = [q for q, a in asked.items() if a.yes != a.right][: count - 1]
    others = [q for q, a in asked.items() if a.yes == a.right][: count - len(telling)]
    return {q: a for q, a in asked.items() if q in (*telling, *others)}


LEVELS: dict[str, int] = {TRIANGLE: 0, SDPA: 0, "cross_attention": 1, "multi_head_attention": 1, BACKWARD: 2}


def rising(rng: random.Random) -> list[Mutant]:
    """All bugs, easy ones first: one head before several, the way back last."""
    bugs = [m for m in MUTANTS if m.severity == "bug"]
    rng.shuffle(bugs)
    return sorted(bugs, key=lambda m: LEVELS.get(matrix.home(m)[0], 3))


class Quit(Exception):
    """The player has had enough."""


def _predict(question: str) -> str:
    """y, n, or nothing for no idea."""
    while True:
        answer = input(f"{question} [y/n/q] ").strip().lower()[:1]
        if answer == "q":
            raise Quit
        if answer in ("y", "n", ""):
            return answer


def play(mutant: Mutant, ask: Callable[[str], str] | None) -> tuple[int, int]:
    """One bug: the program, the questions, both programs' answers, and its name. Returns (right, asked)."""
    kind, edit, asked = asked_about(mutant.id)
    asked = chosen(asked) if ask else asked
    program = [[("    " + line, "")] for line in (source(kind, (edit,)) or "").splitlines()]
    show([[("One line or two of this program are wrong.", "bold")], [], *program, []])
    said = {question: ask(question) for question in asked} if ask else {}
    told: list[Line] = [[]]
    for question, (yes, right, words) in asked.items():
        guess = said.get(question, "")
        mark = "" if not guess else "✓ " if guess == ("y" if yes else "n") else "✗ "
        differs = " (the right program: " + ("yes" if right else "no") + ")" if yes != right else ""
        told += wrap(f"{question} {'Yes' if yes else 'No'}{differs}{': ' + words if words else ''}.", "  ", "", mark)
    bug = finding_lines(matrix.shown(mutant, kind, edit), "→", solution=True, whose="its")
    show([*told, [], [(f"✗ {kind}", "bold red")], [], *bug])
    return sum(said[q] == ("y" if a.yes else "n") for q, a in asked.items() if q in said), len(said)


def command(argv: list[str]) -> int:
    """break [MUTANT] [--list]"""
    parser = argparse.ArgumentParser(
        prog="python -m tinyattn break",
        description="A right program with one bug put in: predict what it does (y, n, Enter for no idea, q to end), "
        "then see both programs run. It gets harder as it goes on.",
    )
    parser.add_argument("mutant", nargs="?", choices=sorted(BY_ID), metavar="MUTANT")
    parser.add_argument("--list", action="store_true", help="list all mutants")
    given = parser.parse_args(argv)
    if given.list:
        width = max(map(len, BY_ID))
        show([line for m in MUTANTS for line in wrap(m.what, "", "", m.id.ljust(width) + "  ")])
        return 0
    asking = is_terminal(sys.stdin)
    if not asking and not given.mutant:
        told = "This is a game for a terminal: it asks, and waits for y, n or q. Without one, name a bug: "
        show([*wrap(f"{told}python -m tinyattn break MUTANT shows it with all its answers; --list names them.", "")])
        return 0
    if not asking:
        show(wrap("Without a terminal it asks nothing: here are the program and all its answers.", ""))
    right = asked = 0
    try:
        for mutant in [BY_ID[given.mutant]] if given.mutant else rising(random.Random()):
            hits, count = play(mutant, _predict if asking else None)
            right, asked = right + hits, asked + count
            if asking and not given.mutant and input("Enter for the next one, q to end: ").strip().lower()[:1] == "q":
                break
    except (Quit, EOFError):
        pass
    if asking:
        show([[(f"{right} of {asked} predictions were right.", "bold")]])
    return 0
