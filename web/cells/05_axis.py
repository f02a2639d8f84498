"""The softmax over the wrong axis

Each row of the weights belongs to a query, and a row sums to 1. With axis=0 each column sums to 1 instead: queries
compete for keys, and what one word asks changes what another word is answered. The shape is the same, and a square
example looks fine.

Predict: with the wrong axis, do the rows still sum to 1 somewhere?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {"axis": {"values": [-1, 0], "at": 0}, "seed": {"values": [0, 1, 2, 3], "at": 0}}
WORDS = ["the", "cat", "sat", "down"]


def weights(axis, seed=0, changed=0.0):
    rng = np.random.default_rng(seed)
    Q, K = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    Q[-1] += changed
    return ta.softmax(Q @ K.T / np.sqrt(3), axis=axis)


def figure(axis=0, seed=0):
    P = weights(axis, seed)
    moved = np.abs(weights(axis, seed, changed=3.0) - P).numpy()[:-1].max()
    rows, columns = P.numpy().sum(-1), P.numpy().sum(-2)
    sums = {"columns": ["word", "its row sums to", "its column sums to"], "rows": [*zip(WORDS, rows, columns)]}
    title = f"softmax(S, axis={axis})"
    return [
        {
            "beside": [
                {"matrix": {"title": title, "rows": WORDS, "columns": WORDS, "values": P}},
                {"table": sums},
            ]
        },
        {"measures": {"other rows move when the last query changes": moved}},
    ]


def claim():
    for seed in range(3):
        assert np.allclose(weights(-1, seed).numpy().sum(-1), 1)
        assert not np.allclose(weights(0, seed).numpy().sum(-1), 1, atol=0.01)
        assert np.array_equal(weights(-1, seed, 3.0).numpy()[:-1], weights(-1, seed).numpy()[:-1])
        assert np.abs(weights(0, seed, 3.0) - weights(0, seed)).numpy()[:-1].max() > 0.01
