"""Why three projections? Asking, being found and handing over are three things: what breaks if V = K, or if Wq = Wk.

Q = X Wq is how a position asks, K = X Wk how it advertises, V = X Wv what it hands over. Two of them can be made one:

V = K     makes the content pay for the address: the dk numbers that say where to look are also all that is handed over.
          If the two differ, as in a dictionary, a narrow head fails; a wide one gives a part of its width to each.
Wq = Wk   makes the scores of self attention symmetric, Q Kᵀ = X W Wᵀ Xᵀ: i scores j just as j scores i. They cannot
          express a relation with a direction: if rock looks at the scissors, the scissors look at rock.
          At best two of three can be right: from ab > ac, bc > ba and ca > cb follows ab > ac > bc > ab.

Three tasks, each for one head of width 4 … 32, followed by a linear map:
dictionary   16 words, each with a meaning; asked for a word, answer with its meaning. Content is not address.
menu         8 dishes; asked "is there this, or that?", answer with the one there is. Content is address.
game         rock, paper, scissors, five times, each piece with a label; each piece answers with the label of the
             piece that it beats. A piece does not look at itself. The relation has a direction.

Practice: step 9 (python -m tinyattn practice).
"""

import _demo
import numpy as np

import tinyattn as ta

FORMS = {"Wq, Wk, Wv": ("o-", _demo.BLUE), "V = K": ("s--", _demo.ORANGE), "Wq = Wk": ("^:", _demo.GREEN)}
WIDTHS = [4, 8, 32]
SYMBOLS, LABELS, D_MODEL, BATCH = 32, 8, 64, 32


# --- one head, three ways -----------------------------------------------------------------------------


def attend(p, asking, memory, form, mask=None):
    """asking (B, n, 64) reads memory (B, m, 64): logits (B, n, classes), and the weights (B, n, m)."""
    Q = asking @ p["Wq"]  # (B, n, 64) @ (64, dk) -> (B, n, dk)
    K = memory @ (p["Wq"] if form == "Wq = Wk" else p["Wk"])  # (B, m, dk)
    V = K if form == "V = K" else memory @ p["Wv"]  # (B, m, dk)
    out, weights = ta.scaled_dot_product_attention(Q, K, V, mask, return_weights=True)
    return out @ p["Wo"], weights  # (B, n, dk) @ (dk, classes)


def parameters(rng, dk, classes, tables):
    """The projections, and embedding tables of so many rows."""
    shapes = {"Wq": (D_MODEL, dk), "Wk": (D_MODEL, dk), "Wv": (D_MODEL, dk), "Wo": (dk, classes)}
    draw = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    draw |= {name: rng.normal(size=(count, D_MODEL)) for name, count in tables.items()}
    return {name: ta.Tensor(array.astype(np.float32), requires_grad=True, name=name) for name, array in draw.items()}


def rows(table, ids):
    """table[ids], as ta.embedding(ids, table), but by a product with one-hot rows: faster for a small table."""
    return np.eye(len(table), dtype=np.float32)[ids] @ table


def shuffled(rng, count):
    """(B, count): the numbers 0 … count - 1, in another order for each sequence."""
    return rng.permuted(np.tile(np.arange(count), (BATCH, 1)), axis=1)


# --- the tasks: each returns logits and weights, and what they should be: the answers, and where they lie ----


def dictionary(p, rng, form):
    words = shuffled(rng, SYMBOLS)[:, :16]  # (B, 16), all different
    meanings = rng.integers(0, SYMBOLS, words.shape)
    memory = rows(p["word"], words) + rows(p["meaning"], meanings)  # (B, 16, 64)
    place = shuffled(rng, 16)[:, :4]  # (B, 4): four questions each
    question = rows(p["question"], np.take_along_axis(words, place, axis=1))  # (B, 4, 64)
    return *attend(p, question, memory, form), np.take_along_axis(meanings, place, axis=1), place


def menu(p, rng, form):
    dishes = shuffled(rng, SYMBOLS)
    on, off = dishes[:, :8], dishes[:, 8:16]  # (B, 8) each
    question = rows(p["question"], on) + rows(p["question"], off)  # (B, 8, 64): is there this, or that?
    return *attend(p, question, rows(p["dish"], on), form), on, np.tile(np.arange(8), (BATCH, 1))


