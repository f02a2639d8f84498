"""Self and cross attention are one layer: they differ only in where the keys and values come from.

(a) mha(x) and mha(x, context), with the same parameters. The output has a row for each query. It reads the context,
    of any length and in any order.
(b) Translation. An encoder reads a date as people write it, in seven ways. A decoder writes it in ISO form, and each
    character that it writes looks up what it needs in the encoder's output. The alignment is learned, not given: the
    year's digits look at the year, wherever it stands.
(c) Retrieval. A question is the query; a memory of facts gives the keys and values. The facts of training are always
    new, so the model learns to look up, and answers from facts that it never trained on. The same model without the
    memory can only know facts by heart. It answers for the world of its training, when that is no longer true.

Practice: step 7 (python -m tinyattn practice).
"""

import datetime

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import nn

# --- (a) one layer, both ways -------------------------------------------------------------------------


def both_ways(demo):
    rng = np.random.default_rng(demo.seed)
    mha = nn.MultiHeadAttention(16, 4, rng=rng)
    x, context = rng.normal(size=(5, 16)), rng.normal(size=(9, 16))
    own, own_weights = mha(x, return_weights=True)
    out, weights = mha(x, context, return_weights=True)
    rows = [
        ("mha(x)", "x", x.shape, "x", x.shape, own.shape, own_weights.shape),
        ("mha(x, context)", "x", x.shape, "context", context.shape, out.shape, weights.shape),
    ]
    demo.table(
        f"one layer of {sum(p.size for p in mha.parameters()):,} parameters, used twice",
        ["", "Q from", "", "K, V from", "", "output", "weights (heads, n, m)"],
        rows,
    )
    order = rng.permutation(9)
    demo.say()
    demo.claim("mha(x) is mha(x, x)", np.allclose(own.numpy(), mha(x, x).numpy(), rtol=0, atol=1e-12))
    demo.claim(
        "the context is a set: in another order it gives the same output",
        np.allclose(out.numpy(), mha(x, context[order]).numpy(), rtol=0, atol=1e-12),
    )
    demo.claim(
        "each query reads it for itself: a part of x gives that part of the output, with cross attention only",
        np.allclose(mha(x[:2], context).numpy(), out.numpy()[:2], rtol=0, atol=1e-12)
        and not np.allclose(mha(x[:2]).numpy(), own.numpy()[:2]),
    )


# --- (b) translation: dates to ISO form ---------------------------------------------------------------

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
FIRST, COUNT = datetime.date(1900, 1, 1), 73_049  # the days of two centuries
FORMS = {
    "day month year": lambda d: f"{d.day} {MONTHS[d.month - 1]} {d.year}",
    "weekday, day month year": lambda d: f"{DAYS[d.weekday()]}, {d.day} {MONTHS[d.month - 1]} {d.year}",
    "short weekday and month": lambda d: f"{DAYS[d.weekday()][:3]} {d.day} {MONTHS[d.month - 1][:3]} {d.year}",
    "month day, year": lambda d: f"{MONTHS[d.month - 1]} {d.day}, {d.year}",
    "short month day, year": lambda d: f"{MONTHS[d.month - 1][:3]} {d.day}, {d.year}",
    "month/day/year": lambda d: f"{d.month}/{d.day}/{d.year}",
    "year, the day of month": lambda d: f"{d.year}, the {d.day}{ordinal(d.day)} of {MONTHS[d.month - 1]}",
}
SHOWN = "weekday, day month year", "month/day/year", "year, the day of month"
START = ">"
READ = sorted(set("".join(MONTHS + DAYS) + "0123456789 ,/ of"))
WRITTEN = ["-", *"0123456789", START]


def ordinal(day):
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day // 10 != 1 else 0, "th")


def encode(texts, alphabet):
    """Texts -> ids (B, longest), padded, and the lengths."""
    lengths = np.array([len(t) for t in texts])
    index = {c: i for i, c in enumerate(alphabet)}
    return np.array([[index[c] for c in t.ljust(lengths.max())] for t in texts]), lengths


