"""What learners get wrong: each mistake as an edit of the right program.

An edit maps the name of a line of reference.py to what the mistake puts in its place, where `{}` is the
line as it was. The same mistake comes in several hands, so a mutant has several edits; the first is the
one that `break` shows. Because mistakes are edits, two mistakes at once are two edits at once.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import reference

Edit = dict[str, str]

SCORE = "Attention(Q, K, V) = softmax(Q Kᵀ / √dk) V: score, scale, normalise, weighted sum."
SCALE = (
    "Without ÷ √dk, dot products grow with dk (their variance is dk), softmax saturates, "
    "gradients vanish, training fails."
)
ROWS = "Every row of the softmax sums to 1; the wrong axis is the classic bug."
CAUSAL = "Causal mask: the upper triangle is −∞, position i attends only to j ≤ i."
THREE = "Q asks, K advertises, V hands over. Why three? What breaks if V = K?"
HEADS = "Multi-head is not redundancy: one head expresses one relation per position; h heads express h."
CROSS = "Self and cross attention differ only in where Q comes from."


@dataclass(frozen=True)
class Mutant:
    """A mistake: its name, what is wrong, a hint, the lesson's sentence, its edits; and what it does where it is the
    only one (beside another, rows may sum to something else)."""

    id: str
    mistake: str
    hint: str
    lesson: str
    edits: tuple[Edit, ...]
    severity: str = "bug"
    alone: str = ""

    @property
    def what(self) -> str:
        return self.mistake + (f": {self.alone}" if self.alone else "")


FILL = "FILL"  # stands for the number in a masked score's place, which is fitted to the learner's output
KEPT = "kept"  # what a program keeps from one call to the next
_GLOBAL = "scores = scores - scores.max()"
_SUM = "weights = weights / weights.sum("
_OWN = "np.tril(np.ones(scores.shape[-2:], dtype=bool), {k})"
_OWN_SQUARE = "np.tril(np.ones(scores.shape[-2:-1] * 2, dtype=bool), {k})"
_OWN_LATE = "np.tril(np.ones(scores.shape[-2:], dtype=bool), {k} + scores.shape[-1] - scores.shape[-2])"


def _own_triangle(k: int, upper: bool = False) -> tuple[Edit, ...]:
    """The ways to build a triangle of one's own instead of using the mask that was given."""
    triangles = [text.format(k=k) for text in (_OWN_SQUARE, _OWN, _OWN_LATE)]
    if upper:
        triangles = [text.replace("tril", "triu") for text in triangles]
    given = [{"which": f"allowed = {t}"} for t in triangles] + [{"which": f"allowed = mask & {t}"} for t in triangles]
    always = [{"when": "if True:", "which": f"allowed = {t}"} for t in triangles]
    default = [
        {"when": "if True:", "which": f"allowed = {t} if mask is None else mask{more}"}
        for t in triangles[1:]
        for more in ("", f" & {t}")
    ]
    return (*given, *always, *default)


