"""Without n² one gives up recall. Four kinds of memory read pairs, and are asked for all of them, as in a paper.

Multi-query associative recall (Arora et al. 2023, Zoology, arXiv 2312.04927): a sequence of n tokens begins with n / 8
pairs, key value key value …. In the rest, each key comes again, anywhere among words that do not matter, and the model
is asked for its value. Every token is mixed with the one before it, so that a value knows its key. Then one layer
remembers:

softmax     attention: keeps all n positions, a state of 2 n d numbers
window      attention to the last n / 4 positions only: 2 (n / 4) d numbers
linear      linear attention: a matrix Σ φ(k) vᵀ and a vector Σ φ(k), d² + d numbers, whatever n is
GRU         d numbers, and no pattern of keys and values: it has to find one

The paper's models of fixed state are gated convolutions, with two layers and a large vocabulary. So this tests the
paper's statements on similar models. It does not repeat its table.
"""

import time

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import nn

KEYS, VALUES, WORDS, BATCH = 64, 16, 8, 16
VOCAB = KEYS + VALUES + WORDS
COLORS = {"softmax": _demo.BLUE, "window": _demo.SKY, "linear": _demo.ORANGE, "GRU": _demo.PURPLE}
SOLVED = 0.9


def batch(rng, n):
    """ids (B, n), the places of the n / 8 questions (B, D), the answers (B, D), and the places of the pairs (B, D)."""
    D = n // 8
    order = rng.permuted(np.tile(np.arange(KEYS), (BATCH, 1)), axis=1)[:, :D]  # (B, D): different keys
    values = rng.integers(0, VALUES, (BATCH, D))
    ids = rng.integers(KEYS + VALUES, VOCAB, (BATCH, n))  # words that do not matter
    ids[:, 0 : 2 * D : 2], ids[:, 1 : 2 * D : 2] = order, KEYS + values
    asked = rng.permuted(np.tile(np.arange(2 * D, n), (BATCH, 1)), axis=1)[:, :D]
    np.put_along_axis(ids, asked, order, axis=1)
    return ids, asked, values, np.tile(2 * np.arange(D) + 1, (BATCH, 1))


class Recall(nn.Module):
    """ids (B, n), asked (B, D) -> logits (B, D, values): what stands behind each question's key."""

    def __init__(self, kind, n, d, rng):
        self.kind, self.n = kind, n
        self.token = nn.Embedding(VOCAB, d, rng=rng)
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False, rng=rng) for _ in range(3))
        self.answer = nn.Linear(d, VALUES, rng=rng)
        if kind == "GRU":
            self.join = nn.Linear(2 * d, d, rng=rng)
            self.gru = nn.GRU(d, d, rng=rng)

    def forward(self, ids, asked):
        before = np.concatenate([ids[:, :1], ids[:, :-1]], axis=1)  # the token before
        x, y = self.token(ids), self.token(before)  # (B, n, d)
        rows = np.arange(len(ids))[:, None]
        if self.kind == "GRU":
            return self.answer(self.gru(self.join(ta.concatenate([x, y], axis=-1)))[rows, asked])
        Q, K, V = self.q(x[rows, asked]), self.k(y), self.v(x)  # (B, D, d), (B, n, d) twice: keys are the tokens before
        mask = np.arange(ids.shape[1]) <= asked[:, :, None]  # (B, D, n): causal
        if self.kind == "window":
            mask &= np.arange(ids.shape[1]) > asked[:, :, None] - self.n // 4
        if self.kind != "linear":
            return self.answer(ta.scaled_dot_product_attention(Q, K, V, mask))
        P = ta.relu(Q) @ ta.relu(K).mT * mask  # φ = relu: the form with a matrix of weights, for few questions
        return self.answer(P @ V / (P.sum(axis=-1, keepdims=True) + 1.0))


