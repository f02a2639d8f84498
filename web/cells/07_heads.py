"""Several heads are not redundancy

One head has one row of weights for each position, so it can express one relation there. The task: name the words at k
fixed distances back, all at once. It is learned if there are at least k heads. (Heads do not specialise by law: given
more heads than relations, several learn the same.)

Predict: can two heads learn three relations?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {
    "heads": {"values": [1, 2, 4], "at": 2},
    "relations": {"values": [1, 2, 3], "at": 2},
    "seed": {"values": [0, 1, 2], "at": 0},
}
LENGTH, VOCABULARY, WIDTH = 12, 8, 24


def train(heads, relations, steps=240, seed=0, every=10):
    """Yields (step, share of positions with all relations right) on fresh sequences."""
    rng = np.random.default_rng(seed)
    words = ta.nn.Embedding(VOCABULARY, WIDTH, rng=rng)
    places = ta.nn.Embedding(LENGTH, WIDTH, rng=rng)
    attention = ta.nn.MultiHeadAttention(WIDTH, heads, rng=rng)
    answer = ta.nn.Linear(WIDTH, relations * VOCABULARY, rng=rng)
    parameters = [p for part in (words, places, attention, answer) for p in part.parameters()]
    for part in (words, places, attention, answer):
        part.astype(np.float32)
    optimiser = ta.optim.Adam(parameters, lr=1e-2)
    for step in range(steps + 1):
        ids = rng.integers(VOCABULARY, size=(24, LENGTH))
        x = words(ids) + places(np.arange(LENGTH))
        logits = answer(attention(x))[:, relations:].reshape(24, LENGTH - relations, relations, VOCABULARY)
        targets = np.stack([ids[:, relations - k : LENGTH - k] for k in range(1, relations + 1)], -1)
        loss = ta.cross_entropy(logits, targets)
        if step % every == 0:
            yield step, float((logits.numpy().argmax(-1) == targets).all(-1).mean())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def figure(heads=2, relations=2, seed=0):
    steps, shares = [], []
    for step, share in train(heads, relations, seed=seed):
        steps.append(step)
        shares.append(share)
        labels = ["step", "all relations right"]
        yield [
            {"measures": {"step": step, "all relations right": share}},
            {"curves": {"x": steps, "y": {f"{heads} heads, {relations} relations": shares}, "labels": labels}},
        ]


def claim():
    assert [*train(2, 2)][-1][1] > 0.9
    assert [*train(1, 2)][-1][1] < 0.6
