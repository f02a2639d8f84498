"""What comes on top of the formula: large scores, low ones, empty rows, leading axes, dtypes."""

import numpy as np

from .case import Case
from .known import Form, forms
from .mutants import BY_ID, CAUSAL, FILL, HEADS, ROWS
from .outcome import close, evaluate, finite, shapes
from .probes import KINDS, Probe


def large(case: Case) -> None:
    """Scores up to ±100000, judged against the formula found."""
    for probe in case.group("large"):
        outcome, expected = case.learner[probe.name], evaluate(case.kind, case.edits, probe)
        if expected is None or not finite(expected) or case.agrees(probe):
            continue
        if outcome.arrays is not None and finite(outcome.arrays):
            case.tell(
                "property-large-scores",
                "Scores up to ±100000 give wrong, though finite, numbers.",
                probe,
                hint="Is anything clipped, or kept in float16?",
                lesson=ROWS,
            )
        elif outcome.arrays is None or not np.isfinite(outcome.arrays[0]).all(axis=-1).any():
            case.tell_mutant(BY_ID["no-max-subtraction"], probe)
        elif "no-max-subtraction" not in case.ids():
            case.tell(
                "property-finite-on-large-logits",
                "Rows whose scores lie far below another row's give NaN: 0 / 0 after exp.",
                probe,
                hint="Is it each row's own maximum that you subtract?",
                lesson=ROWS,
            )


def fills(case: Case) -> None:
    """Low allowed scores, high forbidden ones, and rows without an allowed key."""
    if any(edit.keys() & {"mask", "when"} for edit in case.edits):
        return
    small, finite_fill = BY_ID["mask-fill-small"], BY_ID["mask-fill-finite"]
    tiny = [{"mask": edit["mask"].replace(FILL, "-1e4")} for edit in small.edits[:2]]
    for probe in case.group("fill", "dominated"):
        expected = evaluate(case.kind, case.edits, probe)
        if expected is None or not finite(expected) or case.agrees(probe):
            continue
        if any(case.agrees(probe, edit, fully=True) for edit in tiny):
            case.tell_mutant(small, probe)
        elif "no-max-subtraction" in case.ids():
            continue
        elif lost_rows(case, probe):
            case.tell_mutant(BY_ID["mask-after-softmax-renormalised"], probe)
        else:
            case.tell(
                "property-mask-extremes",
                "With scores of ±100000 in a masked row the result is wrong.",
                probe,
                hint="Which masked score could still win, which allowed one could vanish?",
                lesson=CAUSAL,
            )
    if case.edits or small.id in case.ids():
        return
    for probe in case.group("finite"):
        if not case.is_right(probe) and any(case.agrees(probe, edit) for edit in finite_fill.edits):
            case.tell_mutant(finite_fill, probe)
    empty_row(case)


def lost_rows(case: Case, probe: Probe) -> bool:
    """Rows whose allowed scores underflowed are NaN or 0; all others are as they should be."""
    arrays, right = case.learner[probe.name].arrays, case.right[probe.name]
    if arrays is None or right is None or shapes(arrays) != shapes(right):
        return False
    lost = (np.isnan(arrays[0]) | (arrays[0] == 0)).all(axis=-1)
    return bool(lost.any()) and close((arrays[0][~lost],), (right[0][~lost],))


def empty_row(case: Case) -> None:
    for probe in case.group("empty"):
        outcome, expected = case.learner[probe.name], evaluate(case.kind, case.edits, probe)
        if expected is None:
            continue
        row = int(np.flatnonzero(~probe.args[-1].any(axis=-1))[0])
        if outcome.arrays is None or shapes(outcome.arrays) != shapes(expected):
            case.tell(
                "property-empty-row",
                f"A query that may attend to nothing: {outcome.problem}.",
                probe,
                hint="Conventions differ; zeros are the safest answer.",
                lesson=CAUSAL,
                severity="note",
            )
            continue
        own, others = outcome.arrays[0][row], np.delete(outcome.arrays[0], row, axis=0)
        if not close((others,), (np.delete(expected[0], row, axis=0),)):
            case.tell(
                "property-empty-row",
                "A row that may attend to nothing changes the other rows.",
                probe,
                hint="Which of your numbers are shared by all rows?",
                lesson=CAUSAL,
            )
        elif np.isnan(own).any():
            case.tell_mutant(BY_ID["empty-row-nan"], probe)
        elif any(
            case.agrees(probe, edit) and np.abs(own).max() > 0 for edit in BY_ID["mask-fill-finite"].edits
        ):
            case.tell_mutant(BY_ID["mask-fill-finite"], probe)
        else:
            what = "gives zeros, as in tinyattn" if not own.any() else "gives numbers of its own"
            case.tell(
                "property-empty-row",
                f"A query that may attend to nothing {what}; conventions differ.",
                probe,
                lesson=CAUSAL,
                severity="note",
            )


