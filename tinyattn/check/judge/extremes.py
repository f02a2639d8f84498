"""What comes on top of the formula: large scores, low ones, empty rows, leading axes, dtypes."""

import numpy as np

from ..known import mutants
from ..known.mutants import BY_ID, FILL
from ..known.probes import Probe
from .case import Case, shown
from .explain import Form, forms
from .outcome import close, evaluate, finite


def large(case: Case) -> None:
    """Scores up to ±100000, judged against the formula found."""
    for probe in case.group("large"):
        arrays = case.learner[probe.name].arrays
        if case.expected(probe) is None or case.agrees(probe):
            continue
        if arrays is not None and finite(arrays):
            case.tell("property-large-scores", probe)
        elif arrays is None or not np.isfinite(arrays[0]).all(axis=-1).any():
            case.tell("no-max-subtraction", probe)
        elif not case.told("no-max-subtraction"):  # rows with the largest score survive
            case.tell("property-finite-on-large-logits", probe)


def fills(case: Case) -> None:
    """Low allowed scores, high forbidden ones, and rows without an allowed key."""
    if any(edit.keys() & {"mask", "when"} for edit in case.edits):
        return
    tiny = [{"mask": edit["mask"].replace(FILL, "-1e4")} for edit in BY_ID["mask-fill-small"].edits[:2]]
    for probe in case.group("fill", "dominated"):
        if case.expected(probe) is None or case.agrees(probe):
            continue
        leaks = [evaluate(case.kind, (*case.edits, edit), probe) for edit in tiny]
        if any(a and finite(a) and case.agrees(probe, edit) for a, edit in zip(leaks, tiny)):
            case.tell("mask-fill-small", probe)
        elif case.told("no-max-subtraction"):
            continue
        elif lost_rows(case, probe):
            case.tell("mask-after-softmax-renormalised", probe)
        else:
            case.tell("property-mask-extremes", probe)
    if case.edits or case.told("mask-fill-small"):
        return
    for probe in case.group("finite"):
        if not case.is_right(probe) and any(case.agrees(probe, e) for e in BY_ID["mask-fill-finite"].edits):
            case.tell("mask-fill-finite", probe)
    for probe in case.group("empty"):
        empty_row(case, probe)


def lost_rows(case: Case, probe: Probe) -> bool:
    """Rows whose allowed scores underflowed are NaN or 0; all others are as they should be."""
    arrays, right = case.learner[probe.name].arrays, case.right[probe.name]
    if arrays is None or right is None or case.broken(probe):
        return False
    lost = (np.isnan(arrays[0]) | (arrays[0] == 0)).all(axis=-1)
    return bool(lost.any()) and close((arrays[0][~lost],), (right[0][~lost],))


def empty_row(case: Case, probe: Probe) -> None:
    """A row that may attend to nothing may be anything, as long as the others do not change."""
    arrays, right = case.learner[probe.name].arrays, case.right[probe.name]
    row = int(np.flatnonzero(~probe.args[-1].any(axis=-1))[0])
    if arrays is None or right is None or case.broken(probe):
        problem = f"there is {case.problem(probe)}" if case.raised(probe) else "the shape changes"
        case.tell("property-empty-row/note", probe, "note", problem=problem)
        return
    own, others, right_others = arrays[0][row], np.delete(arrays[0], row, 0), np.delete(right[0], row, 0)
    if not close((others,), (right_others,)):
        case.tell("property-empty-row", probe)
    elif np.isnan(own).any():
        case.tell("empty-row-nan", probe)
    elif own.any() and any(case.agrees(probe, edit) for edit in BY_ID["mask-fill-finite"].edits):
        case.tell("mask-fill-finite", probe)
    else:
        what = "the answer is 0" if not own.any() else "the answer is one of its own kind"
        case.tell("property-empty-row/note", probe, "note", problem=what)


def leading_axes(case: Case, unmasked: list[Probe]) -> None:
    """Batches and heads: a bonus where they raise, a mistake where they are silently wrong."""
    batch = case.group("batch")
    if not batch:
        return
    if case.raised(batch[0]):
        case.tell("property-leading-axes/batch", batch[0], "note", problem=case.problem(batch[0]))
        return
    raised = [p for p in batch if case.raised(p)]
    wrong = [p for p in batch if p not in raised and not case.agrees(p)]
    ran = [p for p in unmasked if p not in raised]
    for mutant, edit in forms(case.kind, False) if wrong else ():
        if all(case.agrees(p, edit) for p in ran) and not all(map(case.broken, ran)):
            case.tell(mutant.id, wrong[0], message=f"Not in 2-D, but with a batch axis: {mutant.mistake}.")
            return
    if wrong:
        case.tell("property-leading-axes", wrong[0])
    elif raised:
        case.tell("property-leading-axes/more", raised[0], "note", problem=case.problem(raised[0]))
    for probe in case.group("per-entry") if not wrong + raised else ():
        if not case.agrees(probe):
            case.tell("mask-rank", probe)
    for probe in case.group("broadcast"):
        if not case.raised(probe) and not case.agrees(probe):  # of another shape: it shows at once
            case.tell("backward-broadcast-not-summed", probe)
            case.findings[-1].severity = "note" if case.broken(probe) else "bug"


def small_print(case: Case, formula: tuple[Form, ...]) -> None:
    """Weights that do not fit the output, float masks, head counts."""
    for probe in case.group("divides"):
        if case.learner[probe.name].record and not case.raised(probe):
            case.tell("property-heads-must-divide", probe)
    if formula:
        return
    for probe in case.group("plain", "masked"):
        returned_weights(case, probe)
    for probe in case.group("float-mask"):
        arrays, right = case.learner[probe.name].arrays, case.right["its boolean twin"]
        if arrays is None or right is None or not close(arrays, right):
            what = case.problem(probe) or "it is read as if it were boolean"
            case.tell("property-float-mask", severity="note", problem=what)


def returned_weights(case: Case, probe: Probe) -> None:
    """The weights that come with the output are those of the formula."""
    weights = case.learner[probe.name].weights
    if weights is None or mutants.base_kind(case.kind) in ("multi_head_attention", "attention_layer"):
        return
    Q, K, *rest = probe.args
    if case.kind == "cross_attention":
        Q, K, rest = Q @ rest[0], K @ rest[1], [None]
    kind = case.kind if case.kind.startswith("scaled") else "scaled_dot_product_attention"
    right = evaluate(kind, (), Probe("", "", (Q, K, np.eye(len(K)), *rest[1:])))
    if right and not close((weights,), right) and not case.told("property-weights"):
        case.tell("property-weights")
        case.findings[-1].evidence = {
            "input": probe.name,
            "arguments": shown(case.kind, probe.args),
            "yours": {"weights": weights},
            "right": {"weights": right[0]},
        }


def dtypes(case: Case) -> None:
    """float32 out of float64 is fine, and float64 out of float32 too: notes."""
    for probe in case.group("float32"):
        if case.learner["base"].dtype == "float32":
            case.tell("property-dtype", severity="note", dtype="float32")
        elif case.learner[probe.name].dtype == "float64":
            case.tell("property-dtype/wide", severity="note")
