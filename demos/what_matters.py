"""What does a trained model use? Gradients say it in one backward pass; taking things out tests what they say.

Two questions to MiniLM, with a gradient and a true ablation side by side (`python -m tinyattn fetch minilm`):
  1. Which words make "it" look at "animal"? gradient × (word - [MASK]) estimates, along the tangent, what it costs to
     replace a word by [MASK]. The estimate is right for a small step. For the whole way it is wrong, because attention
     saturates; but the mean of the gradients along the way is right (Sundararajan et al. 2017).
  2. Which heads matter? With a gate of 1 on each head's output z, the gradient of the loss at the gate is Σ z · dL/dz
     (Michel et al. 2019): all 72 at once. To close the gates one by one takes 72 runs.
In its full form, the demo also asks SmolLM2 the first question, about its next word. Without the weights, a small model
with random ones shows the method.
"""

from contextlib import contextmanager

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import pretrained

HEAD = (3, 1)  # layer, head: from a pronoun to its noun, see real_sentence.py
SENTENCES = {
    "The animal didn't cross the street because it was too tired.": ("it", "animal"),
    "The trophy didn't fit in the suitcase because it was too big.": ("it", "trophy"),
    "The cat ignored the mouse because it was sleepy.": ("it", "cat"),
    "The wolves attacked the sheep because they were hungry.": ("they", "wolves"),
}
PAIRS = """
A man is playing a guitar. | Someone plays an instrument.
The cat sleeps on the sofa. | A pet is napping on the couch.
It is raining heavily outside. | There is a storm with a lot of rain.
The stock market fell sharply. | Share prices dropped a lot.
She is cooking dinner for her family. | A woman prepares the evening meal.
The train was two hours late. | We waited long for the delayed railway.
Children play football in the park. | Kids are kicking a ball outdoors.
He fixed the broken computer. | The man repaired the laptop.
Scientists found a new planet. | Astronomers discovered another world.
The soup is too salty. | There is too much salt in this dish.
My car needs new tyres. | The wheels of the vehicle must be replaced.
The concert was sold out. | No tickets were left for the show.
"""
PROMPT, ANSWER, RIVAL = "<|im_start|>The capital of France is", " Paris", " London"


@contextmanager
def replaced(module, output):
    """Meanwhile the module gives this output, for every input."""
    module.forward = lambda *inputs: output
    try:
        yield
    finally:
        del module.forward


def by_token(f, words, neutral, steps):
    """What each token's vector does for f: (tangent, mean of tangents, truth, all of a small step: tangent and truth).

    words (n, d) are the tokens' vectors. A removed one becomes neutral (d,). f(X) gives (B,) values for X (B, n, d).
    In row i of a batch, token i is on its way to neutral; the others are unchanged.
    """
    n = len(words)
    at = np.arange(n)
    way = words - neutral  # (n, d)

    def on_the_way(left):
        """f if the share `left` of token i is left: (n,) values, and the slope of each along its way."""
        X = np.repeat(words[None], n, axis=0)  # (n, n, d)
        X[at, at] = neutral + left * way
        x = ta.Tensor(X, requires_grad=True)
        y = f(x)
        (g,) = ta.grad(y, [x], np.ones(n, X.dtype))
        return y.numpy(), (g.numpy()[at, at] * way).sum(-1)

    full, tangent = on_the_way(1.0)
    small = 0.98
    truth_small = full - on_the_way(small)[0]
    truth = full - on_the_way(0.0)[0]
    mean = np.mean([on_the_way((k + 0.5) / steps)[1] for k in range(steps)], axis=0)
    return tangent, mean, truth, (1 - small) * tangent, truth_small


def attention_of(model, ids, query, key):
    """f for by_token: the weight of HEAD from one token to another, as a function of the tokens' vectors."""
    layer, head = HEAD

    def f(x):
        with replaced(model.embedding, x):
            _, maps = model(np.repeat([ids], len(x), axis=0), return_weights=True)
        return maps[layer][:, head, query, key]

    return f


def preference(model, ids, answer, rival):
    """f for by_token: how much higher the logit of one next token is than another's."""

    def f(x):
        with replaced(model.embedding, x):
            logits = model(np.repeat([ids], len(x), axis=0))[:, -1]  # (B, T, vocabulary) -> (B, vocabulary)
        return logits[:, answer] - logits[:, rival]

    return f


def gate_heads(model):
    """A gate of 1 on the output of each head, before the heads are joined: one tensor (heads,) per layer."""
    gates = []
    for block in model.blocks:
        gate = ta.Tensor(np.ones(block.attention.num_heads, np.float32), requires_grad=True)

        def gated(Q, K, V, gate=gate, **options):
            return ta.scaled_dot_product_attention(Q, K, V, **options) * gate.reshape(-1, 1, 1)

        block.attention.attention = gated
        gates.append(gate)
    return gates


