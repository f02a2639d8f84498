"""One function under check: its outcomes beside the right ones, and the findings as they come to light."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..known import mutants
from ..known.mutants import BY_ID, Edit
from ..known.probes import ARGUMENTS, Limits, Probe
from ..known.reference import Affine, Array
from .outcome import TOLERANCE, Arrays, Record, close, evaluate, finite, matches, read, shapes
from .properties import TEXTS

MASKING = {"when", "which", "mask"}  # the named lines of reference.py that apply the mask


@dataclass
class Finding:
    """One thing to say about a function."""

    id: str
    severity: str
    function: str
    message: str
    hint: str = ""
    lesson: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    solution: str = ""
    line: int | None = None  # where it is in the learner's own text, counted from 1, as is the column
    column: int | None = None
    text: str = ""  # the learner's expression there
    cell: int | None = None  # which code cell of a notebook the line is counted in
    place: str = ""  # how the line was found: proven (with another value there the program is right), likely, raised


class Case:
    """What the learner's function gave on each probe, what is right, and the edits that explain it so far."""

    def __init__(
        self,
        kind: str,
        function: str,
        probes: Iterable[Probe],
        records: dict[str, Record],
        form: Limits | None = None,
        blocked: bool | None = None,
        words: str = "",
    ):
        self.kind, self.function, self.form, self.blocked = kind, function, form, blocked
        self.words = words  # the learner's text, where it is at hand
        self.probes = {p.name: p for p in probes}
        self.right = {p.name: evaluate(kind, (), p) for p in self.probes.values()}
        self.learner = {name: read(records.get(name), self.right[name]) for name in self.probes}
        self.findings: list[Finding] = []
        self.edits: tuple[Edit, ...] = ()
        self.because: dict[str, Edit] = {}  # the edit behind a finding's name

    def group(self, *groups: str, masked: bool | None = None) -> list[Probe]:
        chosen = [p for p in self.probes.values() if p.group in groups]
        return [p for p in chosen if masked is None or p.masked == masked]

    def broken(self, probe: Probe) -> bool:
        """It raised, or returned another shape than expected."""
        return shapes(self.learner[probe.name].arrays) != shapes(self.right[probe.name])

    def raised(self, probe: Probe) -> bool:
        return "error" in self.learner[probe.name].record

    def problem(self, probe: Probe) -> str:
        return self.learner[probe.name].problem

    def is_right(self, probe: Probe, tolerance: float = TOLERANCE) -> bool:
        arrays, right = self.learner[probe.name].arrays, self.right[probe.name]
        return arrays is not None and right is not None and close(arrays, right, tolerance)

    def expected(self, probe: Probe) -> Arrays | None:
        """What the edits found so far give, if that is all finite."""
        arrays = evaluate(self.kind, self.edits, probe)
        return arrays if arrays and finite(arrays) else None

    def agrees(self, probe: Probe, *more: Edit) -> bool:
        """Whether the learner's outcome is that of the edits found so far, with these on top."""
        return self.agrees_with(probe, (*self.edits, *more))

    def agrees_with(self, probe: Probe, edits: tuple[Edit, ...]) -> bool:
        """Whether the learner's outcome is that of the program with these edits."""
        if mutants.program(self.kind, edits) is None:
            return False
        return matches(self.learner[probe.name], evaluate(self.kind, edits, probe), self.right[probe.name])

    def first_wrong(self, probes: Iterable[Probe]) -> Probe | None:
        """The first of these (small ones come first) that is wrong, if possible without raising."""
        wrong = [p for p in probes if not self.is_right(p)]
        return next((p for p in wrong if not self.broken(p)), wrong[0] if wrong else None)

    def told(self, id: str) -> bool:
        return any(finding.id == id for finding in self.findings)

    def tell(
        self,
        text: str,
        probe: Probe | None = None,
        severity: str = "bug",
        *,
        message: str = "",
        **values: Any,
    ) -> None:
        """Add a finding, once: a mutant by its id, or a property by the key of its text."""
        id = text.split("/")[0]
        if self.told(id):
            return
        solution = mutants.source(self.kind) or ""
        if id in BY_ID and text not in TEXTS:
            mutant = BY_ID[id]
            words = (sentence(mutant.mistake), mutant.hint, mutant.lesson)
            severity = "note" if mutant.severity == "note" else severity
            lines = mutants.lines_named(self.kind)
            named = {name for edit in mutant.edits for name in edit}
            named |= MASKING if named & MASKING else set()  # three lines that mean nothing one by one
            right = [("    " if name in ("which", "mask") else "") + lines[name] for name in lines if name in named]
            solution = "\n".join(right) or solution
        else:
            words = TEXTS[text]
        message = message or words[0].format(**values)
        evidence = self.evidence(probe) if probe else {}
        self.findings.append(Finding(id, severity, self.function, message, *words[1:], evidence, solution))

    def evidence(self, probe: Probe) -> dict[str, Any]:
        """The input, the learner's answer and the right one."""
        outcome = self.learner[probe.name]
        told: dict[str, Any] = {"input": probe.name, "arguments": shown(self.kind, probe.args)}
        right = self.right[probe.name]
        if "printed" in outcome.record:
            told["printed"] = outcome.record["printed"]
        if outcome.arrays is None:
            told["problem"] = outcome.problem
        elif right is not None:
            names = {3: ("dQ", "dK", "dV"), 4: ("dX", "dWq", "dWk", "dWv")}.get(len(right), ("output",))
            told["yours"], told["right"] = dict(zip(names, outcome.arrays)), dict(zip(names, map(zeros, right)))
        return told


def sentence(words: str) -> str:
    return (words[0] if words[1].isupper() else words[0].upper()) + words[1:] + "."  # "dK = …" stays


def zeros(array: Array) -> Array:
    """A row that may attend to nothing is NaN by the formula, and 0 by what is right here."""
    return np.where(np.isnan(array), 0.0, array)


def shown(kind: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments of a call by name, without those that only repeat another or say nothing."""
    told: dict[str, Any] = {}
    for name, value in zip(ARGUMENTS[mutants.base_kind(kind)], args):
        if isinstance(value, Affine):
            told |= {name: value.weight, name.replace("W", "b"): value.bias}
        elif kind.startswith("attention_layer") and (
            any(value is other for other in told.values())
            or (name.startswith("num") and value == 1)
            or (name == "Wo" and np.array_equal(value, np.eye(len(value))))
        ):
            continue
        else:
            told[name] = value
    return told
