"""The causal mask, and the mask that is off by one

To predict the next word, position i may look at j ≤ i only. The scores above the diagonal become −∞ before the softmax,
so their weights, and their gradients, are exactly 0. A triangle that is one too wide shows the answer; one that is
too narrow leaves the first word with nothing.

Below the weights is the microscope: point at a gradient above the diagonal.

Predict: with the triangle one too wide, which weight should not be there?
"""

import numpy as np

import tinyattn as ta

CONTROLS = {"diagonal": {"values": [-1, 0, 1, 2, 3], "at": 0}}
WORDS = ["the", "cat", "sat", "down"]


def inputs(diagonal):
    rng = np.random.default_rng(0)
    return *rng.normal(size=(3, 4, 3)), np.tri(4, 4, diagonal, dtype=bool)


def attend(diagonal):
    *QKV, mask = inputs(diagonal)
    Q, K, V = (ta.Tensor(x, requires_grad=True) for x in QKV)
    out, P = ta.scaled_dot_product_attention(Q, K, V, mask, return_weights=True)
    (dV,) = ta.grad(out[:1].sum(), (V,))  # the first word's answer: whose values does it depend on?
    return P.numpy(), dV.numpy()


def figure(diagonal=0):
    P, dV = attend(diagonal)
    future = [(i, j) for i in range(4) for j in range(i + 1, 4) if P[i, j]]
    title = f"np.tri(4, 4, {diagonal}): True = may attend"
    return [
        {"matrix": {"title": title, "rows": WORDS, "columns": WORDS, "values": P, "mark": future}},
        {
            "measures": {
                "weight on the future": float(np.triu(P, 1).sum()),
                "later words that 'the' depends on": int((np.abs(dV[1:]).sum(-1) > 0).sum()),
                "queries without any key": int((P.sum(-1) == 0).sum()),
            }
        },
        {"page": ta.microscope(*inputs(diagonal), row_labels=WORDS).html},
    ]


def claim():
    P, dV = attend(0)
    assert (np.triu(P, 1) == 0).all()
    assert (dV[1:] == 0).all()
    assert np.triu(attend(1)[0], 1).sum() > 0.1
    assert (attend(-1)[0][0] == 0).all()  # nothing to attend to: zeros, not NaN
