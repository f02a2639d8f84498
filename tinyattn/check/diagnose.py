"""From what a learner's function returned to what is wrong with it.

1. Known mistakes. The function's outputs are compared with those of the right program, of each mutant, and
   of each pair of mutants: first without masks (which formula is it?), then, given that, with masks.
   What agrees on every probe is named.
2. Given the formula found, the extreme probes: large scores, low scores, empty rows, leading axes, dtypes.
3. Unknown mistakes: the properties of attention that fail, each on the smallest input that shows it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from . import mutants
from .mutants import BY_ID, CAUSAL, FILL, HEADS, MUTANTS, ROWS, SCALE, SCORE, THREE, Edit, Mutant
from .probes import KINDS, Probe
from .reference import Array

Arrays = tuple[Array, ...]
Form = tuple[Mutant, Edit]
Record = dict[str, Any]
TOLERANCE = 2e-5  # of the largest number: float32 inside passes, float16 does not
PAIRED = 4  # of each mutant's edits, so many are tried together with another mutant's
SILENT = {m.id for m in MUTANTS if m.severity == "note"} | {"no-max-subtraction", "inputs-modified"}


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


@dataclass(frozen=True)
class Outcome:
    """What one call gave: arrays, or the problem in words."""

    arrays: Arrays | None
    problem: str = ""
    weights: Array | None = None
    dtype: str = ""
    swapped: bool = False
    record: Record = field(default_factory=dict)

    @property
    def raised(self) -> bool:
        return "error" in self.record


def describe(value: Record) -> str:
    """A returned value in words."""
    if value["type"] == "array":
        return f"an array of shape {tuple(value['shape'])}, {value['dtype']}"
    if value["type"] == "NoneType":
        return "nothing (None): is a return missing?"
    if "items" in value:
        return f"a {value['type']} of {len(value['items'])}: " + "; ".join(map(describe, value["items"]))
    return f"a {value['type']}"


def at_line(record: Record) -> str:
    """The exception of a call, with the learner's own line."""
    where = f" (line {record['line']}: `{record['code']}`)" if "line" in record else ""
    message = record["message"].split("\n")[0]
    return f"{record['error']}: {message[:100]}{'…' * (len(message) > 100)}{where}"


def _array(value: Record) -> Array | None:
    if value["type"] != "array" or "data" not in value:
        return None
    return np.array(value["data"], dtype=float).reshape(value["shape"])


def read(record: Record | None, right: Arrays | None) -> Outcome:
    """A record of the child as arrays: one for a forward pass (or a pair with the weights), three backward."""
    if record is None or "error" in record:
        return Outcome(None, at_line(record) if record else "it was not reached", record=record or {})
    value, wanted = record["value"], len(right or (0,))
    items = [value] if value["type"] == "array" else value.get("items", [])
    arrays = [_array(item) for item in items]
    if record.get("lifted"):
        arrays = [a if a is None or a.shape[:1] != (1,) else a[0] for a in arrays]
    if any(a is None for a in arrays) or len(arrays) not in {wanted, 2 if wanted == 1 else wanted}:
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
    function.__globals__[FILL] = fill
    with np.errstate(all="ignore"):
        try:
            value = function(*(np.copy(a) if isinstance(a, np.ndarray) else a for a in probe.args))
        except (ValueError, IndexError):
            return None
    return value if isinstance(value, tuple) else (value,)


@cache
def forms(kind: str, masked: bool) -> tuple[Form, ...]:
    """All distinct edits that apply to this function, and show only with a mask (or also without)."""
    named, seen, found = mutants.lines_named(kind), set(), []
    for mutant in MUTANTS:
        for edit in mutant.edits if mutant.id not in SILENT else ():
            text = mutants.source(kind, (edit,))
            if edit.keys() & named.keys() and text not in seen and mutants.touches_mask(edit) == masked:
                seen.add(text)
                found.append((mutant, edit))
    return tuple(found)


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
    return close(tuple(np.where(f, 0, x) for f, x in zip(free, learner.arrays)),
                 tuple(np.where(f, 0, c) for f, c in zip(free, candidate)))


