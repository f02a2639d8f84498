"""The lesson's exercises: a file of stubs, and what each step asks of it. Only the file is remembered."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..text import Line
from .judge.case import Finding
from .judge.diagnose import diagnose
from .judge.outcome import Arrays, evaluate, read
from .known import mutants
from .known.mutants import BY_ID, CAUSAL, ROWS, SCALE, THREE
from .known.probes import KINDS, Probe, probes
from .known.reference import causal_mask
from .report import heatmap, wrap
from .run.isolate import Plan, Run, full_plan

TEMPLATE = '''"""Attention from scratch, in five steps and a few more.

Work from top to bottom; save often. In a second terminal,

    python -m tinyattn check --watch {file}

looks at the file whenever it changes and says what is right, what is not, and what comes next.
All arrays are NumPy arrays. n queries, m keys; rows belong to positions.
"""

import numpy as np

# Step 1: the function -------------------------------------------------------------------------


def scaled_dot_product_attention(Q, K, V, mask=None):
    """Attention(Q, K, V) = softmax(Q Kᵀ / √dk) V: score, scale, normalise, weighted sum.

    Q (n, dk), K (m, dk), V (m, dv)  ->  (n, dv).   dk is the last axis of Q.
    Leave `mask` alone until step 4.
    """
    raise NotImplementedError


# Step 2: row sums -----------------------------------------------------------------------------


def rows_sum_to_one(weights):
    """True if each row of weights (n, m) sums to 1, up to rounding; False if not.

    It will be shown right weights and wrong ones. A test is worth what it catches.
    """
    raise NotImplementedError


# Step 3: no scaling ---------------------------------------------------------------------------
# Predict first. Take 64 queries, 64 keys and dk = 512, all unit normal, and leave out ÷ √dk.

largest_weight = ""  # the largest weight of a typical row: "about 0.1", "about 0.5" or "above 0.9"?
typical_gradient = ""  # dL/dQ of a typical query, against the scaled one: "larger", "the same", "smaller"?


def attention_without_scaling(Q, K, V):
    """Step 1, without the scaling."""
    raise NotImplementedError


# Step 4: the causal mask ----------------------------------------------------------------------
# Write this, then make step 1 use its `mask`: masked scores must get no weight at all.


def causal_mask(n):
    """A boolean (n, n) array: True where position i may attend to position j, that is j ≤ i."""
    raise NotImplementedError


# Step 5: a sentence ---------------------------------------------------------------------------
# The check runs your function on "{sentence}" and draws the weights.

it_looks_at = ""  # read it off the picture: which word does "it" attend to most?


# More: several heads --------------------------------------------------------------------------


def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    """Head i attends with features i·d_head … (i+1)·d_head of X @ Wq, X @ Wk, X @ Wv.

    X (n, d_model), weights (d_model, d_model)  ->  (n, d_model): heads side by side, times Wo.
    A num_heads that does not divide d_model must raise an error.
    """
    raise NotImplementedError


# More: another source -------------------------------------------------------------------------


def cross_attention(X, context, Wq, Wk, Wv):
    """X (n, d) asks; context (m, d) answers  ->  (n, dv)."""
    raise NotImplementedError


# More: the backward pass, by hand -------------------------------------------------------------


def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    """dO (n, dv), the loss's gradient at the output  ->  dQ, dK, dV, shaped like Q, K, V."""
    raise NotImplementedError


# The last question ----------------------------------------------------------------------------
# Q, K and V all come from the same X. Why three projections? What breaks if V = K?

