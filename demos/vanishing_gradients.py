"""Why attention divides by √dk: without it the softmax saturates, most queries get no gradient, and training fails.

A dot product is a sum of dk products. If each has variance 1, the sum has variance dk. So scores grow like √dk. The
softmax depends on their differences and becomes a choice: one weight is 1, the others are 0. There it is flat:
dS = P · (dP - Σ P · dP) is 0 where P is 0 or 1. A gradient that does not reach the scores reaches neither Q nor Wq.

(a) measures this over dk = 1 … 4,096, before training. One figure goes the other way and is shown too: the root mean
    square of the gradients grows, because the few undecided queries lack the factor 1/√dk.
(b) trains a small model to look things up, and takes cause and cure apart. Two things are varied: whether the scores
    are divided by √dk, and whether they start with variance 1 or dk (Wq is drawn √dk times smaller or larger, so each
    form can have each start). The start saturates: many rows choose a wrong key before anything is learned, and get no
    gradient that could change it. If scores start with variance dk, the division does not help; if they start with
    variance 1, dk = 64 learns undivided. At dk = 512 there is a second cause, the step: undivided, a step of Adam moves
    the scores farther. The division cures both, at every width.
(c) draws both computation graphs, coloured by the size of the gradient: one sees where it dies. A node's colour is the
    gradient at its output. So the softmax is still bright, and the scores before it are dark.

Practice: step 3 (python -m tinyattn practice).
"""

import _demo
import numpy as np

import tinyattn as ta

FORMS = {"÷ √dk": None, "not scaled": 1.0}  # what each passes as scale=
COLORS = {"÷ √dk": _demo.BLUE, "not scaled": _demo.ORANGE}
DEAD = 1e-3  # a gradient shorter than this, where the output's has length 1

# --- (a) one attention, before any training -----------------------------------------------------------


def random_attention(rng, dk, draws=None, n=64, dv=64):
    """Unit normal Q, K, V; and C, the gradient that arrives at the output: a random direction for each query."""
    leading = () if draws is None else (draws,)
    Q, K, V, C = (rng.normal(size=(*leading, n, width)) for width in (dk, dk, dv, dv))
    return Q, K, V, C / np.linalg.norm(C, axis=-1, keepdims=True)


def loss_of_attention(Q, K, V, C, scale):
    """L = Σ C · attention(Q, K, V), whose gradient at the output is C; and the weights."""
    output, weights = ta.scaled_dot_product_attention(Q, K, V, scale=scale, return_weights=True)
    return (output * C).sum(), weights


def measure(Q, K, V, C, scale):
    """How saturated the softmax is, and what is left of the gradient at Q: figures over all rows (queries)."""
    Q = ta.Tensor(Q, requires_grad=True, name="Q")
    loss, weights = loss_of_attention(Q, K, V, C, scale)
    (dQ,) = ta.grad(loss, Q)
    P = weights.numpy()
    largest = P.max(axis=-1)
    length = np.linalg.norm(dQ.numpy(), axis=-1)
    return {
        "median weight": np.median(largest),
        "mean weight": largest.mean(),
        "certain": np.mean(largest > 0.99),
        "entropy": -np.sum(P * np.log(np.where(P > 0, P, 1)), axis=-1).mean(),
        "median": np.median(length),
        "rms": np.sqrt(np.mean(length**2)),
        "dead": np.mean(length < DEAD),
    }


def sweep(seed, widths, draws, track=iter):
    """Var(q·k) / dk for each width, and the figures of both forms on the same draws."""
    variances, figures = [], {form: [] for form in FORMS}
    for dk in track(widths):
        Q, K, V, C = random_attention(np.random.default_rng([seed, dk]), dk, draws)
        variances.append(np.var(Q @ K.swapaxes(-1, -2)) / dk)
        for form, scale in FORMS.items():
            figures[form].append(measure(Q, K, V, C, scale))
    return variances, figures


