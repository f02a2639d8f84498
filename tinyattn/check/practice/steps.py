"""What each step asks of the learner's file, and what it shows when the step is done.

Everything that is told is measured on the learner's own functions: a first run calls them on inputs, a second one calls
them on what the first gave back (the assert on their weights, the attention with their mask).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from textwrap import shorten

import numpy as np

from ...draw.heatmap import Map, as_table
from ...pretrained import stored_heads
from ...text import Line
from ..judge.case import Finding
from ..judge.diagnose import diagnose, examine
from ..judge.outcome import Record, close, describe, evaluate, read
from ..known.mutants import BY_ID, CAUSAL, ROWS, SCALE, THREE
from ..known.probes import KINDS, Probe, probes
from ..known.reference import Array, causal_mask
from ..report import wrap
from ..run.isolate import Plan, Run, full_plan, run_file

ATTENTION, MASK, ROW_SUMS, UNSCALED = (
    "scaled_dot_product_attention",
    "causal_mask",
    "rows_sum_to_one",
    "attention_without_scaling",
)
WIDTHS = (1, 4, 16, 64, 256, 512)  # dk in step 3
PAIRS = (4, 6)  # n in step 4
ACCEPTED = {  # step 5: a row, the word that it looks at most, and why that is sensible
    ("it", "animal"): "a pronoun looks at the noun that it stands for",
    ("the", "animal"): "a determiner looks at its noun",
    ("cross", "street"): "a verb looks at its object",
    ("was", "tired"): "a verb looks at what it says of its subject",
    ("because", "tired"): "a conjunction looks at the reason that it gives",
    ("didn", "cross"): "an auxiliary looks at its verb",
    ("t", "cross"): "a negation looks at what it denies",
    ("tired", "it"): "an adjective looks at what it describes",
    ("too", "tired"): "an adverb looks at its adjective",
}
RECOVERS = ("16", "32", "64", "never")


# --- the calls ----------------------------------------------------------------------------------------


def _normal(dk: int) -> Probe:
    """Medians need many rows: 320 queries, 64 keys."""
    rng = np.random.default_rng(dk)
    Q, K = rng.normal(size=(320, dk)), rng.normal(size=(64, dk))
    return Probe(f"dk = {dk}, unit normal", "", (Q, K, np.eye(64)))


def _sentence() -> dict[str, Probe]:
    """V = I, so that the output is the weights."""
    stored = stored_heads()
    X, Q, K = stored.embeddings, stored.Q[0].astype(float), stored.K[0].astype(float)
    return {"raw": Probe("raw embeddings", "", (X, X, np.eye(16))), "head": Probe("the head", "", (Q, K, np.eye(16)))}


def _for_pair(n: int) -> tuple[Array, Array, Array]:
    Q, K = np.random.default_rng(n).normal(size=(2, n, 3))
    return Q, K, np.eye(n)


def row_sum_cases() -> dict[str, tuple[Array, bool]]:
    """Weights for step 2, and whether their rows sum to 1."""
    Q, K, _ = np.random.default_rng(3).normal(size=(3, 4, 3))
    probe = Probe("", "", (Q[:3], K, np.eye(4)))

    def weights(*ids: str) -> Array:
        result = evaluate(ATTENTION, tuple(BY_ID[id].edits[0] for id in ids), probe)
        assert result is not None
        return result[0]

    many = np.full((2, 7), 1 / 7)  # 7 · (1/7) is not exactly 1
    return {
        "right weights": (weights(), True),
        "weights that are right up to rounding": (many, True),
        "weights of a softmax over the queries": (weights("softmax-over-queries"), False),
        "weights of one softmax over everything": (weights("softmax-over-everything"), False),
        "weights divided after the softmax": (weights("scale-after-softmax"), False),
        "weights of which one row is wrong": (weights() * [[1], [1], [1.01]], False),
        "rows that sum to 1.5, 0.5 and 1": (weights() * [[1.5], [0.5], [1.0]], False),
        "weights with NaN": (np.where(np.eye(3, 4) > 0, np.nan, weights()), False),
    }


def plan() -> Plan:
    """All calls of the first run."""
    attention = probes(ATTENTION)
    return full_plan() | {
        ATTENTION: [*attention, *_sentence().values(), *map(_normal, WIDTHS)],
        UNSCALED: [*(p for p in attention if len(p.args) == 3), *map(_normal, WIDTHS)],
        ROW_SUMS: [Probe(name, "", (w,)) for name, (w, _) in row_sum_cases().items()],
        MASK: [*probes(MASK), *(Probe(f"n = {n}, for the pair", "", (n,)) for n in PAIRS)],
    }


@dataclass
class Work:
    """A learner's file, and what its functions gave."""

    path: Path
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        self.run = run_file(self.path, plan=plan())

    def output(self, function: str, probe: Probe, run: Run | None = None) -> Array | None:
        """What a function returned as the first array, if it has the shape of what is right."""
        record = (run or self.run).records.get(function, {}).get(probe.name)
        right = evaluate(MASK if function == MASK else ATTENTION, (), probe)
        arrays = read(record, right).arrays
        return arrays[0] if arrays and right and arrays[0].shape == right[0].shape else None

    @cached_property
    def own_weights(self) -> Array | None:
        return self.output(ATTENTION, probes(ATTENTION)[0])

    @cached_property
    def second(self) -> Run:
        """The second run: the assert on the learner's weights, the attention with the learner's mask."""
        calls: Plan = self.turned()
        if self.own_weights is not None:
            calls[ROW_SUMS] = [Probe("your own weights", "", (self.own_weights,))]
        masks = {n: self.mask(n) for n in PAIRS}
        pairs = [Probe(f"pair {n}", "", (*_for_pair(n), m)) for n, m in masks.items() if m is not None]
        if pairs:
            calls[ATTENTION] = [*calls.get(ATTENTION, ()), *pairs]
        return run_file(self.path, plan=calls)

    @cached_property
    def turn(self) -> Callable[[Array], Array] | None:
        """What makes of a mask of True = may attend one of the learner's own convention; None if it is that."""
        records = self.run.records.get(ATTENTION)
        found = {f.id for f in diagnose(ATTENTION, ATTENTION, probes(ATTENTION), records)} if records else set()
        if "mask-inverted" in found or ("mask-times-inf" in found and self.blocked):
            return np.logical_not
        mask = self.mask(PAIRS[0])
        if "mask-as-bias" not in found or mask is None or mask.dtype.kind != "f" or not (mask < 0).any():
            return None
        low = np.nanmin(mask)  # what the learner's own mask adds
        return lambda allowed: np.where(allowed, 0.0, low)

    @property
    def blocked(self) -> bool:
        """Whether True means blocked by the text of the attention: NaN everywhere does not tell."""
        return bool(run_file(self.path, ATTENTION).forms.get(ATTENTION, {}).get("blocked"))

    def turned(self) -> Plan:
        """The calls with a mask once more, in the learner's own convention."""
        if self.turn is None:
            return {}
        plan: Plan = {}
        for name in (ATTENTION, "multi_head_attention", f"{ATTENTION}_backward"):
            masked = [p for p in probes(name) if np.asarray(p.args[-1]).dtype.kind == "b"]
            plan[name] = [replace(p, args=(*p.args[:-1], self.turn(p.args[-1]))) for p in masked]
        return plan

    def records(self, name: str) -> dict[str, Record]:
        """What a function gave, its masks meaning what they mean to the learner."""
        return self.run.records[name] | (self.second.records.get(name, {}) if self.turn else {})

    def mask(self, n: int) -> Array | None:
        record = self.run.records.get(MASK, {}).get(f"n = {n}, for the pair", {})
        value = record.get("value", {})
        if "data" not in value or value["shape"] != [n, n]:
            return None
        mask: Array = np.array(value["data"]).reshape(n, n).astype(value["dtype"])
        return mask

    def pair(self, n: int) -> Array | None:
        """The learner's weights under the learner's mask."""
        record = self.second.records.get(ATTENTION, {}).get(f"pair {n}")
        arrays = read(record, (np.eye(n),)).arrays
        return arrays[0] if arrays and arrays[0].shape == (n, n) else None

    def said(self, name: str) -> str:
        return " ".join(self.run.said.get(name, "").split()).casefold()

    def written(self, name: str) -> bool:
        """Whether a function is more than its stub."""
        records = self.run.records.get(name)
        return records is not None and {r.get("error") for r in records.values()} != {"NotImplementedError"}


