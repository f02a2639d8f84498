"""Multi-head attention is not redundancy: a head expresses one relation per position, so k relations take k heads.

Each position of a random sequence answers k questions at once: which token stands 1, 2, 4, 7, … places back? A head's
softmax can look at one of these places. If it looks at two, it hands over the mean of both tokens, and nobody can
tell which was which. Each head has d_model / h of the features, so the number of parameters does not depend on the
number of heads h. So the race is fair, and its result is a staircase: h heads solve k ≤ h questions, up to h = k = 8.

Below the stairs "one relation per head" is not the whole truth. Two heads give each place a pair of weights, and a
linear map can single out every place whose pair is a corner of the hull of all pairs: more than two. But if one
token stands at two of the places, its weights add up, and the answer is wrong.

The other side: heads that are not needed find nothing else to do. With h = 8 and two relations, several heads look at
the same place. Most of them can be cut out of the trained model, one at a time, without loss.

Practice: step 6 (python -m tinyattn practice).
"""

import copy

import _demo
import numpy as np

import tinyattn as ta

BACK = (1, 2, 4, 7, 3, 5, 6, 8)  # the relations; a task of k asks for the first k
VOCAB, N, D_MODEL, BATCH = 12, 24, 64, 32


class OneLayer(ta.nn.Module):
    """Embeddings, one attention layer of h heads, and a linear map to the answers to k questions."""

    def __init__(self, k, num_heads, rng):
        self.token = ta.nn.Embedding(VOCAB, D_MODEL, rng=rng)
        self.position = ta.nn.Embedding(N, D_MODEL, rng=rng)
        self.attention = ta.nn.MultiHeadAttention(D_MODEL, num_heads, rng=rng)
        self.answers = ta.nn.Linear(D_MODEL, k * VOCAB, rng=rng)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight  # (B, n, d) + (n, d)
        out, weights = self.attention(x, return_weights=True)  # (B, n, d), (B, h, n, n)
        return self.answers(out).reshape(*ids.shape, -1, VOCAB), weights  # (B, n, k, vocab)


def batch(rng, k):
    """Random ids (B, n); and for the positions that have all of BACK behind them, the tokens k of those (B, n', k)."""
    ids = rng.integers(0, VOCAB, (BATCH, N))
    places = np.arange(max(BACK), N)[:, None] - np.array(BACK[:k])  # (n', k)
    return ids, ids[:, places]


