"""Hints for each step, from the least to the most, and a solution at the end of them."""

import re

from ..known.mutants import source

HINTS = [
    (
        "Four lines: the scores, the softmax in two, the mean of V. Which shapes have they?",
        "Q @ K.T is (n, m): a row for each query. The last axis of Q has dk entries.",
        "A softmax along the last axis: take each row's maximum away, np.exp, divide by each row's sum. With "
        "keepdims=True the maximum and the sum are (n, 1), and fit.",
    ),
    (
        "weights.sum of which axis gives one number for each query?",
        "Sums of floats are seldom exactly 1: np.allclose.",
        "NaN equals nothing, so np.allclose refuses it; a comparison like > .01 does not.",
    ),
    (
        "Which line of step 1 goes? Or: what must Q be multiplied by, for the division to be undone?",
        "A dot product of 512 unit normal terms has a standard deviation of √512 ≈ 23.",
        "Of scores that are 23 apart, e^23 goes to the largest. P · (dP − Σ P dP) where P is 0 or 1?",
    ),
    (
        "np.tri(3) has ones where j ≤ i.",
        "A weight is exactly 0 after the softmax if its score was −∞ before: np.where(mask, scores, -np.inf).",
        "A mask says what may be attended to, or what may not. Yours and your attention must say the same.",
    ),
    ("The table below has a row for each word: go along the row of `it` to the largest number.",),
    (
        "X @ Wq is (n, d_model): head i owns the columns from i · d_head on. reshape(n, h, d_head) puts them apart.",
        "Heads go in front: swapaxes(0, 1) makes (h, n, d_head). Your attention of step 1 must then read K "
        "as swapaxes(-1, -2) instead of .T.",
        "Back the same way: swapaxes first, then reshape to (n, d_model), then @ Wo.",
    ),
    ("Who asks? Who answers?", "Q comes from X. K and V come from the context."),
    (
        "Name the steps: S = Q Kᵀ / √dk, P = softmax(S), O = P V. Go back through them in turn.",
        "dV = Pᵀ dO and dP = dO Vᵀ. Then through the softmax: a row of P moves together.",
        "dS = P · (dP − Σ P dP), the sum along each row. Then dQ = dS K / √dk, and dK is like it, with dSᵀ.",
    ),
    (
        "One vector that is address and content: the query knows the address. What does the content do to scores?",
        "It adds noise. How does noise in a dot product compare with its signal, as the width grows?",
    ),
]

_ANSWERS = {
    2: "def rows_sum_to_one(weights):\n    assert np.allclose(weights.sum(axis=-1), 1)",
    3: 'largest_weight = "above 0.9"\ntypical_gradient = "smaller"\n\n\n'
    "def attention_without_scaling(Q, K, V):\n"
    "    return scaled_dot_product_attention(Q * np.sqrt(Q.shape[-1]), K, V)",
    5: 'row = "it"\nit_looks_at = "animal"',
    9: 'why_three_projections = "32"',
}
_KINDS = {
    1: "scaled_dot_product_attention",
    4: "causal_mask",
    6: "multi_head_attention",
    7: "cross_attention",
    8: "scaled_dot_product_attention_backward",
}


def solution(step: int) -> str:
    """What a step asks for, written. Steps 6 and 7 use the attention that is there."""
    if step in _ANSWERS:
        return _ANSWERS[step]
    text = plain_source(_KINDS[step])
    return text.rpartition("\n\n\n")[2] if step in (6, 7) else text


def plain_source(kind: str, *edits: dict[str, str]) -> str:
    """The right program, with edits in it, that runs as it stands: for inputs that are not broadcast."""
    return re.sub(r"sum_to\((\w+), \w+\.shape\)", r"\1", source(kind, edits) or "")