MUTANTS = [
    Mutant(
        "softmax-over-queries",
        "the softmax runs over the queries (axis −2)",
        "Fix one query. Which numbers must share its attention, and along which axis do they lie?",
        ROWS,
        (
            {
                "shift": "scores = scores - scores.max(axis=-2, keepdims=True)",
                "normalise": _SUM + "axis=-2, keepdims=True)",
            },
            {"normalise": _SUM + "axis=-2, keepdims=True)"},
            {
                "shift": _GLOBAL,
                "normalise": _SUM + "axis=-2, keepdims=True)",
                "dS": "dS = P * (dP - (dP * P).sum(axis=-2, keepdims=True))",
            },
        ),
        alone="columns sum to 1 where rows should",
    ),
    Mutant(
        "softmax-over-heads",
        "the softmax runs over the heads (axis −3): for each query and key, the heads share what the keys should",
        "Count axes from the end: what are the last three of (heads, n, m)?",
        ROWS,
        (
            {
                "attend": "scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])\n"
                "if mask is not None:\n    scores = np.where(mask, scores, -np.inf)\n"
                "weights = np.exp(scores - scores.max(axis=-3, keepdims=True))\n"
                "heads = weights / weights.sum(axis=-3, keepdims=True) @ V",
            },
            {
                "shift": "scores = scores - scores.max(axis=-3, keepdims=True)",
                "normalise": _SUM + "axis=-3, keepdims=True)",
            },
            {"normalise": _SUM + "axis=-3, keepdims=True)"},
        ),
    ),
    Mutant(
        "softmax-over-batch",
        "the softmax runs over axis 0, the batch as soon as there is one, instead of the last axis (keys)",
        "Count axes from the end: what does −1 mean for (n, m), and what for (batch, n, m)?",
        ROWS,
        (
            {
                "shift": "scores = scores - scores.max(axis=0, keepdims=True)",
                "normalise": _SUM + "axis=0, keepdims=True)",
            },
            {
                "shift": _GLOBAL,
                "normalise": "weights = np.ones_like(weights) if weights.ndim == 2 "
                "else weights / weights.sum(axis=0, keepdims=True)",
            },
            {"normalise": _SUM + "axis=0 if weights.ndim > 2 else -1, keepdims=True)"},
        ),
    ),
    Mutant(
        "softmax-over-everything",
        "one softmax runs over the whole matrix",
        "How much attention does each single query have to give away?",
        ROWS,
        (
            {"shift": _GLOBAL, "normalise": _SUM + ")"},
            {"normalise": _SUM + ")"},
            {
                "shift": "scores = scores - scores.max(axis=(-2, -1), keepdims=True)",
                "normalise": _SUM + "axis=(-2, -1), keepdims=True)",
            },
            {"normalise": _SUM + "axis=(-2, -1), keepdims=True)"},
        ),
        alone="all weights together sum to 1, not each row",
    ),
    Mutant(
        "sum-without-keepdims",
        "a row's maximum or sum lost its axis and is broadcast along the wrong one: silent when n = m",
        "Print the shape of each row's sum. Against which axis does NumPy line up a vector?",
        ROWS,
        (
            {"normalise": _SUM + "axis=-1)"},
            {"shift": _GLOBAL, "normalise": _SUM + "axis=-1)"},
            {"shift": "scores = scores - scores.max(axis=-1)", "normalise": _SUM + "axis=-1)"},
            {"shift": "scores = scores - scores.max(axis=-1)"},
            {"normalise": _SUM + "axis=-1)[..., None, :]"},
            {
                "shift": "scores = scores - scores.max(axis=-1)[..., None, :]",
                "normalise": _SUM + "axis=-1)[..., None, :]",
            },
        ),
    ),
    Mutant(
        "no-max-subtraction",
        "exp is taken of raw scores and overflows past 709 (float64) or 88 (float32)",
        "softmax(s) = softmax(s − c) for any c. Which c, one per row, makes overflow impossible?",
        SCORE,
        ({"shift": "pass"},),
        alone="right on ordinary input, but not stable",
    ),
    Mutant(
        "not-normalised",
        "the scores are not turned into shares: after exp, nothing divides by the row's sum",
        "Add up one row of your weights.",
        ROWS,
        (
            {"normalise": "pass"},
            {"shift": "pass", "normalise": "pass"},
            {"shift": _GLOBAL, "normalise": "pass"},
            {"shift": "pass", "exp": "weights = scores", "normalise": "pass"},
            {
                "shift": "pass",
                "exp": "weights = scores if mask is None else np.where(mask, scores, 0.0)",
                "normalise": "pass",
            },
        ),
    ),
    Mutant(
        "no-scale",
        "the division by √dk is missing",
        "A dot product of dk unit-variance terms has variance dk. What brings it back to 1?",
        SCALE,
        ({"scale": "pass"}, {"scale": "pass", "dQ": "dQ = dS @ K", "dK": "dK = dS.swapaxes(-1, -2) @ Q"}),
        alone="too sharp, and worse as dk grows",
    ),
    Mutant(
        "scale-dk",
        "the scores are divided by dk (or twice by √dk) instead of by √dk",
        "It is the variance that grows like dk. How does the standard deviation grow?",
        SCALE,
        (
            {"scale": "scores = scores / dk"},
            {
                "scale": "scores = scores / dk",
                "dQ": "dQ = dS @ K / Q.shape[-1]",
                "dK": "dK = dS.swapaxes(-1, -2) @ Q / Q.shape[-1]",
            },
        ),
        alone="too flat",
    ),
    Mutant(
        "scale-inverted",
        "the scores are multiplied by √dk instead of divided",
        "Should the scores get larger or smaller as dk grows?",
        SCALE,
        (
            {"scale": "scores = scores * np.sqrt(dk)"},
            {
                "scale": "scores = scores * np.sqrt(dk)",
                "dQ": "dQ = dS @ K * np.sqrt(Q.shape[-1])",
                "dK": "dK = dS.swapaxes(-1, -2) @ Q * np.sqrt(Q.shape[-1])",
            },
        ),
        alone="nearly one-hot",
    ),
    Mutant(
        "scale-d-model",
        "the scores are divided by √d_model instead of √d_head",
        "Over how many terms does one head's dot product run?",
        SCALE,
        (
            {"attend": "heads = scaled_dot_product_attention(Q / np.sqrt(num_heads), K, V, mask)"},
            {"attend": "heads = scaled_dot_product_attention(Q * np.sqrt(Q.shape[-1] / X.shape[-1]), K, V, mask)"},
        ),
        alone="too flat by √num_heads",
    ),
    Mutant(
        "scale-after-softmax",
        "the weights are divided by √dk instead of the scores",
        "The division has to happen before something saturates. Before what?",
        SCALE,
        (
            {"scale": "pass", "normalise": "{}\nweights = weights / np.sqrt(dk)"},
            {"normalise": "{}\nweights = weights / np.sqrt(dk)"},
        ),
        alone="rows sum to 1/√dk",
    ),
    Mutant(
        "key-reshaped",
        "K is reshaped to (dk, m) instead of transposed: the right shape, scrambled numbers",
        "Write down K for m = 3, dk = 2, reshape it to (2, 3), and look for the first key.",
        SCORE,
        ({"scores": "scores = Q @ K.reshape(*K.shape[:-2], dk, K.shape[-2])"},),
    ),
    Mutant(
        "weights-transposed",
        "queries and keys have changed places (K Qᵀ, or the weights transposed): it fails where n ≠ m",
        "Row i of the weights belongs to query i. What does row i of yours belong to?",
        SCORE,
        ({"mix": "return weights.swapaxes(-1, -2) @ V"}, {"scores": "scores = K @ Q.swapaxes(-1, -2)"}),
    ),
    Mutant(
        "value-from-key-projection",
        "the values are projected by Wk: V = X Wk trains, but weaker",
        "Count how often each of the weight matrices is used.",
        THREE,
        (
            {
                "project": "Q, K, V = split(X @ Wq), split(X @ Wk), split(X @ Wk)",
                "sources": "Q, K, V = X @ Wq, context @ Wk, context @ Wk",
            },
        ),
    ),
    Mutant(
        "value-is-key",
        "the weights mix the keys instead of the values",
        "What did the position advertise, and what did it promise to hand over?",
        THREE,
        ({"mix": "return weights @ K"},),
        alone="right attention, wrong payload",
    ),
    Mutant(
        "mask-times-inf",
        "the mask is multiplied by −inf: 0 · inf is NaN, everywhere that is allowed",
        "What is 0 · inf? Choose between two numbers (np.where) instead of multiplying.",
        CAUSAL,
        (
            {
                "mask": "scores = scores + (1.0 - allowed) * -np.inf",
                "causal": "return (1.0 - np.tril(np.ones((n, n)))) * -np.inf",
            },
        ),
    ),
    Mutant(
        "mask-ignored",
        "a mask is accepted and not used",
        "Where does your function read `mask`?",
        CAUSAL,
        ({"which": "allowed = np.ones_like(mask)"},),
    ),
    Mutant(
        "mask-inverted",
        "the mask works the wrong way round: attention goes only where it is forbidden",
        "Here True means may attend. (torch.nn.MultiheadAttention means the opposite.)",
        CAUSAL,
        (
            {"which": "allowed = ~mask"},
            *({"when": "if True:", "which": f"allowed = ~{t.format(k=k)}"} for k in (0, -1) for t in (_OWN, _OWN_LATE)),
        ),
    ),
    Mutant(
        "mask-transposed",
        "the mask is transposed (the wrong triangle): positions see the future, not the past",
        "Row i of the mask belongs to query i. Print it for n = 3 and read row 0.",
        CAUSAL,
        (
            {"which": "allowed = mask.swapaxes(-1, -2)", "causal": "return np.triu(np.ones((n, n), dtype=bool))"},
            *_own_triangle(0, upper=True),
        ),
    ),
    Mutant(
        "causal-excludes-self",
        "the triangle is off by one: a position may not attend to itself, and the first has nothing at all",
        "j ≤ i: is j = i in or out?",
        CAUSAL,
        (
            {
                "causal": "return np.tril(np.ones((n, n), dtype=bool), -1)",
                "which": "allowed = mask & ~np.eye(*scores.shape[-2:], dtype=bool)",
            },
            *_own_triangle(-1),
        ),
    ),
    Mutant(
        "causal-sees-next",
        "the triangle is off by one: a position sees the next one, the very token it has to predict",
        "j ≤ i: is j = i + 1 in or out? Which k of np.tril or np.triu is the diagonal itself?",
        CAUSAL,
        (
            {
                "causal": "return np.tril(np.ones((n, n), dtype=bool), 1)",
                "which": "allowed = mask | np.eye(*scores.shape[-2:], k=1, dtype=bool)",
            },
            *_own_triangle(1),
        ),
    ),
    Mutant(
        "mask-fill-zero",
        "masked scores are set to 0 (or a tiny number): exp(0) = 1, so the forbidden keys still count",
        "Which score has an exponential of 0?",
        CAUSAL,
        (
            {"mask": "scores = np.where(allowed, scores, 0.0)"},
            {"mask": "pass", "shift": "{}\nif mask is not None:\n    scores = np.where(allowed, scores, 0.0)"},
        ),
    ),
    Mutant(
        "mask-as-bias",
        "a mask of ones and zeros is added to the scores: it forbids nothing, it only nudges",
        "What must be added to a score so that its exponential is 0? And to one that may stay?",
        CAUSAL,
        (
            {"mask": "scores = scores + allowed", "causal": "return np.tril(np.ones((n, n)))"},
            {"scale": "if mask is not None:\n    scores = scores + mask\n{}", "mask": "pass"},
            {"mask": "scores = scores - allowed"},
            {"mask": "scores = scores + ~allowed"},
        ),
    ),
    Mutant(
        "mask-fill-small",
        "masked scores get a number that is not low enough: it leaks where allowed scores are lower still",
        "Is there an allowed score below your number? Which number has none below it?",
        CAUSAL,
        (
            {"mask": f"scores = np.where(allowed, scores, {FILL})"},
            {"mask": f"scores = scores + np.where(allowed, 0.0, {FILL})"},
            {"scale": f"if mask is not None:\n    scores = np.where(mask, scores, {FILL})\n{{}}", "mask": "pass"},
            {"scale": f"if mask is not None:\n    scores = scores + np.where(mask, 0.0, {FILL})\n{{}}", "mask": "pass"},
        ),
    ),
    Mutant(
        "mask-fill-finite",
        "masked scores get a finite number (−1e9, −1e30): fine until a row has no allowed key, which then "
        "attends to all of them, or allowed scores are lower still",
        "What does your function return for a query that may attend to nothing?",
        CAUSAL,
        (
            {"mask": "scores = np.where(allowed, scores, -1e9)"},
            {"mask": "scores = scores + np.where(allowed, 0.0, -1e9)"},
        ),
        "note",
    ),
    Mutant(
        "mask-after-softmax",
        "the mask is applied after the softmax",
        "Who has divided the attention among the keys before the mask comes?",
        CAUSAL,
        ({"mask": "pass", "normalise": "{}\nif mask is not None:\n    weights = weights * allowed"},),
        alone="forbidden keys took a share first, rows sum to less than 1",
    ),
    Mutant(
        "mask-after-softmax-renormalised",
        "the mask is applied after the largest score of all keys, forbidden ones too, was subtracted",
        "Let a forbidden score be 1e5 and all allowed ones 0. What is left of the row?",
        CAUSAL,
        (
            {
                "mask": "pass",
                "normalise": "{}\nif mask is not None:\n    weights = weights * allowed\n"
                "    weights = weights / weights.sum(axis=-1, keepdims=True)",
            },
        ),
        "note",
        alone="equal, unless a forbidden score is so large that the allowed ones underflow, which leaves 0 / 0",
    ),
    Mutant(
        "empty-row-nan",
        "a row with every key masked gives NaN; conventions differ (here and in tinyattn: NaN or zeros pass)",
        "0 / 0. tinyattn returns zeros there, so that one empty row cannot poison a training run.",
        CAUSAL,
        ({},),
        "note",
    ),
    Mutant(
        "inputs-modified",
        "an input is changed in place, so a second call with the same arrays differs",
        "Which of your lines write with /=, *=, += or [...] = into an array that was handed in?",
        SCORE,
        ({"scores": "Q /= np.sqrt(dk)\n{}", "scale": "pass"},),
    ),
    Mutant(
        "causal-needs-square",
        "a triangle is built inside instead of using the mask that was given: other masks, and n ≠ m, fail",
        "Where do the numbers in your mask come from: the argument, or n?",
        CAUSAL,
        _own_triangle(0),
    ),
    Mutant(
        "heads-split-without-transpose",
        "the features are reshaped straight to (heads, n, d_head): heads get pieces of other tokens",
        "Reshape keeps the order in memory. Which axis must move before heads can come first?",
        HEADS,
        (
            {"split": "return A.reshape(*batch, num_heads, n, -1)"},
            {
                "split": "return A.reshape(*batch, n, num_heads, -1)",
                "join": "joined = heads.reshape(*batch, n, d_model)",
            },
            {"split": "return A.reshape(*batch, n, num_heads, -1)"},
        ),
    ),
    Mutant(
        "heads-merge-without-transpose",
        "the heads are joined before their axis is moved back: tokens are scrambled, and it still trains",
        "Row 0 of the result must hold every head's answer for token 0.",
        HEADS,
        ({"join": "joined = heads.reshape(*batch, n, d_model)"},),
    ),
    Mutant(
        "heads-split-and-merge",
        "heads are split and joined by reshape alone: a round trip is the identity, so round-trip tests pass",
        "Test the split on its own: which numbers of token 0 does head 1 see?",
        HEADS,
        (
            {
                "split": "return A.reshape(*batch, num_heads, n, -1)",
                "join": "joined = heads.reshape(*batch, n, d_model)",
            },
        ),
    ),
    Mutant(
        "property-heads-interleaved",
        "heads take every h-th feature, where a head is a block of features",
        "With d_model = 4 and 2 heads, head 0 owns features 0 and 1.",
        HEADS,
        (
            {
                "split": "return A.reshape(*batch, n, -1, num_heads).swapaxes(-1, -2).swapaxes(-2, -3)",
                "join": "joined = heads.swapaxes(-2, -3).swapaxes(-1, -2).reshape(*batch, n, d_model)",
            },
            {"split": "return A.reshape(*batch, n, -1, num_heads).swapaxes(-1, -2).swapaxes(-2, -3)"},
            {"join": "joined = heads.swapaxes(-2, -3).swapaxes(-1, -2).reshape(*batch, n, d_model)"},
        ),
        alone="a valid model, but not this one",
    ),
    Mutant(
        "property-projections-swapped",
        "the projections have changed places: each of Wq, Wk, Wv must make its own of Q, K, V",
        "Read your three projections aloud: Q is X times …",
        THREE,
        tuple(
            {
                "project": f"Q, K, V = split(X @ {q}), split(X @ {k}), split(X @ {v})",
                "sources": f"Q, K, V = X @ {q}, context @ {k}, context @ {v}",
            }
            for q, k, v in (
                ("Wq", "Wv", "Wk"),
                ("Wk", "Wq", "Wv"),
                ("Wq", "Wq", "Wv"),
                ("Wk", "Wk", "Wv"),
                ("Wq", "Wk", "Wq"),
            )
        ),
    ),
    Mutant(
        "property-projections-transposed",
        "the weight matrices are used as X Wᵀ (as in torch.nn.Linear); here they are meant as X W",
        "With W of shape (d_in, d_out), which product has shape (n, d_out)?",
        THREE,
        (
            {
                "project": "Q, K, V = split(X @ Wq.T), split(X @ Wk.T), split(X @ Wv.T)",
                "output": "return joined @ Wo.T",
                "sources": "Q, K, V = X @ Wq.T, context @ Wk.T, context @ Wv.T",
            },
            {"project": "Q, K, V = split(X @ Wq.T), split(X @ Wk.T), split(X @ Wv.T)"},
            {"output": "return joined @ Wo.T"},
        ),
    ),
    Mutant(
        "no-output-projection",
        "Wo is missing: the heads' answers are put side by side, averaged or summed, and never mixed",
        "Where is Wo used?",
        HEADS,
        (
            {"output": "return joined"},
            *(
                {"join": f"joined = heads.{how}(axis=-3)", "output": out}
                for how in ("mean", "sum")
                for out in ("return joined", "return joined @ Wo[: d_model // num_heads]")
            ),
        ),
    ),
    Mutant(
        "cross-sources-swapped",
        "the sources are swapped: Q must come from X, which asks, K and V both from the context, which answers",
        "Go through Q, K and V one by one: which of the two sequences does each come from?",
        CROSS,
        tuple(
            {"sources": f"Q, K, V = {q} @ Wq, {k} @ Wk, {v} @ Wv"}
            for q, k, v in (
                ("context", "X", "X"),
                ("X", "X", "X"),
                ("context", "context", "context"),
                ("X", "context", "X"),
                ("X", "X", "context"),
                ("context", "X", "context"),
                ("context", "context", "X"),
            )
        )
        + tuple(
            {"project": f"Q, K, V = split({q} @ Wq), split({k} @ Wk, num_kv_heads), split({v} @ Wv, num_kv_heads)"}
            for q, k, v in (("X", "Xk", "X"), ("X", "X", "Xv"), ("X", "X", "X"), ("Xk", "X", "X"), ("Xk", "Xk", "Xv"))
        ),
    ),
    Mutant(
        "mask-rank",
        "a mask per batch entry, (B, 1, n, m), is not lined up with scores (B, heads, n, m): "
        "as (B, n, m) it would be taken for a mask per head wherever B = heads",
        "NumPy lines up shapes from the right. Which axis of the scores meets the mask's B?",
        HEADS,
        ({"attend": "heads = scaled_dot_product_attention(Q, K, V, mask[:, 0] if np.ndim(mask) == 4 else mask)"},),
        "note",
    ),
    Mutant(
        "softmax-backward-elementwise",
        "the softmax is differentiated like a sigmoid, p (1 − p): the off-diagonal −pᵢpⱼ is missing",
        "If one score of a row rises, what happens to the other weights of that row?",
        ROWS,
        ({"dS": "dS = dP * P * (1.0 - P)"},),
    ),
    Mutant(
        "softmax-backward-no-row-sum",
        "dS = P ∘ dP lacks the − rowsum(dP ∘ P): adding a constant to a row of scores must change nothing",
        "Each row of dS must sum to 0. Why, and what subtracts the excess?",
        ROWS,
        ({"dS": "dS = P * dP"},),
    ),
    Mutant(
        "backward-scale-missing",
        "the 1/√dk is missing in dQ, in dK, or in both",
        "The forward pass scales the scores once. How often does the chain rule meet that factor?",
        SCALE,
        (
            {"dQ": "dQ = dS @ K", "dK": "dK = dS.swapaxes(-1, -2) @ Q"},
            {"dQ": "dQ = dS @ K"},
            {"dK": "dK = dS.swapaxes(-1, -2) @ Q"},
        ),
    ),
    Mutant(
        "backward-dk-untransposed",
        "dK = dS Q where it must be dSᵀ Q: keys are the columns of the scores",
        "What is the shape of dS, what is that of dK, and which product fits when n ≠ m?",
        SCORE,
        ({"dK": "dK = dS @ Q / np.sqrt(Q.shape[-1])"},),
    ),
    Mutant(
        "backward-broadcast-not-summed",
        "K and V were shared by the whole batch, but their gradients come back once per batch entry: "
        "the gradient of a broadcast input is the sum over its copies",
        "A gradient has the shape of its input. What became of the batch axis?",
        SCORE,
        ({"sum": "return dQ, dK, dV"},),
        "note",
    ),
    Mutant(
        "scale-n",
        "the scores are divided by √n, the number of queries or keys, instead of √dk, the width of a key",
        "The variance of q·k grows with the number of its terms. How many products does one score sum?",
        SCALE,
        tuple({"scale": f"scores = scores / np.sqrt({n})"} for n in ("scores.shape[-2]", "scores.shape[-1]")),
    ),
    Mutant(
        "scale-precedence",
        "dk ** 1 / 2 is (dk ** 1) / 2, half of dk: ** binds tighter than /, and the root is dk ** 0.5",
        "Print dk ** 1 / 2 for dk = 64.",
        SCALE,
        ({"scale": "scores = scores / (dk**1 / 2)"}, {"scale": "scores = scores * (dk**-1 / 2)"}),
    ),
    Mutant(
        "scale-floor",
        "the scores, or √dk, are rounded to whole numbers (//, int, round): scores that differ by less become equal",
        "What is 7 // 2, and what is 7 / 2?",
        SCALE,
        (
            {"scale": "scores = scores // np.sqrt(dk)"},
            {"scale": "scores = scores / (np.sqrt(dk) // 1)"},
            {"scale": "scores = np.trunc(scores / np.sqrt(dk))"},
            {"scale": "scores = np.round(scores / np.sqrt(dk))"},
            {"scale": "scores = scores / np.round(np.sqrt(dk))"},
        ),
    ),
    Mutant(
        "softmax-twice",
        "the softmax is taken twice: the second one flattens what the first one decided",
        "Weights lie between 0 and 1. What does a softmax make of numbers that differ by less than 1?",
        ROWS,
        (
            {
                "normalise": "{}\nweights = np.exp(weights)\nweights = weights / weights.sum(axis=-1, keepdims=True)",
            },
        ),
    ),
    Mutant(
        "softmin",
        "the scores enter with a minus: the least similar key gets the most attention",
        "Which key should win, the one with the largest score or the one with the smallest?",
        ROWS,
        (
            {"scale": "{}\nscores = -scores"},
            {"shift": "scores = scores.max(axis=-1, keepdims=True) - scores"},
            {"shift": "scores = scores.min(axis=-1, keepdims=True) - scores"},
        ),
    ),
    Mutant(
        "weights-thresholded",
        "small weights are cut off: what is under a threshold counts as 0",
        "A softmax gives every allowed key a share, however small. Who takes it away?",
        ROWS,
        tuple(
            {"normalise": f"{{}}\nweights = np.where(weights < {t}, 0.0, weights){more}"}
            for t in (0.1, 0.05, 0.01, 0.2, 0.001)
            for more in ("", "\nweights = weights / weights.sum(axis=-1, keepdims=True)")
        ),
    ),
    Mutant(
        "dropout-at-inference",
        "some weights are set to 0 at random and the others enlarged: dropout, where nothing is trained",
        "Dropout is for training. What turns it off when the answer counts?",
        ROWS,
        (
            {
                "normalise": "{}\nkeep = np.random.default_rng(0).random(weights.shape) >= 0.3\n"
                "weights = weights * keep / 0.7"
            },
        ),
    ),
    Mutant(
        "property-stale-mask",
        "a mask is kept from the first call, and a second one of the same shape gets the first one's answer",
        "Something is kept between calls. What is its key?",
        CAUSAL,
        ({"which": "allowed = kept.setdefault(mask.shape, mask)  # kept = {}, once"},),
    ),
    Mutant(
        "accumulator-not-rescaled",
        "a new running maximum must rescale what was summed so far by exp(old − new): the accumulator is not rescaled",
        "The sum so far was taken relative to the old maximum. What turns it into one relative to the new?",
        ROWS,
        tuple(
            {
                "exp": "last = np.minimum(np.arange(scores.shape[-1]) // "
                f"{block} * {block} + {block - 1}, scores.shape[-1] - 1)\n"
                "running = np.maximum.accumulate(scores, axis=-1)[..., last]\n"
                "weights = np.exp(scores - running)",
                **more,
            }
            for block in (1, 2, 4, 16, 3, 5, 8, 32)
            for more in (
                {"normalise": "weights = weights / np.exp(scores).sum(axis=-1, keepdims=True)"},
                {},
                {"normalise": "weights = np.exp(scores) / weights.sum(axis=-1, keepdims=True)"},
            )
        ),
    ),
    Mutant(
        "weights-not-used",
        "the weights never mix the values: each token gets nothing but its own value",
        "Over which axis must weights (n, m) and V (m, dv) be summed?",
        SCORE,
        (
            {"mix": "return weights.sum(axis=-1, keepdims=True) * V"},
            {"mix": "return weights * V"},
            {"mix": "return np.broadcast_to(V, (*weights.shape[:-1], V.shape[-1]))"},
            {"mix": "return V"},
        ),
    ),
    Mutant(
        "mask-fill-nan",
        "masked scores are set to NaN, and one NaN makes the whole row NaN",
        "What is max(NaN, 1)? Which number has an exponential of 0?",
        CAUSAL,
        ({"mask": "scores = np.where(allowed, scores, np.nan)"},),
    ),
    Mutant(
        "padding-or-causal",
        "the causal and the padding mask are joined by | (or) where both must hold (&): the future is seen",
        "A key must lie in the past and be a real token. Which of & and | says that?",
        CAUSAL,
        tuple(
            {"when": "if True:", "which": f"allowed = {t} if mask is None else mask | {t}"}
            for t in (text.format(k=0) for text in (_OWN, _OWN_LATE))
        ),
    ),
    Mutant(
        "heads-same-slice",
        "every head takes the same slice of the features: all heads are copies of the first one",
        "Which columns belong to head 1? Where does the head's number enter?",
        HEADS,
        tuple(
            {
                "split": "A = A.reshape(*A.shape[:-1], num_heads, -1).swapaxes(-2, -3)\n"
                f"return np.repeat(A[..., {which}, :, :], num_heads, axis=-3)"
            }
            for which in (":1", "-1:")
        ),
    ),
    Mutant(
        "kv-heads-tiled",
        "the shared key/value heads are tiled (0, 1, 0, 1) where neighbouring query heads share one (0, 0, 1, 1): "
        "np.repeat, not np.tile",
        "Print np.tile([0, 1], 2) and np.repeat([0, 1], 2).",
        HEADS,
        ({"share": "K, V = (np.concatenate([A] * (num_heads // num_kv_heads), axis=-3) for A in (K, V))"},),
    ),
    Mutant(
        "backward-path-missing",
        "X feeds Q, K and V, so dL/dX = dQ Wqᵀ + dK Wkᵀ + dV Wvᵀ: one of the three paths is left out",
        "Which of dQ @ Wqᵀ, dK @ Wkᵀ and dV @ Wvᵀ (the path through the values) does your dX lack?",
        THREE,
        (
            {"dX": "dX = dQ @ Wq.T + dK @ Wk.T"},
            {"dX": "dX = dQ @ Wq.T + dV @ Wv.T"},
            {"dX": "dX = dK @ Wk.T + dV @ Wv.T"},
            {"dX": "dX = dV @ Wv.T"},
            {"dX": "dX = dQ @ Wq.T"},
        ),
    ),
]
BY_ID = {mutant.id: mutant for mutant in MUTANTS}

