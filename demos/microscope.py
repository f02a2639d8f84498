"""Attention under the microscope: every number and every gradient of a real head, on one page that opens from disk.

    python demos/microscope.py ["a sentence"]

The heads are MiniLM's, in the layer --layer, if its weights are here (`python -m tinyattn fetch minilm`). Without them
one sentence is shown, with three heads whose Q, K and V ship with tinyattn. L is the sum of the head's outputs.
"""

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import pretrained

SENTENCE = "The animal didn't cross the street because it was too tired."
HEADS = {(3, 1): "a pronoun's noun", (0, 2): "the word before", (1, 7): "a verb's object"}  # (layer, head) from 0


def heads_of(model, tokenizer, sentence, layer):
    """The tokens, their embeddings (n, d_model), and Q, K, V (h, n, dk) of all heads in a layer."""
    encoded = tokenizer.encode(sentence)
    seen = {}
    attention = model.blocks[layer].attention

    def watched(Q, K, V, mask=None):
        seen.update(Q=Q.numpy()[0], K=K.numpy()[0], V=V.numpy()[0])
        return usual(Q, K, V, mask)

    usual, attention.attention = attention.attention, watched
    with ta.no_grad():
        model([encoded.ids])
    attention.attention = usual
    return encoded.tokens, model.embedding.weight.numpy()[encoded.ids], seen["Q"], seen["K"], seen["V"]


def store(demo, model, tokenizer):
    """Keep three heads of the sentence, 16 × 32 numbers for each of Q, K and V, and the words' raw embeddings."""
    parts = {"sentence": np.array(SENTENCE), "heads": np.array(list(HEADS))}
    for layer, head in HEADS:
        tokens, embeddings, Q, K, V = heads_of(model, tokenizer, SENTENCE, layer)
        parts |= {f"{name}{layer}.{head}": x[head].astype(np.float32) for name, x in (("Q", Q), ("K", K), ("V", V))}
    np.savez_compressed(demo.store, tokens=np.array(tokens), embeddings=embeddings.astype(np.float16), **parts)
    demo.say(f"stored in {demo.store}: {len(tokens)} tokens, embeddings {embeddings.shape}, Q {Q[0].shape} each")


def main(demo):
    try:
        model, tokenizer = pretrained.load("minilm")
    except (FileNotFoundError, ImportError) as error:
        demo.say(f"{error}.\nSo these are the heads that ship with tinyattn.")
        stored = pretrained.stored_heads()
        if demo.sentence not in (None, SENTENCE):
            demo.say(f"Another sentence needs the weights; this is {SENTENCE!r}")
        tokens, names = stored.tokens, [f"{layer}.{head}" for layer, head in stored.heads]
        Q, K, V = stored.Q, stored.K, stored.V
    else:
        if demo.store:
            store(demo, model, tokenizer)
        tokens, _, Q, K, V = heads_of(model, tokenizer, demo.sentence or SENTENCE, demo.layer)
        names = [f"{demo.layer}.{head}" for head in range(len(Q))]
    page = demo.path("heads.html")
    ta.microscope(Q, K, V, row_labels=tokens, head_labels=names, path=page)

    shown = names.index("3.1") if "3.1" in names else 0
    _, weights = ta.scaled_dot_product_attention(Q, K, V, return_weights=True)
    P = weights.numpy()  # (h, n, n)
    entropy = -(P * np.log(P)).sum(-1).mean(-1)
    rows = [(name, f"{e:.2f}", f"{p.max(-1).mean():.2f}", *offset(p)) for name, e, p in zip(names, entropy, P)]
    flat = f"{np.log(len(tokens)):.2f}"
    demo.table(
        f"{len(tokens)} tokens: {' '.join(tokens)}",
        [
            "head",
            f"row entropy (equal: {flat})",
            f"largest weight (equal: {1 / len(tokens):.2f})",
            "best fixed offset",
            "its share",
        ],
        rows,
    )
    words, inner = tokens[1:-1], P[shown, 1:-1, 1:-1]  # without [CLS] and [SEP]
    i, j = (int(k) for k in np.unravel_index(inner.argmax(), inner.shape))
    if {"it", "animal"} <= {*words}:
        i, j = words.index("it"), words.index("animal")
    title = f"MiniLM, head {names[shown]}: {words[i]!r} looks at {words[j]!r} with {inner[i, j]:.2f}"
    demo.heatmap("weights", inner, words, words, title=title, mark=[(i, j)])
    size = page.stat().st_size
    demo.say(f"\nThe page: {page} ({size // 1000} kB). Open it, and point at a cell.")
    demo.claim("every row of every head sums to 1", np.allclose(P.sum(-1), 1, rtol=1e-6))
    demo.claim("the page is one file under 1 MB that names no address", size < 1e6 and b"://" not in page.read_bytes())
    if "3.1" in names:
        p = P[names.index("3.1")]
        if "it" in tokens and "animal" in tokens:
            inner = p[tokens.index("it"), 1:-1]
            demo.claim(
                f"head 3.1: of all words, 'it' looks most at 'animal' ({inner.max():.2f})",
                tokens[1:-1][inner.argmax()] == "animal",
            )
            demo.measured(
                "{tokens} tokens, {heads} heads: head 3.1 puts {weight:.2f} of 'it' on 'animal'; one file of {kb:.0f} "
                "kB that opens from disk",
                tokens=len(tokens),
                heads=len(names),
                weight=inner.max(),
                kb=size / 1000,
            )


def offset(p):
    """The best rule of the kind "always k tokens further on", and the share of the weight that lies there."""
    n = len(p)
    shares = {k: np.trace(p, k) / n for k in range(1 - n, n)}
    k = max(shares, key=shares.get)
    return f"{k:+d}" if k else "0", f"{shares[k]:.2f}"


if __name__ == "__main__":
    _demo.run(main, __doc__, sentence=None, layer=3, store="")