def show_sweep(demo, widths, variances, figures):
    columns = ["dk", "Var(q·k)/dk", "max weight", "mean", "> .99", "entropy", "|dL/dq|", "RMS", "dead"]
    for form in FORMS:
        rows = [
            (
                f"{dk:,}",
                f"{v:.2f}",
                f"{f['median weight']:.4f}",
                f"{f['mean weight']:.2f}",
                f"{f['certain']:.0%}",
                f"{f['entropy']:.2f}",
                f"{f['median']:.2g}",
                f"{f['rms']:.2g}",
                f"{f['dead']:.0%}",
            )
            for dk, v, f in zip(widths, variances, figures[form])
        ]
        demo.table(form, columns, rows)
    demo.say(f"""
max weight, |dL/dq|: medians over the queries; their mean and root mean square (RMS) stand beside them.
> .99: share of queries with a weight above that; dead: with |dL/dq| < {DEAD}, where |dL/d output| = 1.
""")


def standard_errors(widths, draws, n=64):
    """Of Var(q·k) / dk, measured on n queries and n keys in each draw: mostly that of the mean of their squares."""
    return [np.sqrt((4 / dk + 2 / n) / (n * draws)) for dk in widths]


def claim_sweep(demo, widths, draws, variances, figures):
    scaled, plain = (dict(zip(widths, figures[form])) for form in FORMS)
    off = [abs(v - 1) / error for v, error in zip(variances, standard_errors(widths, draws))]
    demo.claim(f"the variance of q·k is dk (at most {max(off):.1f} standard errors off)", max(off) < 4)
    demo.claim(
        f"÷ √dk: the median gradient stays at {scaled[512]['median']:.2f} from dk = 16 on",
        all(0.12 < scaled[dk]["median"] < 0.22 for dk in widths if dk >= 16),
    )
    demo.claim(
        f"not scaled, dk = 4,096: the softmax is a choice (median largest weight "
        f"{plain[4096]['median weight']:.4f}), {plain[4096]['dead']:.0%} of the queries are dead",
        plain[4096]["median weight"] > 0.999 and plain[4096]["dead"] > 0.5,
    )
    medians = [plain[dk]["median"] for dk in (64, 512, 4096)]
    demo.claim(
        "the median gradient falls from {:.2g} (dk = 64) to {:.2g} (512) to {:.1g} (4,096)".format(*medians),
        medians[0] > 5 * medians[1] > 50 * medians[2],
    )
    demo.claim(
        "before training dk ≤ 64 looks harmless: few queries are dead, the median gradient is even larger. "
        "(b) shows that it is not",
        all(plain[dk]["dead"] < 0.1 and plain[dk]["median"] >= scaled[dk]["median"] for dk in widths if dk <= 64),
    )
    demo.claim(
        "'gradients vanish' is true of most queries, not on average: the RMS grows, to "
        f"{plain[4096]['rms']:.1f} against {scaled[4096]['rms']:.2f}.\n  The few undecided queries carry all of "
        "it, without the factor 1/√dk",
        plain[4096]["rms"] > 10 * scaled[4096]["rms"],
    )


def plot_sweep(figure, widths, figures):
    weight, gradient, dead = figure.subplots(1, 3)
    for form, color in COLORS.items():
        line = {key: [f[key] for f in figures[form]] for key in figures[form][0]}
        weight.plot(widths, line["median weight"], "o-", color=color, label=form)
        gradient.plot(widths, line["median"], "o-", color=color, label=f"{form}, median")
        gradient.plot(widths, line["rms"], "s--", color=color, label=f"{form}, RMS", lw=1.2, ms=4)
        dead.plot(widths, 100 * np.array(line["dead"]), "o-", color=color, label=form)
    last = figures["not scaled"][-1]  # at the largest dk
    weight.set(title=f"The softmax saturates: {last['median weight']:.2f}", ylim=(-0.03, 1.03))
    weight.set_ylabel("largest weight of a row, median")
    gradient.set(title=f"The typical query's gradient dies: {last['median']:.0e}", yscale="log")
    gradient.set_ylabel("length of dL/dq")
    dead.set(title=f"Queries with hardly a gradient: {last['dead']:.0%}", ylim=(-3, 103))
    dead.set_ylabel(f"% with one shorter than {DEAD}")
    for axes in (weight, gradient, dead):
        axes.set_xscale("log", base=4)
        axes.set_xticks([1, 16, 64, 512, 4096], ["1", "16", "64", "512", "4,096"])
        axes.minorticks_off()
        axes.set_xlabel("dk")
        axes.legend(fontsize=8)


