"""Attention does not know word order: "dog bites man" is "man bites dog" until positions are added.

A query looks at keys by what they are. Nothing in softmax(Q Kᵀ / √dk) V says where they stand. So if the words are
shuffled, the outputs are shuffled in the same way and, except for rounding, do not change. Three ways to add the order:

sinusoidal   a fixed pattern of sines for each place, added to the word's vector (Vaswani et al. 2017, section 3.5)
learned      a vector for each place, added as well, and trained
rotary       queries and keys are turned by an angle that grows with their place: of the two places, a score then
             depends only on the distance (Su et al. 2021)

A causal mask alone also shows something of the order: the first word sees one word, the last sees all.

Then a model is asked "who bites?". Without positions it cannot do better than to guess one of two.
"""

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import nn

WORDS = ["dog", "bites", "man"]
D, NAMES, BATCH = 16, 12, 64


def sentence_vectors(rng, kind):
    """The output at each word of "dog bites man" and of "man bites dog": (3, D) each, by word."""
    words = rng.normal(size=(3, D))
    mha = nn.MultiHeadAttention(D, 2, rotary=10.0 if kind == "rotary" else None, rng=rng)
    places = {"sinusoidal": nn.sinusoidal_positions(3, D), "learned": rng.normal(size=(3, D))}.get(
        kind, np.zeros((3, D))
    )
    mask = ta.causal_mask(3) if kind == "causal mask" else None
    order = np.array([2, 1, 0])
    first = mha(words + places, mask=mask).numpy()
    turned = mha(words[order] + places, mask=mask).numpy()[order]
    return first, turned


KINDS = ["nothing", "sinusoidal", "learned", "rotary", "causal mask"]


def rotary_scores(rng, n=6, d=8):
    """Scores of rotated queries and keys that are the same vectors at each place: (n, n)."""
    q, k = (np.tile(rng.normal(size=d), (n, 1)) for _ in range(2))
    return ta.rotary(q).numpy() @ ta.rotary(k).numpy().T


class Reader(nn.Module):
    """Three words -> who bites: attention, the mean of the words, a linear map."""

    def __init__(self, kind, rng):
        self.words = nn.Embedding(NAMES + 1, 32, rng=rng)
        self.places = nn.LearnedPositions(3, 32, rng=rng) if kind == "learned" else None
        self.fixed = nn.sinusoidal_positions(3, 32).astype(np.float32) if kind == "sinusoidal" else np.float32(0)
        self.attention = nn.MultiHeadAttention(32, 4, rotary=10.0 if kind == "rotary" else None, rng=rng)
        self.feed_forward = nn.FeedForward(32, rng=rng)
        self.answer = nn.Linear(32, NAMES, rng=rng)

    def forward(self, ids):
        x = self.words(ids) + self.fixed  # (B, 3, 32)
        x = x if self.places is None else self.places(x)
        x = x + self.attention(x)
        return self.answer((x + self.feed_forward(x)).mean(axis=1))  # the mean forgets the order, too


def train(seed, kind, steps):
    """The share of right answers to "who bites?", of the last 20 batches."""
    rng = np.random.default_rng(seed)
    model = Reader(kind, rng).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters(), lr=0.01)
    right = []
    for _ in range(steps):
        who, whom = rng.permuted(np.tile(np.arange(NAMES), (BATCH, 1)), axis=1)[:, :2].T
        logits = model(np.stack([who, np.full(BATCH, NAMES), whom], axis=1))
        loss = ta.cross_entropy(logits, who)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append(np.mean(logits.numpy().argmax(axis=-1) == who))
    return np.mean(right[-20:])