def leading_axes(case: Case, unmasked: list[Probe]) -> None:
    batch = case.group("batch")
    if not batch:
        return
    if case.broken(batch[0]):
        problem = case.learner[batch[0].name].problem or "it returned the wrong shape"
        if case.learner[batch[0].name].raised:
            case.tell(
                "property-leading-axes",
                f"Works in 2-D; with a batch axis: {problem}. A bonus.",
                batch[0],
                hint="`.T` reverses all axes; swapaxes(-1, -2) and axis=-1 serve every rank.",
                severity="note",
            )
            return
    raised = [p for p in batch if case.learner[p.name].raised]
    wrong = [p for p in batch if p not in raised and not case.agrees(p)]
    for form in forms(case.kind, False) if wrong else ():
        ran = [p for p in unmasked if p not in raised]
        if all(case.agrees(p, form[1]) for p in ran) and not all(map(case.broken, ran)):
            what = f"Right in 2-D, but with a batch axis {form[0].what}."
            case.tell_mutant(form[0], wrong[0], message=what)
            return
    if wrong:
        case.tell(
            "property-leading-axes",
            "Right in 2-D, but silently wrong with a leading axis.",
            wrong[0],
            hint="Which axis does each of your operations mean, counted from the end?",
        )
    elif raised:
        problem = case.learner[raised[0].name].problem
        case.tell(
            "property-leading-axes",
            f"Not with every leading axis: {problem}. A bonus.",
            raised[0],
            hint="Count axes from the end.",
            severity="note",
        )
    for probe in case.group("per-entry"):
        if not wrong and not raised and not case.agrees(probe):
            case.tell_mutant(BY_ID["mask-rank"], probe)
    for probe in case.group("broadcast"):
        if case.learner[probe.name].raised or case.agrees(probe):
            continue
        severity = "note" if case.broken(probe) else "bug"  # of another shape: it shows at once
        case.tell_mutant(BY_ID["backward-broadcast-not-summed"], probe, severity)


def small_print(case: Case, formula: tuple[Form, ...]) -> None:
    """Weights that do not fit the output, float masks, head counts."""
    for probe in case.group("divides"):
        if not case.learner[probe.name].raised and case.learner[probe.name].record:
            case.tell(
                "property-heads-must-divide",
                "num_heads = 4 with d_model = 6 must raise; it returns "
                "something, which silently drops or mixes features.",
                probe,
                lesson=HEADS,
                hint="What is 6 / 4 features per head?",
            )
    if formula != ():
        return
    if case.kind in ("scaled_dot_product_attention", "cross_attention"):
        check_weights(case)
    for probe in case.group("float-mask"):
        twin, outcome = case.probes["its boolean twin"], case.learner[probe.name]
        right = case.right[twin.name]
        if outcome.arrays is None or right is None or not close(outcome.arrays, right):
            what = outcome.problem or "it is read as if it were boolean"
            case.tell(
                "property-float-mask",
                f"A float mask of 0 and −inf, to be added, is a bonus: {what}.",
                hint="mask.dtype tells the two conventions apart.",
                lesson=CAUSAL,
                severity="note",
            )


def dtypes(case: Case) -> None:
    for probe in case.group("float32"):
        dtype, wide = case.learner[probe.name].dtype, case.learner["base"].dtype
        if wide == "float32":
            case.tell("property-dtype", "float64 goes in and float32 comes out.", severity="note")
        elif dtype == "float64":
            case.tell(
                "property-dtype",
                "float32 goes in and float64 comes out (np.sqrt(dk), for one, is a "
                "float64 that takes an array along; math.sqrt is not).",
                severity="note",
            )


def check_weights(case: Case) -> None:
    for probe in case.group("plain", "masked"):
        weights = case.learner[probe.name].weights
        if weights is None:
            continue
        eye = np.eye(probe.args[1].shape[0])
        args = (*probe.args[:2], eye, *probe.args[3:])
        if case.kind == "cross_attention":
            X, context, Wq, Wk, _ = probe.args
            args = X @ Wq, context @ Wk, eye
        right = evaluate("scaled_dot_product_attention", (), Probe("", "", args))
        assert right is not None
        if not close((weights,), right):
            case.tell(
                "property-weights",
                "The output is right; the weights returned with it are not those used.",
                hint="Return the very array that multiplies V.",
                lesson=ROWS,
            )
            case.findings[-1].evidence = {
                "input": probe.name,
                "arguments": dict(zip(KINDS[case.kind], probe.args)),
                "yours": {"weights": weights},
                "right": {"weights": right[0]},
            }
            return
