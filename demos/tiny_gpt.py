"""A GPT, small and complete: two minutes on one core, and it writes almost English, a character at a time.

Two blocks of four heads read 64 characters of Jane Austen and learn to guess the next. They never see the last tenth
of the text: there the loss is measured, in nats a character (a loss of ℓ is the doubt between e^ℓ characters that are
equally likely). What there is to see:

- the loss falls far below what frequencies of letters, and of pairs of letters, can reach;
- most of that comes from the last eight characters: a model so small, trained so shortly, knows words, not plots;
- text is written with a KV cache: each step computes one position, and the logits are those of the full pass;
- saved and loaded again, the model writes the same text, and further training gives the same numbers, bit by bit;
- Ctrl-C ends the training, and keeps what was learned. --load out/tiny_gpt_seed0.npz continues from there, and ends
  with exactly the numbers of a run that was never stopped.

Time is this process's CPU time, so other work on the machine does not count. One model proves little, so three are
trained, from --seed on; --seeds 1 trains one. Measured: seeds 0, 1, 2 end at 1.41, 1.38, 1.40 nats.
--prompt "She was " chooses the beginning of the written text.
"""

import contextlib
import ctypes
import signal
import time
from pathlib import Path

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import nn

TEXT = Path(__file__).parent / "data" / "pride_and_prejudice.txt"
GOAL = 1.45
PROMPT = "It is a truth universally acknowledged, that "


def keep_memory():
    """Let the C library keep freed memory: to ask the system for it in each step costs a third of the time.

    For glibc; elsewhere nothing happens. (M_TRIM_THRESHOLD = -1 and M_MMAP_THRESHOLD = -3 in malloc.h.)
    """
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 1 << 30)
        libc.mallopt(-3, 1 << 25)
    except (OSError, TypeError, AttributeError):
        pass


@contextlib.contextmanager
def ctrl_c_noted():
    """Inside, Ctrl-C only appends to the list that this gives, so that no step stays half done. A second one ends."""
    noted = []

    def note(*_):
        noted.append(True)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


# --- the text -----------------------------------------------------------------------------------------


