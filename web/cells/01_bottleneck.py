"""What a fixed state forgets

A sequence model without attention squeezes all it has read into a state of fixed size. Here the state is a matrix of
16 × 16 numbers: each pair of a key and a value is added to it as an outer product, and read back with the key.
Attention keeps all pairs, and looks up the one it needs.

Predict: the state has 256 numbers. How many pairs of 16 numbers each can be read back from it?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {"pairs": {"values": [1, 2, 4, 8, 16, 32, 64, 128, 256], "at": 16}}


def recall(pairs, width=16, seed=0):
    """The share of values that come back: through the state S = Σ k vᵀ, and by softmax attention."""
    rng = np.random.default_rng(seed)
    K = rng.normal(size=(pairs, width))
    K /= np.linalg.norm(K, axis=-1, keepdims=True)
    V = rng.choice([-1.0, 1.0], size=(pairs, width))
    answers = K @ (K.T @ V), ta.scaled_dot_product_attention(K, K, V, scale=60.0).numpy()
    return [float((np.argmax(answer @ V.T, axis=-1) == np.arange(pairs)).mean()) for answer in answers]


def figure(pairs=16):
    counts = [n for n in CONTROLS["pairs"]["values"] if n <= pairs]
    state, attention = zip(*(np.mean([recall(n, seed=s) for s in range(8)], axis=0) for n in counts))
    return [
        {"measures": {"read back from the state": state[-1], "read back by attention": attention[-1]}},
        {
            "curves": {
                "x": counts,
                "y": {"state of 16 × 16": state, "attention": attention},
                "log": "x",
                "labels": ["pairs", "share read back"],
            }
        },
    ]


def claim():
    state, attention = np.mean([recall(128, seed=s) for s in range(8)], axis=0)
    assert attention == 1.0
    assert state < 0.8
    assert np.mean([recall(2, seed=s)[0] for s in range(8)]) == 1.0  # two pairs it holds
