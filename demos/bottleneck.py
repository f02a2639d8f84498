"""Before attention: a recurrent network squeezes all that it reads into one state of fixed size; attention looks it up.

Both models read pairs (name, value) and are asked for the value of each name. The GRU has a state of fixed width, and
rewrites it at each step. The attention layer keeps every position and looks at the right one. At width 32 they have
equally many parameters, the same kind of embeddings, the same training.

distance   one pair, then words that do not matter, then the question: how many steps does it take to learn?
state      width of the state × number of pairs; each is trained until it has learned or stopped learning. A fixed state
           can hold two things, and more if it is wider: 8 pairs are 32 bits, and one number of the state has 24. But
           it learns this slowly. Attention needs some 100 steps, for any number of pairs.
gradient   it reaches the first position, and tells a model to remember it. Before training it shrinks by a factor at
           each step through the GRU: a straight line in a log plot. Attention is one step away from every position:
           its gradient shrinks like 1 / d, because d positions share the weight.

A GRU can learn to hold one thing over a long distance; its gates were made for that. After that its gradient hardly
shrinks any more. So distance makes the learning hard, not the remembering. For states that are a matrix, and what they
hold, see quadratic_cost.py (untrained) and recall_and_state.py (trained, beside a paper's figures).
"""

import _demo
import numpy as np

import tinyattn as ta

NAMES, VALUES, WORDS, BATCH = 16, 16, 8, 32
NONE = VALUES  # the value of a word that has none, and of the question


# --- two models -----------------------------------------------------------------------------------------


class Reader(ta.nn.Module):
    """tokens (B, T, 2), each a name and its value, and questions (B, m, 2) -> logits (B, m, values)."""

    def __init__(self, d_model, rng):
        self.name = ta.nn.Embedding(NAMES + WORDS, d_model, rng=rng)
        self.value = ta.nn.Embedding(VALUES + 1, d_model, rng=rng)
        self.answer = ta.nn.Linear(d_model, VALUES, rng=rng)

    def forward(self, tokens, questions):
        return self.answer(self.read(self.embed(tokens), self.embed(questions)))

    def embed(self, tokens):
        return self.name(tokens[..., 0]) + self.value(tokens[..., 1])  # (B, T, 2) -> (B, T, d)


class State(Reader):
    """The GRU's state reads all, one token after the other; then each question continues alone from the last state."""

    def __init__(self, rng, d_model=32):
        super().__init__(d_model, rng)
        self.gru = ta.nn.GRU(d_model, d_model, rng=rng)

    def read(self, x, questions):
        B, m, d = questions.shape
        state = ta.broadcast_to(self.gru(x)[:, -1:], (B, m, d)).reshape(B * m, d)
        return self.gru(questions.reshape(B * m, 1, d), state).reshape(B, m, d)


class Attention(Reader):
    """Each question attends to all that was read."""

    def __init__(self, rng, d_model=38):
        super().__init__(d_model, rng)
        self.attention = ta.nn.MultiHeadAttention(d_model, 1, rng=rng)

    def read(self, x, questions):
        return self.attention(questions, x)  # (B, m, d), (B, T, d) -> (B, m, d)


MODELS = {"GRU": State, "attention": Attention}
COLORS = {"GRU": _demo.ORANGE, "attention": _demo.BLUE}
STYLES = {"GRU": "s-", "attention": "o-"}


# --- the task -------------------------------------------------------------------------------------------


def batch(rng, items, words):
    """items pairs of different names, then words without a value: tokens (B, T, 2); a question for each name (B, items,
    2); the answers (B, items)."""
    names = rng.permuted(np.tile(np.arange(NAMES), (BATCH, 1)), axis=1)[:, :items]
    values = rng.integers(0, VALUES, names.shape)
    idle = rng.integers(NAMES, NAMES + WORDS, (BATCH, words))
    column_1 = np.concatenate([names, idle], axis=1)
    column_2 = np.concatenate([values, np.full((BATCH, words), NONE)], axis=1)
    questions = np.stack([names, np.full(names.shape, NONE)], axis=-1)
    return np.stack([column_1, column_2], axis=-1), questions, values


