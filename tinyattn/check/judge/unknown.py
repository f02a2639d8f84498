"""Mistakes that no table has: the properties of attention that fail, most telling first."""

import re

import numpy as np

from ..known.probes import Probe
from .case import Case
from .outcome import close, finite, shapes
from .properties import PROPERTIES


def unknown(case: Case, plain: list[Probe]) -> None:
    """The properties that fail; at the least, that the numbers are wrong."""
    before = len(case.findings)
    if case.told("property-same-answer-twice") or case.told("dropout-at-inference"):
        return
    if lost := dropped(case):
        case.tell("dropout-at-inference", lost)
        return
    cut = thresholded(case)
    if cut is not None:
        case.tell("weights-thresholded", cut)
        return
    crashes(case, plain)
    ran = [p for p in plain if case.learner[p.name].arrays is not None]
    for probe in filter(case.broken, ran):
        got, want = shapes(case.learner[probe.name].arrays), shapes(case.right[probe.name])
        case.tell("property-shape", probe, got=str(got).strip("[]"), want=str(want).strip("[]"))
    fair = [p for p in ran if not case.broken(p)]
    if len(case.findings) == before and sum(case.is_right(p, 5e-3) for p in fair) > 0.8 * len(plain):
        case.tell("property-precision", case.first_wrong(fair))
        return
    if "backward" in case.kind:
        gradients(case, fair)
    else:
        properties(case)
    for probe in case.group("large"):
        arrays = case.learner[probe.name].arrays
        if arrays is not None and not finite(arrays):
            case.tell("property-finite-on-large-logits", probe)
    if len(case.findings) == before:
        case.tell("property-wrong-values", case.first_wrong(fair))


def dropped(case: Case) -> Probe | None:
    """An input with V = I on which some weights are 0 and all others too large by one factor."""
    for probe in case.probes.values():
        yours, right = case.learner[probe.name].arrays, case.right[probe.name]
        if "V = I" not in probe.name or probe.masked or not yours or not right or case.broken(probe):
            continue
        kept = yours[0] != 0
        factors = yours[0][kept] / right[0][kept]
        if kept.any() and not kept.all() and factors.min() > 1.001 and np.ptp(factors) < 1e-6 * factors.min():
            return probe
    return None


def thresholded(case: Case) -> Probe | None:
    """An input with V = I on which the weights are right but for those that are 0."""
    for probe in case.probes.values():
        yours, right = case.learner[probe.name].arrays, case.right[probe.name]
        if "V = I" not in probe.name or probe.masked or not yours or not right or case.broken(probe):
            continue
        cut = (yours[0] == 0) & (right[0] > 0)
        kept = np.where(cut, 0, right[0])
        if cut.any() and right[0][cut].max() <= right[0][~cut].min(initial=1.0) and (yours[0] > 0).any():
            shared = kept / kept.sum(axis=-1, keepdims=True)
            if close((yours[0],), (kept,)) or close((yours[0],), (shared,)):
                return probe
    return None


def one_size(case: Case, raised: list[Probe]) -> bool:
    """Whether it only works for as many queries as the first call had: something of that call is kept."""
    if case.form is None or case.form.sizes or not raised:
        return False
    fine = [p for p in case.probes.values() if case.learner[p.name].arrays is not None and not p.masked]
    axis = -1 if case.kind.startswith("softmax") else -2
    which = 1 if "backward" in case.kind else 0
    good, bad = ({np.shape(p.args[which])[axis] for p in some if np.ndim(p.args[which]) > 1} for some in (fine, raised))
    if case.kind.startswith("softmax") or not (good and bad):
        return False
    return (len(good) == 1 and not good & bad) or (bool(_KEEPS.search(case.words)) and max(good) < min(bad))


_KEEPS = re.compile(r"\bnot in\b|is None:\s+(self\.|global |_)|lru_cache|@(functools\.)?cache\b|setdefault|hasattr")