def train(seed, k, num_heads, steps, lr=0.005):
    rng = np.random.default_rng(seed)
    model = OneLayer(k, num_heads, rng).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters())
    for step in range(steps):
        ids, targets = batch(rng, k)
        logits, _ = model(ids)
        loss = ta.cross_entropy(logits[:, max(BACK) :], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.lr = lr * ta.optim.warmup_cosine(step, steps, warmup=20, final=0.05)
        optimizer.step()
    return model


@ta.no_grad()
def evaluate(model, k, batches=10):
    """On sequences that it has not seen: the share of positions with all k answers right; the same for those whose k
    tokens all differ, and for the others; and the mean weights (h, n, n)."""
    rng = np.random.default_rng(12345)
    right, different, maps = [], [], []
    for _ in range(batches):
        ids, targets = batch(rng, k)
        logits, weights = model(ids)
        guesses = logits.numpy()[:, max(BACK) :].argmax(axis=-1)
        right.append((guesses == targets).all(axis=-1))  # (B, n')
        ordered = np.sort(targets, axis=-1)
        different.append((ordered[..., 1:] > ordered[..., :-1]).all(axis=-1))
        maps.append(weights.numpy().mean(axis=0))
    right, different = np.array(right), np.array(different)
    return right.mean(), right[different].mean(), right[~different].mean() if k > 1 else np.nan, np.mean(maps, axis=0)


def looks_back(maps):
    """For each head: the place that it looks at most, of those asked for; and the share of its weight there."""
    rows = np.arange(max(BACK), N)
    share = np.array([maps[:, rows, rows - back].mean(axis=-1) for back in BACK])  # (relations, h)
    return np.array(BACK)[share.argmax(axis=0)], share.max(axis=0)


def without(model, heads):
    """A copy of the model without these heads: their columns of Wo, which pass them on, are 0."""
    cut = copy.deepcopy(model)
    weight = cut.attention.out_proj.weight.data
    width = D_MODEL // model.attention.num_heads
    for head in heads:
        weight[:, head * width : (head + 1) * width] = 0
    return cut


def dispensable(model, k):
    """Heads that can be cut together: one after the other, the least useful next, as long as 99 % stay right."""
    gone, left = [], list(range(model.attention.num_heads))
    while len(left) > 1:
        share, head = max((evaluate(without(model, [*gone, h]), k, 2)[0], h) for h in left)
        if share < 0.99:
            break
        gone.append(head)
        left.remove(head)
    return gone


# --- pictures -----------------------------------------------------------------------------------------


def plot_staircase(figure, shares, heads, relations):
    axes = figure.subplots()
    worst = np.array([[min(shares[k, h]) for h in heads] for k in relations])
    image = axes.imshow(worst, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for row, k in enumerate(relations):
        for column, h in enumerate(heads):
            color = "black" if worst[row, column] > 0.5 else "white"
            axes.text(column, row, span(shares[k, h]), ha="center", va="center", color=color)
    axes.grid(False)
    axes.set_xticks(range(len(heads)), [str(h) for h in heads])
    axes.set_yticks(range(len(relations)), [str(k) for k in relations])
    for row, k in enumerate(relations):  # the stairs: left of them h < k
        stair = sum(h < k for h in heads) - 0.5
        axes.plot([stair, stair], [row - 0.5, row + 0.5], color=_demo.ORANGE, lw=3)
    can = min(max(shares[k, h]) for k, h in shares if h >= k)
    title = f"All k answers right, worst … best seed; the best {can:.2f} at least where h ≥ k (right of the line)"
    axes.set(title=title, xlabel="heads h", ylabel="relations k")
    figure.colorbar(image, ax=axes, label="share, worst seed")


def plot_maps(figure, maps):
    panels = [(h, head) for h in maps for head in range(h)]
    for axes, (h, head) in zip(figure.subplots(1, len(panels), sharey=True), panels):
        image = axes.imshow(
            maps[h][head, max(BACK) :], cmap="cividis", vmin=0, vmax=1, extent=(-0.5, N - 0.5, N - 0.5, max(BACK) - 0.5)
        )
        back, share = (x[head] for x in looks_back(maps[h]))
        axes.set_title("the only head" if h == 1 else f"head {head} of {h}: {back} back, {share:.0%}", fontsize=9)
        axes.grid(False)
        axes.set_xlabel("looks at position")
    figure.axes[0].set_ylabel("position")
    figure.colorbar(image, ax=figure.axes, label="mean weight", pad=0.01)


def plot_ablation(figure, backs, _, alone, whole):
    axes = figure.subplots()
    for back, color in zip(BACK, (_demo.BLUE, _demo.ORANGE, *["#444444"] * 6)):
        heads = [head for head, b in enumerate(backs) if b == back]
        if heads:
            bars = axes.bar(heads, [alone[head] for head in heads], color=color, label=f"looks {back} back")
            axes.bar_label(bars, fmt="%.2f", label_type="center", color="white")
    axes.axhline(whole, color=_demo.GREY, ls=":", label="with all heads")
    axes.grid(False)
    axes.set(
        title=f"Two relations, eight heads, one of them cut: {sum(x > 0.99 for x in alone)} are not missed",
        xlabel="the head that is cut",
        ylabel="positions with both right",
        xticks=range(len(alone)),
        ylim=(0, 1.05),
    )
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


# --- all of it ----------------------------------------------------------------------------------------


def main(demo):
    heads, relations, steps = ([1, 2, 8], [2], 120) if demo.quick else ([1, 2, 4, 8], [1, 2, 4, 8], 400)
    seeds = [demo.seed + i for i in range(3)]
    demo.heading("The staircase")
    plan = [(k, h, seed) for k in relations for h in heads for seed in seeds]
    models = {run: train(run[2], *run[:2], steps) for run in demo.track(plan, "training")}
    results = {run: evaluate(model, run[0], 3 if demo.quick else 10) for run, model in models.items()}
    shares = {(k, h): [results[k, h, seed][0] for seed in seeds] for k in relations for h in heads}
    sizes = {sum(p.size for p in model.attention.parameters()) for model in models.values()}
    demo.table(
        f"share of positions with all k answers right after {steps} steps, worst … best of {len(seeds)} seeds",
        ["k", *(f"h = {h}" for h in heads)],
        [(k, *(span(shares[k, h]) for h in heads)) for k in relations],
    )
    demo.say()
    demo.claim(f"every layer has the same number of parameters: {', '.join(f'{n:,}' for n in sizes)}", len(sizes) == 1)
    solved = {(k, h): shares[k, h] for k, h in shares if h >= k}
    below = {(k, h): shares[k, h] for k, h in shares if h < k}
    can = min(max(x) for x in solved.values())
    spare = min(np.mean(x) for (k, h), x in solved.items() if h > k)
    demo.claim(
        f"h heads can express h relations: where h ≥ k the best seed has {can:.2f} right at least. With heads to spare "
        f"training finds it ({spare:.2f} at least, mean of the seeds); where h = k it may get stuck for long",
        can > 0.95 and spare > (0.85 if demo.quick else 0.95),
    )
    one = {k: max(x) for (k, h), x in below.items() if h == 1}
    demo.claim(
        f"one head has two answers right in {max(one.values()):.2f} at most: one answer and a guess",
        max(one.values()) < 0.25,
    )
    missing = {(k, h): np.mean(shares[k, k]) - np.mean(x) for (k, h), x in below.items()}
    demo.claim(
        f"where h < k, at least {min(missing.values()):.2f} fewer of the positions are right than where h = k (means "
        "of the seeds)",
        min(missing.values()) > 0.05,
    )
    more = {(k, h): x for (k, h), x in below.items() if h > 1}
    if more:
        (k, h), i = max(((run, i) for run in more for i in range(3)), key=lambda x: more[x[0]][x[1]])
        share, apart, repeated, _ = results[k, h, seeds[i]]
        demo.say(
            f"  (More than one head can single out more places than there are heads, see above: k = {k}, h = {h}, seed "
            f"{seeds[i]} gets {share:.2f}; where the {k} tokens all differ {apart:.2f}, where not {repeated:.2f}.)"
        )
    demo.plot("staircase", plot_staircase, shares, heads, relations, size=(8, 1.2 + 0.7 * len(relations)))

    k = 2 if demo.quick else 4
    demo.heading(f"What the heads look at: one head and {k} heads, {k} relations")
    maps = {h: results[k, h, demo.seed][-1] for h in (1, k)}
    looks = {h: [list(zip(*looks_back(results[k, h, seed][-1]))) for seed in seeds] for h in (1, k)}
    cells = [[", ".join(f"{back} back {share:.0%}" for back, share in look) for look in looks[h]] for h in (1, k)]
    demo.table(
        "the place that each head looks at most, and the share of its weight there",
        ["seed", "h = 1", f"h = {k}"],
        zip(seeds, *cells),
    )
    own = [len({back for back, _ in look} & set(BACK[:k])) for look in looks[k]]
    demo.say()
    demo.claim(
        f"{k} heads for {k} relations share them out: {np.mean(own) / k:.0%} of the relations are what some head looks "
        "at most",
        np.mean(own) / k > 0.6,
    )
    demo.say(
        "  (Which head takes which is chance, and differs from seed to seed: 'heads reliably specialise' is not so. "
        "And a head has one job at one position; elsewhere it may have another, see real_sentence.py.)"
    )
    demo.plot("maps", plot_maps, maps, size=(3.0 * (k + 1), 2.6))

    demo.heading("The other side: eight heads, two relations")
    rows, cut = [], []
    for seed in seeds:
        model = models[2, 8, seed]
        batches = 1 if demo.quick else 10
        alone = [evaluate(without(model, [head]), 2, batches)[0] for head in range(8)]
        gone = [] if demo.quick else dispensable(model, 2)
        rows.append((*looks_back(results[2, 8, seed][-1]), alone))
        cut.append((sum(x > 0.99 for x in alone), len(gone)))
    demo.table(
        f"seed {seeds[0]}: share of positions with both right (with all heads {shares[2, 8][0]:.2f})",
        ["head", "looks", "with", "right without it"],
        [(i, f"{back} back", f"{w:.0%}", f"{x:.2f}") for i, (back, w, x) in enumerate(zip(*rows[0]))],
    )
    if not demo.quick:
        demo.table(
            "heads that can be cut, 99 % staying right",
            ["seed", "one at a time", "together"],
            [(seed, *counts) for seed, counts in zip(seeds, cut)],
        )
    demo.say()
    most = [max(np.bincount(backs, minlength=9)) for backs, *_ in rows]
    demo.claim(f"every seed has several heads for one place: {min(most)} at least", min(most) >= 3)
    figures = {"can": can, "spare": spare, "one": max(one.values()), "steps": steps}
    if not demo.quick:
        demo.claim(
            f"and {min(one for one, _ in cut)} of the 8 at least can be cut one at a time without loss",
            min(one for one, _ in cut) >= 4,
        )
        demo.say("  (Not all of these together: as long as they are there, they share the work.)")
        figures |= {"two": span(shares[4, 2]), "four": span(shares[8, 4]), "cut": min(one for one, _ in cut)}
    demo.plot("ablation", plot_ablation, *rows[0], shares[2, 8][0], size=(8, 3.6))
    text = (
        "all k answers right where h ≥ k: {can:.2f} at least (best seed), {spare:.2f} where h > k (mean); one head for "
        "two and more: {one:.2f} at most"
    )
    if not demo.quick:
        text += (
            "; 4 relations, h = 2: {two}; 8 relations, h = 4: {four}. With 8 heads for 2 relations {cut} can be "
            "cut one at a time"
        )
    demo.measured(text + ". 3 seeds, {steps} steps", **figures)


def span(values):
    return " … ".join(dict.fromkeys(f"{f(values):.2f}" for f in (min, max)))


if __name__ == "__main__":
    _demo.run(main, __doc__)