class Translator(nn.Module):
    """An encoder block that reads, a decoder block that writes: each character it writes asks the encoder's output."""

    def __init__(self, width, rng):
        self.read = nn.Embedding(len(READ), width, rng=rng)
        self.written = nn.Embedding(len(WRITTEN), width, rng=rng)
        self.encoder = nn.TransformerBlock(width, 4, rng=rng)
        self.memory_norm = nn.LayerNorm(width)
        self.decoder = nn.TransformerBlock(width, 4, cross=True, rng=rng)
        self.decoder.cross_attention = nn.MultiHeadAttention(width, 1, rng=rng)  # one head: one alignment to look at
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(WRITTEN) - 1, rng=rng)
        self.positions = nn.sinusoidal_positions(32, width).astype(np.float32)

    def encode(self, source, lengths):
        """(B, m) characters -> (B, m, width), and which of the m are real."""
        mask = ta.padding_mask(lengths, source.shape[1])  # (B, 1, 1, m)
        x = self.read(source) + self.positions[: source.shape[1]]
        return self.memory_norm(self.encoder(x, mask=mask)), mask

    def decode(self, target, memory, mask):
        """(B, n) characters written so far -> (B, n, 11) logits of the next, (B, 1, n, m) weights."""
        n = target.shape[1]
        x = self.written(target) + self.positions[:n]
        x, _, weights = self.decoder(x, memory, mask=ta.causal_mask(n), context_mask=mask, return_weights=True)
        return self.head(self.norm(x)), weights


def iso(dates):
    """(B, 11) ids of '>1987-03-24'."""
    return encode([START + d.isoformat() for d in dates], WRITTEN)[0]