# --- the findings -------------------------------------------------------------------------------------


def _missing(work: Work, name: str) -> list[Finding]:
    run = work.run
    if name in run.records:
        return [] if work.written(name) else [Finding("error-not-written", "bug", name, "Not written yet.")]
    if run.broke:
        told = f"It was not reached: on {run.broke['function']} ({run.broke['probe']}), {run.broke['how']}."
        return [Finding("error-stopped", "bug", name, told)]
    return [Finding("error-missing-function", "bug", name, f"There is no function {name} (any more).")]


def _checked(work: Work, name: str) -> list[Finding]:
    if found := _missing(work, name):
        return found
    found = diagnose(name, name, probes(name), work.records(name))
    for finding in found:  # what is shown is the mask as the learner's function got it
        given = finding.evidence.get("arguments", {})
        if work.turn and "mask" in given:
            finding.evidence["arguments"] = given | {"mask": work.turn(given["mask"])}
    return found


def _unanswered(step: int, text: str, hint: str, lesson: str) -> Finding:
    return Finding("property-unanswered", "bug", f"Step {step}", text, hint, lesson)


def function_step(work: Work) -> list[Finding]:
    unmasked = [p for p in probes(ATTENTION) if len(p.args) == 3]
    return _missing(work, ATTENTION) or diagnose(ATTENTION, ATTENTION, unmasked, work.run.records[ATTENTION])


