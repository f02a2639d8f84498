"""flash_attention against PyTorch's fused attention, NumPy by hand and plain attention: float32, d = 64.

Forward + backward of one head, a random upstream gradient, gradients of Q, K and V. Ratios below 1 mean that
flash_attention is faster.

    python benchmarks/flash.py
"""

from __future__ import annotations

import statistics

import _timing
import _written_out
import numpy as np

import tinyattn as ta

OTHERS = ["PyTorch", "by hand", "plain", "one op"]
options = _timing.options(__doc__)
options.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
options.add_argument("--block-size", type=int, default=512)
options.add_argument("--no-plain", action="store_true", help="leave out what stores scores: 2 GB at n = 8,192")


def main() -> None:
    args = options.parse_args()
    lengths, rounds = ([48, 100], 1) if args.small else (args.lengths, args.rounds)
    torch = _timing.torch_or_none()
    print(_timing.machine(), f"; PyTorch {torch.__version__}" if torch else "", "\n", sep="")
    rng, rows = np.random.default_rng(args.seed), []
    for n in lengths:
        for causal in (False, True):
            rows.append(measure(n, causal, args, max(5, rounds * 2048 // max(n, 2048)), rng, torch))
    header = ["forward + backward", "flash", *("/ " + other for other in OTHERS), "forward / PyTorch", "error"]
    _timing.table(header, rows)
    print(
        "/ PyTorch: against its fused attention; / by hand: NumPy, derivatives written out; / plain:\n"
        "scaled_dot_product_attention; / one op: fused_attention; forward / PyTorch: without the way back;\n"
        "error: largest difference from plain attention"
    )


def measure(n: int, causal: bool, args, rounds: int, rng: np.random.Generator, torch) -> list[str]:
    arrays = [rng.normal(size=(n, 64)).astype(np.float32) for _ in range(4)]
    *qkv, g = (ta.Tensor(x, requires_grad=True) for x in arrays)
    mask = ta.causal_mask(n) if causal else None

    def flash():
        return ta.efficient.flash_attention(*qkv, causal=causal, block_size=args.block_size)

    def plain():
        return ta.scaled_dot_product_attention(*qkv, mask)

    functions = {"flash": lambda: ta.grad(flash(), qkv, g), "flash forward": ta.no_grad()(flash)}
    if not args.no_plain:
        blocked = ~mask if causal else None
        functions["by hand"] = lambda: _written_out.attention(*arrays, blocked)
        functions["plain"] = lambda: ta.grad(plain(), qkv, g)
        functions["one op"] = lambda: ta.grad(ta.fused_attention(*qkv, mask), qkv, g)
    if torch:
        *theirs, their_g = (torch.tensor(x)[None, None].requires_grad_() for x in arrays)

        def fused():
            return torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=causal)

        functions["PyTorch"] = lambda: torch.autograd.grad(fused(), theirs, their_g)
        functions["PyTorch forward"] = torch.no_grad()(fused)
    seconds = _timing.interleaved(functions, rounds)

    def ratio(a: str, b: str) -> str:
        return f"{_timing.ratio(seconds[a], seconds[b]):.2f}" if a in seconds and b in seconds else "-"

    difference = "-" if args.no_plain else f"{np.abs(flash().numpy() - plain().numpy()).max():.0e}"
    pairs = [*(("flash", other) for other in OTHERS), ("flash forward", "PyTorch forward")]
    time = _timing.duration(statistics.median(seconds["flash"]))
    return [f"n = {n:,}{', causal' if causal else ''}", time, *(ratio(a, b) for a, b in pairs), difference]


if __name__ == "__main__":
    main()