def plot(figure, change, right):
    left, axes = figure.subplots(1, 2)
    left.bar(range(len(KINDS)), [max(change[kind].max(), 1e-17) for kind in KINDS], color=_demo.BLUE)
    left.set(yscale="log", title=f"Two words swap places: without positions {change['nothing'].max():.0e} changes")
    left.set_ylabel("largest change of the words' outputs")
    left.set_ylim(1e-17, 10)
    axes.bar(range(len(right)), [np.mean(x) for x in right.values()], color=_demo.BLUE)
    for i, shares in enumerate(right.values()):
        axes.plot([i] * len(shares), shares, ".", color="black")
    axes.axhline(0.5, color=_demo.ORANGE, ls=":", label="one of two: the most without order")
    axes.set(title=f"Who bites? Without positions {np.mean(right['nothing']):.2f} right", ylim=(0, 1.3))
    axes.legend(loc="upper left", fontsize=8)
    for ax, names in ((left, KINDS), (axes, list(right))):
        ax.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names], fontsize=8)


def main(demo):
    rng = np.random.default_rng(demo.seed)
    demo.heading("The same three words, in two orders")
    first, turned = sentence_vectors(np.random.default_rng(demo.seed), "nothing")
    demo.table(
        "first feature of each word's output, without positions",
        ["", *WORDS],
        [
            ("dog bites man", *(f"{x:+.15f}" for x in first[:, 0])),
            ("man bites dog", *(f"{x:+.15f}" for x in turned[:, 0])),
        ],
    )
    draws = 20
    change = {
        kind: np.array([np.abs(np.subtract(*sentence_vectors(rng, kind))).max() for _ in range(draws)])
        for kind in KINDS
    }
    demo.table(
        f"largest change of the words' outputs by the swap, {draws} draws",
        ["what tells the order", "smallest", "largest"],
        [(kind, f"{x.min():.0e}", f"{x.max():.0e}") for kind, x in change.items()],
    )
    demo.say()
    demo.claim(
        f"attention alone: each word's output stays the same, to {change['nothing'].max():.0e} (rounding: the sums run "
        "in another order)",
        change["nothing"].max() < 1e-13,
    )
    demo.claim(
        "with positions of any kind the two sentences differ",
        all(change[kind].min() > 1e-4 for kind in ("sinusoidal", "learned", "rotary")),
    )
    demo.claim(
        "behind a causal mask they differ without any: what a word can see tells its place",
        change["causal mask"].min() > 1e-4,
    )
    scores = rotary_scores(rng)
    spread = max(np.ptp(np.diagonal(scores, k)) for k in range(-5, 6))
    demo.claim(
        f"rotary: the score of the same two words depends on their distance alone (to {spread:.0e})",
        spread < 1e-12 and np.ptp(scores) > 0.01,
    )

    demo.heading('Trained to say who bites: "A bites B" -> A')
    steps, seeds = (120, 3) if demo.quick else (300, 5)
    kinds = ["nothing", "sinusoidal", "learned", "rotary"]
    right = {kind: [] for kind in kinds}
    for kind, i in demo.track([(kind, i) for kind in kinds for i in range(seeds)], "training"):
        right[kind].append(train(demo.seed + i, kind, steps))
    demo.table(
        f"share of right answers after {steps} steps, {seeds} seeds",
        ["positions", "worst", "best"],
        [(kind, f"{min(x):.2f}", f"{max(x):.2f}") for kind, x in right.items()],
    )
    error = 4.5 * np.sqrt(0.25 / (20 * BATCH))
    demo.say()
    demo.claim(
        f"without positions it is right in {max(right['nothing']):.2f} at most: both names are there, and nothing says "
        "which came first (the bound is 1/2)",
        max(right["nothing"]) < 0.5 + error and min(right["nothing"]) > 0.3,
    )
    told = {kind: np.mean(right[kind]) for kind in kinds[1:]}
    demo.claim(
        "with positions it learns: " + ", ".join(f"{kind} {share:.2f}" for kind, share in told.items()),
        min(told.values()) > 0.8,
    )
    demo.plot("order", plot, change, right, size=(11, 3.8))
    demo.measured(
        '"dog bites man" against "man bites dog": outputs equal to {same:.0e}; asked who bites, right in {without:.2f} '
        "at most without positions (1/2 is the bound), with them {told:.2f} at least. {seeds} seeds",
        same=change["nothing"].max(),
        without=max(right["nothing"]),
        told=min(told.values()),
        seeds=seeds,
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
