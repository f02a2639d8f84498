"""What each trick of tinyattn/efficient/tiles.py buys: the time without it over the time with it.

A trick is switched off by writing its lines the plain way. Forward + backward of one head, float32, d = 64. All forms
run in turn, so that a slow moment of the machine slows all of them; a ratio is the median over the rounds.

    python benchmarks/tricks.py
"""

from __future__ import annotations

import inspect
import types

import _timing
import numpy as np

import tinyattn as ta
from tinyattn.efficient import tiles

# Trick: [(line of tiles.py, the same the plain way), …]
TRICKS = {
    "no maximum where the norms bound e^s": [("if safe:", "safe = False\n        if safe:")],
    "row sums as a product": [("t += P @ ones[: P.shape[1]]", "t += P.sum(-1, keepdims=True)")],
    "g is divided by total, not P": [
        ("G = np.divide(g[head][rows], total[head][rows], out=G1[:, :-1])", "G = G1[:, :-1]; G[:] = g[head][rows]"),
        ("dV[head][cols] += P.T", "P /= total[head][rows][part]\n            dV[head][cols] += P.T"),
    ],
    "D subtracted by one more column": [
        (
            "dS = np.matmul(g1, v.T, out=spare[: P.size].reshape(P.shape))",
            "dS = np.matmul(g1[:, :-1], V[head][cols].T, out=spare[: P.size].reshape(P.shape)); dS += g1[:, -1:]",
        )
    ],
    "all tiles in one array": [
        ("q.dtype) if fresh else room", "q.dtype) if True else room"),
        (", out=spare[: P.size].reshape(P.shape)", ""),
    ],
    "the first tiles are kept": [("2 * tile if all_scores", "0 if all_scores")],
    "narrow tiles along the diagonal": [("range(0, r, plan.edge)", "range(0, r, r)"), ("i + plan.edge, r", "r, r")],
    "the diagonal's mask is cached": [("functools.cache(within)", "within")],
}


def main() -> None:
    options = _timing.options(__doc__)
    options.add_argument("--lengths", type=int, nargs="+", default=[512, 2048])
    args = options.parse_args()
    cases = [(n, causal) for n in ([300] if args.small else args.lengths) for causal in (False, True)]
    columns = [measure(n, causal, 1 if args.small else args.rounds, args.seed) for n, causal in cases]
    print(_timing.machine(), "\n")
    header = ["time without / with", *(f"n = {n:,}{', causal' * causal}" for n, causal in cases)]
    _timing.table(header, [[name, *(column[name] for column in columns)] for name in TRICKS])


def measure(n: int, causal: bool, rounds: int, seed: int) -> dict[str, str]:
    rng = np.random.default_rng(seed)
    *qkv, g = (ta.Tensor(rng.normal(size=(n, 64)).astype(np.float32), requires_grad=True) for _ in range(4))
    forms = {"with": tiles.__dict__} | {name: without(edits) for name, edits in TRICKS.items()}
    expected = ta.grad(ta.efficient.flash_attention(*qkv, causal=causal), qkv, g)
    functions = {}
    for name, form in forms.items():
        side = min(512, n)
        plan = form["Plan"](
            (side, side), (0 if causal else -ta.efficient.FAR, ta.efficient.FAR), edge=side // 4, scale=1 / 8
        )
        functions[name] = lambda form=form, plan=plan: ta.grad(form["tiled"](*qkv, plan=plan), qkv, g)
        for a, e in zip(functions[name](), expected):
            np.testing.assert_allclose(a.numpy(), e.numpy(), atol=1e-4)
    seconds = _timing.interleaved(functions, rounds)
    return {name: f"{_timing.ratio(seconds[name], seconds['with']):.2f}" for name in TRICKS}


def without(edits: list[tuple[str, str]]) -> dict[str, object]:
    """tiles.py with these lines written the plain way, as a namespace."""
    source = inspect.getsource(tiles)
    for old, new in edits:
        if source.count(old) != 1:
            raise SystemExit(f"tiles.py has {source.count(old)} times {old!r}: one was expected")
        source = source.replace(old, new)
    module = types.ModuleType("tinyattn.efficient.plainer")
    exec(source, module.__dict__)
    return module.__dict__


if __name__ == "__main__":
    main()
