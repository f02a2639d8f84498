"""A causal mask keeps position i from everything after it: exactly, for values and gradients. Off by one, it leaks.

The scores of later keys are set to -inf before the softmax, so their weights are exactly 0, not merely small. Two
proofs: whatever changes at a later position, no bit of an output changes; and the derivative of an output with respect
to every later position is exactly 0. A mask that lets one position too many through looks almost the same. But its
model reads the answer instead of predicting it: the training loss is excellent, and worth nothing.

Practice: step 4 (python -m tinyattn practice).
"""

import _demo
import numpy as np

import tinyattn as ta

MASKS = {  # True = may attend; rows are queries, columns are keys
    "causal, j ≤ i": ta.causal_mask,
    "off by one, j ≤ i + 1": lambda n: np.tri(n, n, 1, dtype=bool),
}


def perturbed(X, mask, rng):
    """Entry (i, j): how much output i changes when position j gets other contents."""
    before = ta.scaled_dot_product_attention(X, X, X, mask).numpy()
    moved = np.empty((len(X), len(X)))
    for j in range(len(X)):
        other = X.copy()
        other[j] = rng.normal(size=X.shape[1])
        after = ta.scaled_dot_product_attention(other, other, other, mask).numpy()
        moved[:, j] = np.abs(after - before).max(axis=-1)
    return moved


def sensitivity(X, mask, rng):
    """Entry (i, j): the length of d(output i)/d(input j), along a random direction of the output."""
    x = ta.Tensor(X, requires_grad=True)
    output = ta.scaled_dot_product_attention(x, x, x, mask)
    direction = rng.normal(size=X.shape)
    rows = [ta.grad((output[i] * direction[i]).sum(), x, retain_graph=True)[0].numpy() for i in range(len(X))]
    return np.linalg.norm(rows, axis=-1)


