"""Before attention: a recurrent network squeezes all that it reads into one state of fixed size; attention looks it up.

Both models read pairs (name, value) and are asked for the value of one name. The GRU has a state of 32 numbers,
whatever it reads, and rewrites it at each step. The attention layer keeps every position and looks at the right one.
They have equally many parameters, the same kind of embeddings, the same training.

distance   one pair, then words that do not matter, then the question: how many steps does it take to learn?
items      many pairs, then the question: how many can be told apart?
gradient   what reaches the first position, and tells a model to remember it. Before training it shrinks on the way
           through the GRU by a factor per step, a straight line in a log plot. Attention is one step from anywhere:
           its gradient shrinks like 1 / d, as d positions share the weight.

A GRU can learn to hold one thing over a long distance; its gates were made for that. Once it has, its gradient hardly
shrinks any more. What distance costs is the learning. What the GRU does not learn here at all is to hold two things.
"""

import _demo
import numpy as np

import tinyattn as ta

NAMES, VALUES, WORDS, BATCH = 16, 16, 8, 32
NONE = VALUES  # the value of a word that has none, and of the question


# --- two models -----------------------------------------------------------------------------------------


class Reader(ta.nn.Module):
    """tokens (B, T, 2), each a name and its value, the question last -> logits (B, values)."""

    def __init__(self, d_model, rng):
        self.name = ta.nn.Embedding(NAMES + WORDS, d_model, rng=rng)
        self.value = ta.nn.Embedding(VALUES + 1, d_model, rng=rng)
        self.answer = ta.nn.Linear(d_model, VALUES, rng=rng)

    def forward(self, tokens):
        return self.answer(self.read(self.embed(tokens)))

    def embed(self, tokens):
        return self.name(tokens[..., 0]) + self.value(tokens[..., 1])  # (B, T, 2) -> (B, T, d)


class State(Reader):
    """All is read into a GRU's state, one token after the other; the answer is made of the last state."""

    def __init__(self, rng, d_model=32):
        super().__init__(d_model, rng)
        self.gru = ta.nn.GRU(d_model, d_model, rng=rng)

    def read(self, x):
        return self.gru(x)[:, -1]  # (B, T, d) -> (B, d)


class Attention(Reader):
    """The question attends to all that came before."""

    def __init__(self, rng, d_model=38):
        super().__init__(d_model, rng)
        self.attention = ta.nn.MultiHeadAttention(d_model, 1, rng=rng)

    def read(self, x):
        return self.attention(x[:, -1:], x[:, :-1])[:, 0]  # (B, 1, d), (B, T - 1, d) -> (B, d)


MODELS = {"GRU": State, "attention": Attention}
COLORS = {"GRU": _demo.ORANGE, "attention": _demo.BLUE}
STYLES = {"GRU": "s-", "attention": "o-"}


# --- the task -------------------------------------------------------------------------------------------


def batch(rng, items, words):
    """items pairs of different names, then words without a value, then the question: tokens (B, T, 2), answers (B,)."""
    names = rng.permuted(np.tile(np.arange(NAMES), (BATCH, 1)), axis=1)[:, :items]
    values = rng.integers(0, VALUES, names.shape)
    asked = np.arange(BATCH), rng.integers(0, items, BATCH)
    idle = rng.integers(NAMES, NAMES + WORDS, (BATCH, words))
    column_1 = np.concatenate([names, idle, names[asked][:, None]], axis=1)
    column_2 = np.concatenate([values, np.full((BATCH, words + 1), NONE)], axis=1)
    return np.stack([column_1, column_2], axis=-1), values[asked]


