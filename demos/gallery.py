"""Make the pictures of the README and of docs/gallery.md: attention, its gradients, and graphs that one can follow.

python demos/gallery.py --out docs/images
"""

import argparse
from pathlib import Path

import numpy as np

import tinyattn as ta
from tinyattn import pretrained
from tinyattn.graph import region
from tinyattn.text import run_program


def heads(rng, n, dk, scale):
    """The loss of one head whose queries and keys have unit variance."""
    Q, K, V = (ta.Tensor(rng.normal(size=(n, dk)), requires_grad=True, name=name) for name in "QKV")
    title = "divided by √dk" if scale is None else "not scaled"
    attention = region(ta.scaled_dot_product_attention, title)
    return (attention(Q, K, V, scale=scale) * ta.Tensor(rng.normal(size=(n, dk)), name="C")).sum()


def gradients(path):
    """The same head with and without ÷ √dk, on one scale: without it the gradient dies below the softmax."""
    losses = [heads(np.random.default_rng(0), 16, 4096, scale) for scale in (None, 1.0)]
    ta.draw_graph(losses, show="gradients", title="dk = 4,096: where the gradient dies", path=path)


def sentence(path):
    """A trained head of a real model: "it" looks at "animal"."""
    text = "The animal didn't cross the street because it was too tired."
    tokens, maps = next((t, m) for s, (t, m) in pretrained.stored_maps().items() if s == text)
    claim = tokens.index("it"), tokens.index("animal")
    ta.heatmap(maps[3, 1], tokens, tokens, mark=[claim], title="MiniLM, layer 3, head 1", path=path)


def gpt(path):
    """A four-layer GPT: what repeats is drawn once."""
    model, ids = ta.nn.GPT(65, 32, 64, 4, 4, rng=0), np.random.default_rng(0).integers(0, 65, (2, 32))
    closed = ["embedding", "positions", "norm", "head", "cross_entropy"]
    ta.draw_graph(ta.cross_entropy(model(ids), ids), show="gradients", depth=2, fold=closed, path=path)


def head(backward):
    rng = np.random.default_rng(0)
    X = ta.Tensor(rng.normal(size=(5, 8)), name="X")
    W = [ta.Tensor(rng.normal(size=(8, 4)), requires_grad=True, name=name) for name in ("Wq", "Wk", "Wv")]
    Q, K, V = (X @ w for w in W)
    Q.name, K.name, V.name = "Q", "K", "V"
    out = ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(5))
    loss = (out * ta.Tensor(rng.normal(size=out.shape), name="C")).sum()
    return ta.grad(loss, W, create_graph=True) if backward else loss


def forward_graph(path):
    """One head, with the shape of everything."""
    ta.draw_graph(head(backward=False), path=path)


def backward_graph(path):
    """The backward pass of the same head is a computation too."""
    ta.draw_graph(head(backward=True), path=path)


PICTURES = [sentence, gradients, gpt, forward_graph, backward_graph]


def main():
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(prog="gallery.py", description=__doc__, formatter_class=raw)
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER", help="for pictures (default out/)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    from PIL import Image  # matplotlib needs it as well

    for picture in PICTURES:
        path = out / f"gallery_{picture.__name__}.png"
        picture(path)
        if path.exists():
            Image.open(path).quantize(128).save(path, optimize=True)
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB. {picture.__doc__}" if path.exists() else picture.__doc__)


if __name__ == "__main__":
    run_program(main)