why_three_projections = ""  # your answer in a sentence; then look at the experiment
'''

SENTENCE = ["the", "dog", "was", "tired", "so", "it", "slept"]
_IS = np.eye(6)[[0, 1, 2, 3, 4, 5, 2]]  # article, noun, verb, adjective, conjunction, pronoun, verb
_SEEKS = np.eye(6)[[0, 0, 1, 1, 3, 1, 5]]  # the dog ← was, tired, it;  it ← slept;  tired ← so
SENTENCE_PROBE = Probe("the sentence", "", (6.0 * _SEEKS, _IS, np.eye(7), causal_mask(7)))


def _weights_probes() -> dict[str, tuple[Probe, bool]]:
    """Weights for step 2, and whether their rows sum to 1."""
    Q, K, _ = np.random.default_rng(3).normal(size=(3, 4, 3))
    probe = Probe("", "", (Q[:3], K, np.eye(4)))

    def weights(*ids: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        result: Arrays | None = evaluate("scaled_dot_product_attention", tuple(BY_ID[id].edits[0] for id in ids), probe)
        assert result is not None
        return result[0]

    many = np.full((2, 7), 1 / 7)  # 7 · (1/7) is not exactly 1
    cases = {
        "right weights": (weights(), True),
        "right, up to rounding": (many, True),
        "softmax over the queries": (weights("softmax-over-queries"), False),
        "one softmax over everything": (weights("softmax-over-everything"), False),
        "divided after the softmax": (weights("scale-after-softmax"), False),
        "only one row is wrong": (weights() * [[1], [1], [1.01]], False),
        "too much here, too little there": (weights() * [[1.5], [0.5], [1.0]], False),
        "NaN": (np.where(np.eye(3, 4) > 0, np.nan, weights()), False),
    }
    return {name: (Probe(name, "", (w,)), good) for name, (w, good) in cases.items()}


def plan() -> Plan:
    """All calls of all steps, made in one run."""
    attention = probes("scaled_dot_product_attention")
    return full_plan() | {
        "scaled_dot_product_attention": [*attention, SENTENCE_PROBE],
        "attention_without_scaling": [p for p in attention if len(p.args) == 3],
        "rows_sum_to_one": [p for p, _ in _weights_probes().values()],
    }


def _missing(run: Run, name: str) -> list[Finding]:
    if name in run.records:
        errors = {record.get("error") for record in run.records[name].values()}
        if errors != {"NotImplementedError"}:
            return []
        return [Finding("error-not-written", "bug", name, "Not written yet.")]
    if run.broke:
        told = f"It was not reached: on {run.broke['function']} ({run.broke['probe']}), {run.broke['how']}."
        return [Finding("error-stopped", "bug", name, told)]
    return [Finding("error-missing-function", "bug", name, f"There is no function {name} (any more).")]


def _checked(run: Run, name: str) -> list[Finding]:
    return _missing(run, name) or diagnose(name, name, probes(name), run.records[name])


def function_step(run: Run) -> list[Finding]:
    name = "scaled_dot_product_attention"
    unmasked = [p for p in probes(name) if len(p.args) == 3]
    return _missing(run, name) or diagnose(name, name, unmasked, run.records[name])


def row_sum_step(run: Run) -> list[Finding]:
    name = "rows_sum_to_one"
    for case, (probe, good) in _weights_probes().items() if not (found := _missing(run, name)) else ():
        record = run.records[name].get(case, {"error": "Stopped", "message": ""})
        error, value = record.get("error"), record.get("value", {})
        said = (
            error != "AssertionError"
            if "value" not in record
            else value.get("value", value["type"]) in (True, "True", "NoneType")
        )
        if error and error != "AssertionError":
            text = f"On {case} it raises {error}: {record['message']}."
        elif said == good:
            continue
        else:
            text = f"It says {said} to these weights ({case}); they are {'right' if good else 'wrong'}."
        return [
            Finding(
                "property-row-sum-test",
                "bug",
                name,
                text,
                "Which axis belongs to one query? And is 0.9999999999999999 equal to 1?",
                ROWS,
                {"input": case, "arguments": {"weights": probe.args[0]}},
            )
        ]
    return found


def scaling_step(run: Run) -> list[Finding]:
    name = "attention_without_scaling"
    if found := _missing(run, name):
        return found
    unmasked = [p for p in probes("scaled_dot_product_attention") if len(p.args) == 3]
    found = diagnose("scaled_dot_product_attention", name, unmasked, run.records[name])
    bugs = [f for f in found if f.severity == "bug"]
    if "no-scale" not in [f.id for f in bugs]:
        return bugs or [Finding("property-still-scaled", "bug", name, "It still scales its scores.", lesson=SCALE)]
    if len(bugs) > 1:
        return [f for f in bugs if f.id != "no-scale"]
    for variable, right, answers in (
        ("largest_weight", "above 0.9", ("about 0.1", "about 0.5", "above 0.9")),
        ("typical_gradient", "smaller", ("larger", "the same", "smaller")),
    ):
        said = run.said.get(variable, "")
        if said != right:
            text = (
                f"Predict: set `{variable}` to one of " + ", ".join(f'"{a}"' for a in answers) + "."
                if said not in answers
                else (f'`{variable} = "{said}"`: the experiment below says otherwise.')
            )
            return [
                Finding(
                    f"property-prediction-{variable.replace('_', '-')}",
                    "bug",
                    name,
                    text,
                    "A dot product of 512 unit-normal terms has a standard deviation of √512 ≈ 23.",
                    SCALE,
                )
            ]
    return []


def mask_step(run: Run) -> list[Finding]:
    return _checked(run, "causal_mask") + _checked(run, "scaled_dot_product_attention")


def sentence_step(run: Run) -> list[Finding]:
    said = run.said.get("it_looks_at", "")
    if said == "dog":
        return []
    text = "Set `it_looks_at` to the word." if not said else f'"{said}" is not the peak of the row of "it".'
    return [
        Finding(
            "property-sentence",
            "bug",
            "",
            text,
            "Rows are queries: find the row, then its largest cell.",
            CAUSAL,
        )
    ]


def last_step(run: Run) -> list[Finding]:
    if len(run.said.get("why_three_projections", "").split()) >= 3:
        return []
    return [
        Finding(
            "property-why-three",
            "bug",
            "",
            "Answer in `why_three_projections`; then comes the experiment.",
            "What would a key have to look like that is also the thing handed over?",
            THREE,
        )
    ]


def scaling_experiment(run: Run) -> list[Line]:
    """Weights and gradients at dk = 512, scaled and not: medians over 20 draws of 64 rows."""
    if not run.said.get("largest_weight") or not run.said.get("typical_gradient"):
        return []
    rng, rows = np.random.default_rng(0), {}
    draws = [rng.normal(size=(64, w)) for _ in range(20) for w in (64, 512, 512, 64)]
    for name, edit in (("scaled", {}), ("not scaled", BY_ID["no-scale"].edits[1])):
        largest, norms = [], []
        for dO, Q, K, V in zip(*[iter(draws)] * 4):
            function = mutants.program("scaled_dot_product_attention_backward", (edit,))
            assert function is not None
            largest += list(function.__globals__["attention_weights"](Q, K).max(axis=-1))
            norms += list(np.linalg.norm(function(dO / 8, Q, K, V)[0], axis=-1))
        rows[name] = np.median(largest), np.median(norms), np.mean(np.array(norms) < 1e-3)
    lines: list[Line] = [
        [("     dk = 512, medians over 20 × 64 rows   largest weight   |dL/dQ|   rows below 0.001", "bold")]
    ]
    for name, (weight, norm, dead) in rows.items():
        lines.append([(f"     {name:<38}{weight:>14.2f}{norm:>10.4f}{dead:>16.0%}", "")])
    return [*lines, []]


def sentence_picture(run: Run) -> list[Line]:
    """The learner's own weights on the sentence (V = I, so the output is the weights)."""
    record = run.records.get("scaled_dot_product_attention", {}).get("the sentence")
    outcome = read(record, (np.eye(7),))
    if outcome.arrays is None or outcome.arrays[0].shape != (7, 7):
        return []
    made = wrap(
        "Vectors made by hand (each word seeks a part of speech), weights by your function, causal mask. "
        "A row is a word that asks.",
        "     ",
        "dim",
    )
    return [*made, [], *heatmap(outcome.arrays[0], SENTENCE), []]


def three_experiment(run: Run) -> list[Line]:
    """Look 16 payloads up by 16 addresses: with vectors of their own, or one vector for both (V = K)."""
    if last_step(run):
        return []
    lines: list[Line] = [
        [("     width   own V   V = K   (16 pairs, random vectors: share read back, 50 draws)", "bold")]
    ]
    rng = np.random.default_rng(0)
    for width in (4, 8, 16, 32, 64):
        hits = np.zeros(2)
        for _ in range(50):
            address, book = rng.normal(size=(16, width)), rng.normal(size=(32, width))
            said = rng.integers(32, size=16)
            payload = book[said]
            for i, (K, V) in enumerate(((address, payload), (address + payload, address + payload))):
                probe = Probe("", "", (4 * address, K, V))
                result = evaluate("scaled_dot_product_attention", (), probe)
                assert result is not None
                nearest = ((result[0][:, None] - book) ** 2).sum(axis=-1).argmin(axis=-1)
                hits[i] += np.mean(nearest == said) / 50
        lines.append([(f"     {width:>5}{hits[0]:>8.2f}{hits[1]:>8.2f}", "")])
    told = (
        "Wq asks, Wk advertises, Wv hands over. If V = K, one vector must be the address and the content, "
        "and each gets in the other's way, most where the width is short. If Wq = Wk, scores are symmetric: "
        "i cannot look at j without j looking at i."
    )
    return [*lines, [], *wrap(told, "     ")]


@dataclass(frozen=True)
class Step:
    """One exercise: what it asks, the findings on it, and a picture or table to look at."""

    title: str
    findings: Callable[[Run], list[Finding]]
    extra: Callable[[Run], list[Line]] = lambda run: []


STEPS = [
    Step("the function", function_step),
    Step("verify that rows sum to 1", row_sum_step),
    Step("remove the scaling at dk = 512, and predict the symptom", scaling_step, scaling_experiment),
    Step("the causal mask", mask_step),
    Step("a sentence's heatmap", sentence_step, sentence_picture),
    *(
        Step(title, lambda run, name=name: _checked(run, name))  # type: ignore[misc]
        for title, name in (
            ("several heads", "multi_head_attention"),
            ("another source", "cross_attention"),
            ("the backward pass, by hand", "scaled_dot_product_attention_backward"),
        )
    ),
    Step("why three projections?", last_step, three_experiment),
]
assert set(KINDS) <= set(plan())
