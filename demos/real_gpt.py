"""A real language model in these layers: it writes, token by token, and shows its attention sink and induction heads.

SmolLM2-135M is a Llama: 30 layers with 9 heads that share 3 heads of keys and values, rotary positions, SwiGLU. It is
nn.GPT with these parts, filled from its GGUF file (`python -m tinyattn fetch smollm2`). Without the file, a small model
with random weights still shows what a KV cache saves.

The KV cache: a new token does not change the keys and values of earlier ones, so it costs one position instead of all
of them. The induction heads (Olsson et al. 2022): at a token that was there before, they look at what came after it
then. On random tokens, repeated once, that alone makes the second copy predictable.
"""

import time

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import pretrained

PROMPT = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
TEXT = "<|im_start|>The sun had set behind the hills when the old fisherman tied his boat to the pier and walked home."


def get_model(demo):
    try:
        return (*pretrained.load("smollm2"), True)
    except (FileNotFoundError, ImportError) as error:
        demo.say(f"{error}.\nSo a small model with random weights shows what the cache saves, and no more.")
        demo.notes.append("random weights")
        model = ta.nn.GPT(1000, 512, 192, 6, 6, norm=ta.nn.RMSNorm, rng=demo.seed)
        return model.astype(np.float32).eval(), None, False


@ta.no_grad()
def continue_text(model, ids, count, cache):
    """The likeliest next tokens, and the seconds of processor time that each took."""
    ids, tokens, seconds = list(ids), [], []
    piece = ids
    for _ in range(count):
        start = time.process_time()
        token = int(model([piece], cache=cache).numpy()[0, -1].argmax())
        seconds.append(time.process_time() - start)
        tokens.append(token)
        ids.append(token)
        piece = ids if cache is None else [token]
    return tokens, np.array(seconds)


def losses(logits, ids):
    """-log p of each token after the first, in nats."""
    logits = logits[:-1].astype(float)
    top = logits.max(-1)
    return top + np.log(np.exp(logits - top[:, None]).sum(-1)) - logits[np.arange(len(ids) - 1), ids[1:]]


def plot_costs(figure, with_cache, without):
    axes = figure.subplots()
    axes.plot(without[0], without[1] * 1e3, "o-", color=_demo.ORANGE, label="all read again")
    axes.plot(with_cache[0], with_cache[1] * 1e3, "o-", color=_demo.BLUE, label="with the KV cache")
    saved = without[1][-1] / with_cache[1][-1]
    axes.set(
        title=f"What one more token costs: {saved:.1f} times less with the cache",
        xlabel="tokens before it",
        ylabel="milliseconds",
        ylim=(0, None),
    )
    axes.legend()


def plot_sink(figure, share, first):
    axes = figure.subplots()
    axes.bar(range(len(share)), share, color=_demo.BLUE)
    axes.set(
        title=f"The attention sink: what {first} gets",
        xlabel="layer",
        ylabel="mean weight on the first token",
        ylim=(0, 1),
    )
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)


