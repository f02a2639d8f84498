"""Known mistakes: which edits of the right program give exactly the learner's answers?"""

from functools import cache
from itertools import combinations

import numpy as np

from ..known import mutants
from ..known.mutants import FILL, MUTANTS, Edit, Mutant
from ..known.probes import Probe
from .case import Case
from .outcome import evaluate, finite, shapes

Form = tuple[Mutant, Edit]
Combination = tuple[Form, ...]
PAIRED = 4  # of each mutant's edits, so many are tried together with another mutant's (half, if fitted)
SILENT = {m.id for m in MUTANTS if m.severity == "note"} | {
    "no-max-subtraction",
    "inputs-modified",
    "property-stale-mask",
}


@cache
def forms(kind: str, masked: bool) -> Combination:
    """All distinct edits that apply to this function, and show only with a mask (or also without)."""
    named, seen, found = mutants.lines_named(kind), set(), []
    for mutant in MUTANTS:
        for edit in mutant.edits if mutant.id not in SILENT else ():
            text = mutants.source(kind, (edit,))
            if edit.keys() & named.keys() and text not in seen and mutants.shows(edit, kind, masked):
                seen.add(text)
                found.append((mutant, edit))
    return tuple(found)


def formulas(
    case: Case, plain: list[Probe], batch: list[Probe], masked: list[Probe]
) -> tuple[Combination | None, Combination | None]:
    """The mutants behind the answers without a mask, and those that come on top with one."""
    candidates = explain(case, plain, masked=False)
    candidates.sort(key=lambda formula: not also(case, formula, batch))
    for formula in candidates:
        case.edits = tuple(edit for _, edit in formula)
        if fits(case, (), masked) is not None:
            return formula, ()
    for formula in candidates:
        case.edits = tuple(edit for _, edit in formula)
        with_mask = explain(case, masked, masked=True)
        if with_mask:
            case.edits += tuple(edit for _, edit in with_mask[0])
            return formula, with_mask[0]
    case.edits = tuple(edit for _, edit in candidates[0]) if candidates else ()
    return (candidates[0] if candidates else None), None


def possible(case: Case, edit: Edit) -> bool:
    """Whether a program of this form has the lines that an edit changes."""
    heads, out = edit.keys() & {"split", "join", "share"}, "output" in edit
    return case.form is None or not ((heads and not case.form.heads) or (out and not case.form.output))


def explain(case: Case, probes: list[Probe], masked: bool) -> list[Combination]:
    """No mutant, one, or two of them: the fewest that give the learner's outcome on every probe."""
    ordered = sorted(probes, key=lambda p: p.size)
    known = tuple(one for one in forms(case.kind, masked) if possible(case, one[1]))
    often = [
        (mutant, edit)
        for mutant, edit in known
        if edit in mutant.edits[: PAIRED // 2 if FILL in str(edit) else PAIRED]
        and "when" not in edit
        and "ones_like" not in str(edit)
    ]
    for combinations_of in ([()], combinations(known, 1), combinations(often, 2)):
        tried = (fits(case, combination, ordered) for combination in combinations_of)
        found = [combination for combination in tried if combination is not None]
        if found:
            return sorted(found, key=lambda combination: -shared(case, combination, probes))
    return []


def fits(case: Case, combination: Combination, probes: list[Probe]) -> Combination | None:
    """The combination, with its fill filled in, if it agrees with the learner on all these probes."""
    if len({mutant.id for mutant, _ in combination}) < len(combination):
        return None
    edits = (*case.edits, *(edit for _, edit in combination))
    text = mutants.source(case.kind, edits)
    if text is None:
        return None
    if FILL in text:
        value = fill(case, edits, probes)
        if value is None:
            return None
        combination = tuple(
            (mutant, {name: new.replace(FILL, value) for name, new in edit.items()}) for mutant, edit in combination
        )
    agrees = all(case.agrees(p, *(edit for _, edit in combination)) for p in probes)
    return combination if agrees and (not combination or shared(case, combination, probes) > 0.5) else None


def shared(case: Case, combination: Combination, probes: list[Probe]) -> float:
    """The share of numbers that are the same, NaN being the same as NaN: of several explanations, the fullest
    is told, and one that leaves most numbers free is none."""
    edits, same, total = (*case.edits, *(edit for _, edit in combination)), 0, 1
    for probe in probes:
        candidate, arrays = evaluate(case.kind, edits, probe), case.learner[probe.name].arrays
        if candidate and arrays and shapes(candidate) == shapes(arrays):
            same += sum(int(np.isclose(a, c, 1e-4, equal_nan=True).sum()) for a, c in zip(arrays, candidate))
            total += sum(a.size for a in arrays)
    return same / total


def also(case: Case, formula: Combination, batch: list[Probe]) -> bool:
    """Whether the formula holds with leading axes too, where they work."""
    return all(case.raised(p) or case.agrees(p, *(edit for _, edit in formula)) for p in batch)


def fill(case: Case, edits: tuple[Edit, ...], probes: list[Probe]) -> str | None:
    """The number in place of masked scores that comes nearest to the learner's output."""
    chosen = [p for p in probes if not case.broken(p) and not case.is_right(p)][:2]
    targets = [arrays for p in chosen if (arrays := case.learner[p.name].arrays) and finite(arrays)]
    if not targets or len(targets) < len(chosen):
        return None

    def distance(value: float) -> float:
        total = 0.0
        for probe, target in zip(chosen, targets):
            candidate = evaluate(case.kind, edits, probe, value)
            if candidate is None or shapes(candidate) != shapes(target):
                return np.inf
            total += sum(float(np.nansum((a - b) ** 2)) for a, b in zip(candidate, target))
        return total

    centre, width, total = -7.0, 8.0, sum(float(np.sum(a**2)) for target in targets for a in target)
    for enough in (0.05, 2e-3, 1e-4, *[1e-4] * 6):  # a grid of 17, then a finer one around its best point
        centre = min(np.linspace(centre - width, centre + width, 17), key=distance)
        if not distance(centre) < enough * total:
            return None
        width *= 0.15
    return f"{centre:.9g}"


def position(case: Case, form: Form) -> int:
    """Where in the program an edit sits: mistakes are mended in the order of the data."""
    names = list(mutants.lines_named(case.kind))
    return min((names.index(n) for n in form[1] if n in names), default=0)