def matching_loss(model, tokenizer, pairs):
    """Which sentence says the same? Cross-entropy over the cosines, as in MiniLM's own training."""
    n = len(pairs)
    vectors = pretrained.sentence_vectors(model, tokenizer, [a for a, _ in pairs] + [b for _, b in pairs])
    return ta.cross_entropy(vectors[:n] @ vectors[n:].mT * 10.0, np.arange(n))


def correlation(a, b):
    return np.corrcoef(a, b)[0, 1]


def ranks(x):
    return np.argsort(np.argsort(x))


class Hashed:
    """In place of a tokenizer: one id per different word, for a random model, which knows no words."""

    def __init__(self):
        self.words = ["[MASK]", "[CLS]", "[SEP]"]

    def token_to_id(self, token):
        return self.words.index(token)

    def encode(self, text):
        self.tokens = ["[CLS]", *"".join(c if c.isalnum() else f" {c} " for c in text.lower()).split(), "[SEP]"]
        self.words += [t for t in dict.fromkeys(self.tokens) if t not in self.words]
        encoded = Hashed()
        encoded.tokens, encoded.ids = self.tokens, [self.words.index(t) for t in self.tokens]
        return encoded

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]


def get_model(demo):
    try:
        return (*pretrained.load("minilm"), True)
    except (FileNotFoundError, ImportError) as error:
        demo.say(f"{error}.\nSo a small model with random weights shows the method; what it looks at means nothing.")
        demo.notes.append("random weights")
        model = pretrained.BERT(200, 64, 96, 12, 4, rng=demo.seed).astype(np.float32)
        return model, Hashed(), False


def plot_tokens(figure, tokens, values, title):
    axes = figure.subplots()
    at = np.arange(len(tokens))
    for k, (name, color) in enumerate(zip(values, (_demo.GREY, _demo.SKY, _demo.BLUE))):
        axes.bar(at + (k - 1) * 0.27, values[name], 0.27, color=color, label=name)
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks(at, [token.replace("$", r"\$") for token in tokens], rotation=45)
    axes.set(title=title, ylabel="lost without the word")
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper right", ncols=3)


