"""One function under check: its outcomes beside the right ones, and the findings as they come to light."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import mutants
from .mutants import SCORE, Edit, Mutant
from .outcome import Arrays, Record, close, evaluate, finite, matches, read, shapes
from .probes import KINDS, Probe


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


class Case:
    """What the learner's function gave on each probe, what is right, and the edits found so far to be in it."""

    def __init__(self, kind: str, function: str, probes: Iterable[Probe], records: dict[str, Record]):
        self.kind, self.function = kind, function
        self.probes = {p.name: p for p in probes}
        self.right = {p.name: evaluate(kind, (), p) for p in self.probes.values()}
        self.learner = {name: read(records.get(name), self.right[name]) for name in self.probes}
        self.findings: list[Finding] = []
        self.edits: tuple[Edit, ...] = ()

    def group(self, *groups: str, masked: bool | None = None) -> list[Probe]:
        chosen = [p for p in self.probes.values() if p.group in groups]
        return [p for p in chosen if masked is None or p.masked == masked]

    def broken(self, probe: Probe) -> bool:
        return shapes(self.learner[probe.name].arrays) != shapes(self.right[probe.name])

    def agrees(self, probe: Probe, *more: Edit, fully: bool = False) -> bool:
        """Whether the learner's outcome is that of the formula found, with these edits on top."""
        return self.agrees_with(probe, (*self.edits, *more), fully)

    def agrees_with(self, probe: Probe, edits: tuple[Edit, ...], fully: bool = False) -> bool:
        """Whether the learner's outcome is that of the program with these edits (and no number is free)."""
        if mutants.program(self.kind, edits) is None:
            return False
        candidate = evaluate(self.kind, edits, probe)
        if fully and (candidate is None or not finite(candidate)):
            return False
        return matches(self.learner[probe.name], candidate, self.right[probe.name])

    def is_right(self, probe: Probe) -> bool:
        arrays, right = self.learner[probe.name].arrays, self.right[probe.name]
        return arrays is not None and right is not None and close(arrays, right)

    def first_wrong(self, probes: Iterable[Probe]) -> Probe | None:
        wrong = [p for p in probes if not self.is_right(p)]
        return next((p for p in wrong if not self.broken(p)), wrong[0] if wrong else None)

    def ids(self) -> list[str]:
        return [finding.id for finding in self.findings]

    def evidence(self, probe: Probe | None, expected: Arrays | None = None) -> dict[str, Any]:
        if probe is None:
            return {}
        outcome = self.learner[probe.name]
        told: dict[str, Any] = {"input": probe.name, "arguments": dict(zip(KINDS[self.kind], probe.args))}
        right = expected or self.right[probe.name]
        if outcome.arrays is None:
            told["problem"] = outcome.problem
        elif right is not None:
            names = ("dQ", "dK", "dV") if len(right) == 3 else ("output",)
            told["yours"], told["right"] = dict(zip(names, outcome.arrays)), dict(zip(names, right))
        return told

    def tell(
        self,
        id: str,
        message: str,
        probe: Probe | None = None,
        *,
        hint: str = "",
        lesson: str = SCORE,
        severity: str = "bug",
        expected: Arrays | None = None,
    ) -> None:
        if all(f.id != id for f in self.findings):
            evidence = self.evidence(probe, expected)
            solution = mutants.source(self.kind) or ""
            self.findings.append(
                Finding(id, severity, self.function, message, hint, lesson, evidence, solution)
            )

    def tell_mutant(self, mutant: Mutant, probe: Probe | None, severity: str = "", message: str = "") -> None:
        text = message or mutant.what[0].upper() + mutant.what[1:] + "."
        self.tell(
            mutant.id,
            text,
            probe,
            hint=mutant.hint,
            lesson=mutant.lesson,
            severity=severity or mutant.severity,
        )
        lines = mutants.lines_named(self.kind)
        right = [lines[name] for name in lines if any(name in edit for edit in mutant.edits)]
        self.findings[-1].solution = "\n".join(right) or self.findings[-1].solution
