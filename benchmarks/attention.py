"""One attention, forward + backward, against the same mathematics written by hand in NumPy and against PyTorch eager.

Shapes are (batch, heads, n, d). Steps: scaled_dot_product_attention, an op for each step; one op: fused_attention.
Ratios below 1 mean that tinyattn is faster. And: what does `import tinyattn` cost, against `import numpy`?

    python benchmarks/attention.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import _timing
import _written_out
import numpy as np

import tinyattn as ta

options = _timing.options(__doc__)


def measure(shape, dtype, rounds, rng, torch):
    arrays = [rng.normal(size=shape).astype(dtype) for _ in range(4)]
    *qkv, g = (ta.Tensor(x, requires_grad=True) for x in arrays)

    def steps():
        out = ta.scaled_dot_product_attention(*qkv)
        return out, *ta.grad(out, qkv, g)

    def one_op():
        out = ta.fused_attention(*qkv)
        return out, *ta.grad(out, qkv, g)

    for mine, fused, theirs in zip(steps(), one_op(), _written_out.attention(*arrays)):
        for t in (mine, fused):
            np.testing.assert_allclose(t.numpy(), theirs, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)
    functions = {"steps": steps, "one op": one_op, "by hand": lambda: _written_out.attention(*arrays)}
    if torch:
        *tensors, their_g = (torch.tensor(x, requires_grad=True) for x in arrays)
        scale = shape[-1] ** -0.5

        def eager():
            q, k, v = tensors
            out = torch.softmax(q @ k.mT * scale, -1) @ v
            return torch.autograd.grad(out, tensors, their_g)

        functions["PyTorch"] = eager
    seconds = _timing.interleaved(functions, rounds)
    return [
        f"{shape} {np.dtype(dtype)}",
        *(_timing.duration(statistics.median(s)) for s in seconds.values()),
        *(
            f"{_timing.ratio(seconds['steps'], s):.2f} {_timing.ratio(seconds['one op'], s):.2f}"
            for s in list(seconds.values())[2:]
        ),
    ]


def import_seconds(statement: str) -> float:
    compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # as NumPy's files are
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, env=compiled)
    return time.perf_counter() - start


def imports(rounds):
    """(numpy, tinyattn): seconds to start Python and import it, less the seconds to start Python."""
    runs = [[import_seconds(s) for s in ("pass", "import numpy", "import tinyattn")] for _ in range(rounds + 1)][1:]
    start, numpy, tinyattn = (min(column) for column in zip(*runs))  # the least disturbed run of each
    return numpy - start, tinyattn - start


def main() -> None:
    args = options.parse_args()
    rounds = 1 if args.small else args.rounds
    torch = _timing.torch_or_none()
    print(_timing.machine(), f"; PyTorch {torch.__version__}" if torch else "", "\n", sep="")
    rng = np.random.default_rng(args.seed)
    shapes = [(1, 1, 8, 16), (1, 2, 32, 8)] if args.small else [(1, 1, 8, 16), (1, 8, 64, 64), (1, 8, 512, 64)]
    rows = [measure(s, d, rounds, rng, torch) for s in shapes for d in (np.float32, np.float64)]
    others = ["by hand", "PyTorch"] if torch else ["by hand"]
    header = ["forward + backward", "steps", "one op", *others, *(f"both / {o}" for o in others)]
    _timing.table(header, rows)
    numpy, tinyattn = imports(rounds)
    print(
        f"import numpy {_timing.duration(numpy)}, import tinyattn {_timing.duration(tinyattn)}: "
        f"ratio {tinyattn / numpy:.2f}"
    )


if __name__ == "__main__":
    main()
