"""A training step of a GPT (forward, backward, AdamW), float32, beside the same model in PyTorch and in NumPy alone.

All start from the same weights and read the same batch; the losses of their first steps must agree. The PyTorch
model is written as usual there: one product for queries, keys and values, F.scaled_dot_product_attention,
torch.optim.AdamW. By hand means every derivative written out, without an engine. What keeps ours from being faster:
most of a large step are matrix products, where all call libraries of equal speed; of a small one, Python between the
ops; in between, PyTorch's attention never stores the scores, and its elementwise functions pass over memory once
where NumPy does for each operation.
"""

import cProfile
import math
import pstats
import statistics
import time

import _timing
import _written_out
import numpy as np

import tinyattn as ta

SIZES = [(1, 16, 32, 4, 2), (8, 32, 64, 4, 4), (16, 64, 64, 4, 4), (12, 64, 128, 4, 4), (8, 128, 256, 8, 4)]
VOCAB, LR = 65, 1e-3


def our_step(model, x, y):
    """A function that makes a training step and returns the loss."""
    optimizer = ta.optim.AdamW(model.parameters(), LR)

    def step():
        loss = ta.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_step(torch, model, x, y):
    """The same of the same model in PyTorch, from the same start."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, d_model, num_heads):
            super().__init__()
            self.num_heads = num_heads
            self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
            self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
            self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

        def forward(self, x):
            B, T, C = x.shape
            qkv = self.qkv(self.norm1(x)).split(C, dim=2)
            Q, K, V = (p.view(B, T, self.num_heads, -1).transpose(1, 2) for p in qkv)
            heads = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
            x = x + self.out(heads.transpose(1, 2).reshape(B, T, C))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self, vocab_size, context, d_model, num_heads, num_layers):
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, d_model)
            self.positions = nn.Parameter(torch.zeros(context, d_model))
            self.blocks = nn.ModuleList(Block(d_model, num_heads) for _ in range(num_layers))
            self.norm = nn.LayerNorm(d_model)
            self.head = nn.Linear(d_model, vocab_size, bias=False)

        def forward(self, ids):
            x = self.embedding(ids) + self.positions[: ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    heads = model.blocks[0].attention.num_heads
    theirs = GPT(VOCAB, *model.positions.weight.shape, heads, len(model.blocks))
    theirs.load_state_dict({name: torch.from_numpy(a) for name, a in renamed(model.state_dict()).items()})
    optimizer = torch.optim.AdamW(theirs.parameters(), LR)
    x, y = torch.from_numpy(x.copy()), torch.from_numpy(y.copy()).reshape(-1)

    def step():
        loss = F.cross_entropy(theirs(x).view(-1, VOCAB), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def renamed(state):
    """Our names as those of the model above, with queries, keys and values in one."""
    new = {"positions": state.pop("positions.weight")}
    for name, value in state.items():
        name = name.replace("attention.out_proj", "out").replace("feed_forward.", "")
        if "q_proj" in name:
            old = name.replace("q_proj", "{}_proj")
            new[name.replace("attention.q_proj", "qkv")] = np.concatenate([state[old.format(p)] for p in "qkv"])
        elif "_proj" not in name:
            new[name] = value
    return new


def profile(step, calls):
    with cProfile.Profile(time.process_time) as profiler:
        for _ in range(calls):
            step()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main():
    options = _timing.options(__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="which of the five")
    options.add_argument("--profile", action="store_true", help="show where our step spends its time, instead")
    args = options.parse_args()
    sizes, rounds = ([1], 1) if args.small else (args.sizes, args.rounds)
    torch = _timing.torch_or_none()
    print(_timing.machine(), f"; PyTorch {torch.__version__}" if torch else "", "\n", sep="")

    rows, ratios = [], []
    for size in [SIZES[i - 1] for i in sizes]:
        batch, context, *rest = size
        model = ta.nn.GPT(VOCAB, context, *rest, rng=args.seed).astype(np.float32)
        ids = np.random.default_rng(args.seed).integers(0, VOCAB, (batch, context + 1))
        x, y = ids[:, :-1], ids[:, 1:]
        steps = {
            "tinyattn": our_step(model, x, y),
            "by hand": _written_out.gpt_step(model.state_dict(), x, y, rest[1], LR),
        }
        if args.profile:
            profile(steps["tinyattn"], 20)
            continue
        if torch:
            steps["PyTorch"] = torch_step(torch, model, x, y)
        losses = np.array([[step() for step in steps.values()] for _ in range(5)])
        assert np.allclose(losses, losses[:, :1], rtol=1e-3), f"the models differ: {losses}"
        times = _timing.interleaved(steps, rounds)
        ratios.append([_timing.ratio(times["tinyattn"], t) for t in list(times.values())[1:]])
        rows.append(
            [
                *size,
                *(_timing.duration(statistics.median(t)) for t in times.values()),
                *(f"{r:.2f}" for r in ratios[-1]),
            ]
        )
    if rows:
        others = ["by hand", "PyTorch"][: len(ratios[0])]
        header = ["batch", "context", "width", "heads", "layers", "tinyattn", *others, *("/ " + o for o in others)]
        _timing.table(header, rows)
        for other, r in zip(others, zip(*ratios)):
            print(f"geometric mean of the ratios to {other}: {math.exp(statistics.mean(map(math.log, r))):.2f}")


if __name__ == "__main__":
    main()