class Text:
    """Characters as numbers; the last tenth is held out."""

    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        self.alphabet = sorted(set(text))
        ids = self.encode(text)
        self.train, self.held_out = np.split(ids, [len(ids) * 9 // 10])

    def encode(self, text):
        index = {c: i for i, c in enumerate(self.alphabet)}
        return np.array([index[c] for c in text])

    def decode(self, ids):
        return "".join(self.alphabet[i] for i in ids)

    def batch(self, rng, size, context):
        """Pieces of the text (B, context), and the next characters: the same pieces, one place further."""
        starts = rng.integers(0, len(self.train) - context, size)
        pieces = self.train[starts[:, None] + np.arange(context + 1)]
        return pieces[:, :-1], pieces[:, 1:]


def counted(text):
    """The loss on the held-out text, in nats a character, of two models that count: single letters, and pairs."""
    n = len(text.alphabet)
    letters = np.bincount(text.train, minlength=n) + 1.0
    pairs = np.ones((n, n)) * 0.1
    np.add.at(pairs, (text.train[:-1], text.train[1:]), 1)
    before, after = text.held_out[:-1], text.held_out[1:]
    return {
        "nothing: all characters equally likely": np.log(n),
        "how frequent each character is": -np.log(letters / letters.sum())[after].mean(),
        "which character follows which": -np.log(pairs / pairs.sum(axis=1, keepdims=True))[before, after].mean(),
    }


# --- the model ----------------------------------------------------------------------------------------


class Run:
    """A model and its training: all that is needed to go on with it."""

    def __init__(self, text, seed, steps, width, layers, context, batch, lr):
        self.text, self.seed, self.steps, self.context, self.batch, self.lr = text, seed, steps, context, batch, lr
        rng = np.random.default_rng(seed)

        def block():  # rotary positions: how far away matters, not where in the window
            attention = nn.MultiHeadAttention(width, 4, rotary=10000.0, rng=rng)
            return nn.TransformerBlock(width, 4, attention=attention, rng=rng)

        self.model = nn.GPT(len(text.alphabet), context, width, 4, layers, positions=False, block=block, rng=rng)
        self.model.astype(np.float32)
        self.optimizer = ta.optim.Adam(self.model.parameters(), lr, betas=(0.9, 0.99))
        self.step, self.seconds = 0, 0.0
        self.curve = []  # (step, loss in training, loss on held-out text)

    def train_step(self):
        """One step; its batch depends on the seed and the number of the step alone. Returns the loss."""
        ids, following = self.text.batch(np.random.default_rng([self.seed, self.step]), self.batch, self.context)
        loss = ta.cross_entropy(self.model(ids), following)
        self.optimizer.zero_grad()
        loss.backward()
        ta.optim.clip_grad_norm(self.optimizer.params, 1.0)
        self.optimizer.lr = self.lr * ta.optim.warmup_cosine(self.step, self.steps, warmup=30)
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def train(self, demo, looks=10):
        """The steps that are left, with looks at the held-out text. Returns False if Ctrl-C ended it early."""
        every, losses = max(1, self.steps // looks), []
        with ctrl_c_noted() as stop:
            for _ in demo.track(range(self.step, self.steps), "learning to write (Ctrl-C keeps what is learned)"):
                start = time.process_time()
                losses.append(self.train_step())
                self.seconds += time.process_time() - start
                if self.step % every == 0:
                    self.curve.append((self.step, np.mean(losses), self.held_out().mean()))
                    losses.clear()
                    demo.say(
                        f"step {self.step:5,}  {self.seconds:4.0f} s  training {self.curve[-1][1]:.3f}  "
                        f"held-out {self.curve[-1][2]:.3f}"
                    )
                if stop:
                    break
        return self.step == self.steps

    @ta.no_grad()
    def held_out(self):
        """Loss at each position of a window, (context,): of a character guessed from 1, 2, … context before it.

        The windows stand side by side: every character of the held-out text is guessed once.
        """
        count = (len(self.text.held_out) - 1) // self.context
        ids, following = (self.text.held_out[i : i + count * self.context].reshape(count, -1) for i in (0, 1))
        losses = []
        for piece, right in zip(np.array_split(ids, count // 64 + 1), np.array_split(following, count // 64 + 1)):
            log_p = ta.log_softmax(self.model(piece)).numpy()  # (B, context, characters)
            losses.append(-np.take_along_axis(log_p, right[..., None], -1)[..., 0])
        return np.concatenate(losses).mean(axis=0)

    def save(self, path):
        """The model, and the optimiser's running means: without them the next steps would differ."""
        optimizer = {f"optimizer.{name}": array for name, array in self.optimizer.state_dict().items()}
        ta.save(self.model.state_dict() | optimizer, path)

    def load(self, path):
        state = ta.load(path)
        names = [name for name in state if name.startswith("optimizer.")]
        steps = state["optimizer.steps"]
        self.optimizer.load_state_dict({name.removeprefix("optimizer."): state.pop(name) for name in names})
        self.model.load_state_dict(state)
        self.step = int(np.max(steps))


# --- what it can do -----------------------------------------------------------------------------------


def write(run, prompt, length, seed=0):
    ids = run.model.generate(run.text.encode(prompt)[None], length, temperature=0.6, rng=seed)
    return run.text.decode(ids[0])


def check_cache(demo, run):
    """The logits of a text read a character at a time, with a cache, beside those of the full pass; and the time."""
    ids = run.text.held_out[None, : run.context]
    with ta.no_grad():
        start = time.process_time()
        full = [run.model(ids[:, : i + 1]).numpy()[:, -1] for i in range(run.context)]
        middle, cache = time.process_time(), nn.KVCache()
        cached = [run.model(ids[:, i : i + 1], cache=cache).numpy()[:, 0] for i in range(run.context)]
        end = time.process_time()
    difference = np.abs(np.array(full) - np.array(cached)).max()
    slow, fast = (1000 * seconds / run.context for seconds in (middle - start, end - middle))
    demo.claim(
        f"with the KV cache the logits are those of the full pass (largest difference {difference:.0e}), in "
        f"{fast:.1f} ms a character instead of {slow:.1f}",
        difference < 1e-4,
    )


def check_files(demo, run, make):
    """Save, load into a new model, and compare: what both write, and what both learn."""
    demo.out.mkdir(parents=True, exist_ok=True)
    path = demo.out / f"{demo.name}_seed{run.seed}.npz"
    run.save(path)
    other = make(run.seed)
    other.load(path)
    same_text = write(run, PROMPT, 200) == write(other, PROMPT, 200)
    for each in (run, other):
        for _ in range(3):
            each.train_step()
    learned = zip(run.model.state_dict().values(), other.model.state_dict().values())
    demo.claim("saved and loaded: the same 200 characters are written", same_text)
    demo.claim(
        "and after three more steps of training, all parameters are the same to the last bit",
        all(np.array_equal(a, b) for a, b in learned),
    )
    demo.say(f"the model is kept in {path}")


def plot_losses(figure, runs, baselines):
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for run in runs:
        steps, training, held_out = zip(*run.curve)
        first = run is runs[0]
        left.plot(steps, training, color=_demo.SKY, label="training text" if first else None)
        left.plot(steps, held_out, "o-", ms=4, color=_demo.BLUE, label="held-out text" if first else None)
        edges = [2**i for i in range(run.context.bit_length())]  # 1, 2, 3-4, 5-8, …: the mean of each
        means = [run.by_position[edge // 2 : edge].mean() for edge in edges]
        right.plot(range(len(edges)), means, "o-", ms=4, color=_demo.BLUE)
    for name, loss in list(baselines.items())[1:]:
        left.axhline(loss, color=_demo.GREY, ls=":", lw=1)
        paper = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5}  # curves may pass behind it
        left.text(runs[0].curve[-1][0], loss, name, color=_demo.GREY, ha="right", va="bottom", fontsize=8, bbox=paper)
    left.axhline(GOAL, color=_demo.ORANGE, ls="--", lw=1)
    left.text(0, GOAL, f" {GOAL}", color=_demo.ORANGE, va="bottom", fontsize=8)
    gain = np.mean([run.by_position[0] - run.by_position[len(run.by_position) // 2 :].mean() for run in runs])
    left.set(
        title=f"It learns to write: {runs[0].by_position.mean():.2f} nats in the end",
        xlabel="step",
        ylabel="nats a character",
        xlim=(0, None),
    )
    left.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    right.set(
        title=f"Looking back gains it {gain:.2f} nats",
        xlabel="characters it may look back at",
        ylabel="nats a character, held-out",
    )
    right.set_xticks(range(len(edges)), ["1", "2", *(f"{n // 2 + 1}-{n}" for n in edges[2:])])


def main(demo):
    keep_memory()
    text = Text(TEXT)
    if unknown := set(demo.prompt) - set(text.alphabet):
        raise SystemExit(f"--prompt has {unknown}, but the text has only {''.join(text.alphabet)!r}")
    baselines = counted(text)
    size = {"steps": 1600, "width": 96, "layers": 2, "context": 64, "batch": 16, "lr": 4e-3}
    if demo.quick:
        size |= {"steps": 120, "width": 64, "layers": 1, "context": 32, "lr": 1e-2}

    def make(seed):
        return Run(text, seed, **size)

    demo.heading("Training")
    demo.say(
        f"{len(text.train):,} characters to learn from, {len(text.held_out):,} held out, "
        f"{len(text.alphabet)} different ones"
    )
    runs, finished = [], True
    for seed in range(demo.seed, demo.seed + (1 if demo.load else demo.seeds)):
        run = make(seed)
        if demo.load:
            run.load(demo.load)
        if not runs:
            demo.say(f"{sum(p.size for p in run.model.parameters()):,} parameters; seed {seed}")
        runs.append(run)
        finished = run.train(demo, 4 if demo.quick else 10)
        run.by_position = run.held_out()
        if not finished:
            demo.say(f"\nstopped after {run.step:,} of {run.steps:,} steps; what was learned is kept")
            break

    rows = [(name, f"{loss:.3f}", f"{np.exp(loss):.1f}", "") for name, loss in baselines.items()]
    for run in runs:
        loss = run.by_position.mean()
        name = f"the model, seed {run.seed}, {run.step:,} steps"
        rows.append((name, f"{loss:.3f}", f"{np.exp(loss):.1f}", f"{run.seconds:.0f} s"))
    demo.table(
        "What is known of the next character, on pages never seen", ["by", "nats", "like a choice of", "CPU time"], rows
    )
    demo.say()
    worst, slowest = max(run.by_position.mean() for run in runs), max(run.seconds for run in runs)
    pairs = list(baselines.values())[-1]
    if finished and not demo.quick and not demo.load:
        demo.claim(f"at most {GOAL} nats a character on held-out text: {worst:.3f}", worst <= GOAL)
        demo.claim(f"in two minutes of one core: {slowest:.0f} s", slowest <= 120)
    if finished:
        demo.claim(f"better than pairs of letters ({pairs:.2f}), for every seed", worst < pairs)
        by_position = np.mean([run.by_position for run in runs], axis=0)
        near, far = by_position[0], by_position[8:].mean()
        demo.claim(
            f"it is the look back that helps: {near:.2f} with one character to see, {far:.2f} with over eight",
            far < near - 0.1,
        )
    check_cache(demo, runs[0])
    demo.heading("What it writes" + " (after so short a training: nearly nothing)" * demo.quick)
    demo.say(write(runs[0], demo.prompt, 100 if demo.quick else 600))
    demo.heading("Save and load")
    check_files(demo, runs[0], make)
    demo.measured(
        "{losses} nats a character on held-out text ({seeds} seeds), {parameters:,} parameters, {seconds:.0f} s of one "
        "core at most; pairs of letters reach {pairs:.2f}. Saved, reloaded and interrupted, it goes on bit by bit",
        losses=", ".join(f"{run.by_position.mean():.3f}" for run in runs),
        seeds=len(runs),
        parameters=sum(p.size for p in runs[0].model.parameters()),
        seconds=slowest,
        pairs=pairs,
    )
    if runs[0].curve:
        demo.plot("losses", plot_losses, [run for run in runs if run.curve], baselines, size=(10, 4))


if __name__ == "__main__":
    _demo.run(main, __doc__, seeds=3, load="", prompt=PROMPT)
