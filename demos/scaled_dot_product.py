"""Attention is one line, softmax(Q Kᵀ / √dk) V: taken apart here on four words, and with three mistakes beside it.

Each word asks (Q), advertises (K) and hands over (V). The dot product of a query and a key is the score: it grows with
their lengths, and with how alike their directions are. A row of softmax(Q Kᵀ / √dk) says how a word divides its
attention. It sums to 1, so the output is a mean of values. Each head attends on a part of the features; Wo joins them.

Three things people get wrong, each with what it breaks:
the axis       softmax down the columns runs, and looks right. But the output is no mean any more. Later words change
               earlier outputs, even under a causal mask. A single query, as in generation, gets weight 1 everywhere.
               (The sign of it: rows do not sum to 1. Other mistakes have the same sign: see the mask.)
the mask       applied after the softmax, as a factor 0, it takes weight away and gives it to nobody.
the division   by √d_model instead of √dk: with h heads, scores are √h times too small, and the weights too even.

Practice: steps 1 and 2 (python -m tinyattn practice).
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
    """The line itself; the axis can be chosen."""
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
    title = f"softmax over keys: 'sat' looks at 'cat' with {P[2, 1]:.2f}"
    demo.heatmap("weights", P, WORDS, WORDS, title=title, mark=[(2, 1)])

    direction_and_length(demo)
    split_and_join(demo, rng, x)
    three_mistakes(demo, Q, K, V, P)


def direction_and_length(demo):
    demo.heading("What a score says: direction, and length")
    q = np.array([1.0, 0.0])
    keys = {f"{angle}°, length {r}": (angle, r) for r in (1, 2) for angle in (0, 30, 60, 90, 120)}
    k = np.array([[r * np.cos(np.radians(a)), r * np.sin(np.radians(a))] for a, r in keys.values()])
    scores = k @ q
    weights = softmax(scores, axis=-1)
    rows = [(angle, r, f"{s:+.2f}", f"{w:.2f}") for (angle, r), s, w in zip(keys.values(), scores, weights)]
    demo.table("a query of length 1 and ten keys", ["angle", "length", "q·k", "weight"], rows)
    demo.say()
    one, two = scores[:5], scores[5:]
    demo.claim("among keys of one length the nearer direction scores higher", np.all(np.diff(one) < 0))
    demo.claim(
        f"but a score is not direction alone: a key at 30° and twice as long ({two[1]:.2f}) beats one that points the "
        f"same way ({one[0]:.2f})",
        two[1] > one[0] and np.allclose(two, 2 * one),
    )


def split_and_join(demo, rng, x, h=2):
    demo.heading(f"Heads: split, attend, join. {h} heads of {DK // h} features each")
    weights = {name: rng.normal(size=(4, 4)) for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
    Q, K, V = (x @ weights[name] for name in ("q_proj", "k_proj", "v_proj"))  # (4, 4) each
    heads = [slice(i * DK // h, (i + 1) * DK // h) for i in range(h)]  # contiguous blocks of features
    outs = [attention(Q[:, part], K[:, part], V[:, part])[0] for part in heads]  # (4, 2) each
    joined = np.concatenate(outs, axis=-1)  # (4, 4)
    show(demo, "Q, split | between its columns into two heads", Q, ["head 0", "head 0", "head 1", "head 1"])
    show(demo, "the heads' outputs, joined again", joined, ["head 0", "head 0", "head 1", "head 1"])
    out = joined @ weights["out_proj"]
    show(demo, "… and projected: each word's output, of all heads", out, [f"{i}" for i in range(4)])
    demo.say()
    demo.claim(
        "the heads' scores add up to those of one wide head: to split is to weigh the parts of a score apart",
        np.allclose(sum(Q[:, part] @ K[:, part].T for part in heads), Q @ K.T),
    )
    demo.claim(
        "Wo adds the heads up, each through rows of its own: join @ Wo = Σ out_i @ Wo_i",
        np.allclose(out, sum(o @ weights["out_proj"][part] for o, part in zip(outs, heads))),
    )
    mha = ta.nn.MultiHeadAttention(4, h, bias=False)
    mha.load_state_dict({f"{name}.weight": w.T for name, w in weights.items()})
    demo.claim("it is what ta.nn.MultiHeadAttention computes", np.allclose(out, mha(x).numpy()))


def three_mistakes(demo, Q, K, V, P):
    demo.heading("Three things people get wrong")
    _, W = attention(Q, K, V, axis=0)
    show_weights(demo, "1. The axis: softmax of each column, and the row's sum", W)
    ones, causal = np.ones((4, 1)), ta.causal_mask(4)
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
            ("'sat' reads values that are all 1", f"{(P @ ones)[2, 0]:.2f}", f"{(W @ ones)[2, 0]:.2f}"),
            ("the last query changes: change in earlier rows", f"{change[-1]:.2f}", f"{change[0]:.2f}"),
            ("weights of the query 'sat' alone", *(" ".join(f"{w:.2f}" for w in single[a]) for a in (-1, 0))),
        ],
    )
    demo.say()
    demo.claim("its rows do not sum to 1, so the output is no mean of the values", not np.allclose(W.sum(-1), 1))
    demo.claim(
        "behind a causal mask, a later word changes earlier outputs; with the right axis nothing moves",
        change[-1] == 0 and change[0] > 0.001,
    )
    demo.claim("a query alone gives every key the weight 1: it has stopped choosing", np.all(single[0] == 1))
    late = np.where(causal, P, 0)  # the mask after the softmax
    show_weights(demo, "2. The mask after the softmax, and the row's sum", late)
    right = attention(Q, K, V, allowed=causal)[1]
    demo.say()
    demo.claim(
        f"weight goes missing: 'the' keeps {late[0].sum():.2f} of 1; -inf before the softmax gives it back",
        late[0].sum() < 0.9 and np.allclose(right.sum(-1), 1) and np.all(right[~causal] == 0),
    )
    d_model, flat = 16, {}
    for name, width in (("√dk", DK), ("√d_model", d_model)):
        flat[name] = softmax(Q @ K.T / np.sqrt(width), axis=-1).max(axis=-1).mean()
    demo.table(
        f"3. The division by √d_model, where {d_model // DK} heads have dk = {DK} of {d_model} features",
        ["divided by", "largest weight of a row, mean"],
        [(name, f"{weight:.2f}") for name, weight in flat.items()],
    )
    demo.say()
    demo.claim(
        f"choices get too flat: {flat['√d_model']:.2f} instead of {flat['√dk']:.2f}",
        flat["√d_model"] < flat["√dk"] - 0.05,
    )
    low, high = W.sum(-1).min(), W.sum(-1).max()
    demo.heatmap("wrong_axis", W, WORDS, WORDS, title=f"wrong axis, over queries: rows sum to {low:.2f} … {high:.2f}")
    demo.measured(
        "wrong axis: row sums {low:.2f} to {high:.2f}, and a later word moves earlier outputs by {change:.2f}; a mask "
        "after the softmax leaves the first word {late:.2f} of its weight",
        low=low,
        high=high,
        change=change[0],
        late=late[0].sum(),
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
