"""Why the scores are divided by √dk

A dot product of dk unit normal numbers has variance dk. Without the division the scores grow with √dk, one weight of
each row takes nearly all, and the softmax stops answering: its gradient is P · (dP − Σ P dP), and where P is 0 or 1
nothing comes through. The mean gradient hides this, since a few undecided rows carry all of it; the median tells.

A query is dead here if its gradient is shorter than .001. The graph is one small attention: each box is coloured by the
median of the gradient that reaches it.

Predict: at dk = 512, what is the largest weight of a typical row without the division?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {
    "dk": {"values": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096], "at": 512},
    "division": {"values": ["with ÷ √dk", "without"], "at": "without"},
}
N = 64


def measure(dk, divided, seed=0):
    """Of 4 draws: median largest weight, median row norm of dL/dQ, share of queries whose norm is under .001."""
    rng = np.random.default_rng(seed)
    Q, K, V = (ta.Tensor(rng.normal(size=(4, N, dk)), requires_grad=True) for _ in range(3))
    G = rng.normal(size=(4, N, dk)) / np.sqrt(dk)
    out, P = ta.scaled_dot_product_attention(Q, K, V, scale=None if divided else 1.0, return_weights=True)
    (dQ,) = ta.grad(out, (Q,), G)
    norms = np.linalg.norm(dQ.numpy(), axis=-1)
    return float(np.median(P.numpy().max(-1))), float(np.median(norms)), float((norms < 1e-3).mean())


def graph(dk, divided):
    rng = np.random.default_rng(1)
    Q, K, V = (ta.Tensor(rng.normal(size=(4, dk)), requires_grad=True, name=name) for name in "QKV")
    out = ta.scaled_dot_product_attention(Q, K, V, scale=None if divided else 1.0)
    path = "scaling_graph.dot"
    ta.draw_graph((out * rng.normal(size=out.shape)).sum(), show="gradients", limits=(1e-8, 1), path=path)
    with open(path, encoding="utf-8") as file:
        return file.read()


def figure(dk=512, division="without"):
    forms = CONTROLS["division"]["values"]
    sizes = [d for d in CONTROLS["dk"]["values"] if d <= dk]
    curves = {form: [measure(d, form == forms[0]) for d in sizes] for form in forms}
    largest, gradients, dead = zip(*curves[division])
    names = {
        "largest weight, typical row": largest[-1],
        "median |dL/dQ|": gradients[-1],
        "share of dead queries": dead[-1],
    }
    medians = {form: [row[1] for row in curve] for form, curve in curves.items()}
    shares = {"largest weight": largest, "dead queries": dead}
    return [
        {"measures": names},
        {
            "beside": [
                {"curves": {"x": sizes, "y": medians, "log": "xy", "labels": ["dk", "median |dL/dQ|"]}},
                {"curves": {"x": sizes, "y": shares, "log": "x", "labels": ["dk", f"share, {division}"]}},
            ]
        },
        {"dot": graph(dk, division == forms[0])},
    ]


def claim():
    for seed in range(3):
        with_, without = measure(512, True, seed), measure(512, False, seed)
        assert with_[0] < 0.2 < 0.9 < without[0]
        assert without[1] < with_[1]
        assert with_[2] == 0 < without[2]
        assert measure(4096, False, seed)[1] < 0.01 * measure(4096, True, seed)[1]
