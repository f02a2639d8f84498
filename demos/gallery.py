"""Make the pictures of the README and of docs/gallery.md: attention, its gradients, and readable graphs.

python demos/gallery.py --out docs/images

The first one is a view of a page, so it needs playwright and a chromium. The last two are made from two pictures in
out/: run the full form of vanishing_gradients.py before.
"""

import argparse
import contextlib
import io
import shutil
import tempfile
from pathlib import Path

import numpy as np

import tinyattn as ta
from tinyattn import pretrained
from tinyattn.graph import region
from tinyattn.text import run_program

LARGEST = 150_000  # bytes of a picture


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


def four_words(path):
    """The README's four words: who looks at whom, every number with its gradient; once more for a dark page."""
    from playwright.sync_api import sync_playwright

    rng, words, mask = np.random.default_rng(0), ["the", "cat", "sat", "down"], ta.causal_mask(4)
    X = rng.normal(size=(4, 8))
    Q, K, V = (X @ rng.normal(size=(8, 3)) for _ in "QKV")
    out, weights = ta.scaled_dot_product_attention(Q, K, V, mask, return_weights=True)
    with contextlib.redirect_stdout(io.StringIO()):
        shown = ta.heatmap(weights, words, words, title="who looks at whom")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise ImportError("no chromium in PATH")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        file = Path(folder, "page.html")
        ta.microscope(Q, K, V, mask, row_labels=words, gradient=2 * out, path=file)  # of the loss, the sum of O²
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme, target in (("light", path), ("dark", path.with_stem(path.stem + "_dark"))):
            window = {"viewport": {"width": 1000, "height": 600}, "device_scale_factor": 1.5, "color_scheme": scheme}
            tab = browser.new_page(**window)
            tab.goto(file.as_uri())
            tab.evaluate(ARRANGED, shown._repr_html_())
            tab.hover("td[data-which=P][data-back='0'][data-i='2'][data-j='0']")
            tab.set_viewport_size({"width": 1000, "height": tab.evaluate("document.documentElement.scrollHeight")})
            tab.screenshot(path=target)
        browser.close()


ARRANGED = """map => {
  const main = document.querySelector("main"), [Q, K, S, Z, M, P, V, O] = main.children
  document.querySelectorAll("h1, p, form, noscript, #measures").forEach(x => x.remove())
  document.body.style.padding = "1rem 1rem 5rem"
  main.style.gap = ".9rem"
  const first = document.createElement("figure")
  first.innerHTML = map
  first.firstChild.style.margin = "0"
  first.firstChild.innerHTML = first.firstChild.innerHTML.split("\\n").slice(0, -1).join("\\n")
  main.replaceChildren(first, Q, K, V, S, Z, M, P, O)
}"""


def sentence(path):
    """A trained head of a real model: "it" looks at "animal"."""
    text = "The animal didn't cross the street because it was too tired."
    tokens, maps = next((t, m) for s, (t, m) in pretrained.stored_maps().items() if s == text)
    claim = tokens.index("it"), tokens.index("animal")
    title = f"MiniLM, layer 3, head 1: 'it' looks at 'animal' with {maps[3, 1][claim]:.2f}"
    ta.heatmap(maps[3, 1], tokens, tokens, mark=[claim], title=title, path=path)


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


def main_demo(path):
    """Without ÷ √dk the softmax saturates, and does not learn."""
    from PIL import Image

    for name, width in (("sweep", 1800), ("training", 1200)):
        made = Path("out", f"vanishing_gradients_{name}_seed0.png")
        if made.exists():
            picture = Image.open(made)
            picture = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
            picture.save(path.with_stem(f"{path.stem}_{name}"))
        else:
            print(f"{made} is not there: demos/vanishing_gradients.py makes it")


PICTURES = [four_words, sentence, gradients, gpt, forward_graph, backward_graph, main_demo]


def main():
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(prog="gallery.py", description=__doc__, formatter_class=raw)
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER", help="for pictures (default out/)")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    from PIL import Image  # matplotlib needs it as well

    for picture in PICTURES:
        path = out / f"gallery_{picture.__name__}.png"
        try:
            picture(path)
        except ImportError as error:
            print(f"{path} is not made: {error}")
        for file in sorted(out.glob(f"{path.stem}*.png")):
            whole = Image.open(file).convert("RGB")
            for colors in (256, 64, 16):
                whole.quantize(colors).save(file, optimize=True)
                if file.stat().st_size <= LARGEST:
                    break
            print(f"{file}: {file.stat().st_size / 1e3:.0f} kB. {picture.__doc__}")


if __name__ == "__main__":
    run_program(main)