# --- (b) a model that has to look something up --------------------------------------------------------

SYMBOLS, PAIRS, WIDTH, BATCH = 32, 16, 64, 64


def sequences(rng):
    """16 pairs (key, value) of 32 symbols each, one of the keys as the question, its value as the answer."""
    keys = rng.permuted(np.tile(np.arange(SYMBOLS), (BATCH, 1)), axis=1)[:, :PAIRS]  # (B, 16), all different
    values = rng.integers(0, SYMBOLS, (BATCH, PAIRS))
    asked = np.arange(BATCH), rng.integers(0, PAIRS, BATCH)
    return keys, values, keys[asked], values[asked]


def parameters(rng, dk):
    """Embeddings of variance 1, and projections that keep it: (a)'s q and k, before training."""
    shapes = {
        "keys": (SYMBOLS, WIDTH),
        "values": (SYMBOLS, WIDTH),
        "Wq": (WIDTH, dk),
        "Wk": (WIDTH, dk),
        "Wv": (WIDTH, WIDTH),
        "Wo": (WIDTH, SYMBOLS),
    }
    size = {name: 1.0 if name in ("keys", "values") else WIDTH**-0.5 for name in shapes}
    draw = {name: (size[name] * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    return {name: ta.Tensor(array, requires_grad=True, name=name) for name, array in draw.items()}


def rows(table, ids):
    """table[ids], as ta.embedding(ids, table), but by a product with one-hot rows: faster for a small table."""
    return np.eye(len(table), dtype=np.float32)[ids] @ table


def attend(p, question, keys, values, scale):
    """One head: the question asks, the keys answer, their values are handed over. Logits, scores, weights."""
    Q = rows(p["keys"] @ p["Wq"], question[:, None])  # (B, 1, dk)
    K = rows(p["keys"] @ p["Wk"], keys)  # (B, 16, dk)
    V = rows(p["values"] @ p["Wv"], values)  # (B, 16, 64)
    S = Q @ K.mT * scale  # (B, 1, 16)
    P = ta.softmax(S)
    return (P @ V)[:, 0] @ p["Wo"], S, P  # logits (B, 32): a score for each symbol


CELLS = {  # divided by √dk? with scores of variance 1 at the start?
    "÷ √dk, from 1": (True, True),
    "÷ √dk, from dk": (True, False),
    "no ÷, from dk": (False, False),
    "no ÷, from 1": (False, True),
}


def train(seed, dk, cell, lr, steps):
    """{what: its course over the steps}, on sequences that the model has not seen before; ends when all is right.

    right     share of right answers
    decided   share of questions whose largest weight is above .99; wrong: and lies on a key that was not asked for
    gradient  median length of dL/d(scores) of a question, for the loss of this question alone
    """
    divided, even = CELLS[cell]
    scale = dk**-0.5 if divided else 1.0
    rng = np.random.default_rng(seed)
    p = parameters(rng, dk)
    p["Wq"].data = p["Wq"].data * np.float32((1.0 if even else dk**0.5) / (scale * dk**0.5))
    spelling = rng.permutation(SYMBOLS)  # the question is written in other symbols than the key: to be learned
    optimizer = ta.optim.Adam(list(p.values()), lr=lr)
    course = {"right": [], "decided": [], "wrong": [], "gradient": [], "variance": [], "moved": []}
    while len(course["right"]) < steps and not (course["right"] and np.mean(course["right"][-20:]) > 0.995):
        keys, values, question, answer = sequences(rng)
        logits, S, P = attend(p, spelling[question], keys, values, scale)
        S.retain_grad()
        loss = ta.cross_entropy(logits, answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decided, wrong = P.numpy()[:, 0].max(axis=-1) > 0.99, keys[np.arange(BATCH), P.numpy()[:, 0].argmax(-1)]
        course["right"].append(np.mean(logits.numpy().argmax(axis=-1) == answer))
        course["decided"].append(decided.mean())
        course["wrong"].append(np.mean(decided & (wrong != question)))
        course["gradient"].append(np.median(np.linalg.norm(S.grad.numpy()[:, 0], axis=-1)) * BATCH)
        if len(course["right"]) == 1:  # the first step: where the scores start, and how far it moves them
            with ta.no_grad():
                after = attend(p, spelling[question], keys, values, scale)[1].numpy()
            course["variance"], course["moved"] = S.numpy().var(), np.sqrt(np.mean((after - S.numpy()) ** 2))
    return {what: np.array(values) for what, values in course.items()}


def smooth(values, geometric, steps=10):
    """The mean of ten steps, for gradients of their logarithms."""
    mean = np.convolve(np.log(np.maximum(values, 1e-12)) if geometric else values, np.ones(steps) / steps, "valid")
    return np.exp(mean) if geometric else mean


def plot_training(figure, runs, widths, lr):
    panels = {"right": "right answers", "wrong": "decided, for a wrong key", "gradient": "median |dL/d scores|"}
    figure.suptitle(f"Recall of 16 pairs, Adam {lr}: cause (start) and cure (÷ √dk) apart", x=0.01, ha="left")
    for row, dk in zip(figure.subplots(len(widths), 3, sharex=True, squeeze=False), widths):
        for axes, (what, title) in zip(row, panels.items()):
            for cell, (divided, even) in CELLS.items():
                for k, course in enumerate(runs[cell, dk, lr]):
                    line = smooth(course[what], geometric=what == "gradient")
                    style = {"color": _demo.BLUE if divided else _demo.ORANGE, "ls": "-" if even else "--", "lw": 1.2}
                    axes.plot(line, label=cell if k == 0 else None, **style)
            if what == "right":
                ends = {cell: np.mean([c["right"][-20:].mean() for c in runs[cell, dk, lr]]) for cell in CELLS}
                title += ": " + ", ".join(f"{share:.2f}" for share in ends.values())
            axes.set_title(f"dk = {dk}, {title}", fontsize=10)
            if what == "gradient":
                axes.set(yscale="log", ylim=(1e-9, 1))
            else:
                axes.set(ylim=(-0.03, 1.03))
    for axes in figure.axes[-3:]:
        axes.set_xlabel("step (a line ends where all is learned)")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=4, fontsize=8)


# --- (c) where the gradient dies ----------------------------------------------------------------------


def draw_both(demo, dk):
    """The graph of (a)'s loss in both forms, on the same draw and the same colours; and the gradients in figures."""
    Q, K, V, C = random_attention(np.random.default_rng([demo.seed, dk]), dk)
    typical = {}
    for form, scale in FORMS.items():
        q, k, v = (ta.Tensor(x, requires_grad=True, name=name) for x, name in ((Q, "Q"), (K, "K"), (V, "V")))
        loss, weights = loss_of_attention(q, k, v, ta.Tensor(C, name="C"), scale)
        demo.graph(
            "graph_scaled" if scale is None else "graph_not_scaled",
            loss,
            show="gradients",
            limits=(1e-9, 1),
            title=f"dk = {dk:,}, {form}",
        )
        P, dP = weights.numpy(), C @ V.T  # dP: what arrives at the weights
        dS = P * (dP - (P * dP).sum(axis=-1, keepdims=True))  # what softmax passes on to the scores
        dQ, dK, dV = (g.numpy() for g in ta.grad(loss, (q, k, v)))
        typical[form] = [np.median(np.abs(g)) for g in (dV, dP, dS, dQ, dK)]
    return typical


# --- all of it ----------------------------------------------------------------------------------------


def part_a(demo):
    demo.heading("(a) Saturation and gradient before training")
    widths = [1, 16, 64, 512, 4096] if demo.quick else [1, 4, 16, 64, 256, 512, 1024, 4096]
    draws = 5 if demo.quick else 20
    variances, figures = sweep(demo.seed, widths, draws, lambda x: demo.track(x, "measuring"))
    show_sweep(demo, widths, variances, figures)
    claim_sweep(demo, widths, draws, variances, figures)
    demo.plot("sweep", plot_sweep, widths, figures, size=(12, 3.8))
    at = figures["not scaled"][widths.index(512)]
    return {"certain": at["certain"], "dead": at["dead"], "median": at["median"], "rms": at["rms"]}


def part_b(demo):
    demo.heading("(b) Training: find the value that belongs to a key, 16 pairs of 32 symbols")
    steps, widths, rates, seeds = (200, [64], [3e-3], 3) if demo.quick else (600, [16, 64, 512], [1e-3, 3e-3], 3)
    settings = [(dk, lr) for dk in widths for lr in rates]
    runs = {}
    for cell, dk, lr, i in demo.track([(*x, i) for x in cells(settings) for i in range(seeds)], "training"):
        runs.setdefault((cell, dk, lr), []).append(train(demo.seed + i, dk, cell, lr, steps))

    def end(what, cell, dk, lr):  # of each seed, the mean of its last 20 steps
        return np.array([course[what][-20:].mean() for course in runs[cell, dk, lr]])

    def first(what, cell, dk):
        return np.mean([course[what].flat[0] for lr in rates for course in runs[cell, dk, lr]])

    right = {key: end("right", *key) for key in runs}
    taken = {key: np.mean([len(course["right"]) for course in runs[key]]) for key in runs}
    demo.table(
        f"right after {steps} steps or where all was right: mean of the last 20, {seeds} seeds; "
        "scores divided or not, from variance 1 or dk",
        ["dk", "Adam", *CELLS],
        [(dk, lr, *(span(right[cell, dk, lr]) for cell in CELLS)) for dk, lr in settings],
    )
    demo.table(
        "steps until then, mean",
        ["dk", "Adam", *CELLS],
        [(dk, lr, *(f"{taken[cell, dk, lr]:.0f}" for cell in CELLS)) for dk, lr in settings],
    )
    demo.table(
        f"questions decided (a weight > .99): first step → end; for a wrong key (Adam {rates[-1]})",
        ["dk", *CELLS],
        [
            (
                dk,
                *(
                    f"{first('decided', c, dk):.2f} → {end('decided', c, dk, rates[-1]).mean():.2f}; "
                    f"{end('wrong', c, dk, rates[-1]).mean():.2f}"
                    for c in CELLS
                ),
            )
            for dk in widths
        ],
    )
    demo.table(
        f"median |dL/d scores|, Adam {rates[-1]}",
        ["dk", "", *CELLS],
        [
            (dk, when, *(f"{np.mean(g):.0e}" for g in each))
            for dk in widths
            for when, *each in zip(
                ("first step", "step 50", "end"), *(gradients(runs[c, dk, rates[-1]]) for c in CELLS)
            )
        ],
    )
    demo.say()
    cured, kept, plain, even = CELLS
    large = [s for s in settings if s[0] >= 64]
    demo.claim(
        "divided, and so started with variance 1, every seed learns it, at every width",
        all(right[cured, *s].min() > 0.97 for s in settings),
    )
    demo.claim(
        "it is the start that saturates: started with variance dk, from dk = 64 on it is not learned, with the "
        f"division ({means_of(right, kept, large)}, means of the seeds) or without ({means_of(right, plain, large)})",
        all(right[cell, *s].mean() < 0.85 for s in large for cell in (kept, plain)),
    )
    demo.claim(
        "started with variance 1, dk = 64 learns it without the division as well "
        f"({means_of(right, even, [(64, lr) for lr in rates])})",
        all(right[even, 64, lr].mean() > 0.9 for lr in rates),
    )
    demo.claim(
        "what is wrong with that start: many questions are decided for a wrong key, and stay so "
        f"({min(end('wrong', c, *s).mean() for s in large for c in (kept, plain)):.0%} at least in the end; "
        f"started with variance 1 and divided {max(end('wrong', cured, *s).mean() for s in settings):.0%})",
        all(end("wrong", c, *s).mean() > 0.08 for s in large for c in (kept, plain))
        and all(end("wrong", cured, *s).mean() < 0.02 for s in settings),
    )
    demo.claim(
        "for less gradient passes the softmax to the scores, from the first step on: at dk = 64 "
        f"{first('gradient', kept, 64):.2f} against {first('gradient', cured, 64):.2f}",
        all(
            first("gradient", c, dk) < 0.6 * first("gradient", cured, dk)
            for c in (kept, plain)
            for dk in widths
            if dk > 16
        ),
    )
    demo.say(
        "  ('Only for huge heads' is not so. At dk = 64, from the same weights: divided "
        f"{right[cured, 64, 3e-3].min():.2f} right at least, undivided {right[plain, 64, 3e-3].max():.2f} at most.)"
    )
    figures = {"steps": steps, "divided": right[cured, 64, 3e-3].min(), "undivided": right[plain, 64, 3e-3].max()}
    if not demo.quick:
        narrow = [(taken[plain, 16, lr] / taken[cured, 16, lr], lr) for lr in rates]
        demo.claim(
            f"dk = 16 learns it from either start, from variance dk in {min(narrow)[0]:.1f} times the steps or more",
            min(narrow)[0] > 1.3 and min(right[plain, 16, lr].min() for lr in rates) > 0.8,
        )
        slow, fast = (right[even, 512, lr] for lr in rates)
        demo.claim(
            "at dk = 512 a second cause remains, the size of the step: undivided but started with variance 1 it "
            f"ends at {span(slow)} (Adam {rates[0]}) and {span(fast)} ({rates[1]}), not at 1",
            max(slow.max(), fast.max()) < 0.95 and fast.mean() < slow.mean(),
        )
        moved = {cell: first("moved", cell, 512) for cell in (cured, even)}
        demo.claim(
            f"its first step moves the scores by {moved[even]:.1f}, with the division by {moved[cured]:.2f}",
            moved[even] > 5 * moved[cured],
        )
        figures |= {
            "wide": right[plain, 512, 3e-3].max(),
            "second": right[even, 512, 3e-3].max(),
            "start": right[even, 64, 3e-3].min(),
        }
    demo.plot("training", plot_training, runs, widths, 3e-3, size=(12, 1.2 + 2.7 * len(widths)))
    return figures


def cells(settings):
    return [(cell, *setting) for setting in settings for cell in CELLS]


def gradients(courses):
    """Of each course the median gradient at the first step, at step 50, and the mean of the last 20."""
    return zip(*((g[0], g[min(50, len(g) - 1)], g[-20:].mean()) for g in (course["gradient"] for course in courses)))


def span(values):
    return " … ".join(dict.fromkeys(f"{f(values):.2f}" for f in (np.min, np.max)))


def means_of(right, cell, settings):
    return span([right[cell, *s].mean() for s in settings])


def part_c(demo):
    demo.heading("(c) Where the gradient dies")
    typical = draw_both(demo, 4096)
    demo.table(
        "median |gradient| of an element, dk = 4,096, going backward",
        ["", "values V", "weights P", "scores S", "queries Q", "keys K"],
        [(form, *(f"{x:.0e}" for x in line)) for form, line in typical.items()],
    )
    demo.say("\nA node's colour is the gradient at its output: P is bright, S, which it was computed from, is dark.")
    demo.say("K keeps more than Q: all 64 queries read a key, and a few that are undecided are enough for it.\n")
    (_, at_weights, at_scores, *_), (_, plain_at_weights, plain_at_scores, *_) = typical.values()
    demo.claim(
        "the same gradient arrives at the weights; without ÷ √dk the softmax lets almost nothing through",
        at_weights == plain_at_weights and plain_at_scores < 1e-6 * at_scores,
    )


def main(demo):
    before, trained = part_a(demo), part_b(demo)
    part_c(demo)
    text = (
        "before training, dk = 512: {certain:.0%} of the rows have a weight above .99, the median query gradient is "
        "{median:.2g}, {dead:.0%} of the queries are dead (the *root mean square* is {rms:.1f}: a few undecided ones "
        "carry all). Training at dk = 64: {divided:.0%} right against at most {undivided:.0%} after {steps} steps"
    )
    if not demo.quick:
        text += (
            ", 3 seeds; at 512 at most {wide:.0%}. It is the start that saturates: begun with variance 1, dk = 64 "
            "learns undivided ({start:.0%}); at 512 the step is a second cause (at most {second:.0%})"
        )
    demo.measured(text, **before, **trained)


if __name__ == "__main__":
    _demo.run(main, __doc__)
