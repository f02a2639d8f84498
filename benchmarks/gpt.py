"""A training step of a GPT (forward, backward, AdamW), float32, beside the same model in PyTorch.

Both start from the same weights and read the same batch; the losses of their first steps must agree. The PyTorch
model is written as usual there: one product for queries, keys and values, F.scaled_dot_product_attention,
torch.optim.AdamW. What keeps ours from being faster: most of a large step are matrix products, where both call a
library of equal speed; of a small one, Python between the ops; in between, PyTorch's attention never stores the
scores, and its elementwise functions pass over memory once where NumPy does for each operation.
"""

import cProfile
import math
import pstats
import statistics
import time

import _timing
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tinyattn as ta

SIZES = [(1, 16, 32, 4, 2), (8, 32, 64, 4, 4), (16, 64, 64, 4, 4), (12, 64, 128, 4, 4), (8, 128, 256, 8, 4)]
VOCAB, LR = 65, 1e-3


class TorchBlock(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        Q, K, V = (p.view(B, T, self.num_heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(C, dim=2))
        heads = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class TorchGPT(nn.Module):
    def __init__(self, vocab_size, context, d_model, num_heads, num_layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Parameter(torch.zeros(context, d_model))
        self.blocks = nn.ModuleList(TorchBlock(d_model, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def to_torch(state):
    """Our names as those of TorchGPT, with queries, keys and values in one."""
    new = {"positions": state.pop("positions.weight")}
    for name, value in state.items():
        name = name.replace("attention.out_proj", "out").replace("feed_forward.", "")
        if "q_proj" in name:
            old = name.replace("q_proj", "{}_proj")
            new[name.replace("attention.q_proj", "qkv")] = np.concatenate([state[old.format(p)] for p in "qkv"])
        elif "_proj" not in name:
            new[name] = value
    return {name: torch.from_numpy(value) for name, value in new.items()}


def make_steps(size, seed):
    """Two functions, each a training step that returns the loss: ours and PyTorch's, from the same start."""
    batch, context, *rest = size
    model = ta.nn.GPT(VOCAB, context, *rest, rng=seed).astype(np.float32)
    theirs = TorchGPT(VOCAB, context, *rest)
    theirs.load_state_dict(to_torch(model.state_dict()))
    ids = np.random.default_rng(seed).integers(0, VOCAB, (batch, context + 1))
    x, y = ids[:, :-1], ids[:, 1:]
    tx, ty = torch.from_numpy(x.copy()), torch.from_numpy(y.copy()).reshape(-1)
    optimizer = ta.optim.AdamW(model.parameters(), LR)
    their_optimizer = torch.optim.AdamW(theirs.parameters(), LR)

    def our_step():
        loss = ta.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def their_step():
        loss = F.cross_entropy(theirs(tx).view(-1, VOCAB), ty)
        their_optimizer.zero_grad()
        loss.backward()
        their_optimizer.step()
        return loss.item()

    return our_step, their_step


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
    torch.set_num_threads(_timing.THREADS)
    print(f"{_timing.machine()}; PyTorch {torch.__version__}\n")

    rows, ratios = [], []
    for size in [SIZES[i - 1] for i in sizes]:
        ours, theirs = make_steps(size, args.seed)
        losses = [(ours(), theirs()) for _ in range(5)]
        assert np.allclose(*zip(*losses), rtol=1e-3), f"the models differ: {losses}"
        if args.profile:
            profile(ours, 20)
            continue
        times = _timing.interleaved({"ours": ours, "theirs": theirs}, rounds)
        ratios.append(_timing.ratio(times["ours"], times["theirs"]))
        durations = [_timing.duration(statistics.median(t)) for t in times.values()]
        rows.append((*size, *durations, f"{ratios[-1]:.2f}"))
    if rows:
        _timing.table(("batch", "context", "width", "heads", "layers", "tinyattn", "PyTorch", "ratio"), rows)
        print(f"geometric mean of the ratios: {math.exp(statistics.mean(map(math.log, ratios))):.2f}")


if __name__ == "__main__":
    main()
