"""From what a learner's function returned to what is wrong with it.

1. Known mistakes. The function's outputs are compared with those of the right program, of each mutant, and
   of each pair of mutants: first without masks (which formula is it?), then, given that, with masks.
   What agrees on every probe is named.
2. Given the formula found, the extreme probes: large scores, low scores, empty rows, leading axes, dtypes.
3. Unknown mistakes: the properties of attention that fail, each on the smallest input that shows it.
"""

from collections.abc import Callable, Iterable

import numpy as np

from . import mutants
from .case import Case, Finding
from .extremes import dtypes, fills, large, leading_axes, small_print
from .known import formulas, position
from .mutants import BY_ID, CAUSAL, MUTANTS
from .outcome import Outcome, Record
from .probes import KINDS, Probe
from .reference import Array
from .unknown import stateful, unknown, unknown_mask


def run(case: Case) -> list[Finding]:
    outcomes = case.learner.values()
    if all(o.arrays is None and not (o.record and "value" in o.record) for o in outcomes):
        return [cannot_run(case)]
    stopped(case)
    if case.kind == "causal_mask":
        causal(case)
        return case.findings
    plain, masked = case.group("plain"), case.group("masked")
    batch = case.group("batch", masked=False)
    if any(o.record.get("lifted") for o in outcomes):
        case.tell(
            "property-needs-batch",
            "It works with a batch axis only, not in 2-D.",
            hint="`...` or negative axes make one program serve all ranks.",
            severity="note",
        )
    if wrong_type(case, plain):
        return case.findings
    formula, mask_formula = formulas(case, plain, batch, masked)
    found = (*(formula or ()), *(mask_formula or ()))
    for mutant, edit in sorted(found, key=lambda form: position(case, form)):
        where = masked if mutants.touches_mask(edit) else plain
        others = tuple(e for e in case.edits if e is not edit)
        shows = [p for p in where if not case.agrees_with(p, others)]
        case.tell_mutant(mutant, case.first_wrong(shows) or case.first_wrong([*where, *batch]))
    inputs(case)
    if formula is None or mask_formula is None:
        stateful(case)
    if formula is None:
        unknown(case, plain)
    elif mask_formula is None:
        unknown_mask(case, masked)
    if formula is not None:
        large(case)
        leading_axes(case, batch)
    if formula is not None and mask_formula is not None:
        fills(case)
        small_print(case, found)
    dtypes(case)
    last = [m.id for m in MUTANTS if m.severity == "note"]
    last.sort(key=["mask-rank", "mask-after-softmax-renormalised"].__contains__, reverse=True)
    return sorted(
        case.findings,
        key=lambda f: (f.severity == "note") * (1 + (last.index(f.id) if f.id in last else len(last))),
    )


def cannot_run(case: Case) -> Finding:
    outcome = next((o for o in case.learner.values() if o.record), Outcome(None, "it was not reached"))
    error = outcome.record.get("error", "")
    id = {"NotImplementedError": "error-not-written", "Stopped": "error-stopped"}.get(
        error, "error-exception"
    )
    text = "Not written yet." if "not-written" in id else f"No call of it came back: {outcome.problem}."
    return Finding(id, "bug", case.function, text, "Run it on the smallest input, print the shapes.")


def stopped(case: Case) -> None:
    for probe in case.probes.values():
        outcome = case.learner[probe.name]
        if outcome.record.get("error") == "Stopped":
            case.tell(
                "property-stopped",
                f'On the input "{probe.name}", {outcome.record["message"]}.',
                probe,
                hint="An endless loop? os._exit? A crash in compiled code?",
            )


def wrong_type(case: Case, plain: list[Probe]) -> bool:
    """Returned something else than arrays, or the pair the wrong way round."""
    outcomes = [case.learner[p.name] for p in plain]
    if any(o.swapped for o in outcomes):
        case.tell(
            "property-return-order",
            "It returns (weights, out), where out or (out, weights) is due.",
            hint="The output comes first.",
        )
        return True
    odd = next((o for o in outcomes if o.arrays is None and "value" in o.record), None)
    if odd is None:
        kept = next((o.dtype for o in outcomes if o.dtype and o.dtype not in ("float64", "float32")), None)
        if kept:
            case.tell(
                "property-dtype",
                f"float64 goes in and {kept} comes out.",
                plain[0],
                hint="Where do you convert?",
            )
        return False
    want = (
        "a tuple of three arrays dQ, dK, dV"
        if case.kind.endswith("backward")
        else "one array, or (out, weights)"
    )
    name = "nothing" if odd.record["value"]["type"] == "NoneType" else "type"
    where = next(p for p in plain if case.learner[p.name] is odd)
    right = case.right[where.name]
    assert right is not None
    message = f"{odd.problem[0].upper()}{odd.problem[1:]}. Due is {want}, of shape {right[0].shape}."
    if name == "nothing":
        message = f"Your function returned nothing (None). Due is {want}, of shape {right[0].shape}."
    case.tell(f"property-returns-{name}", message, where, hint="Look at the last line of the function.")
    return True


