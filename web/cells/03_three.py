"""Why three projections?

The query says how to ask, the key how to be found, the value what to hand over. With Wq = Wk the scores are symmetric:
if i looks at j, then j looks at i just as much. Here each of three things is to look at the one that it beats: rock at
scissors, scissors at paper, paper at rock. (V = K costs width: one vector is address and content at once.)

Predict: with Wq = Wk, how many of the three rows can be right?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {"projections": {"values": ["three", "Wq = Wk"], "at": "three"}, "seed": {"values": [0, 1, 2, 3], "at": 0}}
THINGS, BEATS = ["rock", "scissors", "paper"], np.array([1, 2, 0])


def learn(tied, seed=0, steps=120):
    """Train the scores of one head; yields (step, share of rows whose largest weight is right, weights)."""
    rng = np.random.default_rng(seed)
    X = np.eye(3)  # each thing has a direction of its own
    Wq, Wk = (ta.Tensor(rng.normal(size=(3, 8)) / np.sqrt(3), requires_grad=True) for _ in range(2))
    Wk = Wq if tied else Wk
    optimiser = ta.optim.Adam([Wq] if tied else [Wq, Wk], lr=0.05)
    for step in range(steps + 1):
        scores = (X @ Wq) @ (X @ Wk).mT / np.sqrt(8)  # (3, 8) @ (8, 3) -> (3, 3)
        yield step, float((scores.numpy().argmax(-1) == BEATS).mean()), ta.softmax(scores).numpy()
        optimiser.zero_grad()
        ta.cross_entropy(scores, BEATS).backward()
        optimiser.step()


def figure(projections="three", seed=0):
    for step, share, weights in learn(projections != "three", seed):
        if step % 20 == 0:
            yield [
                {"measures": {"step": step, "rows that look at what they beat": share}},
                {"matrix": {"title": "weights", "rows": THINGS, "columns": THINGS, "values": weights}},
            ]


def claim():
    for seed in range(3):
        assert [*learn(False, seed)][-1][1] == 1.0
        assert [*learn(True, seed)][-1][1] <= 2 / 3