def row_sum_step(work: Work) -> list[Finding]:
    if found := _missing(work, ROW_SUMS):
        return found
    cases = dict(row_sum_cases())
    if work.own_weights is not None:
        fits = bool(np.allclose(work.own_weights.sum(-1), 1))
        cases = {"your own weights, from step 1": (work.own_weights, fits)} | cases
    for case, (weights, good) in cases.items():
        own = case.startswith("your own")
        records = (work.second if own else work.run).records.get(ROW_SUMS, {})
        accepted, words = _verdict(records.get("your own weights" if own else case, {}))
        if accepted == good:
            continue
        due = "nothing, or True" if good else "an AssertionError, or False"
        text = f"Shown {case}, it {words}; their rows {'do' if good else 'do not'} all sum to 1. Expected: {due}."
        hint = "Which axis belongs to one query? Which word makes a comparison an assert?"
        if good:
            hint = "Which axis belongs to one query? And is 0.9999999999999999 equal to 1?"
        if "truth value of an array" in words:
            hint = "One True or False is wanted for all rows: np.all(…), or np.allclose. With any, one row would do."
        evidence = {"input": case, "arguments": {"weights": weights}}
        return [Finding("property-row-sum-test", "bug", ROW_SUMS, text, hint, ROWS, evidence)]
    return []


def _verdict(record: dict[str, object]) -> tuple[bool | None, str]:
    """Whether an assert (or a test that returns True or False) accepts, and what it did, in words."""
    if "error" in record:
        message = shorten(str(record.get("message", "")).split("\n")[0], 120, placeholder=" …")
        words = f"raises {record['error']}" + (f' ("{message}")' if message else "")
        return (False if record["error"] == "AssertionError" else None), words
    value = record.get("value")
    if not isinstance(value, dict):
        return None, "was not reached"
    if value["type"] == "NoneType":
        return True, "raises nothing"
    if value.get("value") in (True, False, "True", "False"):
        accepts = value["value"] in (True, "True")
        return accepts, f"says {accepts}"
    return None, f"returns {describe(value)}"