_ANCHOR = re.compile(r"^( *)(.*?)  #: (\w+)")
_CALLS: dict[str, tuple[str, ...]] = {
    "causal_mask": (),
    "softmax": (),
    "attention_layer": ("attention_weights", "scaled_dot_product_attention"),
    "self_attention_backward": ("attention_weights",),
    "scaled_dot_product_attention": ("attention_weights",),
    "multi_head_attention": ("attention_weights", "scaled_dot_product_attention"),
    "cross_attention": ("attention_weights", "scaled_dot_product_attention"),
    "scaled_dot_product_attention_backward": ("attention_weights",),
}


_LATE = "np.tri(*scores.shape[-2:], scores.shape[-1] - scores.shape[-2], dtype=bool)"
_EARLY = "np.tri(*scores.shape[-2:], dtype=bool)"
_BASES: dict[str, Edit] = {  # conventions that are no mistakes: "kind/late" is that kind's program, always causal
    "": {},
    "x": {"dW": "return (dX,)"},  # only the gradient of the input is asked for
    "unscaled": {"scale": "pass"},  # the practice asks for it
    **{
        name: {"when": "if True:", "which": f"allowed = {triangle} if mask is None else mask & {triangle}"}
        for name, triangle in (("late", _LATE), ("early", _EARLY))
    },
}