def plot_heads(figure, guess, truth, layers):
    axes = figure.subplots()
    shown = axes.scatter(guess, truth, c=layers, cmap="viridis", s=28, edgecolors="white", linewidths=0.4)
    limits = [min(guess.min(), truth.min()), max(guess.max(), truth.max())]
    axes.plot(limits, limits, color=_demo.GREY, ls=":", lw=1, label="as guessed")
    axes.set(
        title=f"Closing one head's gate: correlation {correlation(guess, truth):.2f}",
        xlabel="loss guessed from one gradient, -dL/dgate",
        ylabel="loss added",
    )
    axes.legend()
    figure.colorbar(shown, ax=axes, label="layer", ticks=range(0, max(layers) + 1, 1 + max(layers) // 12))


def show_tokens(demo, name, title, tokens, values):
    tangent, mean, truth = values[:3]
    columns = {"gradient × difference": tangent, "mean along the way": mean, "ablation": truth}
    demo.table(
        title,
        ["token", *columns],
        [(token, *(f"{x:+.3f}" for x in row)) for token, *row in zip(tokens, *columns.values())],
    )
    demo.plot(name, plot_tokens, tokens, columns, title, size=(9, 4.5))


def main(demo):
    model, tokenizer, trained = get_model(demo)
    layer, head = HEAD

    demo.heading(f"1. Which words move the weight of the pronoun on its noun, in layer {layer}, head {head}?")
    W = model.embedding.weight.numpy()
    steps = 6 if demo.quick else 32
    rows, smalls = [], []
    for sentence, (pronoun, noun) in list(SENTENCES.items())[: 1 if demo.quick else None]:
        text = tokenizer.encode(sentence)
        f = attention_of(model, text.ids, text.tokens.index(pronoun), text.tokens.index(noun))
        values = by_token(f, W[text.ids], W[tokenizer.token_to_id("[MASK]")], steps)
        if not rows:
            title = f"{pronoun} → {noun}: weight lost when a word becomes [MASK]"
            show_tokens(demo, "words", title, text.tokens, values)
            itself, most = values[2][text.tokens.index(noun)], values[2].max()
        tangent, mean, truth, small_guess, small_truth = values
        smalls.append(np.abs(small_guess - small_truth).max() / np.abs(small_truth).max())
        rows.append((f"{pronoun} → {noun}", correlation(tangent, truth), correlation(mean, truth)))
    demo.table(
        "correlation with the ablation, over the tokens of each sentence",
        ["sentence", "gradient × difference", f"mean of {steps} along the way"],
        [(name, f"{a:+.2f}", f"{b:+.2f}") for name, a, b in rows],
    )
    demo.say()
    demo.claim(
        f"for 2 % of the way the tangent is right: its largest error is {max(smalls):.0%} of the largest change",
        max(smalls) < 0.15,
    )
    means = np.mean([row[2] for row in rows])
    demo.claim(f"the mean gradient along the way agrees with the ablation: correlation {means:.2f}", means > 0.9)
    if trained:
        demo.claim(
            f"in the first sentence [MASK] for the noun costs {itself:.2f}, for another word {most:.2f}: "
            "the others say where it is",
            itself < most / 10,
        )
        tangents = np.mean([row[1] for row in rows])
        demo.claim(
            f"the gradient at the sentence itself does not: {tangents:.2f}. Do not read importance off it",
            tangents < 0.5,
        )

    demo.heading("2. Which heads matter for telling what says the same?")
    pairs = [line.split(" | ") for line in PAIRS.strip().splitlines()]
    gates = gate_heads(model)
    loss = matching_loss(model, tokenizer, pairs)
    guess = -np.concatenate([g.numpy() for g in ta.grad(loss, gates)])
    heads = [(i, j) for i, gate in enumerate(gates) for j in range(len(gate))]
    tried = np.random.default_rng(demo.seed).permutation(len(heads))[: 12 if demo.quick else None]
    truth = []
    for k in demo.track(tried, "heads"):
        i, j = heads[k]
        gates[i].data = np.where(np.arange(len(gates[i])) == j, 0, 1).astype(np.float32)
        with ta.no_grad():
            truth.append(matching_loss(model, tokenizer, pairs).item() - loss.item())
        gates[i].data = np.ones(len(gates[i]), np.float32)
    truth, guess = np.array(truth), guess[tried]
    order = np.argsort(-np.abs(truth))[:8]
    demo.table(
        f"loss {loss.item():.4f} with all heads; the {len(order)} of {len(tried)} tried that change it most",
        ["head", "loss added, guessed", "loss added"],
        [
            (f"layer {heads[tried[k]][0]}, head {heads[tried[k]][1]}", f"{guess[k]:+.5f}", f"{truth[k]:+.5f}")
            for k in order
        ],
    )
    demo.plot("heads", plot_heads, guess, truth, [heads[k][0] for k in tried], size=(6.5, 5))
    signed, size = correlation(guess, truth), correlation(ranks(np.abs(guess)), ranks(np.abs(truth)))
    demo.say(f"\n  correlation {signed:.2f}; of the sizes' ranks, |Σ z · dL/dz| against |loss added|: {size:.2f}")
    demo.claim("one backward pass says what closing each head does", signed > 0.8 and size > 0.5)
    demo.measured(
        "head importance from one backward pass against {count} ablations: r = {signed:.2f}; gradient × difference of "
        "words: {tangent:.2f}, averaged along the way {mean:.2f}",
        count=len(truth),
        signed=signed,
        tangent=np.mean([row[1] for row in rows]),
        mean=means,
    )
    demo.say("  (A head is a small part of its layer's sum: a small step, where the tangent holds. A word is not.)")

    if trained and not demo.quick:
        demo.heading("3. Which words make SmolLM2 say 'Paris'?")
        try:
            model, tokenizer = pretrained.load("smollm2")
        except FileNotFoundError as error:
            demo.say(str(error))
            return
        text = tokenizer.encode(PROMPT)
        answer, rival = (tokenizer.encode(word).ids[0] for word in (ANSWER, RIVAL))
        W = model.embedding.weight.numpy()
        values = by_token(preference(model, text.ids, answer, rival), W[text.ids], W.mean(0), 16)
        tokens = [token.replace("Ġ", " ").strip() for token in text.tokens]
        show_tokens(
            demo,
            "next",
            "SmolLM2's logit of ' Paris' above ' London': lost when a word becomes the mean word",
            tokens,
            values,
        )
        demo.say()
        demo.claim(
            "without 'France' it would not be Paris: the ablation's largest loss",
            tokens[values[2].argmax()] == "France",
        )
        demo.say(
            f"  correlation with the ablation: gradient × difference {correlation(values[0], values[2]):+.2f}, "
            f"mean along the way {correlation(values[1], values[2]):+.2f}"
        )


if __name__ == "__main__":
    _demo.run(main, __doc__)