def train_translator(dates, forms, width, steps, rng, batch=64, lr=3e-3):
    model = Translator(width, rng).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        drawn = [dates[i] for i in rng.integers(0, len(dates), batch)]
        source, lengths = encode([forms[i](d) for i, d in zip(rng.integers(0, len(forms), batch), drawn)], READ)
        target = iso(drawn)
        logits, _ = model.decode(target[:, :-1], *model.encode(source, lengths))
        loss = ta.cross_entropy(logits, target[:, 1:])
        optimizer.lr = lr * ta.optim.warmup_cosine(step, steps, warmup=steps // 20)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@ta.no_grad()
def translate(model, texts):
    """What the model writes for each text, character by character; and its weights (B, 10, m) as it wrote them."""
    memory, mask = model.encode(*encode(texts, READ))
    written = np.full((len(texts), 1), WRITTEN.index(START))
    for _ in range(10):
        logits, weights = model.decode(written, memory, mask)
        written = np.concatenate([written, logits.numpy()[:, -1:].argmax(-1)], axis=1)
    return ["".join(WRITTEN[i] for i in row[1:]) for row in written], weights.numpy()[:, 0]


def look_at_year(texts, dates, weights):
    """The share of each year digit's weight that lies on the year as read; and the same for a blind look."""
    starts = [text.index(str(d.year)) for text, d in zip(texts, dates)]
    share = np.mean([w[:4, s : s + 4].sum(-1) for w, s in zip(weights, starts)])
    return share, np.mean([4 / len(text) for text in texts])


def learn_dates(demo, forms, seeds):
    """For each seed: a model, and on dates that it never saw, in each form: exact, weight on the year, blind."""
    count = 100 if demo.quick else 300
    width, steps, batch, lr = (32, 190, 32, 8e-3) if demo.quick else (64, 900, 64, 4e-3)
    days = [FIRST + datetime.timedelta(days=i) for i in range(COUNT)]
    models, figures = [], []
    for seed in demo.track(seeds, "learning to read dates"):
        rng = np.random.default_rng(seed)
        order = rng.permutation(COUNT)
        unseen, seen = [days[i] for i in order[:count]], [days[i] for i in order[count:]]
        model = train_translator(seen, list(forms.values()), width, steps, rng, batch, lr)
        for form in forms.values():
            texts = [form(d) for d in unseen]
            answers, weights = translate(model, texts)
            exact = np.mean([a == d.isoformat() for a, d in zip(answers, unseen)])
            figures.append((exact, *look_at_year(texts, unseen, weights)))
        models.append(model)
    return models, np.array(figures).reshape(len(models), len(forms), 3)


def show_dates(demo, forms, figures):
    exact, year, blind = figures.mean(axis=0).T
    example = datetime.date(1987, 3, 24)
    demo.table(
        f"unseen dates, {len(figures)} seeds: exact ISO form, and weight of the year's digits on the year",
        ["written as", "for example", "exact", "worst seed", "on the year", "blind look"],
        [
            (name, form(example), f"{e:.1%}", f"{w:.1%}", f"{y:.0%}", f"{b:.0%}")
            for name, form, e, w, y, b in zip(forms, forms.values(), exact, figures[:, :, 0].min(axis=0), year, blind)
        ],
    )
    demo.say()
    worst = figures[:, :, 0].mean(axis=1).min()
    demo.claim(
        f"of dates never seen, {exact.mean():.1%} are written exactly, mean of the seeds (the worst seed {worst:.1%}; "
        "by chance none)",
        exact.mean() > (0.25 if demo.quick else 0.97) and worst > (0.05 if demo.quick else 0.9),
    )
    demo.claim(
        f"the year's digits look at the year: {year.mean():.0%} of their weight, where a blind look gives it "
        f"{blind.mean():.0%}",
        np.all(figures[:, :, 1].mean(axis=1) > 2 * blind.mean()),
    )
    return {"exact": exact.mean(), "worst": worst, "year": year.mean(), "blind": blind.mean()}


def plot_alignment(figure, model, date, forms):
    """A row for each character that is written, a column for each that is read."""
    texts = [form(date) for form in forms]
    longest = max(map(len, texts))
    caught = []
    for axes, text in zip(figure.subplots(len(texts), 1), texts):
        (answer,), (weights,) = translate(model, [text])
        image = axes.imshow(weights, cmap="viridis", vmin=0, vmax=1, aspect="equal")
        axes.set_xticks(range(len(text)), ["␣" if c == " " else c for c in text], family="monospace")
        axes.set_yticks(range(len(answer)), list(answer), family="monospace")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(False)
        start = text.index(str(date.year)) - 0.5
        caught.append(weights[:4, text.index(str(date.year)) :][:, :4].sum(axis=1).mean())
        axes.plot([start, start + 4, start + 4, start, start], [-0.5, -0.5, 3.5, 3.5, -0.5], color=_demo.ORANGE)
        axes.set_xlim(-0.5, longest - 0.5)  # cells of one size
        axes.set(title=text, ylabel="written")
    axes.set_xlabel("read")
    figure.colorbar(image, ax=figure.axes, shrink=0.4, label="weight", aspect=30)
    told = (
        f"Where each character looks. Orange: the year's digits put {np.mean(caught):.0%} of their weight on the year"
    )
    figure.suptitle(told, fontsize=11)


# --- (c) retrieval: answers from a memory -------------------------------------------------------------

NAMES = [
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gita",
    "Hugo",
    "Iris",
    "Jon",
    "Kira",
    "Leo",
    "Mia",
    "Nils",
    "Olga",
    "Paul",
]
TRAITS = {
    "pet": ["cat", "dog", "fish", "bird", "frog", "goat", "mouse", "snake"],
    "drink": ["tea", "milk", "water", "juice", "cocoa", "coffee", "cider", "soup"],
    "hobby": ["chess", "dance", "judo", "poems", "pottery", "rowing", "sewing", "violin"],
    "home": ["Bern", "Cairo", "Lima", "Oslo", "Paris", "Quito", "Rome", "Tokyo"],
}
WORDS = [*NAMES, *TRAITS, *(w for words in TRAITS.values() for w in words)]
N, T, A = len(NAMES), len(TRAITS), 8  # names, traits, answers for each trait


class Answerer(nn.Module):
    """A question (name, trait) asks a memory of facts (name, trait, answer): one cross attention, a feed-forward."""

    def __init__(self, width, rng):
        self.words = nn.Embedding(len(WORDS), width, rng=rng)
        self.attention = nn.MultiHeadAttention(width, 1, rng=rng)
        self.norm = nn.LayerNorm(width)
        self.feed_forward = nn.FeedForward(width, rng=rng)
        self.head = nn.Linear(width, T * A, rng=rng)

    def forward(self, questions, facts=None):
        """(B, n, 2), (B, m, 3) words -> (B, n, 32) logits, (B, n, m) weights. Without facts nothing is looked up."""
        x, weights = self.words(questions).sum(axis=-2), None  # (B, n, 2, d) -> (B, n, d)
        if facts is not None:
            found, weights = self.attention(x, self.words(facts).sum(axis=-2), return_weights=True)
            x, weights = x + found, weights[:, 0]
        x = self.norm(x)
        return self.head(x + self.feed_forward(x)), weights


def worlds(rng, count, allowed):
    """(count, 16, 4): for each name and trait one of the allowed answers. allowed (16, 4, 8) is boolean."""
    return np.where(allowed, rng.random((count, *allowed.shape)), -1).argmax(-1)


def ask(rng, answers, facts):
    """Of each world a memory of some facts, in any order, and a question for each; the right answers."""
    B = len(answers)
    pick = rng.permuted(np.tile(np.arange(N * T), (B, 1)), axis=1)[:, :facts]  # (B, m)
    word = pick % T * A + answers.reshape(B, -1)[np.arange(B)[:, None], pick]  # (B, m) of 0 … 31
    questions = np.stack([pick // T, N + pick % T], axis=-1)  # (B, m, 2)
    return questions, np.concatenate([questions, N + T + word[..., None]], axis=-1), word


def train_answerer(draw, steps, rng, lr=5e-3):
    """Learn from draw() -> (questions, facts or None, answers)."""
    model = Answerer(64, rng).astype(np.float32)
    optimizer = ta.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        questions, facts, answers = draw()
        loss = ta.cross_entropy(model(questions, facts)[0], answers)
        optimizer.lr = lr * ta.optim.warmup_cosine(step, steps, warmup=20)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def retrieval(seed, steps, facts):
    """Train both models. Their shares of right answers in the world of training and in a new one; what they say."""
    rng = np.random.default_rng(seed)
    known = rng.permuted(np.tile(np.arange(A) < 6, (N, T, 1)), axis=-1)  # 6 of 8 answers: facts to train on
    old = worlds(rng, 1, known)
    reader = train_answerer(lambda: ask(rng, worlds(rng, 32, known), facts), steps, rng)

    def by_heart():
        questions, _, answers = ask(rng, old, N * T)
        return questions, None, answers

    knower = train_answerer(by_heart, steps // 3, rng)
    right = {"with memory": [], "without, by heart": [], "the first, memory taken away": []}
    with ta.no_grad():
        for world in (np.repeat(old, 50, axis=0), worlds(rng, 50, ~known)):  # facts trained on; none trained on
            questions, memory, answers = ask(rng, world, facts)
            logits, weights = reader(questions, memory)
            for name, scores in zip(right, (logits, knower(questions)[0], reader(questions)[0])):
                right[name].append(np.mean(scores.numpy().argmax(-1) == answers))
        on_fact = np.mean(weights.numpy().diagonal(axis1=1, axis2=2))  # question i is about fact i
    return right, on_fact, (reader, knower, questions, memory, answers)


def say_answers(demo, model, knower, questions, facts, answers):
    """A few questions of the last world, with what both say."""
    with ta.no_grad():
        logits, weights = model(questions[:1], facts[:1])
        said, by_heart = (
            [WORDS[N + T + i] for i in scores.numpy()[0].argmax(-1)] for scores in (logits, knower(questions[:1])[0])
        )
    rows = []
    for i, weight in enumerate(weights.numpy()[0].diagonal()[:5]):
        name, trait, word = (WORDS[j] for j in facts[0, i])
        rows.append((f"{name}'s {trait}?", f"{name}'s {trait}: {word}", f"{weight:.2f}", said[i], by_heart[i]))
    demo.table(
        "five questions about a world that neither trained on, and what was said",
        ["question", "the fact in the memory", "weight on it", "with memory", "by heart"],
        rows,
    )


def plot_retrieval(figure, model, questions, facts, count=8):
    """Questions against a memory of `count` facts, in another order."""
    asked = np.arange(count) * 3 % count
    with ta.no_grad():
        weights = model(questions[:1, asked], facts[:1, :count])[1].numpy()[0]
    axes = figure.subplots()
    image = axes.imshow(weights, cmap="viridis", vmin=0, vmax=1)
    for row, column in enumerate(asked):  # the claimed cells
        _demo.outline(axes, row, column)
    texts = [[WORDS[i] for i in row] for row in facts[0, :count]]
    axes.set_xticks(range(count), [f"{n}'s {t}: {w}" for n, t, w in texts], rotation=35, ha="right")
    axes.set_yticks(range(count), [f"{texts[i][0]}'s {texts[i][1]}?" for i in asked])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    found = np.mean(weights.argmax(-1) == asked)
    axes.set(
        title=f"{found:.0%} of the questions look at their fact most (outlined)",
        xlabel="keys and values: the memory",
        ylabel="queries",
    )
    figure.colorbar(image, ax=axes, label="weight")


def main(demo):
    seeds = range(demo.seed, demo.seed + 3)

    demo.heading("(a) One layer, both ways")
    both_ways(demo)

    demo.heading("(b) Translation: dates as people write them, to ISO form")
    forms = {name: FORMS[name] for name in (SHOWN[:2] if demo.quick else FORMS)}
    models, figures = learn_dates(demo, forms, seeds)
    found = show_dates(demo, forms, figures)
    shown = [forms[name] for name in SHOWN if name in forms]
    demo.plot("dates", plot_alignment, models[0], datetime.date(1987, 3, 24), shown, size=(8, 3.4 * len(shown)))

    demo.heading("(c) Retrieval: a question answered from a memory")
    steps, facts = (120, 16) if demo.quick else (500, 32)
    runs = [retrieval(seed, steps, facts) for seed in demo.track(seeds, "learning to look up")]
    right = {name: np.array([run[0][name] for run in runs]) for name in runs[0][0]}  # (seeds, 2)
    demo.table(
        f"right answers, {len(runs)} seeds: mean, and the least and the most",
        ["", "facts trained on", "facts never trained on"],
        [
            (name, *(f"{m:.1%} ({low:.1%} … {high:.1%})" for m, low, high in zip(r.mean(0), r.min(0), r.max(0))))
            for name, r in right.items()
        ],
    )
    say_answers(demo, *runs[0][2])
    demo.say()
    on_fact = np.array([run[1] for run in runs])
    reader, knower, blind = right.values()
    demo.claim(
        f"with the memory it answers from facts never trained on ({reader[:, 1].mean():.1%} right, the worst seed "
        f"{reader[:, 1].min():.1%})",
        reader[:, 1].mean() > (0.85 if demo.quick else 0.97) and reader.min() > (0.6 if demo.quick else 0.9),
    )
    demo.claim(
        f"the same model, trained without a memory, knows its own world ({knower[:, 0].min():.0%}), and says the same "
        f"in a new one: {knower[:, 1].max():.1%} right at most",
        knower[:, 0].min() > 0.95 and knower[:, 1].max() < 0.05,
    )
    demo.claim(
        "the first one has learned to look up, not the facts: without its memory it is right in "
        f"{blind.max():.0%} at most, a guess in {1 / A:.0%}",
        blind.max() < 2 / A,
    )
    demo.claim(
        f"it looks at the right fact: {on_fact.mean():.0%} of the weight; a blind look gives it {1 / facts:.0%}",
        on_fact.mean() > 0.5 and on_fact.min() > 4 / facts,
    )
    demo.measured(
        "unseen dates exact {exact:.1%} (worst seed {worst:.1%}); {year:.0%} of the year digits' weight is on the year "
        "(a blind look: {blind:.0%}); {new:.1%} answered from facts never trained on, the same model trained "
        "without a memory: {without:.0%}. 3 seeds",
        **found,
        new=reader[:, 1].mean(),
        without=knower[:, 1].mean(),
    )
    demo.plot("retrieval", plot_retrieval, runs[0][2][0], *runs[0][2][2:4], size=(7.5, 5.5))


if __name__ == "__main__":
    _demo.run(main, __doc__)
