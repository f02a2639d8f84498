"""Softmax attention of one row, piece by piece: it remembers only a maximum, a sum and an output.

A row of attention is softmax(s) V. The softmax needs the maximum of all scores and a sum over them, so it seems that
the whole row must be there before the first value can be weighted. Flash attention never has the whole row: it reads
pieces. When a larger score comes, it multiplies sum and output by e^(old maximum - new maximum).
"""

import inspect
import itertools
import math
import re

import _demo  # first: one BLAS thread
import numpy as np

import tinyattn as ta
from tinyattn.efficient import flash


def start():
    """(top, total, out) before anything was read."""
    return -math.inf, 0.0, 0.0


def add(state, s, v, rescale=True):
    """The recurrence: (top, total, out) after one more piece of scores s and values v."""
    old, total, out = state
    top = max(old, s.max())
    shrink = math.exp(old - top) if rescale else 1.0
    p = np.exp(s - top)
    return top, total * shrink + p.sum(), out * shrink + p @ v


def merge(a, b):
    """Two states, of different pieces, joined into one: so several processors can share a long row."""
    top = max(a[0], b[0])
    left, right = math.exp(a[0] - top), math.exp(b[0] - top)
    return top, a[1] * left + b[1] * right, a[2] * left + b[2] * right


def read(pieces, **options):
    """The attention after each piece, out / total."""
    state, history = start(), []
    for s, v in pieces:
        state = add(state, s, v, **options)
        history.append(state[2] / state[1])
    return history


def main(demo):
    rng = np.random.default_rng(demo.seed)
    s, v = rng.normal(0, 3, 8), np.arange(1.0, 9.0)
    whole = lambda s: ta.scaled_dot_product_attention(np.ones((1, 1)), s[:, None], v[:, None], scale=1.0).item()
    right = whole(s)
    pieces = [(s[i : i + 2], v[i : i + 2]) for i in range(0, 8, 2)]

    state, rows = start(), []
    for k, (a, b) in enumerate(pieces, 1):
        old, state = state[0], add(state, a, b)
        shrink = math.exp(old - state[0])
        rows.append(
            (
                k,
                "  ".join(f"{x:+.2f}" for x in a),
                f"{state[0]:+.2f}",
                f"{shrink:.4f}",
                f"{state[1]:.4f}",
                f"{state[2]:.4f}",
                f"{state[2] / state[1]:.4f}",
            )
        )
    demo.say(f"\nEight scores, and values 1 … 8. Their attention, all at once: {right:.4f}")
    demo.table("Two scores at a time", ["piece", "scores", "top", "shrink", "total", "out", "out / total"], rows)
    demo.say("shrink = e^(old top - new top): 0 at the start, 1 where the maximum stays")
    demo.claim("the last out / total is the attention of the whole row", math.isclose(state[2] / state[1], right))

    halves = [start(), start()]
    for k, (a, b) in enumerate(pieces):
        halves[k % 2] = add(halves[k % 2], a, b)
    _, total, out = merge(*halves)
    demo.claim("two readers that take turns, and merge at the end, get it too", math.isclose(out / total, right))

    orders = list(itertools.permutations(pieces))
    ends = [read(order)[-1] for order in orders]
    spread = max(abs(e - right) for e in ends)
    demo.claim(f"all {len(orders)} orders of the pieces agree, to {spread:.0e}", spread < 1e-12)

    broken = [read(order, rescale=False) for order in orders]
    errors = np.array([abs(h[-1] - right) for h in broken])
    first = np.array([order[0][0].max() == s.max() for order in orders])
    demo.table(
        "The same without the shrinking",
        ["where the largest score comes", "orders", "smallest error", "largest error"],
        [
            (name, which.sum(), f"{errors[which].min():.4f}", f"{errors[which].max():.4f}")
            for name, which in (("in the first piece", first), ("later", ~first))
        ],
    )
    demo.claim(
        "without the shrinking it is right only where the largest score comes first: the maximum must not rise",
        errors[first].max() < 1e-12 and errors[~first].min() > 1e-6,
    )

    with np.errstate(over="ignore", invalid="ignore"):
        naive = np.exp(300 * s) @ v / np.exp(300 * s).sum()
    big = [(300 * a, b) for a, b in pieces]
    demo.say(f"\nScores × 300: e^s without a maximum gives {naive}, the recurrence {read(big)[-1]:.4f}")
    demo.claim(
        "with the maximum nothing overflows: it is the attention of the whole row",
        math.isclose(read(big)[-1], whole(300 * s)),
    )

    demo.heading("Flash attention: the same for many rows at once (tinyattn/efficient/flash.py)")
    loop = re.search(r"    for .*?(?=    total = np)", inspect.getsource(flash.forward), re.S)[0]
    demo.say(re.sub(" +#.*", "", loop))
    Q, K, V, g = (rng.normal(size=(n, 8)) for n in (50, 300, 300, 50))
    inputs = [ta.Tensor(x, requires_grad=True) for x in (Q, K, V)]
    plain = ta.scaled_dot_product_attention(*inputs)
    fast = ta.efficient.flash_attention(*inputs, block_size=32)
    out, top, total = flash.forward(Q, K, V, tile=32)
    steps = flash.backward(g, Q, K, V, out, top, total, tile=32)
    differences = [
        max(np.abs(a - b.numpy()).max() for a, b in zip((out, *steps), (t, *ta.grad(t, inputs, g))))
        for t in (plain, fast)
    ]
    demo.claim(
        f"50 × 300 scores in tiles of 32 × 32: output and gradients of Q, K, V are those of attention, to "
        f"{differences[0]:.0e}",
        differences[0] < 1e-12,
    )
    demo.claim(
        f"and those of the fast kernel, ta.efficient.flash_attention, to {differences[1]:.0e}", differences[1] < 1e-12
    )
    demo.measured(
        "all {orders} orders of the pieces agree to {spread:.0e}; without the rescaling off by up to {wrong:.2f}",
        orders=len(orders),
        spread=spread,
        wrong=errors.max(),
    )
    demo.plot("orders", draw, [read(order) for order in orders], broken, right, size=(9, 4))


def draw(figure, good, broken, right):
    steps = range(1, len(good[0]) + 1)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, histories, title in zip(axes, (good, broken), ("with the shrinking", "without")):
        color = _demo.BLUE if histories is good else _demo.ORANGE
        for history in histories:
            ax.plot(steps, history, color=color, alpha=0.35, linewidth=1.2)
            ax.plot(steps[-1], history[-1], "o", color=color, markersize=5)
        ax.axhline(right, color="black", linestyle="--", linewidth=1, label="attention of the whole row")
        off = max(abs(history[-1] - right) for history in histories)
        ax.set(
            title=f"{title}: {len(histories)} orders, off by {off:.0e} at most",
            xlabel="pieces read",
            xticks=list(steps),
        )
    axes[0].set_ylabel("out / total so far")
    axes[0].legend(loc="lower right")


if __name__ == "__main__":
    _demo.run(main, __doc__)
