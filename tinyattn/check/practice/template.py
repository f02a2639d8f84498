"""The file of exercises, and the sentence that it ends on. Only the learner's file is remembered."""

from pathlib import Path

from ...pretrained import stored_heads

TEMPLATE = '''"""Attention from scratch: steps 1 to 5 take about half an hour, 6 to 9 are for afterwards.

Work from top to bottom; save often. In a second terminal,

    python -m tinyattn check {file}

says where you stand, what is right, what is not, and what comes next (with --watch: at every save).
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


# Step 2: an assert that every row sums to 1 ---------------------------------------------------


def rows_sum_to_one(weights):
    """Assert that each row of weights (n, m) sums to 1, up to rounding; or return True or False.

    It is run on your own weights, and on wrong ones: a test is worth what it catches.
    """
    raise NotImplementedError


# Step 3: no scaling ---------------------------------------------------------------------------
# Predict first. Take 320 queries, 64 keys and dk = 512, all unit normal, and leave out ÷ √dk.

largest_weight = ""  # the largest weight of a typical row: "about 0.1", "about 0.5" or "above 0.9"?
typical_gradient = ""  # dL/dQ of a typical query, against the scaled one: "larger", "the same", "smaller"?


def attention_without_scaling(Q, K, V):
    """Step 1, without the scaling. The check runs both of your functions at dk = 1 to 512."""
    raise NotImplementedError


# Step 4: the causal mask ----------------------------------------------------------------------
# Write this, then make step 1 use its `mask`: masked scores must get no weight at all.
# The check calls scaled_dot_product_attention(Q, K, V, causal_mask(n)).


def causal_mask(n):
    """A boolean (n, n) array that goes with your attention: position i attends to j ≤ i only.

    What True means, may attend or blocked, is your choice; keep to it.
    """
    raise NotImplementedError


# Step 5: a sentence ---------------------------------------------------------------------------
# The check runs your function on "{sentence}"
# first with raw embeddings as Q = K = V, then with Q, K and V of a trained head, and shows which words look where.

row = "it"  # the word that asks; another row with a clear peak is as good
it_looks_at = ""  # read it off the table: which word does that row attend to most?


# More, step 6: several heads ------------------------------------------------------------------


def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    """Head i attends with features i·d_head … (i+1)·d_head of X @ Wq, X @ Wk, X @ Wv.

    X (n, d_model), weights (d_model, d_model)  ->  (n, d_model): heads side by side, times Wo.
    A num_heads that does not divide d_model must raise an error.
    """
    raise NotImplementedError


# More, step 7: another source -----------------------------------------------------------------


def cross_attention(X, context, Wq, Wk, Wv):
    """X (n, d) asks; context (m, d) answers  ->  (n, dv)."""
    raise NotImplementedError


# More, step 8: the backward pass, by hand -----------------------------------------------------


def scaled_dot_product_attention_backward(dO, Q, K, V, mask=None):
    """dO (n, dv), the loss's gradient at the output  ->  dQ, dK, dV, shaped like Q, K, V."""
    raise NotImplementedError


# The last question, step 9 --------------------------------------------------------------------
# Q, K and V all come from the same X. Why three projections? What breaks if V = K? Sixteen pairs of an address and a
# content are looked up, both of them random vectors. With two vectors for each pair, nine in ten are found from width
# 16 on. If one vector (address + content) must be key and value, from which width on are nine in ten found again?

why_three_projections = ""  # your prediction: "16", "32", "64" or "never"
'''

SENTENCE = " ".join(stored_heads().tokens[1:-1])


def write(file: Path) -> None:
    """Write the exercises. Raises FileExistsError if the file is there: somebody's work may be in it."""
    text = TEMPLATE.replace("{file}", str(file)).replace("{sentence}", SENTENCE)
    with file.open("x", encoding="utf-8") as out:
        out.write(text)
