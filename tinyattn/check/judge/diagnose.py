"""From what a learner's function returned to what is wrong with it.

1. Known mistakes. The function's outputs are compared with those of the right program, of each mutant, and
   of each pair of mutants: first without masks (which formula is it?), then, given that, with masks.
   What agrees on every probe is named.
2. Given the formula found, the extreme probes: large scores, low scores, empty rows, leading axes, dtypes.
3. Unknown mistakes: the properties of attention that fail, each on the smallest input that shows it.
"""

from collections.abc import Iterable

from ..known import mutants
from ..known.probes import ARGUMENTS, Limits, Probe
from .case import Case, Finding, sentence
from .causal import causal
from .explain import formulas, position
from .extremes import dtypes, fills, large, leading_axes, small_print
from .outcome import Outcome, Record, close
from .unknown import stateful, unknown, unknown_mask


def diagnose(
    kind: str,
    function: str,
    probes: Iterable[Probe],
    records: dict[str, Record],
    form: Limits | None = None,
    blocked: bool | None = None,
) -> list[Finding]:
    """All that is to be said about one function, the likeliest cause first."""
    return examine(kind, function, probes, records, form, blocked).findings


def examine(
    kind: str,
    function: str,
    probes: Iterable[Probe],
    records: dict[str, Record],
    form: Limits | None = None,
    blocked: bool | None = None,
    words: str = "",
) -> Case:
    """The same, with the answers that it rests on."""
    case = Case(kind, function, probes, records, form, blocked, words)
    if not any("value" in outcome.record for outcome in case.learner.values()):
        case.findings = [cannot_run(case)]
        return case
    for probe in case.probes.values():
        if case.learner[probe.name].record.get("error") == "Stopped":
            problem = case.learner[probe.name].record["message"]
            case.tell("property-stopped", probe, input=probe.name, problem=problem)
    plain, masked = case.group("plain"), case.group("masked")
    if kind == "causal_mask":
        causal(case)
    elif not wrong_type(case, plain):
        formula(case, plain, masked, case.group("batch", masked=False))
    case.findings.sort(key=_weight)
    alone(case)
    return case


def alone(case: Case) -> None:
    """What a mistake does by itself is said where it is the only one."""
    for finding in case.findings:
        mutant = mutants.BY_ID.get(finding.id)
        others = [f for f in case.findings if f.severity == "bug" and f is not finding]
        if mutant and not others and finding.message == sentence(mutant.mistake):
            finding.message = sentence(mutant.what)


def formula(case: Case, plain: list[Probe], masked: list[Probe], batch: list[Probe]) -> None:
    """Which formula it is, with and without masks; then what comes on top, or which properties fail."""
    bare, with_mask = formulas(case, plain, batch, masked)
    found = (*(bare or ()), *(with_mask or ()))
    for mutant, edit in sorted(found, key=lambda form: position(case, form)):
        where = masked if mutants.touches_mask(edit, kind=case.kind) else plain
        others = tuple(e for e in case.edits if e is not edit)
        shows = [p for p in where if not case.agrees_with(p, others)]
        case.because[mutant.id] = edit
        case.tell(mutant.id, case.first_wrong(shows) or case.first_wrong([*where, *batch]))
    inputs(case)
    stateful(case)
    if bare is None:
        unknown(case, plain)
    else:
        if with_mask is None:
            unknown_mask(case, masked)
        elsewhere(case, with_mask is not None)
        large(case)
        leading_axes(case, batch)
        if with_mask is not None:
            fills(case)
            small_print(case, found)
    dtypes(case)


def _weight(finding: Finding) -> int:
    """Bugs in the order in which they were told, then notes, the most particular first."""
    first = ["mask-rank", "mask-after-softmax-renormalised", "mask-fill-finite", "empty-row-nan"]
    if finding.severity == "bug":
        return 0
    if finding.id in first:
        return 1 + first.index(finding.id)
    return 10 + (finding.id not in mutants.BY_ID)


def cannot_run(case: Case) -> Finding:
    """No call came back: why not."""
    outcome = next((o for o in case.learner.values() if o.record), Outcome(None, "it was not reached"))
    error = outcome.record.get("error", "")
    if error == "NotImplementedError":
        return Finding("error-not-written", "bug", case.function, "Not written yet.", "Replace the raise.")
    id = "error-stopped" if error == "Stopped" else "error-exception"
    text = f"No call of it came back: {outcome.problem}."
    return Finding(id, "bug", case.function, text, "Run it on the smallest input, and print the shapes.")


def wrong_type(case: Case, plain: list[Probe]) -> bool:
    """Returned something else than arrays, or the pair the wrong way round; or it wants a batch axis."""
    outcomes = [case.learner[p.name] for p in plain]
    if any(o.record.get("lifted") for o in outcomes):
        case.tell("property-needs-batch", severity="note")
    if any(o.swapped for o in outcomes) and all(_swapped(o) for o in outcomes):
        case.tell("property-return-order")
        return True
    for probe, outcome in zip(plain, outcomes):
        right = case.right[probe.name]
        if outcome.arrays is None and "value" in outcome.record and right is not None:
            backward = mutants.base_kind(case.kind).endswith("backward")
            want = "a tuple of three arrays dQ, dK, dV" if backward else "one array, or (out, weights)"
            nothing = outcome.record["value"]["type"] == "NoneType"
            problem = outcome.problem[0].upper() + outcome.problem[1:]
            case.tell(
                f"property-returns-{'nothing' if nothing else 'type'}",
                probe,
                problem=problem,
                want=f"{want}, of shape {right[0].shape}",
            )
            return True
        if outcome.dtype not in ("", "float64", "float32"):
            case.tell("property-dtype", probe, dtype=outcome.dtype)
    return False


def _swapped(outcome: Outcome) -> bool:
    """Whether an answer may be (weights, out): it is, or its two halves have one shape."""
    if outcome.swapped or outcome.arrays is None or outcome.weights is None:
        return True
    return outcome.arrays[0].shape == outcome.weights.shape


def elsewhere(case: Case, with_masks: bool) -> None:
    """Where the formula is found, the calls that come in pairs and the other kinds of arrays follow it too."""
    for probe in case.group("pair", "float32", "read-only"):
        yours, wanted = case.learner[probe.name].arrays, case.expected(probe)
        masked = len(probe.args) > 3 and str(getattr(probe.args[-1], "dtype", "")) == "bool"
        if wanted is None:
            continue
        if case.raised(probe):
            if probe.group == "float32":
                case.tell("property-elsewhere/raises", probe, input=probe.name, problem=case.problem(probe))
        elif yours and wanted and (with_masks or not masked) and not close(yours, wanted, 1e-3):
            case.tell("property-elsewhere", probe, input=probe.name)


def inputs(case: Case) -> None:
    """Inputs are left alone, and may be read-only."""
    for probe in case.probes.values():
        record = case.learner[probe.name].record
        if record.get("changed"):
            names = ", ".join(ARGUMENTS[mutants.base_kind(case.kind)][i] for i in record["changed"])
            what = f"It changes {names} in place, so a second call with the same arrays differs."
            case.tell("inputs-modified", probe, message=what)
        elif probe.read_only and "read-only" in record.get("message", ""):
            what = f"It writes into an array that was handed in: {case.problem(probe)}."
            case.tell("inputs-modified", probe, message=what)
