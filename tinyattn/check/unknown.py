"""Mistakes that no table has: the properties of attention that fail, most telling first."""

import numpy as np

from .case import Case
from .mutants import CAUSAL, ROWS, SCALE
from .outcome import close, finite, shapes
from .probes import Probe
from .properties import PROPERTIES


def unknown(case: Case, plain: list[Probe]) -> None:
    """The properties that fail, most telling first; at the least, that the numbers are wrong."""
    before = len(case.findings)
    crashes(case, plain)
    ran = [p for p in plain if case.learner[p.name].arrays is not None]
    odd = [p for p in ran if case.broken(p)]
    if odd:
        got, want = (
            shapes(x[odd[0].name]) for x in ({n: o.arrays for n, o in case.learner.items()}, case.right)
        )
        case.tell(
            "property-shape",
            f"The output has shape {got}, where {want} is due.".replace("[", "").replace("]", ""),
            odd[0],
            hint="Follow the shapes: (n, dk) @ (dk, m) → (n, m), then @ (m, dv) → (n, dv).",
        )
    fair = [p for p in ran if not case.broken(p)]
    if "property-same-answer-twice" in case.ids():
        return
    if sum(map(lambda p: near(case, p), fair)) > 0.8 * len(plain) and len(case.findings) == before:
        case.tell(
            "property-precision",
            "The numbers are nearly right: to about three digits only.",
            case.first_wrong(fair),
            hint="Is something rounded, kept in float16, or added for safety?",
        )
        return
    properties(case)
    for probe in case.group("large"):
        arrays = case.learner[probe.name].arrays
        if arrays is not None and not finite(arrays):
            case.tell(
                "property-finite-on-large-logits",
                "Scores up to ±100000 give NaN or inf.",
                probe,
                hint="softmax(s) = softmax(s − c): which c makes overflow impossible?",
                lesson=ROWS,
            )
    if len(case.findings) == before or case.kind.endswith("backward"):
        wrong_values(case, fair)


def near(case: Case, probe: Probe) -> bool:
    arrays, right = case.learner[probe.name].arrays, case.right[probe.name]
    return arrays is not None and right is not None and close(arrays, right, 5e-3)


def wrong_values(case: Case, probes: list[Probe]) -> None:
    if not case.kind.endswith("backward"):
        case.tell(
            "property-wrong-values",
            "The output is wrong, in a way that no known mistake explains.",
            case.first_wrong(probes),
            hint="Do the smallest case by hand, one step at a time.",
        )
        return
    for i, name in enumerate(("dQ", "dK", "dV")):
        pairs = {p.name: (case.learner[p.name].arrays, case.right[p.name]) for p in probes}
        wrong = [
            p
            for p in probes
            if (pair := pairs[p.name])
            and pair[0]
            and pair[1]
            and not close(pair[0][i : i + 1], pair[1][i : i + 1], 1e-4)
        ]
        if wrong:
            case.tell(
                f"property-gradient-{name}",
                f"{name} does not agree with finite differences of the loss.",
                wrong[0],
                hint=f"Write the chain rule from the output down to {name[1:]}, shapes included.",
            )


def crashes(case: Case, probes: list[Probe]) -> None:
    raised = [p for p in probes if case.learner[p.name].raised]
    if raised:
        square = all(len({np.shape(a)[-2:] for a in p.args[:2]}) > 1 for p in raised)
        where = f'{"with n ≠ m " if square else ""}(input "{raised[0].name}")'
        case.tell(
            "property-crash",
            f"It raises {where}: {case.learner[raised[0].name].problem}.",
            raised[0],
            hint="Print the shapes on the line that failed.",
        )


def unknown_mask(case: Case, masked: list[Probe]) -> None:
    before = len(case.findings)
    if all(case.learner[p.name].raised for p in masked):
        problem = case.learner[masked[0].name].problem
        text = "It takes no mask yet" if "positional argument" in problem else "With a mask it raises"
        case.tell(
            "property-mask-crash",
            f"{text}: {problem}.",
            masked[0],
            lesson=CAUSAL,
            hint="The mask is the next argument, None when there is none.",
        )
        return
    crashes(case, masked)
    properties(case, "causal base", "masked base")
    if len(case.findings) == before:
        case.tell(
            "property-mask",
            "With a mask the output is wrong, in a way that no known mistake explains.",
            case.first_wrong([p for p in masked if not case.broken(p)]),
            lesson=CAUSAL,
            hint="Work out one masked row by hand: which keys are left, and what do they sum to?",
        )


def properties(case: Case, *starts: str) -> None:
    """Relations between the answers to two related calls."""
    for rule in PROPERTIES:
        if rule.first not in case.probes or rule.second not in case.probes:
            continue
        if starts and rule.first not in starts and rule.second not in starts:
            continue
        first, second = case.learner[rule.first].arrays, case.learner[rule.second].arrays
        probe = case.probes[rule.second]
        if first is None or second is None or case.broken(probe) or case.broken(case.probes[rule.first]):
            continue
        expected = rule.expected(first[0])
        given = second[0][: len(expected)]
        if close((given,), (expected,), 1e-4) == rule.must_differ:
            case.tell(
                rule.id,
                rule.message,
                probe,
                hint=rule.hint,
                lesson=rule.lesson,
                expected=None if rule.must_differ or len(first) > 1 else (expected,),
            )
    if "scale at dk = 4" in case.probes and not starts:
        scale(case)


def scale(case: Case) -> None:
    """The factor on q·k, read off two weights at two widths: 1/√dk has exponent −1/2."""
    factors = {}
    for dk in (4, 64):
        arrays = case.learner[f"scale at dk = {dk}"].arrays
        if arrays is None or arrays[0].shape != (1, 2) or not (arrays[0] > 0).all():
            return
        weights = arrays[0][0]
        factors[dk] = float(np.log(weights[0] / weights[1])) / (0.5 * np.sqrt(dk))
    if min(factors.values()) <= 0:
        return
    exponent = np.log(factors[64] / factors[4]) / np.log(16)
    probe = case.probes["scale at dk = 64"]
    if abs(exponent + 0.5) > 0.02:
        case.tell(
            "property-scale-exponent",
            f"The scores grow like dk^{0.5 + exponent:.2f}: the factor on q·k goes "
            f"like dk^{exponent:.2f}, where dk^−0.50 is due.",
            probe,
            lesson=SCALE,
            hint="What is the standard deviation of a sum of dk products?",
        )
    elif abs(factors[4] * 2 - 1) > 1e-3:
        case.tell(
            "property-scale-factor",
            f"All scores are {factors[4] * 2:.4g} times what they should be.",
            probe,
            lesson=SCALE,
            hint="Is there another base than e, or another constant, in your softmax?",
        )


def stateful(case: Case) -> None:
    """The same call gives the same answer, and another mask another one."""
    again, base = case.learner["base, once more"].arrays, case.learner["base"].arrays
    if base is not None and again is not None and not close(again, base, 1e-12):
        case.tell(
            "property-same-answer-twice",
            "The same call gives another answer the second time.",
            case.probes["base"],
            hint="Randomness, or something kept from the call before?",
            expected=base,
        )
    names = ("mask, square, not causal", "mask, square, another one")
    if all(name in case.probes for name in names):
        first, second = (case.probes[name] for name in names)
        stale = case.learner[second.name].arrays
        if stale is not None and case.is_right(first) and close(stale, case.learner[first.name].arrays or ()):
            case.tell(
                "property-stale-mask",
                "A second mask of the same shape gives the first one's answer.",
                second,
                hint="Something is kept between calls. What is its key?",
                lesson=CAUSAL,
            )
