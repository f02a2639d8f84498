"""Real heads at work

These are three heads of MiniLM, a trained encoder, reading one sentence. Nobody told them what to look for. One links
a pronoun to its noun; one looks at the word before, in every sentence; one tends from a verb to its object. The first
choice shows what comes before all layers: raw embeddings as queries, keys and values, where most words look at
themselves, since a vector's dot product with itself is the largest it has.

Predict: which word does "it" look at?
"""

import numpy as np

import tinyattn as ta
from tinyattn.pretrained import stored_heads

CONTROLS = {
    "head": {"values": ["raw embeddings", "pronoun to noun", "word before", "verb to object"], "at": "pronoun to noun"}
}


def attend(head):
    """The words and their weights; the marks [CLS] and [SEP] take part, and are not shown."""
    stored = stored_heads()
    if head == "raw embeddings":
        X = stored.embeddings / np.linalg.norm(stored.embeddings, axis=-1, keepdims=True)
        Q, K, V, scale = X, X, X, 8.0
    else:
        k = CONTROLS["head"]["values"].index(head) - 1
        Q, K, V, scale = *(x[k].astype(float) for x in (stored.Q, stored.K, stored.V)), None
    _, P = ta.scaled_dot_product_attention(Q, K, V, scale=scale, return_weights=True)
    return stored.tokens[1:-1], P.numpy()[1:-1, 1:-1]


def figure(head="pronoun to noun"):
    words, P = attend(head)
    it = words.index("it")
    best = int(P[it].argmax())
    return [
        {"measures": {"'it' looks most at": words[best], "with a weight of": float(P[it, best])}},
        {"matrix": {"title": head, "rows": words, "columns": words, "values": P, "mark": [(it, best)]}},
    ]


def claim():
    words, P = attend("pronoun to noun")
    assert words[P[words.index("it")].argmax()] == "animal"
    words, P = attend("raw embeddings")
    assert (P.argmax(-1) == np.arange(len(words))).mean() > 0.9
    words, P = attend("word before")
    assert (P[1:].argmax(-1) == np.arange(len(words) - 1)).all()
