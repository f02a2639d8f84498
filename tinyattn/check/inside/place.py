"""Which inputs a program is looked into on, and what its finding says of the place."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..judge.outcome import evaluate
from ..known.mutants import Edit
from ..known.probes import KINDS, Probe
from .steps import WORDS, numbers, passing, steps

SIZE = 700  # numbers in an input, at most


def example(kind: str, edits: tuple[Edit, ...], probe: Probe) -> dict[str, Any]:
    """An input with all that is right on it, ready for repair.search."""
    return {
        "args": probe.args,
        "right": evaluate(kind, edits, probe),
        "steps": [tuple(step) for step in steps(kind, edits, probe)],
        "numbers": numbers(kind, probe),
        "passing": passing(kind, edits, probe),
        "lines": [*WORDS.values()],
    }


def far(kind: str) -> list[Probe]:
    """Large scores whose softmax stays undecided: a one-hot row is right whatever the scores are."""
    names, rng = KINDS[kind], np.random.default_rng(3)
    if "Q" not in names:
        return []
    made = []
    for n, m, dk, dv in ((3, 4, 5, 2), (4, 3, 6, 5)):
        Q, K, V = rng.normal(size=(n, dk)), rng.normal(size=(m, dk)), rng.normal(size=(m, dv))
        Q[:, 0], K[:, 0] = 100 * np.sqrt(dk) * (-1.0) ** np.arange(n), 30.0
        args = (rng.normal(size=(n, dv)),) if names[0] == "dO" else ()
        made.append(Probe(f"scores of ±3000, {n} × {m}", "large", (*args, Q, K, V)))
    return made


def distinct(probe: Probe) -> int:
    """How many sizes an input has that can be told apart."""
    shapes = {size for a in probe.args for size in np.shape(a)} | {a for a in probe.args if isinstance(a, int)}
    heads = [a for a in probe.args if isinstance(a, int)] if len(probe.args) > 1 else []
    shapes |= {probe.args[0].shape[-1] // h for h in heads}
    return len(shapes - {1})


def pair(wrong: list[Probe], raised: Callable[[Probe], bool]) -> list[Probe]:
    """Two of the inputs on which a program is wrong: their sizes differ, and can be told apart."""
    fair = [p for p in wrong if p.size <= SIZE] or wrong
    fair = sorted(fair, key=lambda p: (raised(p), -distinct(p), p.size))
    first = fair[0]
    shapes = [np.shape(a) for a in first.args]
    other = [p for p in fair if [np.shape(a) for a in p.args] != shapes] or fair[1:]
    return [first, *other[:1]]