def plot_induction(figure, loss, n, score):
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    left.plot(np.arange(1, len(loss) + 1), loss, color=_demo.BLUE, lw=1)
    left.axvline(n + 1, color=_demo.GREY, ls=":")
    left.text(n + 1.5, loss.max(), "the second copy begins", va="top", color=_demo.GREY)
    left.set(
        title=f"Random tokens, repeated: {loss[:n].mean():.1f} → {loss[n + 1 :].mean():.1f} nats",
        xlabel="position",
        ylabel="loss (nats)",
        ylim=(0, None),
    )
    image = right.imshow(score, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    right.grid(False)
    right.set(title=f"Weight on what came next: {(score > 0.4).sum()} heads above .4", xlabel="head", ylabel="layer")
    figure.colorbar(image, ax=right, label="mean over the second copy")


def show_writing(demo, model, tokenizer):
    demo.heading("It writes")
    ids = tokenizer.encode(PROMPT).ids
    demo.say(PROMPT.replace("<|im_start|>", "").replace("<|im_end|>", ""))
    count = 16 if demo.quick else 60
    start, written, shown, column = time.perf_counter(), [], "", 0
    for token in model.stream([ids], count, temperature=0):
        written.append(int(token[0]))
        text = tokenizer.decode(written)
        piece = text[len(shown) :]
        column += len(piece)
        if column > 72 and piece.startswith(" "):
            piece, column = "\n" + piece[1:], len(piece)
        print(piece, end="", flush=True)
        shown = text
    demo.say(f"\n({count / (time.perf_counter() - start):.1f} tokens a second, the reading of {len(ids)} included)")
    demo.claim("it speaks of light in the atmosphere", "light" in shown and "atmosphere" in shown)


def show_cost(demo, model, ids):
    demo.heading("What the KV cache saves")
    count = 9 if demo.quick else 96
    cached, seconds = continue_text(model, ids, count, ta.nn.KVCache())
    again, seconds_again = continue_text(model, ids, count, None)
    before = len(ids) + np.arange(count)
    steps = np.linspace(1, count - 1, 4).astype(int)  # not the first, which reads the whole prompt either way
    groups = np.array_split(np.arange(1, count), min(count - 1, 12))
    rows = [(before[k], f"{seconds[k] * 1e3:.1f} ms", f"{seconds_again[k] * 1e3:.1f} ms") for k in steps]
    demo.table("the next token after n", ["n", "with the cache", "all read again"], rows)
    demo.say()
    demo.claim(f"both ways write the same {count} tokens", cached == again)
    saved = np.median(seconds_again[count // 2 :]) / np.median(seconds[count // 2 :])
    positions = np.median(before[count // 2 :])
    least = 1.5 if demo.quick else 3
    demo.claim(
        f"with the cache a token costs one position instead of {positions:.0f}, and {saved:.1f} times less time (a "
        f"product with {positions:.0f} rows is cheaper than {positions:.0f} with one)",
        least < saved < positions,
    )
    centers = [before[g].mean() for g in groups]
    demo.plot(
        "cache",
        plot_costs,
        *((centers, np.array([np.median(s[g]) for g in groups])) for s in (seconds, seconds_again)),
        size=(7, 4),
    )
    return {"saved": saved, "positions": positions}


def show_sink(demo, model, tokenizer):
    demo.heading("The attention sink")
    text = tokenizer.encode(TEXT)
    with ta.no_grad():
        logits, maps = model([text.ids], return_weights=True)
    maps = np.concatenate([m.numpy() for m in maps])  # (layers, heads, T, T)
    rows = slice(len(text.ids) // 2, None)  # tokens that could look at many others
    share = maps[:, :, rows, 0].mean((1, 2))
    even = np.mean(1 / np.arange(1, len(text.ids) + 1)[rows])
    demo.say(
        f"  {TEXT}\n  weight of the first token, for the second half's, mean of all layers and heads: "
        f"{share.mean():.2f}; even attention would give {even:.2f}"
    )
    many = np.sum(share > 0.5)
    demo.claim(
        f"in {many} of {len(share)} layers the first token, which says nothing, gets more than half",
        many > len(share) / 3,
    )
    demo.plot("sink", plot_sink, share, text.tokens[0], size=(7, 3.5))
    return losses(logits.numpy()[0], np.array(text.ids)).mean()


def show_induction(demo, model, tokenizer, usual):
    demo.heading("Induction heads")
    n = 20 if demo.quick else 50
    rng = np.random.default_rng(demo.seed)
    random = rng.integers(1000, len(model.embedding.weight), (5, n))  # one text alone may be hard
    ids = np.concatenate([np.full((5, 1), tokenizer.token_to_id("<|im_start|>")), random, random], axis=1)
    with ta.no_grad():
        logits, maps = model(ids, return_weights=True)
    loss = np.mean([losses(*text) for text in zip(logits.numpy(), ids)], axis=0)
    first, second = loss[:n].mean(), loss[n + 1 :].mean()  # the second copy's first token cannot be predicted
    maps = np.stack([m.numpy().mean(0) for m in maps])  # (layers, heads, T, T)
    queries = np.arange(n + 1, 2 * n)  # the second copy, and for each token what came after it in the first
    score = maps[:, :, queries, queries - n + 1].mean(-1)
    best = np.argsort(-score.ravel())[:5]
    demo.table(
        f"{n} random tokens, twice, 5 such texts: heads that look at what came after the token before",
        ["head", "weight there"],
        [("layer {}, head {}".format(*divmod(k, score.shape[1])), f"{score.ravel()[k]:.2f}") for k in best],
    )
    demo.say(
        f"\n  loss: {first:.1f} nats a token in the first copy, {second:.1f} in the second"
        f" (the sentence above: {usual:.1f})"
    )
    demo.claim("the second copy of a random text is predictable", second < first / 2)
    demo.claim(f"{np.sum(score > 0.4)} of {score.size} heads give more than .4 to what came next", score.max() > 0.4)
    demo.plot("induction", plot_induction, loss, n, score, size=(10, 4.5))
    return {"first": first, "second": second, "heads": np.sum(score > 0.4), "all": score.size}


def main(demo):
    start = time.perf_counter()
    model, tokenizer, trained = get_model(demo)
    demo.say(f"{sum(p.size for p in model.parameters()):,} parameters, {time.perf_counter() - start:.1f} s to get")
    if trained:
        show_writing(demo, model, tokenizer)
    figures = show_cost(demo, model, tokenizer.encode(TEXT).ids if trained else np.arange(24))
    text = "near {positions:.0f} tokens the cache makes a token {saved:.1f} times cheaper"
    if trained:
        usual = show_sink(demo, model, tokenizer)
        figures |= show_induction(demo, model, tokenizer, usual)
        text = (
            "random tokens repeated: loss falls from {first:.1f} to {second:.1f} nats; {heads} of {all} heads are "
            "induction heads; " + text
        )
    demo.measured(text, **figures)


if __name__ == "__main__":
    _demo.run(main, __doc__)
