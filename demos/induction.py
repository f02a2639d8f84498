"""In-context learning, as small as can be: two attention layers learn to continue what they saw once. One cannot.

A random text of 10 tokens is followed by pieces of it, from anywhere. Within a piece each next token can be known,
although no training ever showed this text. Two layers do it by an induction head (Olsson et al. 2022). In the first
layer a head looks one place back, and writes down at each position which token came before. In the second layer a head
asks "where does it say that my token came before?", looks there, and copies what it finds. With one layer there is
nothing to ask for: a key says what stands at a position, not what came before it.

The models are GPTs without feed-forwards, so attention does everything. (Why pieces, from anywhere? If the whole text
came again and again, the next token would be the one not seen for the longest time. A model can find that without
knowing what followed what, and so a single layer would do quite well.)
"""

import copy

import _demo
import numpy as np

import tinyattn as ta

VOCAB, TEXT, PIECE, PIECES = 16, 10, 4, 3
N = TEXT + PIECE * PIECES
D_MODEL, HEADS, BATCH = 32, 2, 32
KNOWN = [i for i in range(TEXT, N) if (i - TEXT) % PIECE < PIECE - 1]  # from these positions the next token is known


class AttentionOnly(ta.nn.Module):
    """x + attention(norm(x)): a transformer's block without the feed-forward."""

    def __init__(self, rng):
        self.norm = ta.nn.LayerNorm(D_MODEL)
        self.attention = ta.nn.MultiHeadAttention(D_MODEL, HEADS, rng=rng)

    def forward(self, x, *, mask=None, cache=None, return_weights=False):
        out = self.attention(self.norm(x), mask=mask, cache=cache, return_weights=return_weights)
        return (x + out[0], out[1]) if return_weights else x + out


def model_of(layers, rng):
    model = ta.nn.GPT(VOCAB, N, D_MODEL, HEADS, layers, block=lambda: AttentionOnly(rng), rng=rng)
    for table in (model.embedding.weight, model.positions.weight):  # larger than usual at first: told apart earlier
        table.data = rng.normal(0, 0.5, table.shape)
    return model.astype(np.float32)


def batch(rng, size=BATCH):
    """ids (B, n): a text in which no token stands twice, then pieces of it; and where these come from (B, n - 10)."""
    text = rng.permuted(np.tile(np.arange(VOCAB), (size, 1)), axis=1)[:, :TEXT]
    starts = rng.integers(0, TEXT - PIECE + 1, (size, PIECES, 1))
    places = (starts + np.arange(PIECE)).reshape(size, -1)  # (B, pieces, 1) + (piece,) -> (B, n - 10)
    return np.concatenate([text, np.take_along_axis(text, places, axis=1)], axis=1), places


def share_right(logits, ids):
    return np.mean(logits.numpy()[:, KNOWN].argmax(axis=-1) == ids[:, 1:][:, KNOWN])


def train(seed, layers, steps, lr=0.01):
    """The model, and its share of right continuations at each step, on texts that it has not seen before."""
    rng = np.random.default_rng(seed)
    model = model_of(layers, rng)
    optimizer = ta.optim.Adam(model.parameters())
    right = []
    for step in range(steps):
        ids, _ = batch(rng)
        logits = model(ids[:, :-1])  # (B, n - 1, vocab)
        loss = ta.cross_entropy(logits[:, KNOWN], ids[:, 1:][:, KNOWN])
        optimizer.zero_grad()
        loss.backward()
        optimizer.lr = lr * ta.optim.warmup_cosine(step, steps, warmup=30, final=0.1)
        optimizer.step()
        right.append(share_right(logits, ids))
    return model, right


# --- what the heads do --------------------------------------------------------------------------------


@ta.no_grad()
def examine(model, seed=12345):
    """The share of right continuations; and for each head two shares of its weight, (layers, h) each: in the text, on
    the token before ("previous"); in the pieces, on the token that followed this one in the text ("induction")."""
    ids, places = batch(np.random.default_rng(seed), 256)
    logits, maps = model(ids[:, :-1], return_weights=True)
    weights = np.stack([w.numpy() for w in maps])  # (layers, B, h, n - 1, n - 1)
    i = np.arange(1, TEXT)
    previous = weights[..., i, i - 1].mean(axis=(1, 3))
    followed = places[:, np.array(KNOWN) - TEXT] + 1  # (B, known)
    b = np.arange(len(ids))[:, None]
    induction = weights[:, b, :, KNOWN, followed].mean(axis=(0, 1))  # (B, known, layers, h) -> (layers, h)
    return share_right(logits, ids), previous, induction


