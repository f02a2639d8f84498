"""Attention is one line, softmax(Q Kᵀ / √dk) V: taken apart here on four words, and with the wrong axis beside it.

Each word asks (Q), advertises (K) and hands over (V). A row of softmax(Q Kᵀ / √dk) says how a word divides its
attention; it sums to 1, so the output is a mean of values. With the other axis the columns sum to 1 instead. That
runs, and looks right, but 1. the output is no mean any more, 2. a word's output changes with what other words ask,
also with later ones behind a causal mask, and 3. a single query, as when text is generated, gets weight 1 everywhere.
"""

import _demo
import numpy as np

import tinyattn as ta

WORDS = ["the", "cat", "sat", "down"]
DK = 4
# What a word is:       article noun verb adverb
X = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
# What it asks for: articles ask for their noun, nouns for their article, verbs for their subject, adverbs for the verb.
WQ = 2 * np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.0]])
# What it advertises: what it is.
WK = 2 * np.eye(4)
# What it hands over:  living moving downward
WV = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])


def softmax(S, axis):
    """exp(S) / Σ exp(S). Subtracting the maximum changes nothing but keeps exp from overflowing."""
    E = np.exp(S - S.max(axis=axis, keepdims=True))
    return E / E.sum(axis=axis, keepdims=True)


def attention(Q, K, V, axis=-1, allowed=True):
    """The line itself, with the axis to choose."""
    S = Q @ K.T / np.sqrt(Q.shape[-1])  # (n, dk) @ (dk, m) -> (n, m)
    P = softmax(np.where(allowed, S, -np.inf), axis)
    return P @ V, P  # (n, m) @ (m, dv) -> (n, dv)


def show(demo, title, matrix, columns):
    cells = [(word, *(f"{x:.2f}" for x in row)) for word, row in zip(WORDS, matrix)]
    demo.table(f"{title}  {matrix.shape}", ["", *columns], cells)


def show_weights(demo, title, P):
    cells = [(word, *(f"{w:.2f}" for w in row), f"{row.sum():.2f}") for word, row in zip(WORDS, P)]
    demo.table(f"{title}  {P.shape}", ["", *WORDS, "sum"], cells)


def main(demo):
    rng = np.random.default_rng(demo.seed)
    x = X + 0.1 * rng.normal(size=X.shape)  # words are never quite alike

    demo.heading("Step by step")
    Q, K, V = x @ WQ, x @ WK, x @ WV  # (4, 4), (4, 4), (4, 3)
    classes = ["article", "noun", "verb", "adverb"]
    show(demo, "Q = X Wq: what each word asks for", Q, classes)
    show(demo, "K = X Wk: what each word advertises", K, classes)
    show(demo, "V = X Wv: what each word hands over", V, ["living", "moving", "downward"])
    S = Q @ K.T
    show(demo, "S = Q Kᵀ: scores, a row for each word that asks", S, WORDS)
    show(demo, f"S / √dk: scaled, by √{DK} = {np.sqrt(DK):.0f}", S / np.sqrt(DK), WORDS)
    P = softmax(S / np.sqrt(DK), axis=-1)
    show_weights(demo, "P = softmax of each row, and the row's sum", P)
    show(demo, "output = P V: for each word its mean of the values", P @ V, ["living", "moving", "downward"])
    demo.say()
    demo.claim("every row sums to 1", np.allclose(P.sum(-1), 1))
    demo.claim(
        "it is what ta.scaled_dot_product_attention computes",
        np.allclose(P @ V, ta.scaled_dot_product_attention(Q, K, V).numpy()),
    )
    demo.claim(
        f"'sat' looks at 'cat' (weight {P[2, 1]:.2f}), and learns that its subject is living "
        f"({V[2, 0]:.2f} before, {(P @ V)[2, 0]:.2f} after)",
        P[2].argmax() == 1 and (P @ V)[2, 0] > 0.5,
    )
    leaves = [ta.Tensor(a, requires_grad=True, name=name) for a, name in ((Q, "Q"), (K, "K"), (V, "V"))]
    demo.graph("graph", ta.scaled_dot_product_attention(*leaves), show="values", title="softmax(Q Kᵀ / √dk) V")
    demo.heatmap("weights", P, WORDS, WORDS, title="softmax over keys (right)")

    demo.heading("The wrong axis: softmax down the columns")
    _, W = attention(Q, K, V, axis=0)
    show_weights(demo, "W = softmax of each column, and the row's sum", W)
    ones = np.ones((4, 1))
    causal = ta.causal_mask(4)
    asks_more = Q + np.array([[0], [0], [0], [1.0]])  # only the last word asks another question
    change = {
        axis: np.abs(attention(asks_more, K, V, axis, causal)[0] - attention(Q, K, V, axis, causal)[0])[:3].max()
        for axis in (-1, 0)
    }
    single = {axis: attention(Q[2:3], K, V, axis)[1][0] for axis in (-1, 0)}
    demo.table(
        "what it breaks",
        ["", "right axis", "wrong axis"],
        [
            ("1. 'sat' reads values that are all 1", f"{(P @ ones)[2, 0]:.2f}", f"{(W @ ones)[2, 0]:.2f}"),
            ("2. the last query changes, causal: change in earlier rows", f"{change[-1]:.2f}", f"{change[0]:.2f}"),
            ("3. weights of the query 'sat' alone", *(" ".join(f"{w:.2f}" for w in single[a]) for a in (-1, 0))),
        ],
    )
    demo.say()
    demo.claim("its rows do not sum to 1, so the output is no mean of the values", not np.allclose(W.sum(-1), 1))
    demo.claim(
        "behind a causal mask, a later word changes earlier outputs; with the right axis nothing moves",
        change[-1] == 0 and change[0] > 0.01,
    )
    demo.claim("a query alone gives every key the weight 1: it has stopped choosing", np.all(single[0] == 1))
    demo.heatmap("wrong_axis", W, WORDS, WORDS, title="softmax over queries (wrong)")


if __name__ == "__main__":
    _demo.run(main, __doc__)