def inputs(case: Case) -> None:
    """Inputs are left alone."""
    for probe in case.probes.values():
        record = case.learner[probe.name].record
        names = KINDS[case.kind]
        read_only = probe.read_only and case.learner[probe.name].raised and not case.learner["base"].raised
        if record.get("changed"):
            changed = ", ".join(names[i] for i in record["changed"])
            what = f"It changes {changed} in place, so a second call with the same arrays differs."
        elif read_only and "read-only" in record["message"]:
            what = f"It writes into an array that was handed in: {case.learner[probe.name].problem}."
        else:
            continue
        case.tell_mutant(BY_ID["inputs-modified"], probe, message=what)


def causal(case: Case) -> None:
    """causal_mask: boolean (either convention) or additive, and which triangle."""
    patterns: dict[str, Callable[[int], Array]] = {
        "": lambda n: np.tri(n, dtype=bool),
        "property-mask-convention": lambda n: ~np.tri(n, dtype=bool),
        "causal-excludes-self": lambda n: np.tri(n, k=-1, dtype=bool),
        "causal-sees-next": lambda n: np.tri(n, k=1, dtype=bool),
        "mask-transposed": lambda n: np.tri(n, dtype=bool).T,
    }
    probe = case.probes["n = 3"]
    masks: dict[int, Array] = {}
    for p in case.probes.values():
        n, outcome = p.args[0], case.learner[p.name]
        if outcome.arrays is None or outcome.arrays[0].size != n * n or outcome.arrays[0].shape[-1:] != (n,):
            got = outcome.problem or f"it returned shape {outcome.arrays and outcome.arrays[0].shape}"
            case.tell(
                "property-shape",
                f"causal_mask({n}): {got}; an ({n}, {n}) array is due.",
                p,
                lesson=CAUSAL,
                hint="One row for each position, and one column.",
            )
            return
        masks[n] = outcome.arrays[0].reshape(n, n)
    boolean = case.learner[probe.name].dtype == "bool"
    largest = masks[17]
    if not boolean:
        if np.isnan(largest).any():
            case.tell_mutant(BY_ID["mask-times-inf"], probe)
            return
        if set(np.unique(largest)) <= {0.0, 1.0} and largest.any():
            case.tell_mutant(
                BY_ID["mask-as-bias"],
                probe,
                message="It holds the numbers 1 and 0: added to the "
                "scores, that forbids nothing and only nudges.",
            )
            return
        fill = float(largest.max(where=largest != 0, initial=-np.inf))
        if fill > 1e-3:
            case.tell(
                "property-mask-values",
                f"Forbidden keys get {fill:g} added: they would win.",
                probe,
                hint="Which sign does −∞ have?",
                lesson=CAUSAL,
            )
        elif fill > -1e-3:
            case.tell_mutant(BY_ID["mask-fill-zero"], probe)
        elif fill >= -1e5:
            case.tell_mutant(BY_ID["mask-fill-small"], probe)
        elif fill > -np.inf:
            case.tell_mutant(BY_ID["mask-fill-finite"], probe)
    allowed = {n: mask != 0 if boolean else mask == 0 for n, mask in masks.items()}
    named = [
        id for id, triangle in patterns.items() if all((triangle(n) == a).all() for n, a in allowed.items())
    ]
    named += [
        id
        for id, triangle in patterns.items()
        if id.startswith("causal") and all((triangle(n) == ~a).all() for n, a in allowed.items())
    ]
    if not named:
        case.tell(
            "property-wrong-values",
            "This is not the triangle j ≤ i.",
            probe,
            lesson=CAUSAL,
            hint="Print it for n = 3: row i says what position i may see.",
        )
    elif named[0] in BY_ID:
        case.tell_mutant(BY_ID[named[0]], probe)
    elif named[0] and not boolean:
        case.tell_mutant(BY_ID["mask-inverted"], probe)
    elif named[0]:
        case.tell(
            named[0],
            "True means forbidden here, as in torch.nn.MultiheadAttention; tinyattn and "
            "F.scaled_dot_product_attention take True as allowed.",
            probe,
            severity="note",
            lesson=CAUSAL,
            hint="Give your own attention the convention that it expects.",
        )
    case.findings.sort(key=lambda f: f.severity)


def diagnose(kind: str, function: str, probes: Iterable[Probe], records: dict[str, Record]) -> list[Finding]:
    """All that is to be said about one function, the likeliest cause first."""
    return run(Case(kind, function, probes, records))
