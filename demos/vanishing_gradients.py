"""Why attention divides by √dk: without it the softmax saturates, most queries get no gradient, and training fails.

A dot product of dk products, each of variance 1, has variance dk. So scores grow like √dk, and softmax, which sees
differences, turns into a choice: one weight is 1, the others 0. There it is flat. dS = P · (dP - Σ P · dP) is 0
where P is 0 or 1, and what does not reach the scores reaches neither Q nor Wq.

(a) measures this over dk = 1 … 4,096. One figure goes the other way and is shown too: the root mean square of the
    gradients grows, as the few queries that are still undecided miss the factor 1/√dk.
(b) trains a small model to look things up, with the division and without it.
(c) draws both computation graphs, coloured by the size of the gradient: one sees where it dies.
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


def claim_sweep(demo, widths, variances, figures):
    scaled, plain = (dict(zip(widths, figures[form])) for form in FORMS)
    demo.claim("the variance of q·k is dk", all(0.75 < v < 1.33 for v in variances))
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
        "up to dk = 64 nothing of the kind: hardly a query is dead, the median gradient is even larger",
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
    weight.set(title="The softmax saturates", ylabel="largest weight of a row, median", ylim=(-0.03, 1.03))
    gradient.set(title="The typical query's gradient dies", ylabel="length of dL/dq", yscale="log")
    dead.set(title="Queries with hardly a gradient", ylabel=f"% with one shorter than {DEAD}", ylim=(-3, 103))
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
    """table[ids], as ta.embedding(ids, table), but by a product with one-hot rows: faster where the table is small."""
    return np.eye(len(table), dtype=np.float32)[ids] @ table


def recall(p, question, keys, values, scale):
    """One head: the question asks, the keys answer, their values are handed over."""
    Q = rows(p["keys"] @ p["Wq"], question[:, None])  # (B, 1, dk)
    K = rows(p["keys"] @ p["Wk"], keys)  # (B, 16, dk)
    V = rows(p["values"] @ p["Wv"], values)  # (B, 16, 64)
    out = ta.scaled_dot_product_attention(Q, K, V, scale=scale)  # (B, 1, 64)
    return out[:, 0] @ p["Wo"]  # (B, 32): a score for each symbol


def train(seed, dk, scale, lr, steps):
    """Loss and accuracy of each step, on sequences that it has not seen before."""
    rng = np.random.default_rng(seed)
    p = parameters(rng, dk)
    spelling = rng.permutation(SYMBOLS)  # the question is written in other symbols than the key: to be learned
    optimizer = ta.optim.Adam(list(p.values()), lr=lr)
    losses, hits = [], []
    for _ in range(steps):
        keys, values, question, answer = sequences(rng)
        scores = recall(p, spelling[question], keys, values, scale)
        loss = ta.cross_entropy(scores, answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        hits.append(np.mean(scores.numpy().argmax(axis=-1) == answer))
    return np.array(losses), np.array(hits)


def plot_training(figure, runs, dk, lr):
    left, right = figure.subplots(1, 2)
    for (form, width, rate), curves in runs.items():
        if (width, rate) != (dk, lr):
            continue
        for axes, k in ((left, 0), (right, 1)):
            smooth = [np.convolve(curve[k], np.ones(10) / 10, "valid") for curve in curves]
            for line in smooth:
                axes.plot(line, color=COLORS[form], lw=0.8, alpha=0.5)
            axes.plot(np.mean(smooth, axis=0), color=COLORS[form], label=f"{form} (mean of {len(curves)} seeds)")
    left.axhline(np.log(PAIRS), color=_demo.GREY, ls=":", label="a guess among the 16 values shown")
    right.axhline(1 / PAIRS, color=_demo.GREY, ls=":")
    left.set(title=f"Recall of 16 pairs, dk = {dk}, Adam {lr}", xlabel="step", ylabel="loss", ylim=(0, None))
    right.set(title="Accuracy on fresh sequences", xlabel="step", ylabel="share of right answers", ylim=(-0.02, 1.03))
    left.legend(fontsize=8)


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
    variances, figures = sweep(demo.seed, widths, 5 if demo.quick else 20, lambda x: demo.track(x, "measuring"))
    show_sweep(demo, widths, variances, figures)
    claim_sweep(demo, widths, variances, figures)
    demo.plot("sweep", plot_sweep, widths, figures, size=(12, 3.8))


def part_b(demo):
    demo.heading("(b) Training: find the value that belongs to a key, 16 pairs of 32 symbols, one head")
    steps, seeds = (120, 2) if demo.quick else (300, 5)
    settings = [(512, 3e-3)] if demo.quick else [(8, 3e-3), (512, 3e-3), (512, 1e-3)]
    plan = [(form, dk, lr, demo.seed + i) for dk, lr in settings for form in FORMS for i in range(seeds)]
    runs = {}
    for form, dk, lr, seed in demo.track(plan, "training"):
        runs.setdefault((form, dk, lr), []).append(train(seed, dk, FORMS[form], lr, steps))

    accuracy = {key: [hits[-20:].mean() for _, hits in curves] for key, curves in runs.items()}
    demo.table(
        f"accuracy after {steps} steps of {BATCH} fresh sequences (mean of the last 20), {seeds} seeds",
        ["dk", "Adam", "÷ √dk: worst", "best", "not scaled: worst", "best"],
        [(dk, lr, *(f"{f(accuracy[form, dk, lr]):.0%}" for form in FORMS for f in (min, max))) for dk, lr in settings],
    )
    curve = {form: np.mean(runs[form, 512, 3e-3], axis=0) for form in FORMS}  # (2, steps): loss, accuracy
    demo.table(
        "dk = 512, Adam 0.003: mean over the seeds and the last 10 steps",
        ["step", *(f"{form}: {what}" for form in FORMS for what in ("loss", "accuracy"))],
        [
            (t, *(f"{x:.2f}" for form in FORMS for x in curve[form][:, t - 10 : t].mean(axis=1)))
            for t in (10, 20, 50, 100, 200, 300)
            if t <= steps
        ],
    )
    demo.say()
    demo.claim("with ÷ √dk every seed learns it", all(min(accuracy["÷ √dk", *s]) > 0.97 for s in settings))
    demo.claim(
        "without, at dk = 512, none does",
        all(max(accuracy["not scaled", dk, lr]) < 0.8 for dk, lr in settings if dk == 512),
    )
    if not demo.quick:
        demo.claim("at dk = 8 both learn it: the width does the harm", min(accuracy["not scaled", 8, 3e-3]) > 0.97)
    demo.plot("training", plot_training, runs, 512, 3e-3, size=(10, 3.8))


def part_c(demo):
    demo.heading("(c) Where the gradient dies")
    typical = draw_both(demo, 4096)
    demo.table(
        "median |gradient| of an element, dk = 4,096, going backward",
        ["", "values V", "weights P", "scores S", "queries Q", "keys K"],
        [(form, *(f"{x:.0e}" for x in line)) for form, line in typical.items()],
    )
    demo.say("\nK keeps more than Q: all 64 queries read a key, and a few that are undecided are enough for it.\n")
    (_, at_weights, at_scores, *_), (_, plain_at_weights, plain_at_scores, *_) = typical.values()
    demo.claim(
        "the same gradient arrives at the weights; without ÷ √dk the softmax lets almost nothing through",
        at_weights == plain_at_weights and plain_at_scores < 1e-6 * at_scores,
    )


def main(demo):
    part_a(demo)
    part_b(demo)
    part_c(demo)


if __name__ == "__main__":
    _demo.run(main, __doc__)
