"""Score, scale, normalise, weighted sum

Attention(Q, K, V) = softmax(Q Kᵀ / √dk) V. A query is compared with every key by a dot product; the scores become
weights that sum to 1; the answer is the mean of the values by those weights. Here are four words with random
projections: every number above, its gradient below.

Predict: which cells does one weight of P depend on? Point at it.
"""

import numpy as np

import tinyattn as ta

CONTROLS = {
    "seed": {"values": [0, 1, 2, 3, 4, 5, 6, 7], "at": 0},
    "mask": {"values": ["none", "causal"], "at": "causal"},
}
WORDS = ["the", "cat", "sat", "down"]


def inputs(seed):
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(4, 8)), rng.normal(size=(3, 8, 3)) / np.sqrt(2)
    return X @ W[0], X @ W[1], X @ W[2]  # (4, 8) @ (8, 3) -> (4, 3)


def figure(seed=0, mask="causal"):
    Q, K, V = inputs(seed)
    page = ta.microscope(Q, K, V, ta.causal_mask(4) if mask == "causal" else None, row_labels=WORDS)
    return {"page": page.html}


def claim():
    Q, K, V = inputs(0)
    _, P = ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(4), return_weights=True)
    assert np.allclose(P.numpy().sum(-1), 1)
    assert (P.numpy()[np.triu_indices(4, 1)] == 0).all()