def scaling_step(work: Work) -> list[Finding]:
    if found := _missing(work, UNSCALED):
        return found
    unmasked, records = [p for p in probes(ATTENTION) if len(p.args) == 3], work.run.records[UNSCALED]
    case = examine(f"{ATTENTION}/unscaled", UNSCALED, unmasked, records)
    if bugs := [f for f in case.findings if f.severity == "bug"]:
        scaled = {f.id for f in diagnose(ATTENTION, UNSCALED, unmasked, records) if f.severity == "bug"}
        shows = case.first_wrong(p for p in unmasked if p.group == "plain")
        explained = all(f.id in BY_ID and not f.id.startswith("scale") for f in bugs)
        if explained or "no-scale" in scaled or not scaled <= BY_ID.keys() or shows is None:
            return bugs
        hint = "Which line divides, or multiplies, the scores?"
        told = "It still scales its scores."
        return [Finding("property-still-scaled", "bug", UNSCALED, told, hint, SCALE, case.evidence(shows))]
    for variable, answers in (
        ("largest_weight", ("about 0.1", "about 0.5", "above 0.9")),
        ("typical_gradient", ("larger", "the same", "smaller")),
    ):
        if work.said(variable) not in answers:
            text = f"Predict before you look: set `{variable}` to one of " + ", ".join(f'"{a}"' for a in answers) + "."
            hint = "A dot product of 512 unit-normal terms has a standard deviation of √512 ≈ 23."
            return [_unanswered(3, text, hint, SCALE)]
    return []


CONVENTION = {"mask-inverted", "mask-as-bias"}  # no mistake if mask and attention keep to it


def mask_step(work: Work) -> list[Finding]:
    """The two functions together; each by itself only if there is more to say than which way round True is."""
    if found := _missing(work, MASK):
        return found
    found = _checked(work, MASK)
    there = {f.id for f in found} if work.turn else set()  # a number that the mask adds is told of there alone
    found = [f for f in _checked(work, ATTENTION) if f.id not in there] + found
    bugs = [f for f in found if f.severity == "bug"]
    if any(f.id.startswith("error-") for f in bugs):
        return found
    named = [f for f in bugs if f.id not in CONVENTION]
    named = named or [f for f in bugs if f.id == "mask-as-bias" and f.function == ATTENTION]
    for n in PAIRS:
        weights, right = work.pair(n), evaluate(ATTENTION, (), Probe("", "", (*_for_pair(n), causal_mask(n))))
        assert right is not None
        if weights is None or not close((weights,), right) or (np.triu(weights, 1).any() and not named):
            if weights is not None and np.isnan(weights).all() and named:  # before that is mended, no mask can be told
                return [f for f in named if f.function == ATTENTION] or named
            pair = _pair_finding(work, n, weights, right[0])
            return [pair] if pair.id == "mask-pair-opposite" or work.turn or not named else named
    return [f for f in found if f.id not in CONVENTION]