def without(model, layer, heads):
    """A copy of the model without these heads: their columns of Wo, which pass them on, are 0."""
    cut = copy.deepcopy(model)
    weight = cut.blocks[layer].attention.out_proj.weight.data  # (d, h · dk)
    weight.reshape(D_MODEL, HEADS, -1)[:, heads] = 0
    return cut


def looking_back(model, layer, places):
    """A copy of the model in which the heads of a layer do one thing only: each position looks so many places back.
    The values and the part of Wo are still each head's own."""
    cut = copy.deepcopy(model)

    def attention(Q, K, V, mask=None, **options):
        weights = np.eye(Q.shape[-2], k=-places, dtype=np.float32)
        weights[:places, 0] = 1  # a position without a token so far back looks at the first
        return ta.Tensor(weights) @ V

    cut.blocks[layer].attention.attention = attention
    return cut


@ta.no_grad()
def right_of(model, seed=12345):
    ids, _ = batch(np.random.default_rng(seed), 256)
    return share_right(model(ids[:, :-1]), ids)


def letters(ids):
    return " ".join("abcdefghijklmnop"[i] for i in ids)


# --- all of it ----------------------------------------------------------------------------------------


def plot(figure, runs, model, previous, induction):
    curve, *panels = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    for layers, color in ((2, _demo.BLUE), (1, _demo.ORANGE)):
        for k, (_, right) in enumerate(runs[layers]):
            smooth = np.convolve(right, np.ones(10) / 10, "valid")
            curve.plot(smooth, color=color, lw=1.3, label=f"{layers} layer{'s' * (layers > 1)}" if k == 0 else None)
    ends = [(n, np.mean([right[-10:] for _, right in runs[n]])) for n in (2, 1)]
    curve.axhline(1 / TEXT, color=_demo.GREY, ls=":", label=f"a guess among the {TEXT} tokens of the text")
    curve.set(
        title="Continuing a text seen once: "
        + ", ".join(f"{n} {'layer' + 's' * (n > 1)} {share:.0%}" for n, share in ends),
        xlabel="step",
        ylabel="share of right tokens",
        ylim=(0, 1.03),
    )
    curve.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=8)
    ids, _ = batch(np.random.default_rng(3), 1)
    with ta.no_grad():
        _, maps = model(ids[:, :-1], return_weights=True)
    for axes, layer, scores, name in zip(panels, (0, 1), (previous, induction), ("one back", "what followed it")):
        head = scores[layer].argmax()
        image = axes.imshow(maps[layer].numpy()[0, head], cmap="cividis", vmin=0, vmax=1)
        axes.set_title(f"layer {layer + 1}, head {head}: {scores[layer, head]:.0%} {name}")
        axes.grid(False)
        axes.set_xticks(range(N - 1), letters(ids[0, :-1]).split(), fontsize=8)
        axes.set_yticks(range(N - 1), letters(ids[0, :-1]).split(), fontsize=8)
        axes.set_xlabel("looks at")
        for start in range(TEXT, N, PIECE):
            axes.axhline(start - 0.5, color="white", lw=0.8, ls=":")
    panels[0].set_ylabel("token (dotted: a piece begins)")
    figure.colorbar(image, ax=panels, label="weight", shrink=0.8, pad=0.02)