def train(seed, mask, steps, vocab=8, n=12, d=32):
    """Learn to predict the next token, although nothing can be predicted: every token is drawn at random."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: ta.Tensor(rng.normal(size=shape) * shape[0] ** -0.5, requires_grad=True)
    p = {
        "token": normal(vocab, d),
        "position": normal(n, d),
        "Wq": normal(d, d),
        "Wk": normal(d, d),
        "Wv": normal(d, d),
        "Wo": normal(d, vocab),
    }
    optimizer = ta.optim.Adam(list(p.values()), lr=0.01)
    losses = []
    for _ in range(steps):
        tokens = rng.integers(0, vocab, (32, n + 1))
        x = ta.embedding(tokens[:, :-1], p["token"]) + p["position"]  # (B, n, d)
        out = ta.scaled_dot_product_attention(x @ p["Wq"], x @ p["Wk"], x @ p["Wv"], mask)
        scores = (out @ p["Wo"])[:, :-1]  # the last position has no later key to leak from
        loss = ta.cross_entropy(scores, tokens[:, 1:-1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((loss.item(), np.mean(scores.numpy().argmax(axis=-1) == tokens[:, 1:-1])))
    return np.array(losses).T  # loss and share of right tokens at each step


def plot_matrices(figure, matrices):
    panels = figure.subplots(1, len(matrices))
    for axes, (title, matrix) in zip(panels, matrices.items()):
        image = axes.imshow(np.where(matrix == 0, np.nan, matrix), cmap="viridis", vmin=0, vmax=matrix.max())
        axes.set_facecolor("#eeeeee")
        axes.grid(False)
        leaks = np.argwhere(np.triu(matrix, 1) > 0)
        for i, j in leaks:  # the evidence: what the future lets through
            _demo.outline(axes, i, j)
        title = f"{title}: {len(leaks)} derivatives of the future"
        axes.set(title=title, xlabel="with respect to input j", ylabel="output i")
        figure.colorbar(image, ax=axes, shrink=0.8, label="|d out i / d in j|  (grey: exactly 0)")


def plot_training(figure, runs, vocab=8):
    axes = figure.subplots()
    for color, (name, curves) in zip((_demo.BLUE, _demo.ORANGE), runs.items()):
        for k, curve in enumerate(curves):
            axes.plot(curve[0], color=color, lw=1, label=name if k == 0 else None)
    axes.axhline(np.log(vocab), color=_demo.GREY, ls=":", label=f"ln {vocab}: the best there is for random tokens")
    leak = np.mean([curve[1][-20:].mean() for curve in curves])
    axes.set(
        title=f"Predicting random tokens: the leaky mask is right in {leak:.0%}",
        xlabel="step",
        ylabel="training loss",
        ylim=(0, None),
    )
    axes.legend()


def main(demo):
    n = 6
    rng = np.random.default_rng(demo.seed)
    X = rng.normal(size=(n, 8))
    future = np.triu(np.ones((n, n), dtype=bool), 1)  # the entries (i, j) with j > i

    demo.heading("The mask, and the weights behind it")
    ta.show_mask(ta.causal_mask(n))
    _, weights = ta.scaled_dot_product_attention(X, X, X, ta.causal_mask(n), return_weights=True)
    P = weights.numpy()
    demo.heatmap("weights", weights, title=f"behind a causal mask: weight on the future {P[future].sum():g}")
    demo.say()
    demo.claim(
        "weights on the future are exactly 0, rows still sum to 1", np.all(P[future] == 0) and np.allclose(P.sum(-1), 1)
    )

    demo.heading("Two proofs, and what an off-by-one lets through")
    slopes = {}
    for name, make in MASKS.items():
        rng = np.random.default_rng(demo.seed + 1)  # the same replacements for both masks
        moved = perturbed(X, make(n), rng)
        slopes[name] = sensitivity(X, make(n), rng)
        cells = [(f"out {i}", *("0" if x == 0 else f"{x:.2f}" for x in row)) for i, row in enumerate(moved)]
        columns = ["", *(f"in {j}" for j in range(n))]
        demo.table(f"{name}: change of each output when one input is replaced", columns, cells)
        demo.say()
        if name.startswith("causal"):
            demo.claim("no output moves by a single bit when a later input is replaced", np.all(moved[future] == 0))
            demo.claim("every derivative with respect to a later input is exactly 0", np.all(slopes[name][future] == 0))
        else:
            leak = [moved[i, i + 1] for i in range(n - 1)]
            demo.claim("off by one: each output depends on the input right after it", np.all(np.array(leak) > 0))
    demo.plot("derivatives", plot_matrices, slopes, size=(10, 4))

    demo.heading("What the leak is worth: training on tokens that nobody can predict")
    steps, seeds = (80, 3) if demo.quick else (150, 3)
    plan = [(name, demo.seed + i) for name in MASKS for i in range(seeds)]
    runs = {name: [] for name in MASKS}
    for name, seed in demo.track(plan, "training"):
        runs[name].append(train(seed, MASKS[name](12), steps))
    final = {name: np.mean([curve[:, -20:] for curve in curves], axis=2) for name, curves in runs.items()}  # (seeds, 2)
    demo.table(
        f"after {steps} steps, {seeds} seeds; the best there is: loss ln 8 = {np.log(8):.2f}, 1/8 right",
        ["mask", "lowest loss", "highest", "least right", "most"],
        [(name, *(f"{f(x[:, k]):.2f}" for k in (0, 1) for f in (np.min, np.max))) for name, x in final.items()],
    )
    demo.say()
    honest, leaky = final.values()
    error = 4.5 * np.sqrt(1 / 8 * 7 / 8 / (20 * 32 * 11))  # of the share of right guesses over 20 batches, 4.5 sigma
    demo.claim(
        f"the causal model stays at ln 8, and right in {honest[:, 1].max():.3f} at most: it cannot know more than 1/8",
        honest[:, 0].min() > 0.98 * np.log(8) and honest[:, 1].max() < 1 / 8 + error,
    )
    demo.claim(
        f"the leaky one copies the next token: {leaky[:, 1].min():.1%} of what nobody can predict is right",
        leaky[:, 1].min() > 0.9,
    )
    demo.measured(
        "weights, changes and derivatives into the future are exactly 0; trained on random tokens, the leaky mask "
        "reaches loss {loss:.2f}, {right:.0%} right, where ln 8 = 2.08 and 12.5 % are the best there is. 3 seeds",
        loss=leaky[:, 0].max(),
        right=leaky[:, 1].min(),
    )
    demo.plot("leak", plot_training, runs, size=(7, 4))


if __name__ == "__main__":
    _demo.run(main, __doc__)