def game(p, rng, form):
    games = shuffled(rng, 10)[:, :5, None]  # (B, 5, 1): five of ten
    pieces = rng.permuted((3 * games + np.arange(3)).reshape(BATCH, 15), axis=1)
    beaten = pieces - pieces % 3 + (pieces + 1) % 3  # of each game, 0 beats 1, 1 beats 2, 2 beats 0
    place = (beaten[:, :, None] == pieces[:, None, :]).argmax(axis=-1)  # (B, 15, 15) -> (B, 15)
    labels = rng.integers(0, LABELS, pieces.shape)
    x = rows(p["piece"], pieces) + rows(p["label"], labels)  # (B, 15, 64)
    others = ~np.eye(15, dtype=bool)
    return *attend(p, x, x, form, others), np.take_along_axis(labels, place, axis=1), place


TASKS = {
    "dictionary": (dictionary, SYMBOLS, {"word": SYMBOLS, "meaning": SYMBOLS, "question": SYMBOLS}),
    "menu": (menu, SYMBOLS, {"dish": SYMBOLS, "question": SYMBOLS}),
    "game": (game, LABELS, {"piece": 30, "label": LABELS}),
}


def train(seed, task, form, dk, steps, lr=0.01):
    """The share of right answers, and of queries that look at the right place most: means of the last 20 batches."""
    run, classes, tables = TASKS[task]
    rng = np.random.default_rng(seed)
    p = parameters(rng, dk, classes, tables)
    optimizer = ta.optim.Adam(list(p.values()))
    right, found = [], []
    for step in range(steps):
        logits, weights, answers, place = run(p, rng, form)
        loss = ta.cross_entropy(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.lr = lr * ta.optim.warmup_cosine(step, steps, final=0.1)
        optimizer.step()
        right.append(np.mean(logits.numpy().argmax(axis=-1) == answers))
        found.append(np.mean(weights.numpy().argmax(axis=-1) == place))
    return np.mean(right[-20:]), np.mean(found[-20:])


# --- all of it ----------------------------------------------------------------------------------------


def plot(figure, runs):
    titles = {
        "dictionary": "Dictionary: content is not address",
        "menu": "Menu: content is address",
        "game": "Game: the relation has a direction",
    }
    for axes, (task, title) in zip(figure.subplots(1, 3, sharey=True), titles.items()):
        widths = sorted({dk for t, _, dk in runs if t == task})
        if task == "game":
            axes.axhline(BOUND + (1 - BOUND) / LABELS, color=_demo.GREY, ls=":", label="symmetric scores: at most")
        for shift, form in zip((0.97, 1.03), ASKED[task]):
            style, color = FORMS[form]
            right = np.array([[r for r, _ in runs[task, form, dk]] for dk in widths])  # (widths, seeds)
            axes.plot(widths, right.mean(axis=1), style, color=color, label=form)
            axes.plot(np.array(widths) * shift, right, ".", color=color, ms=4, alpha=0.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(dk) for dk in widths])
        least = widths[0]
        found = ", ".join(f"{form} {np.mean([r for r, _ in runs[task, form, least]]):.2f}" for form in ASKED[task])
        axes.set_title(f"{title}\nat dk = {least}: {found}", fontsize=10)
        axes.set(xlabel="width of the head, dk", xlim=(3.4, 38), ylim=(-0.03, 1.05))
    figure.axes[0].set_ylabel("share of right answers")
    for axes in figure.axes:
        axes.legend(loc="lower right", fontsize=8)


def plot_found(figure, own, symmetric):
    axes = figure.subplots()
    axes.bar([0, 1], [own.mean(), symmetric.mean()], color=[_demo.BLUE, _demo.GREEN], width=0.5)
    for x, values in enumerate((own, symmetric)):
        axes.plot(np.full(values.size, x), values.ravel(), ".", color="black")
    axes.axhline(BOUND, color=_demo.GREY, ls=":", label="2/3: the most that symmetric scores can do")
    axes.set_xticks([0, 1], ASKED["game"])
    axes.set(
        title=f"Game: {own.mean():.2f} find the piece that they beat; Wq = Wk {symmetric.mean():.2f}", ylim=(0, 1.25)
    )
    axes.legend(loc="upper right", fontsize=8)