def base_kind(kind: str) -> str:
    """The kind without its convention."""
    return kind.partition("/")[0]


@cache
def _lines(function: str) -> list[tuple[str, str, str]]:
    """A function's text as lines: indent, code, and the name of a named line."""
    lines = inspect.getsource(getattr(reference, function)).rstrip().split("\n")
    return [(m[1], m[2], m[3]) if (m := _ANCHOR.match(line)) else ("", line, "") for line in lines]


@cache
def lines_named(kind: str) -> dict[str, str]:
    """The named lines of a right program, in the order of the data: {"scale": "scores = scores / …"}."""
    plain, _, base = kind.partition("/")
    named = {name: code for f in (*_CALLS[plain], plain) for _, code, name in _lines(f) if name}
    return {name: _BASES[base].get(name, code) for name, code in named.items()}


def _texts(kind: str, edits: tuple[Edit, ...]) -> tuple[str, ...] | None:
    """The functions of the program with the edits in them; None where two edits want the same line."""
    return _edited(kind, tuple(tuple(edit.items()) for edit in edits))


@cache  # a diagnosis tries the same edits on every probe
def _edited(kind: str, edits: tuple[tuple[tuple[str, str], ...], ...]) -> tuple[str, ...] | None:
    text = dict(lines_named(kind))
    whole = [(name, new) for edit in edits for name, new in edit if name in text and "{}" not in new]
    if len({name for name, _ in whole}) < len(whole):
        return None
    text.update(whole)
    for edit in edits:
        for name, new in edit:
            if name in text and "{}" in new:
                text[name] = new.replace("{}", text[name])
    return tuple(
        "\n".join(
            indent + (text[name].replace("\n", "\n" + indent) if name else code)
            for indent, code, name in _lines(function)
        )
        for function in (*_CALLS[base_kind(kind)], base_kind(kind))
    )