def train(seed, make, items, words, steps, lr=0.005):
    """The model, and how much it got right at each step, on sequences it had not seen; ends where it is learned."""
    rng = np.random.default_rng(seed)
    model = make(rng).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters(), lr=lr)
    right = []
    while len(right) < steps and not learned(right):
        tokens, answers = batch(rng, items, words)
        logits = model(tokens)
        loss = ta.cross_entropy(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append(np.mean(logits.numpy().argmax(axis=-1) == answers))
    return model, right


def learned(right):
    """95 % right over ten batches in a row."""
    return len(right) >= 10 and np.mean(right[-10:]) > 0.95


# --- the gradient ---------------------------------------------------------------------------------------


def gradient_at_the_first(model, distance, seed):
    """The length of d(c · logits)/dx at the first position, for random directions c: the mean over a batch."""
    rng = np.random.default_rng([seed, distance])
    tokens, _ = batch(rng, 1, distance - 1)  # the question stands `distance` places behind the pair
    x = ta.Tensor(model.embed(tokens).numpy(), requires_grad=True)
    logits = model.answer(model.read(x))
    c = rng.normal(size=logits.shape)
    (dx,) = ta.grad(logits, x, c / np.linalg.norm(c, axis=-1, keepdims=True))
    return np.linalg.norm(dx.numpy()[:, 0], axis=-1).mean()


# --- all of it ------------------------------------------------------------------------------------------


def plot(figure, distances, to_learn, items, recall, reach, gradients):
    far, many, slope = figure.subplots(1, 3)
    for name in MODELS:
        for axes, xs, table in ((far, distances, to_learn), (many, items, recall)):
            values = np.array([table[name, x] for x in xs])  # (xs, seeds)
            axes.plot(xs, values.mean(axis=1), STYLES[name], color=COLORS[name], label=name)
            axes.plot(xs, values, ".", color=COLORS[name], ms=4, alpha=0.6)
    many.plot(items, [guess(m) for m in items], ":", color=_demo.GREY, label="a guess among the values shown")
    for name, lines in gradients.items():
        kind, *trained = name.split(", ")
        style = {"color": COLORS[kind], "ls": "--" if trained else "-", "lw": 1.3}
        for k, line in enumerate(lines):
            slope.plot(reach, line, label=name if k == 0 else None, **style)
    far.set(title="Training steps until it is learned", xlabel="distance: words in between", ylim=(0, None))
    many.set(title="Recall", xlabel="items: pairs to remember", ylabel="share of right answers", ylim=(-0.03, 1.05))
    slope.set(title="Gradient that reaches the first position", xlabel="distance d", ylabel="|d logits / dx|")
    slope.set_yscale("log")
    many.set_xscale("log", base=2)
    many.set_xticks(items, [str(m) for m in items])
    far.set_xticks(distances)
    for axes in (far, many, slope):
        axes.legend(fontsize=8)


def guess(items):
    """The share of right answers of one who knows which values were shown, but not whose."""
    return 1 / items + (1 - 1 / items) / VALUES


def span(values, form="{:.2f}"):
    return " … ".join(dict.fromkeys(form.format(f(values)) for f in (min, max)))


def main(demo):
    seeds = [demo.seed + i for i in range(3)]
    distances, items, steps = ([2, 8], [1, 4], 150) if demo.quick else ([4, 8, 16, 32], [1, 2, 4, 8, 16], 400)
    sizes = {name: sum(p.size for p in make(0).parameters()) for name, make in MODELS.items()}
    demo.say("\nparameters: " + ", ".join(f"{name} {size:,}" for name, size in sizes.items()))

    plan = [(1, d) for d in distances] + [(m, 0) for m in items]
    runs = {}
    for name, task, seed in demo.track([(n, task, s) for task in plan for n in MODELS for s in seeds], "training"):
        runs[name, task, seed] = train(seed, MODELS[name], *task, steps)
    to_learn = {(n, d): [len(runs[n, (1, d), s][1]) for s in seeds] for n in MODELS for d in distances}
    recall = {(n, m): [np.mean(runs[n, (m, 0), s][1][-10:]) for s in seeds] for n in MODELS for m in items}
    demo.table(
        f"distance: steps until 95 % of ten batches are right (at most {steps}), {len(seeds)} seeds",
        ["words in between", *MODELS],
        [(d, *(span(to_learn[n, d], "{}") for n in MODELS)) for d in distances],
    )
    demo.table(
        f"items: share of right answers after {steps} steps, or where 95 % was reached",
        ["pairs", *MODELS, "guess"],
        [(m, *(span(recall[n, m]) for n in MODELS), f"{guess(m):.2f}") for m in items],
    )

    reach = [1, 2, 4, *range(8, 65, 8)]
    models = {name: [MODELS[name](np.random.default_rng(s)) for s in seeds] for name in MODELS}
    models[f"GRU, trained at distance {distances[-1]}"] = [runs["GRU", (1, distances[-1]), s][0] for s in seeds]
    gradients = {
        name: [[gradient_at_the_first(model, d, seed) for d in reach] for model, seed in zip(each, seeds)]
        for name, each in models.items()
    }
    demo.table(
        "gradient that reaches the first position, mean of the seeds",
        ["distance", *models],
        [
            (d, *(f"{np.mean(lines, axis=0)[i]:.1e}" for lines in gradients.values()))
            for i, d in enumerate(reach)
            if d & (d - 1) == 0
        ],
    )
    demo.plot("memory", plot, distances, to_learn, items, recall, reach, gradients, size=(13, 4))

    near, far = (np.array([to_learn[name, d] for name in MODELS]) for d in (distances[0], distances[-1]))  # (2, seeds)
    times = far / near
    start = reach.index(8)  # from here on the slopes are even
    factor = [(line[-1] / line[start]) ** (1 / (reach[-1] - reach[start])) for line in gradients["GRU"]]
    power = [np.log(line[-1] / line[start]) / np.log(reach[-1] / reach[start]) for line in gradients["attention"]]
    untrained, _, trained = (np.array(lines) for lines in gradients.values())  # (seeds, distances)
    kept = trained[:, -1] / trained[:, 0]
    demo.say()
    demo.claim(
        f"distance: for {distances[-1]} words in between instead of {distances[0]} the GRU takes "
        f"{span(times[0], '{:.1f}')} times as many steps, attention {span(times[1], '{:.1f}')}",
        times[0].min() > (1.2 if demo.quick else 2.5) and times[1].max() < 2,
    )
    demo.claim(
        f"items: attention recalls {items[-1]} pairs; the GRU knows from 4 on which values it saw, hardly whose",
        min(recall["attention", m][i] for m in items for i in range(3)) > 0.9
        and all(max(recall["GRU", m]) < guess(m) + 0.12 for m in items if m >= 4),
    )
    demo.claim(
        f"gradient: through the GRU it shrinks by a factor of {span(factor)} per step, to at most "
        f"{untrained[:, -1].max():.0e} at distance {reach[-1]}",
        untrained[:, -1].max() < 1e-5,
    )
    demo.claim(
        f"through attention it shrinks like d to the power of {span(power)}", min(power) > -1.4 and max(power) < -0.6
    )
    demo.claim(
        f"once the GRU has learned to hold on, {span(kept)} of its gradient is left from 1 to {reach[-1]}",
        kept.min() > 0.1,
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
