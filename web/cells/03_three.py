"""Why three projections?

The query says how to ask, the key how to be found, the value what to hand over. Two of them can be made one, and each
way costs something else. With V = K one vector is address and content at once: to look up one of 16 pairs, a narrow
vector is no longer enough. (Both are random vectors; the query knows the address alone.)

With Wq = Wk the scores are symmetric: if i looks at j, then j looks at i just as much. Rock is to look at scissors,
scissors at paper, paper at rock; a small training run tries it.

Predict: with V = K, at which width are nine in ten found again? With Wq = Wk, how many of the three rows can be right?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {
    "projections": {"values": ["three", "V = K", "Wq = Wk"], "at": "V = K"},
    "width": {"values": [4, 8, 16, 32, 64], "at": 16},
    "seed": {"values": [0, 1, 2, 3], "at": 0},
}
THINGS, BEATS = ["rock", "scissors", "paper"], np.array([1, 2, 0])


def found(projections, width, draws=10):
    """The share of 16 pairs that are found: the address asks, the nearest of 32 contents to the answer is meant."""
    rng, hits = np.random.default_rng(0), []
    for _ in range(draws):
        address, contents = rng.normal(size=(16, width)), rng.normal(size=(32, width))
        chosen = rng.integers(32, size=16)
        K, V = address, contents[chosen]
        if projections == "V = K":
            K = V = address + contents[chosen]
        answer = ta.scaled_dot_product_attention(4 * address, K, V).numpy()  # (16, width)
        nearest = ((answer[:, None] - contents) ** 2).sum(axis=-1).argmin(axis=-1)
        hits.append(nearest == chosen)
    return float(np.mean(hits))


def learn(projections, seed=0, steps=120):
    """Train the scores of one head; yields (step, share of rows whose largest weight is right, weights)."""
    rng = np.random.default_rng(seed)
    X = np.eye(3)  # each thing has a direction of its own
    Wq, Wk = (ta.Tensor(rng.normal(size=(3, 8)) / np.sqrt(3), requires_grad=True) for _ in range(2))
    Wk = Wq if projections == "Wq = Wk" else Wk
    optimiser = ta.optim.Adam(list({Wq, Wk}), lr=0.05)
    for step in range(steps + 1):
        scores = (X @ Wq) @ (X @ Wk).mT / np.sqrt(8)  # (3, 8) @ (8, 3) -> (3, 3)
        yield step, float((scores.numpy().argmax(-1) == BEATS).mean()), ta.softmax(scores).numpy()
        optimiser.zero_grad()
        ta.cross_entropy(scores, BEATS).backward()
        optimiser.step()


def figure(projections="V = K", width=16, seed=0):
    widths = [w for w in CONTROLS["width"]["values"] if w <= width]
    shares = {name: [found(name, w) for w in widths] for name in dict.fromkeys(["three", projections])}
    curves = {"x": widths, "y": shares, "log": "x", "labels": ["width", "share of pairs found"]}
    for step, share, weights in learn(projections, seed):
        if step % 20 == 0:
            yield [
                {"measures": {"pairs found": shares[projections][-1], "rows that look at what they beat": share}},
                {"curves": curves},
                {
                    "matrix": {
                        "title": f"who looks at whom, after {step} steps",
                        "rows": THINGS,
                        "columns": THINGS,
                        "values": weights,
                        "mark": [*enumerate(BEATS)],
                    }
                },
            ]


def claim():
    assert found("three", 16) > 0.9 > 0.8 > found("V = K", 16)
    assert found("V = K", 32) > 0.9
    assert [found("Wq = Wk", w) for w in (4, 16)] == [found("three", w) for w in (4, 16)]
    for seed in range(3):
        assert [*learn("three", seed)][-1][1] == [*learn("V = K", seed)][-1][1] == 1.0
        assert [*learn("Wq = Wk", seed)][-1][1] <= 2 / 3