class Diagnosis:
    """One function's outcomes, and the findings as they come to light."""

    def __init__(self, kind: str, function: str, probes: Iterable[Probe], records: dict[str, Record]):
        self.kind, self.function = kind, function
        self.probes = {p.name: p for p in probes}
        self.right = {p.name: evaluate(kind, (), p) for p in self.probes.values()}
        self.learner = {name: read(records.get(name), self.right[name]) for name in self.probes}
        self.findings: list[Finding] = []
        self.edits: tuple[Edit, ...] = ()

    # ---- asking -------------------------------------------------------------------------------------------
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

    # ---- telling ------------------------------------------------------------------------------------------
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

    def tell(self, id: str, message: str, probe: Probe | None = None, *, hint: str = "", lesson: str = SCORE,
             severity: str = "bug", expected: Arrays | None = None) -> None:
        if all(f.id != id for f in self.findings):
            evidence = self.evidence(probe, expected)
            solution = mutants.source(self.kind) or ""
            self.findings.append(
                Finding(id, severity, self.function, message, hint, lesson, evidence, solution))

    def tell_mutant(self, mutant: Mutant, probe: Probe | None, severity: str = "", message: str = "") -> None:
        text = message or mutant.what[0].upper() + mutant.what[1:] + "."
        self.tell(mutant.id, text, probe, hint=mutant.hint, lesson=mutant.lesson,
                  severity=severity or mutant.severity)
        lines = mutants.lines_named(self.kind)
        right = [lines[name] for name in lines if any(name in edit for edit in mutant.edits)]
        self.findings[-1].solution = "\n".join(right) or self.findings[-1].solution

    # ---- the order of questions ---------------------------------------------------------------------------
    def run(self) -> list[Finding]:
        outcomes = self.learner.values()
        if all(o.arrays is None and not (o.record and "value" in o.record) for o in outcomes):
            return [self.cannot_run()]
        self.stopped()
        if self.kind == "causal_mask":
            self.causal()
            return self.findings
        plain, masked = self.group("plain"), self.group("masked")
        batch = self.group("batch", masked=False)
        if any(o.record.get("lifted") for o in outcomes):
            self.tell("property-needs-batch", "It works with a batch axis only, not in 2-D.",
                      hint="`...` or negative axes make one program serve all ranks.", severity="note")
        if self.wrong_type(plain):
            return self.findings
        formula, mask_formula = self.formulas(plain, batch, masked)
        found = (*(formula or ()), *(mask_formula or ()))
        for mutant, edit in sorted(found, key=self.position):
            where = masked if mutants.touches_mask(edit) else plain
            others = tuple(e for e in self.edits if e is not edit)
            shows = [p for p in where if not self.agrees_with(p, others)]
            self.tell_mutant(mutant, self.first_wrong(shows) or self.first_wrong([*where, *batch]))
        self.inputs()
        if formula is None or mask_formula is None:
            self.stateful()
        if formula is None:
            self.unknown(plain)
        elif mask_formula is None:
            self.unknown_mask(masked)
        if formula is not None:
            self.large()
            self.leading_axes(batch)
        if formula is not None and mask_formula is not None:
            self.fills()
            self.small_print(found)
        self.dtypes()
        last = [m.id for m in MUTANTS if m.severity == "note"]
        last.sort(key=["mask-rank", "mask-after-softmax-renormalised"].__contains__, reverse=True)
        return sorted(self.findings, key=lambda f: (f.severity == "note") * (
            1 + (last.index(f.id) if f.id in last else len(last))))

    def position(self, form: Form) -> int:
        """Where in the program an edit sits: mistakes are mended in the order of the data."""
        names = list(mutants.lines_named(self.kind))
        return min((names.index(n) for n in form[1] if n in names), default=0)

    # ---- known mistakes -----------------------------------------------------------------------------------
    def formulas(self, plain: list[Probe], batch: list[Probe], masked: list[Probe]) -> tuple[
            tuple[Form, ...] | None, tuple[Form, ...] | None]:
        """The mutants behind the answers without a mask, and those that come on top with one."""
        candidates = self.explain(plain, masked=False)
        candidates.sort(key=lambda formula: not self.also(formula, batch))
        for formula in candidates:
            self.edits = tuple(edit for _, edit in formula)
            with_mask = self.explain(masked, masked=True) if masked else [()]
            if with_mask:
                self.edits += tuple(edit for _, edit in with_mask[0])
                return formula, with_mask[0]
        self.edits = tuple(edit for _, edit in candidates[0]) if candidates else ()
        return (candidates[0] if candidates else None), None

    def explain(self, probes: list[Probe], masked: bool) -> list[tuple[Form, ...]]:
        """No mutant, one, or two of them: the fewest that give the learner's outcome on every probe."""
        ordered, known = sorted(probes, key=lambda p: p.size), forms(self.kind, masked)
        often = [form for form in known if form[1] in form[0].edits[:PAIRED] and "when" not in form[1]]
        for combinations_of in ([()], combinations(known, 1), combinations(often, 2)):
            tried = (self.fits(combination, ordered) for combination in combinations_of)
            found = [combination for combination in tried if combination is not None]
            if found:
                return found
        return []

    def fits(self, combination: tuple[Form, ...], probes: list[Probe]) -> tuple[Form, ...] | None:
        """The combination, with its fill filled in, if it agrees with the learner on all these probes."""
        if len({mutant.id for mutant, _ in combination}) < len(combination):
            return None
        edits = (*self.edits, *(edit for _, edit in combination))
        text = mutants.source(self.kind, edits)
        if text is None:
            return None
        if FILL in text:
            value = self.fill(edits, probes)
            if value is None:
                return None
            put = lambda edit: {name: new.replace(FILL, value) for name, new in edit.items()}
            combination = tuple((mutant, put(edit)) for mutant, edit in combination)
        more = tuple(edit for _, edit in combination)
        if not all(self.agrees(p, *more) for p in probes):
            return None
        told = [c for p in probes if (c := evaluate(self.kind, (*self.edits, *more), p))]
        if any(np.isfinite(array).any() for arrays in told for array in arrays) or not combination:
            return combination
        silent = [self.learner[p.name].arrays for p in probes]  # NaN throughout, then the learner's too
        return combination if told and not any(a and np.isfinite(a[0]).any() for a in silent) else None

    def also(self, formula: tuple[Form, ...], batch: list[Probe]) -> bool:
        """Whether the formula holds with leading axes too, where they work."""
        return all(self.broken(p) or self.agrees(p, *(edit for _, edit in formula)) for p in batch)

    def fill(self, edits: tuple[Edit, ...], probes: list[Probe]) -> str | None:
        """The number in place of masked scores that comes nearest to the learner's output."""
        probe = next((p for p in probes if not self.broken(p) and not self.is_right(p)), None)
        target = self.learner[probe.name].arrays if probe else None
        if probe is None or target is None or not finite(target):
            return None

        def distance(value: float) -> float:
            candidate = evaluate(self.kind, edits, probe, value)
            if candidate is None or shapes(candidate) != shapes(target):
                return np.inf
            return sum(float(np.nansum((a - b) ** 2)) for a, b in zip(candidate, target))

        centre, width, total = -7.0, 8.0, sum(float(np.sum(a**2)) for a in target)
        for enough in (0.05, 2e-3, 1e-4, *[1e-4] * 6):  # a grid of 17, then a finer one around its best point
            centre = min(np.linspace(centre - width, centre + width, 17), key=distance)
            if not distance(centre) < enough * total:
                return None
            width *= 0.15
        return f"{centre:.9g}"

    def large(self) -> None:
        """Scores up to ±100000, judged against the formula found."""
        for probe in self.group("large"):
            outcome, expected = self.learner[probe.name], evaluate(self.kind, self.edits, probe)
            if expected is None or not finite(expected) or self.agrees(probe):
                continue
            if outcome.arrays is not None and finite(outcome.arrays):
                self.tell("property-large-scores", "Scores up to ±100000 give wrong, though finite, numbers.",
                          probe, hint="Is anything clipped, or kept in float16?", lesson=ROWS)
            elif outcome.arrays is None or not np.isfinite(outcome.arrays[0]).all(axis=-1).any():
                self.tell_mutant(BY_ID["no-max-subtraction"], probe)
            elif "no-max-subtraction" not in self.ids():
                self.tell("property-finite-on-large-logits",
                          "Rows whose scores lie far below another row's give NaN: 0 / 0 after exp.", probe,
                          hint="Is it each row's own maximum that you subtract?", lesson=ROWS)

    def ids(self) -> list[str]:
        return [finding.id for finding in self.findings]

    def fills(self) -> None:
        """Low allowed scores, high forbidden ones, and rows without an allowed key."""
        if any(edit.keys() & {"mask", "when"} for edit in self.edits):
            return
        small, finite_fill = BY_ID["mask-fill-small"], BY_ID["mask-fill-finite"]
        tiny = [{"mask": edit["mask"].replace(FILL, "-1e4")} for edit in small.edits[:2]]
        for probe in self.group("fill", "dominated"):
            expected = evaluate(self.kind, self.edits, probe)
            if expected is None or not finite(expected) or self.agrees(probe):
                continue
            if any(self.agrees(probe, edit, fully=True) for edit in tiny):
                self.tell_mutant(small, probe)
            elif "no-max-subtraction" in self.ids():
                continue
            elif self.lost_rows(probe):
                self.tell_mutant(BY_ID["mask-after-softmax-renormalised"], probe)
            else:
                self.tell("property-mask-extremes", "With scores of ±100000 in a masked row the result is wrong.",
                          probe, hint="Which masked score could still win, which allowed one could vanish?",
                          lesson=CAUSAL)
        if self.edits or small.id in self.ids():
            return
        for probe in self.group("finite"):
            if not self.is_right(probe) and any(self.agrees(probe, edit) for edit in finite_fill.edits):
                self.tell_mutant(finite_fill, probe)
        self.empty_row()

    def lost_rows(self, probe: Probe) -> bool:
        """Rows whose allowed scores underflowed are NaN or 0; all others are as they should be."""
        arrays, right = self.learner[probe.name].arrays, self.right[probe.name]
        if arrays is None or right is None or shapes(arrays) != shapes(right):
            return False
        lost = (np.isnan(arrays[0]) | (arrays[0] == 0)).all(axis=-1)
        return bool(lost.any()) and close((arrays[0][~lost],), (right[0][~lost],))

    def empty_row(self) -> None:
        for probe in self.group("empty"):
            outcome, expected = self.learner[probe.name], evaluate(self.kind, self.edits, probe)
            if expected is None:
                continue
            row = int(np.flatnonzero(~probe.args[-1].any(axis=-1))[0])
            if outcome.arrays is None or shapes(outcome.arrays) != shapes(expected):
                self.tell("property-empty-row", f"A query that may attend to nothing: {outcome.problem}.", probe,
                          hint="Conventions differ; zeros are the safest answer.", lesson=CAUSAL, severity="note")
                continue
            own, others = outcome.arrays[0][row], np.delete(outcome.arrays[0], row, axis=0)
            if not close((others,), (np.delete(expected[0], row, axis=0),)):
                self.tell("property-empty-row", "A row that may attend to nothing changes the other rows.", probe,
                          hint="Which of your numbers are shared by all rows?", lesson=CAUSAL)
            elif np.isnan(own).any():
                self.tell_mutant(BY_ID["empty-row-nan"], probe)
            elif any(self.agrees(probe, edit) and np.abs(own).max() > 0
                     for edit in BY_ID["mask-fill-finite"].edits):
                self.tell_mutant(BY_ID["mask-fill-finite"], probe)
            else:
                what = "gives zeros, as in tinyattn" if not own.any() else "gives numbers of its own"
                self.tell("property-empty-row", f"A query that may attend to nothing {what}; conventions differ.",
                          probe, lesson=CAUSAL, severity="note")

    def leading_axes(self, unmasked: list[Probe]) -> None:
        batch = self.group("batch")
        if not batch:
            return
        if self.broken(batch[0]):
            problem = self.learner[batch[0].name].problem or "it returned the wrong shape"
            if self.learner[batch[0].name].raised:
                self.tell("property-leading-axes", f"Works in 2-D; with a batch axis: {problem}. A bonus.", batch[0],
                          hint="`.T` reverses all axes; swapaxes(-1, -2) and axis=-1 serve every rank.",
                          severity="note")
                return
        raised = [p for p in batch if self.learner[p.name].raised]
        wrong = [p for p in batch if p not in raised and not self.agrees(p)]
        for form in forms(self.kind, False) if wrong else ():
            ran = [p for p in unmasked if p not in raised]
            if all(self.agrees(p, form[1]) for p in ran) and not all(map(self.broken, ran)):
                what = f"Right in 2-D, but with a batch axis {form[0].what}."
                self.tell_mutant(form[0], wrong[0], message=what)
                return
        if wrong:
            self.tell("property-leading-axes", "Right in 2-D, but silently wrong with a leading axis.", wrong[0],
                      hint="Which axis does each of your operations mean, counted from the end?")
        elif raised:
            problem = self.learner[raised[0].name].problem
            self.tell("property-leading-axes", f"Not with every leading axis: {problem}. A bonus.", raised[0],
                      hint="Count axes from the end.", severity="note")
        for probe in self.group("per-entry"):
            if not wrong and not raised and not self.agrees(probe):
                self.tell_mutant(BY_ID["mask-rank"], probe)
        for probe in self.group("broadcast"):
            if self.learner[probe.name].raised or self.agrees(probe):
                continue
            severity = "note" if self.broken(probe) else "bug"  # of another shape: it shows at once
            self.tell_mutant(BY_ID["backward-broadcast-not-summed"], probe, severity)

    # ---- unknown mistakes ---------------------------------------------------------------------------------
    def unknown(self, plain: list[Probe]) -> None:
        """The properties that fail, most telling first; at the least, that the numbers are wrong."""
        before = len(self.findings)
        self.crashes(plain)
        ran = [p for p in plain if self.learner[p.name].arrays is not None]
        odd = [p for p in ran if self.broken(p)]
        if odd:
            got, want = (shapes(x[odd[0].name]) for x in ({n: o.arrays for n, o in self.learner.items()}, self.right))
            self.tell("property-shape", f"The output has shape {got}, where {want} is due.".replace("[", "").replace("]", ""),
                      odd[0], hint="Follow the shapes: (n, dk) @ (dk, m) → (n, m), then @ (m, dv) → (n, dv).")
        fair = [p for p in ran if not self.broken(p)]
        if "property-same-answer-twice" in self.ids():
            return
        if sum(map(self.near, fair)) > 0.8 * len(plain) and len(self.findings) == before:
            self.tell("property-precision", "The numbers are nearly right: to about three digits only.",
                      self.first_wrong(fair), hint="Is something rounded, kept in float16, or added for safety?")
            return
        self.properties()
        for probe in self.group("large"):
            arrays = self.learner[probe.name].arrays
            if arrays is not None and not finite(arrays):
                self.tell("property-finite-on-large-logits", "Scores up to ±100000 give NaN or inf.", probe,
                          hint="softmax(s) = softmax(s − c): which c makes overflow impossible?", lesson=ROWS)
        if len(self.findings) == before or self.kind.endswith("backward"):
            self.wrong_values(fair)

    def near(self, probe: Probe) -> bool:
        arrays, right = self.learner[probe.name].arrays, self.right[probe.name]
        return arrays is not None and right is not None and close(arrays, right, 5e-3)

    def wrong_values(self, probes: list[Probe]) -> None:
        if not self.kind.endswith("backward"):
            self.tell("property-wrong-values", "The output is wrong, in a way that no known mistake explains.",
                      self.first_wrong(probes), hint="Do the smallest case by hand, one step at a time.")
            return
        for i, name in enumerate(("dQ", "dK", "dV")):
            pairs = {p.name: (self.learner[p.name].arrays, self.right[p.name]) for p in probes}
            wrong = [p for p in probes if (pair := pairs[p.name]) and pair[0] and pair[1]
                     and not close(pair[0][i : i + 1], pair[1][i : i + 1], 1e-4)]
            if wrong:
                self.tell(f"property-gradient-{name}", f"{name} does not agree with finite differences of the loss.",
                          wrong[0], hint=f"Write the chain rule from the output down to {name[1:]}, shapes included.")

    def crashes(self, probes: list[Probe]) -> None:
        raised = [p for p in probes if self.learner[p.name].raised]
        if raised:
            square = all(len({np.shape(a)[-2:] for a in p.args[:2]}) > 1 for p in raised)
            where = f'{"with n ≠ m " if square else ""}(input "{raised[0].name}")'
            self.tell("property-crash", f"It raises {where}: {self.learner[raised[0].name].problem}.", raised[0],
                      hint="Print the shapes on the line that failed.")

    def unknown_mask(self, masked: list[Probe]) -> None:
        before = len(self.findings)
        if all(self.learner[p.name].raised for p in masked):
            problem = self.learner[masked[0].name].problem
            text = "It takes no mask yet" if "positional argument" in problem else "With a mask it raises"
            self.tell("property-mask-crash", f"{text}: {problem}.", masked[0], lesson=CAUSAL,
                      hint="The mask is the next argument, None when there is none.")
            return
        self.crashes(masked)
        self.properties("causal base", "masked base")
        if len(self.findings) == before:
            self.tell("property-mask", "With a mask the output is wrong, in a way that no known mistake explains.",
                      self.first_wrong([p for p in masked if not self.broken(p)]), lesson=CAUSAL,
                      hint="Work out one masked row by hand: which keys are left, and what do they sum to?")

    def properties(self, *starts: str) -> None:
        """Relations between the answers to two related calls."""
        for rule in PROPERTIES:
            if rule.first not in self.probes or rule.second not in self.probes:
                continue
            if starts and rule.first not in starts and rule.second not in starts:
                continue
            first, second = self.learner[rule.first].arrays, self.learner[rule.second].arrays
            probe = self.probes[rule.second]
            if first is None or second is None or self.broken(probe) or self.broken(self.probes[rule.first]):
                continue
            expected = rule.expected(first[0])
            given = second[0][: len(expected)]
            if close((given,), (expected,), 1e-4) == rule.must_differ:
                self.tell(rule.id, rule.message, probe, hint=rule.hint, lesson=rule.lesson,
                          expected=None if rule.must_differ or len(first) > 1 else (expected,))
        if "scale at dk = 4" in self.probes and not starts:
            self.scale()

    def scale(self) -> None:
        """The factor on q·k, read off two weights at two widths: 1/√dk has exponent −1/2."""
        factors = {}
        for dk in (4, 64):
            arrays = self.learner[f"scale at dk = {dk}"].arrays
            if arrays is None or arrays[0].shape != (1, 2) or not (arrays[0] > 0).all():
                return
            weights = arrays[0][0]
            factors[dk] = float(np.log(weights[0] / weights[1])) / (0.5 * np.sqrt(dk))
        if min(factors.values()) <= 0:
            return
        exponent = np.log(factors[64] / factors[4]) / np.log(16)
        probe = self.probes["scale at dk = 64"]
        if abs(exponent + 0.5) > 0.02:
            self.tell("property-scale-exponent", f"The scores grow like dk^{0.5 + exponent:.2f}: the factor on q·k goes "
                      f"like dk^{exponent:.2f}, where dk^−0.50 is due.", probe, lesson=SCALE,
                      hint="What is the standard deviation of a sum of dk products?")
        elif abs(factors[4] * 2 - 1) > 1e-3:
            self.tell("property-scale-factor", f"All scores are {factors[4] * 2:.4g} times what they should be.", probe,
                      lesson=SCALE, hint="Is there another base than e, or another constant, in your softmax?")

    # ---- everything else ----------------------------------------------------------------------------------
    def cannot_run(self) -> Finding:
        outcome = next((o for o in self.learner.values() if o.record), Outcome(None, "it was not reached"))
        error = outcome.record.get("error", "")
        id = {"NotImplementedError": "error-not-written", "Stopped": "error-stopped"}.get(error, "error-exception")
        text = "Not written yet." if "not-written" in id else f"No call of it came back: {outcome.problem}."
        return Finding(id, "bug", self.function, text, "Run it on the smallest input, print the shapes.")

    def stopped(self) -> None:
        for probe in self.probes.values():
            outcome = self.learner[probe.name]
            if outcome.record.get("error") == "Stopped":
                self.tell("property-stopped", f'On the input "{probe.name}", {outcome.record["message"]}.', probe,
                          hint="An endless loop? os._exit? A crash in compiled code?")

    def wrong_type(self, plain: list[Probe]) -> bool:
        """Returned something else than arrays, or the pair the wrong way round."""
        outcomes = [self.learner[p.name] for p in plain]
        if any(o.swapped for o in outcomes):
            self.tell("property-return-order", "It returns (weights, out), where out or (out, weights) is due.",
                      hint="The output comes first.")
            return True
        odd = next((o for o in outcomes if o.arrays is None and "value" in o.record), None)
        if odd is None:
            kept = next((o.dtype for o in outcomes if o.dtype and o.dtype not in ("float64", "float32")), None)
            if kept:
                self.tell("property-dtype", f"float64 goes in and {kept} comes out.", plain[0],
                          hint="Where do you convert?")
            return False
        want = "a tuple of three arrays dQ, dK, dV" if self.kind.endswith("backward") else "one array, or (out, weights)"
        name = "nothing" if odd.record["value"]["type"] == "NoneType" else "type"
        where = next(p for p in plain if self.learner[p.name] is odd)
        right = self.right[where.name]
        assert right is not None
        message = f"{odd.problem[0].upper()}{odd.problem[1:]}. Due is {want}, of shape {right[0].shape}."
        if name == "nothing":
            message = f"Your function returned nothing (None). Due is {want}, of shape {right[0].shape}."
        self.tell(f"property-returns-{name}", message, where, hint="Look at the last line of the function.")
        return True

    def inputs(self) -> None:
        """Inputs are left alone."""
        for probe in self.probes.values():
            record = self.learner[probe.name].record
            names = KINDS[self.kind]
            read_only = probe.read_only and self.learner[probe.name].raised and not self.learner["base"].raised
            if record.get("changed"):
                changed = ", ".join(names[i] for i in record["changed"])
                what = f"It changes {changed} in place, so a second call with the same arrays differs."
            elif read_only and "read-only" in record["message"]:
                what = f"It writes into an array that was handed in: {self.learner[probe.name].problem}."
            else:
                continue
            self.tell_mutant(BY_ID["inputs-modified"], probe, message=what)

    def stateful(self) -> None:
        """The same call gives the same answer, and another mask another one."""
        again, base = self.learner["base, once more"].arrays, self.learner["base"].arrays
        if base is not None and again is not None and not close(again, base, 1e-12):
            self.tell("property-same-answer-twice", "The same call gives another answer the second time.",
                      self.probes["base"], hint="Randomness, or something kept from the call before?", expected=base)
        names = ("mask, square, not causal", "mask, square, another one")
        if all(name in self.probes for name in names):
            first, second = (self.probes[name] for name in names)
            stale = self.learner[second.name].arrays
            if stale is not None and self.is_right(first) and close(stale, self.learner[first.name].arrays or ()):
                self.tell("property-stale-mask", "A second mask of the same shape gives the first one's answer.",
                          second, hint="Something is kept between calls. What is its key?", lesson=CAUSAL)

    def small_print(self, formula: tuple[Form, ...]) -> None:
        """Weights that do not fit the output, float masks, head counts."""
        for probe in self.group("divides"):
            if not self.learner[probe.name].raised and self.learner[probe.name].record:
                self.tell("property-heads-must-divide", "num_heads = 4 with d_model = 6 must raise; it returns "
                          "something, which silently drops or mixes features.", probe, lesson=HEADS,
                          hint="What is 6 / 4 features per head?")
        if formula != ():
            return
        if self.kind in ("scaled_dot_product_attention", "cross_attention"):
            self.check_weights()
        for probe in self.group("float-mask"):
            twin, outcome = self.probes["its boolean twin"], self.learner[probe.name]
            right = self.right[twin.name]
            if outcome.arrays is None or right is None or not close(outcome.arrays, right):
                what = outcome.problem or "it is read as if it were boolean"
                self.tell("property-float-mask", f"A float mask of 0 and −inf, to be added, is a bonus: {what}.",
                          hint="mask.dtype tells the two conventions apart.", lesson=CAUSAL, severity="note")

    def dtypes(self) -> None:
        for probe in self.group("float32"):
            dtype, wide = self.learner[probe.name].dtype, self.learner["base"].dtype
            if wide == "float32":
                self.tell("property-dtype", "float64 goes in and float32 comes out.", severity="note")
            elif dtype == "float64":
                self.tell("property-dtype", "float32 goes in and float64 comes out (np.sqrt(dk), for one, is a "
                          "float64 that takes an array along; math.sqrt is not).", severity="note")

    def check_weights(self) -> None:
        for probe in self.group("plain", "masked"):
            weights = self.learner[probe.name].weights
            if weights is None:
                continue
            eye = np.eye(probe.args[1].shape[0])
            args = (*probe.args[:2], eye, *probe.args[3:])
            if self.kind == "cross_attention":
                X, context, Wq, Wk, _ = probe.args
                args = X @ Wq, context @ Wk, eye
            right = evaluate("scaled_dot_product_attention", (), Probe("", "", args))
            assert right is not None
            if not close((weights,), right):
                self.tell("property-weights", "The output is right; the weights returned with it are not those used.",
                          hint="Return the very array that multiplies V.", lesson=ROWS)
                self.findings[-1].evidence = {
                    "input": probe.name, "arguments": dict(zip(KINDS[self.kind], probe.args)),
                    "yours": {"weights": weights}, "right": {"weights": right[0]}}
                return

    def causal(self) -> None:
        """causal_mask: boolean (either convention) or additive, and which triangle."""
        patterns: dict[str, Callable[[int], Array]] = {
            "": lambda n: np.tri(n, dtype=bool),
            "property-mask-convention": lambda n: ~np.tri(n, dtype=bool),
            "causal-excludes-self": lambda n: np.tri(n, k=-1, dtype=bool),
            "causal-sees-next": lambda n: np.tri(n, k=1, dtype=bool),
            "mask-transposed": lambda n: np.tri(n, dtype=bool).T,
        }
        probe = self.probes["n = 3"]
        masks: dict[int, Array] = {}
        for p in self.probes.values():
            n, outcome = p.args[0], self.learner[p.name]
            if outcome.arrays is None or outcome.arrays[0].size != n * n or outcome.arrays[0].shape[-1:] != (n,):
                got = outcome.problem or f"it returned shape {outcome.arrays and outcome.arrays[0].shape}"
                self.tell("property-shape", f"causal_mask({n}): {got}; an ({n}, {n}) array is due.", p, lesson=CAUSAL)
                return
            masks[n] = outcome.arrays[0].reshape(n, n)
        boolean = self.learner[probe.name].dtype == "bool"
        largest = masks[17]
        if not boolean:
            if np.isnan(largest).any():
                self.tell_mutant(BY_ID["mask-times-inf"], probe)
                return
            if set(np.unique(largest)) <= {0.0, 1.0} and largest.any():
                self.tell_mutant(BY_ID["mask-as-bias"], probe, message="It holds the numbers 1 and 0: added to the "
                                 "scores, that forbids nothing and only nudges.")
                return
            fill = float(largest.max(where=largest != 0, initial=-np.inf))
            if fill > 1e-3:
                self.tell("property-mask-values", f"Forbidden keys get {fill:g} added: they would win.", probe,
                          hint="Which sign does −∞ have?", lesson=CAUSAL)
            elif fill > -1e-3:
                self.tell_mutant(BY_ID["mask-fill-zero"], probe)
            elif fill >= -1e5:
                self.tell_mutant(BY_ID["mask-fill-small"], probe)
            elif fill > -np.inf:
                self.tell_mutant(BY_ID["mask-fill-finite"], probe)
        allowed = {n: mask != 0 if boolean else mask == 0 for n, mask in masks.items()}
        named = [id for id, triangle in patterns.items()
                 if all((triangle(n) == a).all() for n, a in allowed.items())]
        named += [id for id, triangle in patterns.items() if id.startswith("causal")
                  and all((triangle(n) == ~a).all() for n, a in allowed.items())]
        if not named:
            self.tell("property-wrong-values", "This is not the triangle j ≤ i.", probe, lesson=CAUSAL,
                      hint="Print it for n = 3: row i says what position i may see.")
        elif named[0] in BY_ID:
            self.tell_mutant(BY_ID[named[0]], probe)
        elif named[0] and not boolean:
            self.tell_mutant(BY_ID["mask-inverted"], probe)
        elif named[0]:
            self.tell(named[0], "True means forbidden here, as in torch.nn.MultiheadAttention; tinyattn and "
                      "F.scaled_dot_product_attention take True as allowed.", probe, severity="note", lesson=CAUSAL,
                      hint="Give your own attention the convention that it expects.")
        self.findings.sort(key=lambda f: f.severity)