def source(kind: str, edits: tuple[Edit, ...] = ()) -> str | None:
    """The program as a learner would write it, without types, and with the edits in it; None where two of
    them want the same line."""
    texts = _texts(kind, edits)
    if texts is None:
        return None
    text = re.sub(r": Array \| None = None", "=None", "\n\n\n".join(texts))
    text = re.sub(r": (Array|int)\b", "", text)
    text = re.sub(r"\(\n +(.*)\n\) -> ", r"(\1) -> ", text)  # a signature on one line
    text = re.sub(r" -> (tuple\[.*\]|Array):", ":", text)
    return re.sub(r"\n +pass(?=\n)", "", text)


_code = cache(lambda text: compile(text, "<mutant>", "exec"))


@cache
def _assemble(kind: str, texts: tuple[str, ...]) -> Callable[..., Any]:
    namespace = {**vars(reference), FILL: -10.0, KEPT: {}}
    for text in texts:
        exec(_code(text), namespace)
    function: Callable[..., Any] = namespace[base_kind(kind)]
    return function


def program(kind: str, edits: tuple[Edit, ...] = ()) -> Callable[..., Any] | None:
    """The right program with these edits, ready to call; None where the edits exclude each other."""
    texts = _texts(kind, edits)
    if texts is None:
        return None
    function = _assemble(kind, texts)
    function.__globals__[KEPT].clear()
    return function


def touches_mask(edit: Edit, kind: str = "") -> bool:
    """An edit that shows only when a mask is given; what is always causal shows it always."""
    return bool(edit.keys() & {"which", "mask"}) and "when" not in edit and not kind.endswith(("/late", "/early"))


def shows(edit: Edit, kind: str, masked: bool) -> bool:
    """Whether an edit is to be looked for with masks (or without)."""
    if kind.endswith(("/late", "/early")):
        return not masked or bool(edit.keys() & {"which", "mask"})
    return touches_mask(edit) == masked