def _pair_finding(work: Work, n: int, weights: Array | None, right: Array) -> Finding:
    call = f"scaled_dot_product_attention(Q, K, V, causal_mask({n}))"
    Q, K, _ = _for_pair(n)
    evidence = {"input": f"{call} with V = I, so the output is the weights", "arguments": {"Q": Q, "K": K}}
    hint = "What does True mean in your mask, and what does your attention do where the mask is True?"
    if weights is None:
        record = work.second.records.get(ATTENTION, {}).get(f"pair {n}", {})
        told = f"{call} gives no ({n}, {n}) array"
        told += f": {record['error']}: {record['message']}." if "error" in record else "."
        return Finding("mask-pair", "bug", "Step 4", told, hint, CAUSAL, evidence)
    evidence |= {"yours": {"weights": weights}, "right": {"weights": right}}
    seen = np.nan_to_num(weights) > 1e-9
    mask = work.mask(n)
    kind = "" if mask is None or mask.dtype == bool else f" Your causal_mask({n}) is {mask.dtype}, not boolean."
    if not seen.any():
        what = "only NaN as weights" if np.isnan(weights).any() else "no weight to anything"
        told = f"{call} gives {what}: that is neither the past nor the future.{kind}"
        hint = "Follow row 2 line by line. 0 · ∞ is NaN: choose, with np.where(…, scores, -np.inf), do not multiply."
        return Finding("mask-pair", "bug", "Step 4", told, hint, CAUSAL, evidence)
    if not np.tril(seen).any():
        told = f"{call} sees the future only: your mask means the opposite of what your attention takes it for.{kind}"
        return Finding("mask-pair-opposite", "bug", "Step 4", told, hint, CAUSAL, evidence)
    if not np.triu(seen).any():
        told, hint = "lets no position attend to itself.", "Where does the diagonal belong, and what is left for row 1?"
    elif np.triu(seen, 1).any():
        told, hint = (
            "sees the future.",
            "Which places lie above the diagonal, and does your attention block just those?",
        )
    elif (future := float(np.nanmax(np.triu(weights, 1)))) > 0:
        told = f"gives the future a weight of up to {future:.0e}, where exactly 0 is expected."
        hint = "Which masked score has an exponential of exactly 0?"
    else:
        told = "gives other weights than the causal ones."
    return Finding("mask-pair", "bug", "Step 4", f"{call} {told}{kind}", hint, CAUSAL, evidence)


def sentence_step(work: Work) -> list[Finding]:
    row, word = work.said("row"), work.said("it_looks_at")
    if not word:
        text = "Not answered yet: set `it_looks_at` to the word that the row of `row` looks at most."
        return [_unanswered(5, text, "Rows are queries: find the row, then its largest cell.", "")]
    if (row, word) in ACCEPTED:
        return []
    stored = stored_heads()
    words = [token.casefold() for token in stored.tokens[1:-1]]
    head = evaluate(ATTENTION, (), _sentence()["head"])
    assert head is not None
    inner = head[0][1:-1, 1:-1]
    peaks = {words[inner[i].argmax()]: inner[i].max() for i, token in enumerate(words) if token == row}
    hint = "Rows are queries: find the row, then its largest cell."
    if unknown := [w for w in (row, word) if w not in words]:
        text = f'"{unknown[0]}" is no word of the sentence.'
    elif word in peaks:
        rows = ", ".join(dict.fromkeys(r for r, _ in ACCEPTED))
        text = f'"{word}" is the largest in the row of "{row}", but with {peaks[word]:.2f} hardly so, and grammar does '
        text += f"not say why. Rows of which it does: {rows}."
        hint = "Take another row."
    else:
        text = f'"{word}" is not where the row of "{row}" peaks among the words.'
    return [Finding("property-sentence", "bug", "Step 5", text, hint)]


def last_step(work: Work) -> list[Finding]:
    if work.said("why_three_projections") in RECOVERS:
        return []
    text = "Predict: set `why_three_projections` to " + ", ".join(f'"{w}"' for w in RECOVERS) + "; then it is measured."
    return [_unanswered(9, text, "What would a key look like that is also the thing handed over?", THREE)]


# --- what a step shows when it is done ----------------------------------------------------------------


def function_shown(work: Work) -> list[Line]:
    if work.own_weights is None:
        return []
    sums = ", ".join(f"{s:.6g}" for s in work.own_weights.sum(-1))
    return wrap(f"Your weights on the first input sum to {sums}, row by row.", "     ")


def row_sum_shown(work: Work) -> list[Line]:
    return wrap(
        f"It accepts your own weights and {sum(good for _, good in row_sum_cases().values())} other right ones, and "
        f"catches {sum(not good for _, good in row_sum_cases().values())} wrong ones, the wrong axis among them.",
        "     ",
    )


