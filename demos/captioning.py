"""A picture in, a sentence out: the words attend to the patches, and each noun looks at its shape.

A scene is a grid of 4 × 4 patches with a large and a small shape in two of them; its caption is a sentence like "a
large blue circle top left and a small pink ring bottom right". Each patch is read on its own, and after the look at the
picture nothing passes between words. So a word knows the picture only through its own weights, over the 16 patches.

Three kinds of scenes get a caption. One: two things that training showed together. Two: two things that it showed, but
never together. Three: a thing that it never showed; it showed the colour and the shape, but not on one thing. The third
kind is harder, and its figures are shown as they are.

To look is not yet to use. So the patch of the shape is covered: then the noun is a guess. Another patch may be covered
without harm. And a word can also learn from an empty place: if it looks for a shape at the bottom, and finds none, it
may say "top". So a small weight on the shape is no proof that a word ignores it.
"""

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import nn

# --- scenes -------------------------------------------------------------------------------------------

GRID, PIXELS = 4, 10  # patches in a row, pixels in a row of a patch
COLORS = {"orange": "#e69f00", "blue": "#0072b2", "green": "#009e73", "pink": "#cc79a7", "yellow": "#f0e442"}
SHAPES = ["circle", "square", "triangle", "ring", "cross"]
PLACES = ["top", "bottom", "left", "right"]
WORDS = [".", "a", "large", "small", "and", *PLACES, *COLORS, *SHAPES]  # "." ends a sentence
INDEX = np.vectorize(WORDS.index)
SPOKEN = 13  # words: a large blue circle top left and a small pink ring bottom right
NOUNS = 3, 10  # where they stand
OWN = (2, 3, 4, 5), (9, 10, 11, 12)  # the words that tell what the large, what the small one is, and where
RGB = np.array([[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in COLORS.values()])
BACKGROUND = 0.96


def draw_shape(shape, radius, x, y):
    """(n,) shapes with centres (x, y) -> (n, 10, 10), how much of each pixel they cover (of 2 × 2 points in it)."""
    v, u = (np.mgrid[: 2 * PIXELS, : 2 * PIXELS] + 0.5 - PIXELS) / 2
    u, v, r = u - x[:, None, None], v - y[:, None, None], radius[:, None, None]
    far = np.hypot(u, v)
    forms = [
        far <= r,
        np.maximum(abs(u), abs(v)) <= 0.85 * r,
        (v <= 0.7 * r) & (abs(u) <= (v + 1.1 * r) / 1.8),
        (far <= r) & (far >= 0.6 * r),
        (np.minimum(abs(u), abs(v)) <= 0.3 * r) & (np.maximum(abs(u), abs(v)) <= r),
    ]
    points = np.choose(shape[:, None, None], forms)  # (n, 20, 20) booleans
    return points.reshape(-1, PIXELS, 2, PIXELS, 2).mean(axis=(2, 4))


class Scenes:
    """Scenes as patches (B, 16, 300), captions (B, 14) with their start, and the places of their shapes (B, 2)."""

    def __init__(self, rng, count, allowed):
        """allowed: (5, 5, 5, 5) booleans: colour and shape of the large one, colour and shape of the small one."""
        choice = np.argwhere(allowed)
        things = choice[rng.integers(0, len(choice), count)]  # (B, 4)
        self.colors, self.shapes = things[:, 0::2], things[:, 1::2]  # (B, 2): of the large, of the small one
        self.places = rng.permuted(np.tile(np.arange(GRID**2), (count, 1)), axis=1)[:, :2]  # (B, 2), different
        self.pixels = self._draw_pixels(rng)
        self.patches = self.pixels.reshape(count, GRID**2, -1).astype(np.float32)
        self.captions = self._describe()

    def _describe(self):
        color, shape = np.array(list(COLORS))[self.colors].T, np.array(SHAPES)[self.shapes].T  # (2, B) each
        row = np.where(self.places // GRID < GRID // 2, "top", "bottom").T
        column = np.where(self.places % GRID < GRID // 2, "left", "right").T
        said = [
            ".",
            "a",
            "large",
            color[0],
            shape[0],
            row[0],
            column[0],
            "and",
            "a",
            "small",
            color[1],
            shape[1],
            row[1],
            column[1],
        ]
        return np.stack([np.broadcast_to(INDEX(word), len(self.places)) for word in said], axis=1)

    def _draw_pixels(self, rng):
        """Shapes of several shades, a little off their patch's centre, and some noise: (B, 16, 10, 10, 3)."""
        count = len(self.places)
        pixels = np.full((count, GRID**2, PIXELS, PIXELS, 3), BACKGROUND)
        for i, radius in enumerate((4.4, 2.9)):  # large, small
            x, y, size = rng.uniform(-0.4, 0.4, (3, count))
            cover = draw_shape(self.shapes[:, i], radius + 0.3 * size, x, y)[..., None]
            shade = RGB[self.colors[:, i], None, None] + rng.normal(0, 0.03, (count, 1, 1, 3))
            pixels[np.arange(count), self.places[:, i]] += cover * (shade - BACKGROUND)
        return np.clip(pixels + rng.normal(0, 0.02, pixels.shape), 0, 1)

    def image(self, i):
        """Scene i, (40, 40, 3)."""
        tiles = self.pixels[i].reshape(GRID, GRID, PIXELS, PIXELS, 3)
        return tiles.swapaxes(1, 2).reshape(GRID * PIXELS, GRID * PIXELS, 3)


# --- the model ----------------------------------------------------------------------------------------


class Captioner(nn.Module):
    """Patches are read one by one. One decoder block writes: what have I said (self attention), where do I look (cross
    attention), what do I say. After the look at the picture nothing passes between words: each looks for itself.
    """

    def __init__(self, width, rng):
        self.patch = nn.Linear(3 * PIXELS**2, width, rng=rng)
        self.rows, self.columns = (nn.Embedding(GRID, width, rng=rng) for _ in range(2))
        self.see = nn.FeedForward(width, rng=rng)
        self.see_norm, self.seen_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.words = nn.Embedding(len(WORDS), width, rng=rng)
        self.positions = nn.LearnedPositions(SPOKEN, width, rng=rng)
        self.block = nn.TransformerBlock(width, 4, cross=True, rng=rng)
        self.block.cross_attention = nn.MultiHeadAttention(width, 1, rng=rng)  # one head: one look for each word
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(WORDS), rng=rng)

    def read(self, patches):
        """(B, 16, 300) -> (B, 16, d), each patch on its own: what is in it, and where it is."""
        row, column = np.divmod(np.arange(GRID**2), GRID)
        x = self.patch(4 * (patches - BACKGROUND))
        return self.seen_norm(x + self.see(self.see_norm(x))) + self.rows(row) + self.columns(column)

    def write(self, words, seen, covered=None):
        """(B, n) words so far, (B, 16, d) -> (B, n, 19) logits of the next, (B, n, 16) weights.

        covered: (B, 16) booleans, patches that cannot be looked at.
        """
        y = self.positions(self.words(words))  # (B, n, d)
        causal = ta.causal_mask(words.shape[1])
        visible = None if covered is None else ~covered[:, None, None]  # (B, 1, 1, 16)
        y, _, weights = self.block(y, seen, mask=causal, context_mask=visible, return_weights=True)
        return self.head(self.norm(y)), weights[:, 0]


def train(allowed, steps, width, batch, rng, lr):
    model = Captioner(width, rng).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        scenes = Scenes(rng, batch, allowed)
        logits, _ = model.write(scenes.captions[:, :-1], model.read(scenes.patches))
        loss = ta.cross_entropy(logits, scenes.captions[:, 1:])
        optimizer.lr = lr * ta.optim.warmup_cosine(step, steps, warmup=20)
        optimizer.zero_grad()
        loss.backward()
        ta.optim.clip_grad_norm(optimizer.params, 1.0)
        optimizer.step()
    return model


@ta.no_grad()
def caption(model, patches, covered=None):
    """What the model says, (B, 13) words, and where each word looked, (B, 13, 16)."""
    words, seen = np.zeros((len(patches), 1), int), model.read(patches)
    for _ in range(SPOKEN):
        logits, looks = model.write(words, seen, covered)
        words = np.concatenate([words, logits.numpy()[:, -1:].argmax(-1)], axis=1)
    return words[:, 1:], looks.numpy()


def share_on(looks, scenes, words):
    """The mean weight of the given words, of the large and of the small one, on the patch of their own shape."""
    rows = np.arange(len(looks))
    return np.mean([looks[rows, w, scenes.places[:, i]] for i in (0, 1) for w in words[i]])


def measure(model, scenes):
    """Shares of captions, telling words and nouns that are right; the weight of both sorts of words on their shape."""
    said, looks = caption(model, scenes.patches)
    right = said == scenes.captions[:, 1:]
    nouns = [(noun,) for noun in NOUNS]
    return (
        right.all(axis=1).mean(),
        right[:, OWN[0] + OWN[1]].mean(),
        right[:, NOUNS].mean(),
        share_on(looks, scenes, OWN),
        share_on(looks, scenes, nouns),
    )


def share_by_word(looks, scenes):
    """Rows for the large and the small shape: the mean weight on the shape, when the word for it is circle, … right."""
    rows = np.arange(len(looks))
    for i, size in enumerate(("large", "small")):
        weight = {position: looks[rows, position, scenes.places[:, i]] for position in OWN[i]}
        spoken = {
            word: [
                weight[p][scenes.captions[:, p + 1] == INDEX(word)].mean()
                for p in OWN[i]
                if INDEX(word) in scenes.captions[:, p + 1]
            ]
            for word in (*SHAPES, *PLACES)
        }
        yield size, *(f"{np.mean(shares):.0%}" for shares in spoken.values())


def cover(model, scenes, rng):
    """Share of right nouns of the large shape: its patch covered; another, empty one covered."""
    rows, (large, small) = np.arange(len(scenes.places)), scenes.places.T
    empty = (small + 1 + (large == (small + 1) % GRID**2)) % GRID**2
    right = []
    for place in (large, empty):
        covered = np.zeros((len(rows), GRID**2), bool)
        covered[rows, place] = True
        said, _ = caption(model, scenes.patches, covered)
        right.append(np.mean(said[:, NOUNS[0]] == scenes.captions[:, 1 + NOUNS[0]]))
    return right


def known_and_new(rng):
    """Combinations of two things (a colour and a shape each): in training, not in training, with a new thing."""
    new = np.zeros((5, 5), bool)
    new[np.arange(5), rng.permutation(5)] = True  # each colour is missing on one shape, each shape in one colour
    known = ~new[:, :, None, None] & ~new
    unseen = rng.random(known.shape) < 0.3
    return {"seen in training": known & ~unseen, "never seen": known & unseen, "with a thing never seen": ~known}


def plot_looks(figure, model, scenes, chosen):
    """For each chosen scene: the picture, then for each word that describes it, where that word looked."""
    with ta.no_grad():
        said, looks = caption(model, scenes.patches[chosen])
    words = [w for own in OWN for w in own]
    for axes_row, i, line, look in zip(figure.subplots(len(chosen), len(words) + 1), chosen, said, looks):
        image = scenes.image(i)
        for axes, w in zip(axes_row, [None, *words]):
            axes.axis("off")
            if w is None:
                axes.imshow(image)
                axes.set_title("scene", fontsize=9, loc="center")
                continue
            light = np.kron(look[w].reshape(GRID, GRID), np.ones((PIXELS, PIXELS)))[..., None]
            axes.imshow(image * light + (0.35 + 0.25 * image) * (1 - light))  # what has no weight is in the shade
            best = look[w].argmax()
            wrong = bool(line[w] != scenes.captions[i, w + 1])
            axes.set_title(
                WORDS[line[w]] + " (wrong)" * wrong,
                fontsize=9 - 2 * wrong,
                loc="center",
                color=_demo.ORANGE if wrong else "black",
                fontweight="bold" if w in NOUNS else "normal",
            )
            axes.text(GRID * PIXELS / 2, GRID * PIXELS + 1, f"{look[w, best]:.0%}", ha="center", va="top", fontsize=8)
    right = np.mean(said[:, words] == scenes.captions[chosen][:, np.array(words) + 1])
    figure.suptitle(
        f"Where each word looks: bright is weight; below, the brightest patch's share. {right:.0%} of the words right",
        fontsize=11,
        x=0.01,
        ha="left",
    )


def main(demo):
    steps, width, batch, lr = (220, 48, 16, 6e-3) if demo.quick else (700, 64, 32, 3e-3)
    count, seeds = (100 if demo.quick else 500), range(demo.seed, demo.seed + 3)
    figures, covered, shown = [], [], None
    for seed in demo.track(seeds, "learning to describe"):
        rng = np.random.default_rng(seed)
        kinds = known_and_new(rng)
        model = train(kinds["seen in training"], steps, width, batch, rng, lr)
        tests = {kind: Scenes(rng, count, allowed) for kind, allowed in kinds.items()}
        figures.append([measure(model, scenes) for scenes in tests.values()])
        if not demo.quick:
            covered.append(cover(model, tests["never seen"], rng))
        shown = shown or (model, tests["never seen"])
    figures, covered = np.array(figures), np.array(covered)  # (seeds, kinds, 4), (seeds, 2)

    model, scenes = shown
    said, _ = caption(model, scenes.patches[:4])
    demo.heading("Captions of combinations that were never in training")
    for line, right in zip(said, scenes.captions[:4, 1:]):
        demo.say(f"  {' '.join(WORDS[w] for w in line)}{'' if np.array_equal(line, right) else '   (wrong)'}")

    mean, low = figures.mean(axis=0), figures.min(axis=0)
    names = [
        "whole captions right",
        "words that tell of a thing right",
        "nouns right",
        "weight of those words on their shape",
        "weight of the nouns on their shape",
    ]
    guess = ["", "35%", "20%", "6%", "6%"]
    demo.table(
        f"{count} new scenes of each kind, {len(figures)} seeds: mean, and in brackets the worst seed",
        ["combination of two things:", *tests, "by chance"],
        [
            (name, *(f"{m:.1%} ({worst:.1%})" for m, worst in zip(mean[:, i], low[:, i])), guess[i])
            for i, name in enumerate(names)
        ],
    )
    demo.table(
        f"seed {demo.seed}, combinations never seen: weight on the shape by what is said of it",
        ["shape", *SHAPES, *PLACES],
        share_by_word(caption(model, scenes.patches)[1], scenes),
    )
    exact, telling, _, weight, noun_weight = low[1]
    if demo.quick:
        telling, weight = mean[1, 1], mean[1, 3]
        demo.say()
        demo.claim(
            f"combinations never seen: {telling:.0%} of the telling words are right, mean of the seeds; by chance 35 %",
            telling > 0.5,
        )
        demo.claim(f"they look at their shape: {weight:.0%} of their weight; by chance 6 %", weight > 0.2)
        demo.measured("combinations never seen: {telling:.0%} of the telling words right", telling=telling)
    else:
        demo.table(
            "to look is to use: the large shape's noun, combinations never seen",
            ["covered", "right"],
            [
                ("the patch of the shape", f"{covered[:, 0].mean():.1%}"),
                ("an empty patch", f"{covered[:, 1].mean():.1%}"),
            ],
        )
        demo.say()
        demo.claim(
            f"combinations never seen: {exact:.1%} of the captions are right in the worst seed, {mean[1, 0]:.1%} on "
            "average; by chance none",
            mean[1, 0] > 0.95 and exact > 0.85,
        )
        demo.claim(
            f"the noun looks at its shape: {mean[1, 4]:.1%} of its weight ({noun_weight:.1%} in the worst seed); by "
            "chance 6 %",
            mean[1, 4] > 0.7 and noun_weight > 0.5,
        )
        demo.claim(
            f"and needs that look: {covered[:, 0].max():.0%} right at most with the patch covered (a guess: "
            f"20 %), {covered[:, 1].min():.0%} at least with another one covered",
            covered[:, 0].mean() < 0.35 and covered[:, 1].min() > covered[:, 0].max() + 0.4,
        )
        demo.measured(
            "captions of unseen combinations {exact:.1%} exact; {look:.1%} of a noun's weight is on its shape (chance: "
            "6 %); with that patch covered the noun is right in {covered:.0%} (a guess: 20 %). A colour and shape "
            "never seen together: {new:.1%}. 3 seeds",
            exact=mean[1, 0],
            look=mean[1, 4],
            covered=covered[:, 0].mean(),
            new=mean[2, 0],
        )
    demo.plot("looks", plot_looks, model, scenes, [0, 1, 2], size=(11, 5))


if __name__ == "__main__":
    _demo.run(main, __doc__)