def state(kind, n, d):
    """Numbers that are remembered when the questions begin."""
    return {"softmax": 2 * n * d, "window": n // 2 * d, "linear": d * d + d, "GRU": d}[kind]


def train(seed, kind, n, d, steps, lr=0.01):
    """The share of right answers at the end (over 20 batches), and the gain of the last fifth of the steps. Ends early
    only when all is learned, for a GRU that seems to learn nothing may begin after hundreds of steps."""
    rng = np.random.default_rng(seed)
    model = Recall(kind, n, d, rng).astype(np.float32)
    model.token.weight.data = rng.normal(size=(VOCAB, d)).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters(), lr=lr)
    right = []
    for step in range(steps):
        ids, asked, answers, _ = batch(rng, n)
        logits = model(ids, asked)
        loss = ta.cross_entropy(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        ta.optim.clip_grad_norm(optimizer.params, 1.0)
        optimizer.lr = lr * ta.optim.warmup_cosine(step, steps, warmup=20, final=0.1)
        optimizer.step()
        right.append(np.mean(logits.numpy().argmax(axis=-1) == answers))
        if step >= 20 and np.mean(right[-20:]) > 0.99:
            return np.mean(right[-20:]), 0.0
    fifth = max(1, steps // 5)
    return np.mean(right[-20:]), np.mean(right[-fifth:]) - np.mean(right[-2 * fifth : -fifth])


def within_window(n, rng, batches=50):
    """The share of questions whose pair lies in the window: apart from guesses, a window can answer no more."""
    share = []
    for _ in range(batches):
        _, asked, _, pairs = batch(rng, n)
        share.append(np.mean(pairs > asked - n // 4))
    return np.mean(share)


def narrowest(right, kind, n, widths):
    """The smallest width from which on the task is solved (mean of the seeds), or None."""
    solved = [d for d in widths if (kind, n, d) in right and np.mean(right[kind, n, d]) > SOLVED]
    return min(solved, default=None)


def plot(figure, right, lengths, widths):
    for axes, n in zip(figure.subplots(1, len(lengths), sharey=True, squeeze=False)[0], lengths):
        for kind, color in COLORS.items():
            at = [d for d in widths if (kind, n, d) in right]
            if not at:
                continue
            values = np.array([right[kind, n, d] for d in at])
            axes.plot(at, values.mean(axis=1), "o-", color=color, label=kind)
            axes.plot(at, values, ".", color=color, ms=4, alpha=0.5)
        axes.axhline(1 / VALUES, color=_demo.GREY, ls=":")
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(d) for d in widths])
        solved = [kind for kind in COLORS if narrowest(right, kind, n, widths)]
        axes.set(title=f"n = {n}, {n // 8} pairs: {', '.join(solved) or 'none'} > {SOLVED}", xlabel="width d")
        axes.set_ylim(-0.03, 1.05)
    figure.axes[0].set_ylabel("share of right answers")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=4)


def main(demo):
    lengths, widths = ([64], [8, 32]) if demo.quick else ([64, 128, 256, 512], [16, 32, 64, 128])
    steps, seeds = (120 if demo.quick else 300), 3
    slow = 120 if demo.quick else 1000  # the GRU's steps: it begins to learn after some hundred
    # The GRU reads one by one, and takes most of the time: all widths at the shortest length, two at the next, where it
    # already fails. The longest would take it an hour.
    reads = {"GRU": {(n, d) for i, n in enumerate(lengths[:2]) for d in widths[:: i + 1]}}
    if demo.quick:
        reads = {"GRU": {(64, 32)}, "window": {(64, 32)}}
    plan = [(kind, n, d) for n in lengths for kind in COLORS for d in widths if (n, d) in reads.get(kind, {(n, d)})]
    runs, start = {}, time.process_time()
    for kind, n, d, i in demo.track([(*x, i) for x in plan for i in range(seeds)], "training"):
        runs.setdefault((kind, n, d), []).append(train(demo.seed + i, kind, n, d, slow if kind == "GRU" else steps))
    right = {key: np.array([share for share, _ in each]) for key, each in runs.items()}
    short, long, thin, wide = lengths[0], lengths[-1], widths[0], widths[-1 if demo.quick else -2]
    for n in lengths:
        demo.table(
            f"n = {n}, {n // 8} pairs: share right, worst … best of {seeds} seeds (a guess: {1 / VALUES:.2f})",
            ["d", *COLORS],
            [(d, *(span(right[kind, n, d]) if (kind, n, d) in right else "-" for kind in COLORS)) for d in widths],
        )
    tried = {key[:2] for key in right}
    demo.table(
        f"the narrowest width that solves it (> {SOLVED}, mean of the seeds), and the numbers it remembers",
        ["n", *COLORS],
        [
            (
                n,
                *(
                    f"d = {d}: {state(kind, n, d):,}" if d else "none" if (kind, n) in tried else "-"
                    for kind in COLORS
                    for d in [narrowest(right, kind, n, widths)]
                ),
            )
            for n in lengths
        ],
    )
    brought = {key: max(late for _, late in each) for key, each in runs.items()}
    last = max(brought, key=brought.get)
    demo.say(
        f"\nStopped learning? What the last fifth of the steps brought: {brought[last]:+.2f} at most "
        f"({last[0]}, n = {last[1]}, d = {last[2]}). Steps shrink to a tenth on the way: more of them, or other sizes, "
        "may reach more."
    )
    demo.plot("recall", plot, right, lengths, widths, size=(2.6 + 3.4 * len(lengths), 3.6))

    need = {kind: [narrowest(right, kind, n, widths) for n in lengths] for kind in COLORS}
    softmax = {n: right["softmax", n, wide] for n in lengths}
    linear = lambda n, d: right["linear", n, d].mean()
    inside = {n: within_window(n, np.random.default_rng(1)) for kind, n, _ in right if kind == "window"}
    bound = {n: share + (1 - share) / VALUES for n, share in inside.items()}
    most = {n: max(x.max() for (kind, at, _), x in right.items() if (kind, at) == ("window", n)) for n in bound}
    gru = {key[1:]: x.mean() for key, x in right.items() if key[0] == "GRU"}
    best = {n: max(x for (at, _), x in gru.items() if at == n) for n, _ in gru}
    told = lambda kind: ", ".join(f"{n}: {d or 'none'}" for n, d in zip(lengths, need[kind]))
    statements = [
        (
            "attention solves it at a width that does not grow with the length",
            f"narrowest width by length: {told('softmax')}",
            need["softmax"][-1] is not None and need["softmax"][-1] <= 2 * (need["softmax"][0] or 0),
        ),
        (
            "a fixed state needs a width that grows with the length",
            f"linear attention: {told('linear')}",
            (need["linear"][-1] or 2 * wide) > (need["linear"][0] or wide),
        ),
    ]
    demo.table(
        "the paper's statements, beside what was measured here",
        ["Arora et al. 2023", "here", "agree"],
        [
            (theirs, ours, "one length" if len(lengths) == 1 else "yes" if agree else "no")
            for theirs, ours, agree in statements
        ],
    )
    demo.say()
    demo.claim(
        f"softmax attention answers at every length: {min(x.mean() for x in softmax.values()):.2f} at d = {wide}",
        min(x.mean() for x in softmax.values()) > SOLVED,
    )
    demo.claim(
        f"linear attention gains by width: {linear(long, thin):.2f} at d = {thin}, {linear(long, wide):.2f} at {wide} "
        f"(n = {long})",
        linear(long, wide) > linear(long, thin) + 0.1,
    )
    if not demo.quick:
        demo.claim(
            f"and loses by length: at d = {thin} {linear(short, thin):.2f} (n = {short}), {linear(long, thin):.2f} "
            f"(n = {long})",
            linear(short, thin) > linear(long, thin) + 0.1,
        )
    demo.claim(
        f"at d = {thin}, n = {long} softmax attention answers {right['softmax', long, thin].mean():.2f}",
        right["softmax", long, thin].mean() > linear(long, thin) + 0.1,
    )
    demo.claim(
        "a window answers what lies in it and guesses the rest: "
        + ", ".join(f"{most[n]:.2f} at best (n = {n}; on average {bound[n]:.2f} is possible)" for n in bound),
        all(most[n] < bound[n] + 0.05 for n in bound),
    )
    demo.claim(
        "the GRU is behind softmax attention at every width; it answers "
        + ", ".join(f"{x:.2f} at best (n = {n})" for n, x in best.items()),
        all(x < right["softmax", n, d].mean() - 0.1 for (n, d), x in gru.items()),
    )
    demo.measured(
        "narrowest width that solves n = {lengths}: softmax {softmax}, linear {linear}, window {window} (–: none); "
        "the GRU answers {gru:.2f} at best. Of {pairs} pairs at d = {thin} softmax {soft:.2f}, linear {lin:.2f}. "
        "{seeds} seeds, {minutes:.0f} min",
        lengths=", ".join(map(str, lengths)),
        **{k.lower(): ", ".join(str(d or "–") for d in need[k]) for k in list(COLORS)[:3]},
        gru=max(gru.values()),
        thin=thin,
        pairs=long // 8,
        soft=right["softmax", long, thin].mean(),
        lin=linear(long, thin),
        seeds=seeds,
        minutes=(time.process_time() - start) / 60,
    )


def span(values):
    return " … ".join(dict.fromkeys(f"{f(values):.2f}" for f in (np.min, np.max)))


if __name__ == "__main__":
    _demo.run(main, __doc__)