def gradients(case: Case, probes: list[Probe]) -> None:
    """Which of dQ, dK, dV is wrong, each on its first input that shows it."""
    names = ("dX", "dWq", "dWk", "dWv") if case.kind.startswith("self") else ("dQ", "dK", "dV")
    for i, name in enumerate(names):
        for probe in probes:
            yours, right = case.learner[probe.name].arrays, case.right[probe.name]
            if yours and right and not close((*right[:i], yours[i], *right[i + 1 :]), right):
                case.tell(f"property-gradient-{name}", probe)


def crashes(case: Case, probes: list[Probe]) -> None:
    """The first input on which it raises, and whether all such inputs have n ≠ m."""
    raised = [p for p in probes if case.raised(p)]
    if one_size(case, raised):
        case.tell("property-stale-mask/size", raised[0], problem=case.problem(raised[0]))
    elif raised:
        unequal = all(len({np.shape(a)[-2] for a in p.args[:2] if np.ndim(a) > 1}) > 1 for p in raised)
        where = f'{"with n ≠ m " * unequal}(input "{raised[0].name}")'
        case.tell("property-crash", raised[0], where=where, problem=case.problem(raised[0]))


def unknown_mask(case: Case, masked: list[Probe]) -> None:
    """Without a mask all is explained, with one it is not."""
    before = len(case.findings)
    if all(map(case.raised, masked)):
        case.tell("property-mask-crash", masked[0], problem=case.problem(masked[0]))
        return
    crashes(case, masked)
    properties(case, "causal base", "masked base")
    if len(case.findings) == before:
        case.tell("property-mask", case.first_wrong(p for p in masked if not case.broken(p)))


def properties(case: Case, *only: str) -> None:
    """Relations between the answers to two related calls."""
    for rule in PROPERTIES:
        pair = [case.probes.get(rule.first), case.probes.get(rule.second)]
        if only and not {rule.first, rule.second} & {*only}:
            continue
        if any(p is None or case.broken(p) for p in pair):
            continue
        first, second = (case.learner[name].arrays for name in (rule.first, rule.second))
        assert first is not None
        assert second is not None
        expected = rule.expected(first[0])
        if close((second[0][: len(expected)],), (expected,), 1e-4) == rule.must_differ:
            case.tell(rule.id, pair[1])
    if not only:
        scale(case)


def scale(case: Case) -> None:
    """The factor on q·k, read off two weights at two widths: 1/√dk has exponent −1/2."""
    due = 0.0 if case.kind.endswith("/unscaled") else -0.5
    factors = []
    for dk in (4, 64):
        outcome = case.learner.get(f"scale at dk = {dk}")
        if outcome is None or outcome.arrays is None or outcome.arrays[0].shape != (1, 2):
            return
        high, low = outcome.arrays[0][0]
        if not high > low > 0:
            return
        factors.append(float(np.log(high / low)) / (0.5 * np.sqrt(dk)))
    exponent, factor = np.log(factors[1] / factors[0]) / np.log(16), factors[0] * 4**-due
    if abs(exponent - due) > 0.02:
        case.tell("property-scale-exponent", case.probes["scale at dk = 64"], exponent=exponent, due=due)
    elif abs(factor - 1) > 1e-3:
        case.tell("property-scale-factor", case.probes["scale at dk = 64"], factor=factor)


def stateful(case: Case) -> None:
    """The same call gives the same answer, and another mask another one."""
    again, base = (case.learner[n].arrays if n in case.learner else None for n in ("base, once more", "base"))
    if base is not None and again is not None and not close(again, base, 1e-6):
        case.tell(
            "dropout-at-inference" if dropped(case) else "property-same-answer-twice", case.probes["base, once more"]
        )
    longer = case.probes.get("another length, after the first")
    if longer and all(map(case.is_right, case.group("plain"))) and not case.is_right(longer):
        problem = case.problem(longer) or "the answer is wrong"
        case.tell("property-stale-mask/size", longer, problem=problem)
    first, second = (case.probes.get(f"mask, square, {which}") for which in ("not causal", "another one"))
    if first and second and case.is_right(first) and not case.is_right(second):
        stale, fresh = case.learner[second.name].arrays, case.learner[first.name].arrays
        if stale and fresh and close(stale, fresh):
            case.tell("property-stale-mask", second)