def saturation(work: Work) -> list[tuple[int, float, float, float, float]]:
    """dk, and of the learner's two functions (scaled, not scaled): the median largest weight, the median |dL/dQ|.

    The gradient is that of the softmax at the learner's own weights P: dL/dQ = c · P ∘ (dP - Σ P ∘ dP) K.
    """
    table = []
    for dk in WIDTHS:
        probe = _normal(dk)
        row: list[float] = []
        for name, scale in ((ATTENTION, dk**-0.5), (UNSCALED, 1.0)):
            P = work.output(name, probe)
            if P is None:
                return []
            dP = np.random.default_rng(0).normal(size=P.shape)
            dS = P * (dP - (P * dP).sum(-1, keepdims=True))
            row += [float(np.median(P.max(-1))), float(np.median(np.linalg.norm(scale * dS @ probe.args[1], axis=-1)))]
        table.append((dk, row[0], row[1], row[2], row[3]))
    return table


def scaling_shown(work: Work) -> list[Line]:
    table = saturation(work)
    if not table:
        return []
    lines: list[Line] = [
        [("     Your two functions, medians over 320 queries, unit-normal Q and K:", "")],
        [("        dk   largest weight          |dL/dQ|  (L: a random sum of the outputs)", "bold")],
        [("             ÷ √dk   without    ÷ √dk   without  largest weight, without", "bold")],
    ]
    for dk, w1, g1, w2, g2 in table:
        bar = "█" * round(20 * w2)
        lines.append([(f"     {dk:>5}{w1:>10.2f}{w2:>10.2f}{g1:>9.3f}{g2:>10.4f}  {bar}", "")])
    _, _, g1, w2, g2 = table[-1]
    measured = "about 0.1" if w2 < 0.3 else "above 0.9" if w2 > 0.9 else "about 0.5"
    change = "smaller" if g2 < 0.8 * g1 else "larger" if g2 > 1.25 * g1 else "the same"
    for variable, right, value in (
        ("largest_weight", measured, f"{w2:.2f}"),
        ("typical_gradient", change, f"{g2:.4f} against {g1:.3f}"),
    ):
        said = work.said(variable)
        hit = "as you predicted" if said == right else f'you predicted "{said}"'
        lines += wrap(f"dk = 512, {variable.replace('_', ' ')}: {right} ({value}); {hit}.", "     ")
    more = [str(dk) for dk, _, g1, _, g2 in table if g2 > 1.25 * g1]
    if more and change == "smaller":
        told = f"At dk = {', '.join(more)} it is larger without: the division shrinks gradients by √dk as well, and so "
        told += "far the softmax, as it saturates, shrinks them by less than that. Beyond, it is by more: they vanish."
        lines += wrap(told, "     ")
    return lines


def mask_shown(work: Work) -> list[Line]:
    weights = work.pair(4)
    if weights is None:
        return []
    words = ["1st", "2nd", "3rd", "4th"]
    told = wrap("scaled_dot_product_attention(Q, K, V, causal_mask(4)), exactly 0 above the diagonal:", "     ")
    return [*told, [], *as_table(Map("", weights), words, words)]