def main(demo):
    seeds = [demo.seed + i for i in range(3)]
    steps = {2: 180, 1: 120} if demo.quick else {2: 300, 1: 900}
    plan = [(layers, seed) for layers in steps for seed in seeds]
    runs = {layers: [] for layers in steps}
    for layers, seed in demo.track(plan, "training"):
        runs[layers].append(train(seed, layers, steps[layers]))
    found = {layers: [examine(model) for model, _ in each] for layers, each in runs.items()}

    demo.table(
        f"share of right tokens within the pieces (a guess: {1 / TEXT:.2f})",
        ["layers", "steps", "worst", "best"],
        [
            (layers, steps[layers], *(f"{f(right for right, *_ in each):.3f}" for f in (min, max)))
            for layers, each in found.items()
        ],
    )
    rows = []
    for seed, (model, _), (_, previous, induction) in zip(seeds, runs[2], found[2]):
        for layer in (0, 1):
            for head in range(HEADS):
                rows.append(
                    (
                        seed,
                        layer + 1,
                        head,
                        f"{previous[layer, head]:.2f}",
                        f"{induction[layer, head]:.2f}",
                        f"{right_of(without(model, layer, [head])):.2f}",
                    )
                )
            rows.append((seed, layer + 1, "all", "", "", f"{right_of(without(model, layer, range(HEADS))):.2f}"))
    demo.table(
        "two layers: shares of each head's weight, and of right tokens when it is cut out",
        ["seed", "layer", "head", "previous", "induction", "right without it"],
        rows,
    )
    demo.table(
        "one layer: shares of each head's weight",
        ["seed", "head", "previous", "induction"],
        [
            (seed, head, f"{previous[0, head]:.2f}", f"{induction[0, head]:.2f}")
            for seed, (_, previous, induction) in zip(seeds, found[1])
            for head in range(HEADS)
        ],
    )

    swapped = {back: [right_of(looking_back(model, 0, back)) for model, _ in runs[2]] for back in (0, 1, 2)}
    demo.table(
        "two layers: share of right tokens when all heads of layer 1 are made to look at one place only",
        ["seed", "at the token itself", "one back", "two back", "heads as learned"],
        [
            (seed, *(f"{swapped[back][i]:.2f}" for back in swapped), f"{found[2][i][0]:.2f}")
            for i, seed in enumerate(seeds)
        ],
    )

    demo.say("\nTwo layers read a text and the first token of a piece, and go on by themselves:")
    for row in batch(np.random.default_rng(demo.seed + 1000), 3)[0]:
        new = runs[2][0][0].generate(row[None, : TEXT + 1], PIECE - 1, temperature=0)[0, TEXT + 1 :]
        verdict = "as it was" if np.all(new == row[TEXT + 1 : TEXT + PIECE]) else "not as it was"
        demo.say(f"  {letters(row[:TEXT])}   {letters(row[TEXT : TEXT + 1])} | {letters(new)}   {verdict}")

    demo.plot("heads", plot, runs, runs[2][0][0], *found[2][0][1:], size=(14, 4.4))
    two, one = (np.array([right for right, *_ in found[layers]]) for layers in (2, 1))
    induction = {layers: np.array([scores for *_, scores in found[layers]]) for layers in found}  # (seeds, layers, h)
    previous = np.array([scores for _, scores, _ in found[2]])
    demo.say()
    demo.claim(
        f"two layers continue what they have seen once: at least {two.min():.1%} right in every seed",
        two.min() > (0.8 if demo.quick else 0.98),
    )
    demo.claim(
        f"one layer does not, in {steps[1]} steps against {steps[2]}: {one.max():.0%} at best, where a guess is "
        f"{1 / TEXT:.0%}",
        one.max() < 0.3,
    )
    demo.claim(
        "every seed has induction heads in layer 2; no head of layer 1, or of the one-layer model, is one",
        induction[2][:, 1].max(axis=1).min() > (0.6 if demo.quick else 0.9)
        and max(induction[2][:, 0].max(), induction[1].max()) < 0.3,
    )
    itself, back, two_back = (np.array(each) for each in swapped.values())
    demo.claim(
        f"what they need of layer 1 is one thing, 'one back': its heads made to do just that leave {back.mean():.2f} "
        f"right (mean of the seeds); made to look elsewhere, {max(itself.max(), two_back.max()):.2f} at most",
        back.mean() > 0.5 and max(itself.max(), two_back.max()) < 0.2,
    )
    demo.say(
        f"  (Both heads of layer 1 look one back in part, {previous[:, 0].min():.2f} … {previous[:, 0].max():.2f} of "
        "their weight; with one of them cut the other may do.)"
    )
    demo.measured(
        "accuracy {two:.3f} at least after {steps} steps; one layer at most {one:.3f} after {steps1} (a guess: .10); "
        "induction score at least {score:.2f}; layer 1 made to look one back and no more: {back:.2f}, two back: "
        "{two_back:.2f}. 3 seeds",
        two=two.min(),
        one=one.max(),
        steps=steps[2],
        steps1=steps[1],
        score=induction[2][:, 1].max(axis=1).min(),
        back=back.mean(),
        two_back=two_back.mean(),
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
