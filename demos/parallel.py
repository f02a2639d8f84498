"""In a single parallel operation: the time to read T tokens, by a recurrent network and by attention.

A GRU needs its last state before it can make the next: T steps, one after the other, each too small to keep a processor
busy. Attention compares all tokens with all in a few large products: more arithmetic, T² of it, but no waiting. One
layer of width 64 is measured, forward and backward, with a batch of one, on one thread. So the difference does not come
from many cores. It is the cost of T small pieces in place of a few large ones.

The longer the text, the more T² matters: from some length on, the arithmetic costs more than the waiting.
"""

import time

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import nn

D = 64
COLORS = {"GRU": _demo.ORANGE, "attention": _demo.BLUE}


def layers(rng):
    return {
        "GRU": nn.GRU(D, D, rng=rng).astype(np.float32),
        "attention": nn.MultiHeadAttention(D, 1, rng=rng).astype(np.float32),
    }


def seconds(layer, x, runs):
    """Processor time of a forward pass, and of forward and backward: the least of some runs."""
    forward, both = [], []
    for _ in range(runs):
        start = time.process_time()
        with ta.no_grad():
            layer(x)
        forward.append(time.process_time() - start)
        start = time.process_time()
        layer(x).sum().backward()
        both.append(time.process_time() - start)
    return min(forward), min(both)


def steps_in_a_row(layer, x):
    """The longest chain of operations, each waiting for the one before, from the input to the output."""
    found, stack = set(), [layer(x)]
    while stack:
        t = stack.pop()
        if isinstance(t, ta.Tensor) and t._node is not None and t not in found:
            found.add(t)
            stack += t._node.inputs
    depth = {}
    for t in sorted(found, key=lambda t: t._node.order):
        depth[t] = 1 + max(depth.get(i, 0) for i in t._node.inputs if isinstance(i, ta.Tensor))
    return max(depth.values())


def plot(figure, lengths, times):
    for axes, k, what in zip(figure.subplots(1, 2, sharey=True), (0, 1), ("forward", "forward and backward")):
        for name, color in COLORS.items():
            axes.loglog(lengths, [1e3 * times[name, T][k] for T in lengths], "o-", color=color, label=name)
        ratio = {T: times["GRU", T][k] / times["attention", T][k] for T in lengths}
        best = max(ratio, key=ratio.get)
        axes.set(title=f"{what}: GRU up to {ratio[best]:.0f} × as long (T = {best:,})", xlabel="tokens T")
        axes.set_xticks(lengths, [f"{T:,}" for T in lengths])
        axes.minorticks_off()
        axes.legend()
    figure.axes[0].set_ylabel("milliseconds")


def main(demo):
    rng = np.random.default_rng(demo.seed)
    lengths = [64, 256] if demo.quick else [64, 256, 1024, 4096]
    each = layers(rng)
    times, rows = {}, []
    for T in demo.track(lengths, "reading"):
        x = ta.Tensor(rng.normal(size=(1, T, D)).astype(np.float32), requires_grad=True)
        for name, layer in each.items():
            times[name, T] = seconds(layer, x, 7 if T < 1000 else 3)
        rows.append(
            (
                f"{T:,}",
                *(f"{1e3 * times[name, T][k]:,.1f}" for k in (0, 1) for name in COLORS),
                *(f"{times['GRU', T][k] / times['attention', T][k]:.1f}" for k in (0, 1)),
            )
        )
    demo.table(
        "milliseconds of processor time to read T tokens",
        ["T", "GRU: forward", "attention", "GRU: and backward", "attention", "times, forward", "times, both"],
        rows,
    )
    x = rng.normal(size=(1, 32, D)).astype(np.float32)
    chain = {name: (steps_in_a_row(layer, x), steps_in_a_row(layer, x[:, :16])) for name, layer in each.items()}
    demo.table(
        "operations that wait for each other, input to output",
        ["", "T = 16", "T = 32"],
        [(name, short, long) for name, (long, short) in chain.items()],
    )
    demo.say()
    long, short = chain["GRU"]
    demo.claim(
        f"the GRU's chain grows with T (from {short} to {long} for twice the tokens), attention's does not "
        f"({chain['attention'][1]} and {chain['attention'][0]})",
        long > 1.7 * short and chain["attention"][0] == chain["attention"][1],
    )
    ratio = {T: [times["GRU", T][k] / times["attention", T][k] for k in (0, 1)] for T in lengths}
    at = 256 if demo.quick else 1024
    demo.claim(
        f"at T = {at:,} the GRU takes {ratio[at][0]:.0f} times as long forward, {ratio[at][1]:.0f} with the way back",
        min(ratio[at]) > 2,
    )
    growth = {name: times[name, lengths[-1]][1] / times[name, lengths[0]][1] for name in COLORS}
    power = {name: np.log(g) / np.log(lengths[-1] / lengths[0]) for name, g in growth.items()}
    demo.claim(
        f"the GRU's time grows with T to the power of {power['GRU']:.2f}: T steps, one after the other",
        0.7 < power["GRU"] < 1.4,
    )
    if not demo.quick:
        last = lengths[-1]
        more = times["attention", last][1] / times["attention", at][1]
        demo.claim(
            f"attention's with the square in the end: ×{more:.0f} for {last // at} times the tokens; at T = {last:,} "
            f"the GRU takes {ratio[last][1]:.1f} times as long",
            more > 1.5 * last / at,
        )
    demo.plot("reading", plot, lengths, times, size=(11, 4))
    demo.measured(
        "T = {at:,}: GRU {gru:.0f} ms, attention {attention:.1f} ms, forward and backward ({times:.0f} times)"
        + "; T = {last:,}: {again:.1f} times" * (at < lengths[-1]),
        at=at,
        gru=1e3 * times["GRU", at][1],
        attention=1e3 * times["attention", at][1],
        times=ratio[at][1],
        last=lengths[-1],
        again=ratio[lengths[-1]][1],
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
