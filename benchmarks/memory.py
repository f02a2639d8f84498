"""Peak extra memory of one attention, forward + backward, float32, d = 64, one head.

Extra: beyond Q, K, V and the upstream gradient, which exist before; results and gradients count. Measured by
tracemalloc, to which NumPy reports its arrays; for PyTorch, what its profiler says of its allocator.

    python benchmarks/memory.py
"""

from __future__ import annotations

import _timing
import _written_out
import numpy as np

import tinyattn as ta
from tinyattn import efficient

options = _timing.options(__doc__)
options.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])


def forms(n: int):
    blocks = efficient.bigbird_blocks(-(-n // 64), np.random.default_rng(0))
    return {
        "plain": ta.scaled_dot_product_attention,
        "flash": efficient.flash_attention,
        "window 256": lambda *x: efficient.sliding_window_attention(*x, 256),
        "BigBird 64": lambda *x: efficient.block_sparse_attention(*x, blocks, 64),
        "linear": efficient.linear_attention,
        "linear causal": lambda *x: efficient.linear_attention(*x, causal=True),
    }


def measure(n: int, rng: np.random.Generator, torch) -> tuple[list[str], dict[str, int]]:
    arrays = [rng.normal(size=(n, 64)).astype(np.float32) for _ in range(4)]
    *qkv, g = (ta.Tensor(x, requires_grad=True) for x in arrays)
    scores = n * n * 4
    peaks = {"by hand": _timing.peak_memory(lambda: _written_out.attention(*arrays))}
    for name, form in forms(n).items():
        peaks[name] = _timing.peak_memory(lambda: ta.grad(form(*qkv), qkv, g))  # noqa: B023
    if torch:
        peaks["PyTorch fused"] = torch_peak(torch, arrays)
    return [f"n = {n:,}", megabytes(scores), *(f"{megabytes(p)} ({p / scores:.1%})" for p in peaks.values())], peaks


def torch_peak(torch, arrays) -> int:
    """The most bytes that PyTorch's allocator had given out at one time, beyond those before."""
    q, k, v, g = (torch.tensor(x)[None, None].requires_grad_() for x in arrays)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(q, k, v), (q, k, v), g)
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    return int(np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]).max())


def megabytes(size: float) -> str:
    return f"{size / 2**20:,.1f} MB"


def main() -> None:
    args = options.parse_args()
    torch = _timing.torch_or_none()
    print(_timing.machine(), f"; PyTorch {torch.__version__}" if torch else "", "\n", sep="")
    rng = np.random.default_rng(args.seed)
    lengths = [64, 128] if args.small else args.lengths
    rows, peaks = zip(*(measure(n, rng, torch) for n in lengths))
    _timing.table(["peak", "one score matrix", *peaks[0]], rows)
    others = [name for name in ("by hand", "PyTorch fused") if name in peaks[-1]]
    ratios = [[name, *(f"{peaks[-1][name] / peaks[-1][other]:.3f}" for other in others)] for name in forms(64)]
    _timing.table([f"n = {lengths[-1]:,}", *(f"/ {other}" for other in others)], ratios)


if __name__ == "__main__":
    main()
