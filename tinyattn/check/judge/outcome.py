"""What one call gave, and whether two answers are the same."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ..known import mutants
from ..known.mutants import FILL, Edit
from ..known.probes import Probe
from ..known.reference import Array

Arrays = tuple[Array, ...]
Record = dict[str, Any]  # what the child process wrote down of one call
TOLERANCE = 2e-5  # of the largest number: float32 inside passes, float16 does not


@dataclass(frozen=True)
class Outcome:
    """What one call gave: arrays, or the problem in words."""

    arrays: Arrays | None
    problem: str = ""
    weights: Array | None = None
    dtype: str = ""
    swapped: bool = False
    record: Record = field(default_factory=dict)


def describe(value: Record) -> str:
    """A returned value in words."""
    if value["type"] == "array":
        return f"an array of shape {tuple(value['shape'])}, {value['dtype']}"
    if value["type"] == "NoneType":
        return "nothing (None); a return may be missing"
    if "items" in value:
        return f"a {value['type']} of {len(value['items'])}: " + "; ".join(map(describe, value["items"]))
    return f"a {value['type']}"


def at_line(record: Record) -> str:
    """The exception of a call, with the learner's own line."""
    code = f": `{record['code']}`" if record.get("code") else ""
    where = f" (line {record['line']}{code})" if "line" in record else ""
    message = record["message"].split("\n")[0]
    return f"{record['error']}: {message[:100]}{'…' * (len(message) > 100)}{where}"


def _array(value: Record) -> Array | None:
    if value["type"] != "array" or "data" not in value:
        return None
    return np.array(value["data"], dtype=float).reshape(value["shape"])


def read(record: Record | None, right: Arrays | None) -> Outcome:
    """A record of the child as arrays: one forward (or a pair with the weights), three backward."""
    if record is None or "error" in record:
        return Outcome(None, at_line(record) if record else "it was not reached", record=record or {})
    value, wanted = record["value"], len(right or (0,))
    items = value.get("items", [])
    if wanted == 1 and len(items) != 2:
        items = [value] if value["type"] == "array" else []
    arrays = [_array(item) for item in items]
    if record.get("lifted"):
        arrays = [a if a is None or a.shape[:1] != (1,) else a[0] for a in arrays]
    if not arrays or any(a is None for a in arrays) or len(arrays) not in {wanted, max(2, wanted)}:
        return Outcome(None, f"it returned {describe(value)}", record=record)
    found = [a for a in arrays if a is not None]
    dtype = items[0]["dtype"]
    if wanted == 1 and len(found) == 2:
        assert right is not None
        swapped = found[0].shape != right[0].shape and found[1].shape == right[0].shape
        return Outcome((found[0],), "", found[1], dtype, swapped, record)
    return Outcome(tuple(found), "", None, dtype, record=record)


def shapes(arrays: Arrays | None) -> list[tuple[int, ...]] | None:
    return None if arrays is None else [a.shape for a in arrays]


def close(a: Arrays, b: Arrays, tolerance: float = TOLERANCE) -> bool:
    """Equal within the tolerance, relative to the largest number; NaN equals NaN."""
    if shapes(a) != shapes(b):
        return False
    finite = [np.abs(y[np.isfinite(y)]).max(initial=0.0) for y in b]
    scales = finite if len(b) == 1 else [max(finite)] * len(b)  # one gradient of three may be exactly 0
    return all(np.allclose(x, y, 0, tolerance * s, equal_nan=True) for x, y, s in zip(a, b, scales))


def finite(arrays: Arrays) -> bool:
    return all(bool(np.isfinite(a).all()) for a in arrays)


def evaluate(kind: str, edits: tuple[Edit, ...], probe: Probe, fill: float = -10.0) -> Arrays | None:
    """What the program with these edits gives; None where it raises."""
    function = mutants.program(kind, edits)
    assert function is not None
    return _answer(function, probe, fill)


@lru_cache(maxsize=100_000)  # a diagnosis asks the same of a program several times, and so does the next one
def _answer(function: Callable[..., Any], probe: Probe, fill: float) -> Arrays | None:
    function.__globals__[FILL] = fill
    with np.errstate(all="ignore"):
        try:
            if probe.before:
                function(*probe.before)
            value = function(*(np.copy(a) if isinstance(a, np.ndarray) else a for a in probe.args))
        except (ValueError, IndexError, TypeError, NameError, AttributeError, ZeroDivisionError):
            return None
    return value if isinstance(value, tuple) else (value,)


def matches(learner: Outcome, candidate: Arrays | None, right: Arrays | None) -> bool:
    """Whether the learner's outcome is the candidate's. Where the candidate raises, anything wrong will do;
    numbers that are NaN or inf in the candidate (empty rows) are free, since fills differ there."""
    if candidate is None and learner.arrays is not None and right is not None:
        return not close(learner.arrays, right)
    if learner.arrays is None or shapes(learner.arrays) != shapes(candidate):
        broken = learner.arrays is None or shapes(learner.arrays) != shapes(right)
        return broken and shapes(candidate) != shapes(right)
    assert candidate is not None
    free = [~np.isfinite(c) for c in candidate]
    return close(
        tuple(np.where(f, 0, x) for f, x in zip(free, learner.arrays)),
        tuple(np.where(f, 0, c) for f, c in zip(free, candidate)),
    )