def train(seed, make, items, words, steps, lr=0.01):
    """The model, and its share of right answers at each step, on sequences it had not seen. Ends when the task is
    learned, or when learning has stopped."""
    rng = np.random.default_rng(seed)
    model = make(rng).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters(), lr=lr)
    right = []
    while len(right) < steps and not learned(right) and not stopped(right):
        tokens, questions, answers = batch(rng, items, words)
        logits = model(tokens, questions)
        loss = ta.cross_entropy(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        ta.optim.clip_grad_norm(optimizer.params, 1.0)
        optimizer.step()
        right.append(np.mean(logits.numpy().argmax(axis=-1) == answers))
    return model, right


def learned(right):
    """95 % right over ten batches in a row."""
    return len(right) >= 10 and np.mean(right[-10:]) > 0.95


def stopped(right, span=500):
    """The last 500 steps brought less than 1 % over the 500 before."""
    return len(right) >= 2 * span and np.mean(right[-span:]) < np.mean(right[-2 * span : -span]) + 0.01


def gained(right):
    """What the last tenth of the steps brought over the tenth before."""
    tenth = max(1, len(right) // 10)
    return np.mean(right[-tenth:]) - np.mean(right[-2 * tenth : -tenth])


# --- the gradient ---------------------------------------------------------------------------------------


def gradient_at_the_first(model, distance, seed):
    """The length of d(c · logits)/dx at the first position, for random directions c: the mean over a batch."""
    rng = np.random.default_rng([seed, distance])
    tokens, questions, _ = batch(rng, 1, distance - 1)  # the question stands `distance` places behind the pair
    x = ta.Tensor(model.embed(tokens).numpy(), requires_grad=True)
    logits = model.answer(model.read(x, model.embed(questions)))[:, 0]
    c = rng.normal(size=logits.shape)
    (dx,) = ta.grad(logits, x, c / np.linalg.norm(c, axis=-1, keepdims=True))
    return np.linalg.norm(dx.numpy()[:, 0], axis=-1).mean()


# --- all of it ------------------------------------------------------------------------------------------


def plot(figure, distances, to_learn, items, recall, reach, gradients):
    far, many, slope = figure.subplots(1, 3)
    for name in MODELS:
        values = np.array([to_learn[name, d] for d in distances])  # (distances, seeds)
        far.plot(distances, values.mean(axis=1), STYLES[name], color=COLORS[name], label=name)
        far.plot(distances, values, ".", color=COLORS[name], ms=4, alpha=0.6)
    for name, table in recall.items():
        values = np.array([table[m] for m in items])  # (items, seeds)
        style = {"color": COLORS[name.split(",")[0]], "lw": 1 + 2 * (name == list(recall)[-1])}
        many.plot(items, values.mean(axis=1), "o-", **style)
        many.annotate(name, (items[-1], values[-1].mean()), (4, 0), textcoords="offset points", fontsize=8, va="center")
        many.plot(items, values, ".", color=style["color"], ms=4, alpha=0.6)
    many.plot(items, [guess(m) for m in items], ":", color=_demo.GREY, label="a guess among the values shown")
    for name, lines in gradients.items():
        kind, *trained = name.split(", ")
        style = {"color": COLORS[kind], "ls": "--" if trained else "-", "lw": 1.3}
        for k, line in enumerate(lines):
            slope.plot(reach, line, label=name if k == 0 else None, **style)
    steps = ", ".join(f"{name} {np.mean(to_learn[name, distances[-1]]):.0f}" for name in MODELS)
    far.set(title=f"Steps until learned at {distances[-1]}: {steps}", ylabel="training steps", ylim=(0, None))
    far.set_xlabel("distance: words in between")
    low, high = (np.mean([table[items[-1]] for table in recall.values()][i]) for i in (0, -1))
    many.set(title=f"Recall of {items[-1]} pairs: {low:.2f} to {high:.2f}", ylabel="share of right answers")
    many.set(xlabel="pairs to remember", ylim=(-0.03, 1.05), xlim=(items[0], items[-1] * 2.2))
    ends = ", ".join(f"{name} {np.mean([line[-1] for line in gradients[name]]):.0e}" for name in MODELS)
    slope.set(title=f"Gradient from {reach[-1]} away: {ends}", xlabel="distance d", ylabel="|d logits / dx|")
    slope.set_yscale("log")
    many.set_xscale("log", base=2)
    many.set_xticks(items, [str(m) for m in items])
    far.set_xticks(distances)
    for axes in (far, many, slope):
        axes.legend(fontsize=8)


def guess(items):
    """The share of right answers of somebody who knows which values were shown, but not with which name."""
    return 1 / items + (1 - 1 / items) / VALUES


def span(values, form="{:.2f}"):
    return " … ".join(dict.fromkeys(form.format(f(values)) for f in (np.min, np.max)))


def main(demo):
    seeds = [demo.seed + i for i in range(3)]
    distances, items, widths = (
        ([2, 8], [1, 2], [8, 32]) if demo.quick else ([4, 8, 16, 32], [1, 2, 4, 8], [8, 16, 32, 64])
    )
    steps, most = (150, 150) if demo.quick else (600, 2500)  # for the distance, and to fill the state
    sizes = {name: sum(p.size for p in make(0).parameters()) for name, make in MODELS.items()}
    demo.say("\nparameters: " + ", ".join(f"{name} {size:,}" for name, size in sizes.items()))

    runs = {}
    for name, d, seed in demo.track([(n, d, s) for d in distances for n in MODELS for s in seeds], "distance"):
        runs[name, d, seed] = train(seed, MODELS[name], 1, d, steps)
    to_learn = {(n, d): [len(runs[n, d, s][1]) for s in seeds] for n in MODELS for d in distances}
    demo.table(
        f"distance: steps until 95 % of ten batches are right (at most {steps}), {len(seeds)} seeds",
        ["words in between", *MODELS],
        [(d, *(span(to_learn[n, d], "{}") for n in MODELS)) for d in distances],
    )
    makers = {f"GRU, {w}": lambda rng, w=w: State(rng, w) for w in widths} | {"attention, 38": Attention}
    courses = {}
    for name, m, seed in demo.track([(n, m, s) for m in items for n in makers for s in seeds], "state"):
        courses[name, m, seed] = train(seed, makers[name], m, 0, most)[1]
    for seed in seeds if demo.quick else ():  # one case long enough to see that a state can hold two
        courses["GRU, 64", 2, seed] = train(seed, lambda rng: State(rng, 64), 2, 0, 500)[1]
    recall = {n: {m: [np.mean(courses[n, m, s][-10:]) for s in seeds] for m in items} for n in makers}
    taken = {n: {m: [len(courses[n, m, s]) for s in seeds] for m in items} for n in makers}
    demo.table(
        f"state: share of right answers where it is learned (.95), has stopped learning, or after {most:,} steps",
        ["pairs", *makers, "guess"],
        [(m, *(span(recall[n][m]) for n in makers), f"{guess(m):.2f}") for m in items],
    )
    demo.table(
        "steps until then, mean",
        ["pairs", *makers],
        [(m, *(f"{np.mean(taken[n][m]):.0f}" for n in makers)) for m in items],
    )
    late = {(n, m): [gained(courses[n, m, s]) for s in seeds if len(courses[n, m, s]) == most] for n, m, _ in courses}
    growing = [f"{n} on {m} ({np.mean(x):+.2f})" for (n, m), x in late.items() if x and np.mean(x) > 0.01]
    demo.say("\nstill learning then (by the last tenth of the steps): " + (", ".join(growing) or "none"))

    reach = [1, 2, 4, 8, 16, 32, 64] if demo.quick else [1, 2, 4, *range(8, 65, 8)]
    models = {name: [MODELS[name](np.random.default_rng(s)) for s in seeds] for name in MODELS}
    models[f"GRU, trained at distance {distances[-1]}"] = [runs["GRU", distances[-1], s][0] for s in seeds]
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
    demo.plot("memory", plot, distances, to_learn, items, recall, reach, gradients, size=(14, 4))

    near, far = (np.array([to_learn[name, d] for name in MODELS]) for d in (distances[0], distances[-1]))  # (2, seeds)
    times = far.mean(axis=1) / near.mean(axis=1)
    start = reach.index(8)  # from here on the slopes are even
    factor = [(line[-1] / line[start]) ** (1 / (reach[-1] - reach[start])) for line in gradients["GRU"]]
    power = [np.log(line[-1] / line[start]) / np.log(reach[-1] / reach[start]) for line in gradients["attention"]]
    untrained, _, trained = (np.array(lines) for lines in gradients.values())  # (seeds, distances)
    kept = trained[:, -1] / trained[:, 0]
    *grus, attention = makers
    narrow, wide, m = grus[0], grus[-1], items[-1]
    demo.say()
    demo.claim(
        f"distance: for {distances[-1]} words in between instead of {distances[0]} the GRU takes {times[0]:.1f} times "
        f"as many steps, attention {times[1]:.1f}",
        times[0] > (1.1 if demo.quick else 1.8) and times[1] < 1.6 and times[0] > times[1],
    )
    gain = np.mean(recall[wide][2]) - np.mean(recall[narrow][2])
    demo.claim(
        f"state: what it learns{f' in {most} steps' * demo.quick} depends on its width: of 2 pairs "
        f"{np.mean(recall[narrow][2]):.2f} "
        f"({narrow}) to {np.mean(recall[wide][2]):.2f} ({wide}), means of the seeds",
        gain > (0.05 if demo.quick else 0.2),
    )
    fewer = [np.mean(recall[n][a]) - np.mean(recall[n][m]) for n in grus for a in items[:1]]
    demo.claim(
        f"and on how much there is: at each width at least {min(fewer):.2f} more of {items[0]} than of {m}",
        min(fewer) > 0.05,
    )
    two = [courses["GRU, 64", 2, s] for s in seeds]
    holds = np.mean([np.mean(course[-10:]) for course in two])
    demo.claim(
        f"'a fixed state cannot hold two things' is not so: after {np.mean([len(c) for c in two]):.0f} steps the GRU "
        f"of width 64 has {holds:.2f} of two right, where who knows the values and not whose has {guess(2):.2f}",
        holds > (0.7 if demo.quick else 0.85),
    )
    held, slow = np.array([recall[attention][m] for m in items]), np.mean(taken[attention][m])
    demo.claim(
        f"attention recalls {m} pairs: {np.mean(recall[attention][m]):.2f} after {slow:.0f} steps, the widest GRU "
        f"{np.mean(recall[wide][m]):.2f} after {np.mean(taken[wide][m]):.0f}",
        held.mean() > 0.9
        and np.mean(recall[attention][m]) > np.mean(recall[wide][m]) - 0.02
        and slow < np.mean(taken[wide][m]),
    )
    demo.claim(
        f"gradient: before training, through the GRU it shrinks by a factor of {span(factor)} per step, to at most "
        f"{untrained[:, -1].max():.0e} at distance {reach[-1]}",
        untrained[:, -1].max() < 1e-4,
    )
    demo.claim(
        f"through attention it shrinks like d to the power of {span(power)}", min(power) > -1.4 and max(power) < -0.6
    )
    demo.claim(
        f"once the GRU has learned to hold on, {np.median(kept):.2f} of its gradient is left from 1 to {reach[-1]} "
        "(median of the seeds)",
        np.median(kept) > 0.05,
    )
    demo.measured(
        "1, …, {most} pairs: GRU of width {narrow} {few} … {many}, of width {wide} {few_wide} … {many_wide}, attention "
        "{attention} in {steps:.0f} steps. Two fit: width 64 has {two:.2f} of them right after {after:.0f} steps. "
        "Before training the GRU's gradient shrinks by a factor {factor} per step. "
        "{far} words in between instead of {near} take it {slower:.1f} times as long to learn, attention {same:.1f}. "
        "3 seeds",
        most=m,
        narrow=widths[0],
        wide=widths[-1],
        few=f"{np.mean(recall[narrow][items[0]]):.2f}",
        many=f"{np.mean(recall[narrow][m]):.2f}",
        few_wide=f"{np.mean(recall[wide][items[0]]):.2f}",
        many_wide=f"{np.mean(recall[wide][m]):.2f}",
        attention=span(held),
        steps=slow,
        two=holds,
        after=np.mean([len(c) for c in two]),
        factor=span(factor),
        far=distances[-1],
        near=distances[0],
        slower=times[0],
        same=times[1],
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