ASKED = {"dictionary": ("Wq, Wk, Wv", "V = K"), "menu": ("Wq, Wk, Wv", "V = K"), "game": ("Wq, Wk, Wv", "Wq = Wk")}
BOUND = 2 / 3  # of symmetric scores, see above


def main(demo):
    steps, seeds = (150 if demo.quick else 400), 3
    widths = {task: {"dictionary": [4], "menu": [16], "game": [8]}[task] if demo.quick else WIDTHS for task in TASKS}
    plan = [
        (task, f, dk, demo.seed + i) for task in TASKS for dk in widths[task] for f in ASKED[task] for i in range(seeds)
    ]
    runs = {}
    for task, form, dk, seed in demo.track(plan, "training"):
        runs.setdefault((task, form, dk), []).append(train(seed, task, form, dk, steps))

    def right(task, form, dk):
        return np.array([r for r, _ in runs[task, form, dk]])  # (seeds,)

    def found(form):
        return np.array([[at for _, at in runs["game", form, dk]] for dk in widths["game"]])  # (widths, seeds)

    def span(values):
        return " … ".join(dict.fromkeys(f"{f(values):.2f}" for f in (np.min, np.max)))

    for task in TASKS:
        demo.table(
            f"{task}: share of right answers after {steps} steps, worst … best of {seeds} seeds",
            ["dk", *ASKED[task]],
            [(dk, *(span(right(task, form, dk)) for form in ASKED[task])) for dk in widths[task]],
        )
    own, symmetric = (found(form) for form in ASKED["game"])
    demo.table(
        "game: share of the pieces that look most at the one that they beat",
        ["dk", *ASKED["game"]],
        [(dk, *(span(found(form)[i]) for form in ASKED["game"])) for i, dk in enumerate(widths["game"])],
    )
    if not demo.quick:
        demo.plot("accuracy", plot, runs, size=(12, 3.8))
    else:
        demo.plot("found", plot_found, own, symmetric, size=(6, 3))
    demo.say(
        "\nThree projections, because where to look, how to be found and what to hand over are three things: one "
        "matrix for two of them works as far as the two are the same.\n"
    )

    narrow = widths["dictionary"][0]
    apart, one = right("dictionary", "Wq, Wk, Wv", narrow), right("dictionary", "V = K", narrow)
    demo.claim(
        f"dictionary, dk = {narrow}: with its own Wv the head is right in {span(apart)}, with V = K in {span(one)}",
        apart.min() > (0.6 if demo.quick else 0.9) and one.max() < 0.25,
    )
    wide = widths["dictionary"][-1]
    if not demo.quick:
        again = right("dictionary", "V = K", wide)
        demo.claim(f"given width, V = K learns it too: at dk = {wide}, {span(again)}", again.min() > 0.95)
    learned = {dk: right("menu", "V = K", dk) for dk in widths["menu"] if dk >= 8}
    costs = {dk: right("menu", "Wq, Wk, Wv", dk).mean() - right("menu", "V = K", dk).mean() for dk in widths["menu"]}
    demo.claim(
        f"menu: where content is address, V = K learns it as well ({span(list(learned.values()))} from dk = 8 on; what "
        f"it costs is {max(costs.values()):.2f} at most, means of the seeds)",
        np.min(list(learned.values())) > 0.6 and max(costs.values()) < 0.1,
    )
    demo.claim(
        f"game: with Wq and Wk {span(own)} of the pieces find the one that they beat",
        own.min() > (0.9 if demo.quick else 0.98),
    )
    demo.claim(
        f"with Wq = Wk {span(symmetric)}, as whom I beat and who beats me score alike: never more than 2 of 3",
        symmetric.max() < BOUND + 0.03 and symmetric.mean() < own.mean() - 0.2,
    )
    demo.measured(
        "dictionary at dk = {narrow}: own V {own}, V = K {one}; where the content is the address, V = K costs at most "
        "{cost:.2f}; a directed relation: {directed} of the pieces find theirs, with Wq = Wk {symmetric} (2/3 is the "
        "most that symmetric scores can do). 3 seeds",
        narrow=narrow,
        own=span(apart),
        one=span(one),
        cost=max(max(costs.values()), 0),
        directed=span(own),
        symmetric=span(symmetric),
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