def sentence_shown(work: Work) -> list[Line]:
    """The learner's weights on the sentence, raw embeddings first; without the marks [CLS] and [SEP]."""
    parts, words = _sentence(), stored_heads().tokens[1:-1]
    raw, head = (work.output(ATTENTION, parts[name]) for name in ("raw", "head"))
    if raw is None or head is None:
        return []
    itself = int((raw[1:-1].argmax(-1) == np.arange(1, 15)).sum())
    told = wrap(
        f"Raw embeddings as Q = K = V, through your function: {itself} of {len(words)} words look most at themselves, "
        f"since x · x = |x|² is the largest product that most vectors have; but hardly (largest weight "
        f"{raw.max():.2f}, equal ones would be {1 / 16:.2f}), for these vectors are short.",
        "     ",
    )
    told += [[], *wrap("A trained head (MiniLM, layer 3, head 1), through your function:", "     ")]
    lines: list[Line] = [[(f"     {'row':>9}   of all words looks most at", "bold")]]
    for i, word in enumerate(words):
        inner = head[i + 1, 1:-1]
        first, second = np.argsort(-inner)[:2]
        bar = "█" * round(20 * inner[first])
        told_row = f"{words[first]} {inner[first]:.2f}, {words[second]} {inner[second]:.2f}"
        lines.append([(f"     {word:>9}   {told_row:<30}{bar}", "")])
    lines += wrap(
        "The two largest weights of each row, without the marks at the sentence's ends, to which heads look if nothing "
        "fits.",
        "     ",
    )
    if not sentence_step(work):
        why = ACCEPTED[work.said("row"), work.said("it_looks_at")]
        lines += [
            [],
            *wrap(f"{work.said('row')} → {work.said('it_looks_at')}: {why}. Other sensible answers: ", "     "),
        ]
        for (row, word), why in ACCEPTED.items():
            lines += [[(f"       {row} → {word}: {why}", "dim")]] if row != work.said("row") else []
    return [*told, *lines]


def recovery() -> dict[int, tuple[float, float]]:
    """Width: share of 16 pairs that are found, with vectors of their own, and with V = K (50 draws)."""
    rng, table = np.random.default_rng(0), {}
    for width in (4, 8, 16, 32, 64):
        hits = np.zeros(2)
        for _ in range(50):
            address, book = rng.normal(size=(16, width)), rng.normal(size=(32, width))
            chosen = rng.integers(32, size=16)
            content = book[chosen]
            for i, (K, V) in enumerate(((address, content), (address + content, address + content))):
                result = evaluate(ATTENTION, (), Probe("", "", (4 * address, K, V)))
                assert result is not None
                nearest = ((result[0][:, None] - book) ** 2).sum(axis=-1).argmin(axis=-1)
                hits[i] += np.mean(nearest == chosen) / 50
        table[width] = float(hits[0]), float(hits[1])
    return table


def three_shown(work: Work) -> list[Line]:
    if last_step(work):
        return []
    table, said = recovery(), work.said("why_three_projections")
    measured = next((str(w) for w, (_, both) in table.items() if both > 0.9), "never")
    lines: list[Line] = [[("     width   own V   V = K   (share of 16 pairs found, 50 draws)", "bold")]]
    lines += [[(f"     {w:>5}{own:>8.2f}{both:>8.2f}", "")] for w, (own, both) in table.items()]
    hit = "as you predicted" if said == measured else f'you predicted "{said}"'
    told = (
        f"V = K finds nine in ten from width {measured} on; {hit}. One vector that is address and content pays for "
        "both out of one width. With Wq = Wk the scores are symmetric: i cannot look at j without j looking at i."
    )
    return [*lines, [], *wrap(told, "     ")]


@dataclass(frozen=True)
class Step:
    """One exercise: what it asks, the demo that shows it, the findings on it, and what it shows when done."""

    title: str
    demo: str
    findings: Callable[[Work], list[Finding]]
    shown: Callable[[Work], list[Line]] = lambda work: []
    picture: bool = False  # shown before it is done as well: the answer is read off it


STEPS = [
    Step("the function", "scaled_dot_product", function_step, function_shown),
    Step("assert that every row sums to 1", "scaled_dot_product", row_sum_step, row_sum_shown),
    Step("remove the scaling, and predict the symptom", "vanishing_gradients", scaling_step, scaling_shown),
    Step("the causal mask, with your attention", "causal_mask", mask_step, mask_shown),
    Step("a real sentence", "real_sentence", sentence_step, sentence_shown, picture=True),
    Step("several heads", "multi_head", lambda work: _checked(work, "multi_head_attention")),
    Step("another source", "self_vs_cross", lambda work: _checked(work, "cross_attention")),
    Step("the backward pass, by hand", "gradient_check", lambda work: _checked(work, f"{ATTENTION}_backward")),
    Step("why three projections? what breaks if V = K", "three_projections", last_step, three_shown),
]
assert set(KINDS) <= set(plan())