@dataclass(frozen=True)
class Property:
    """What must hold between the answer to one call and the answer to a related one."""

    id: str
    first: str
    second: str
    expected: Callable[[Array], Array]
    message: str
    hint: str
    lesson: str
    must_differ: bool = False


PROPERTIES = [
    Property("property-row-sums", "base", "V = 1", np.ones_like, "A row's weights do not sum to 1: with V = 1 "
             "the output must be 1.", "Add up one row of your weights.", ROWS),
    Property("property-ignores-Q", "base", "Q changed", lambda y: y, "Another Q changes nothing.",
             "Where is Q used?", SCORE, must_differ=True),
    Property("property-ignores-K", "base", "K changed", lambda y: y, "Another K changes nothing.",
             "Where is K used?", SCORE, must_differ=True),
    Property("property-ignores-V", "base", "V changed", lambda y: y, "Another V changes nothing.",
             "Where is V used?", THREE, must_differ=True),
    Property("property-shift-invariance", "base", "scores shifted", lambda y: y, "Adding the same number to all "
             "scores of a row changes the answer; softmax(s + c) = softmax(s).",
             "Does anything but the scores' differences enter?", ROWS),
    Property("property-permuted-keys", "base", "keys permuted", lambda y: y, "Keys and values in another order "
             "change the answer: attention finds by content, not by place.",
             "Is a key singled out by its index, or paired with another's value?", SCORE),
    Property("property-permuted-queries", "base", "queries permuted",
             lambda y: y[[2, 0, 3, 1] if len(y) == 4 else [2, 0, 1]], "Queries in another order do not give the "
             "same rows in that order: each query must be answered on its own.",
             "Does one query's row depend on another's?", SCORE),
    Property("property-ignores-mask", "base", "masked base", lambda y: y, "A mask changes nothing.",
             "Where is the mask used?", CAUSAL, must_differ=True),
    Property("property-future-leaks", "causal base", "the future changed", lambda y: y[:-1], "Under a causal "
             "mask, changing the last position changes the answers before it: the future leaks.",
             "What weight does a forbidden key get, exactly?", CAUSAL),
    Property("property-masked-keys-matter", "masked base", "what row 0 may not see changed", lambda y: y[:1],
             "Row 0 depends on keys that its mask forbids.", "What weight does a forbidden key get, exactly?",
             CAUSAL),
]


def diagnose(kind: str, function: str, probes: Iterable[Probe], records: dict[str, Record]) -> list[Finding]:
    """All that is to be said about one function, the likeliest cause first."""
    return Diagnosis(kind, function, probes, records).run()

