"""What n² costs: time and memory of five attentions as the sequence grows, and what each of them gives up.

Every query meets every key. So twice the length is four times the work; if the scores are stored, it is also four times
the memory. Flash attention has the same work without the memory. Windows, listed blocks and linear attention have
neither, but a position then sees less.

The cost of n² is movement more than arithmetic. There is a large, slow memory, and a small, fast one of M numbers.
Plain attention moves its scores between them, 4 n² numbers (S and P, each written and read). Flash attention moves each
tile of K and V once for each block of queries, Θ(n² d² / M) (Dao et al. 2022, theorem 2). This is counted from the
tiles that the forward pass really visits.

Figures of cost: forward + backward of one head, d = 64, float32, one thread. Memory: the peak beyond the inputs, by
tracemalloc, to which NumPy reports its arrays. Time: the program's own on the processor, the median of three rounds.
The system's time for new memory is shown apart, because it varies tenfold from run to run. Flash attention is timed
with its default tiles, up to 512 × 512. They take 3 MB for every n, which would hide the rest for small n: so its
memory is shown with tiles of 128 × 128.
"""

import functools
import itertools
import math
import time
import tracemalloc

try:
    import resource
except ImportError:  # Windows: the two together
    resource = None

import _demo
import numpy as np

import tinyattn as ta
from tinyattn import efficient
from tinyattn.efficient import flash

D, WINDOW, BLOCK = 64, 128, 64
GIVES_UP = {
    "plain": "nothing",
    "flash": "nothing: exact, and still n² time",
    "window": f"all beyond the last {WINDOW} positions, in one layer",
    "blocks": "most pairs of blocks, in one layer (BigBird)",
    "linear": "sharpness: the past is one matrix, see recall below",
}
LINES = dict(zip(GIVES_UP, (2, 6, 3.5, 1.5, 2)))  # widths: if lines lie on each other, all are seen
COLORS = dict(zip(GIVES_UP, (_demo.ORANGE, _demo.BLUE, _demo.GREEN, _demo.SKY, _demo.PURPLE)))
MARKERS = dict(zip(GIVES_UP, "os^vD"))


SMALL_TILES = functools.partial(efficient.flash_attention, block_size=128)


def forms(n, rng):
    blocks = efficient.bigbird_blocks(n // BLOCK, rng)
    return {
        "plain": ta.scaled_dot_product_attention,
        "flash": efficient.flash_attention,
        "window": lambda *x: efficient.sliding_window_attention(*x, WINDOW),
        "blocks": lambda *x: efficient.block_sparse_attention(*x, blocks, BLOCK),
        "linear": efficient.linear_attention,
    }


def peak(form, inputs, g):
    """Bytes of a forward and a backward pass."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    ta.grad(form(*inputs), inputs, g)
    most = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return most


def seconds(form, inputs, g, least):
    """(the program's, the program's and the system's) for a forward and a backward pass, the mean of some runs."""
    own, both, runs = own_seconds(), time.process_time(), 0
    while not runs or time.process_time() - both < least:
        ta.grad(form(*inputs), inputs, g)
        runs += 1
    return (own_seconds() - own) / runs, (time.process_time() - both) / runs


def own_seconds():
    return time.process_time() if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_utime


def free_memory():
    """Free bytes of this machine's memory; 4 GB if the system does not say."""
    try:
        with open("/proc/meminfo") as info:
            return next(int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 4 << 30


def fit(lengths, values):
    """(exponent, factor) of values ≈ factor · nᵉ: a line through the logarithms."""
    slope, start = np.polyfit(np.log(lengths), np.log(values), 1)
    return slope, math.exp(start)


def largest_tile(M, d):
    """Rows b of the square tiles that a memory of M numbers holds: q, o, k, v (b, d) each, and b × b scores."""
    return max(1, int(math.sqrt(4 * d * d + M) - 2 * d))


def moved(n, d, M, rng):
    """Numbers that flash attention's forward pass moves, counted from the tiles it visits; and plain attention's."""
    tile, visited, visit = largest_tile(M, d), [], flash.tiles

    def counted(*args):
        for rows, cols, S in visit(*args):
            visited.append((rows.start, *S.shape[-2:]))
            yield rows, cols, S

    Q, K, V = (rng.normal(size=(n, d)) for _ in range(3))
    flash.tiles = counted
    try:
        out, *_ = flash.forward(Q, K, V, tile=tile)
    finally:
        flash.tiles = visit
    assert np.allclose(out, ta.scaled_dot_product_attention(Q, K, V).numpy())
    keys = sum(2 * columns * d for _, _, columns in visited)  # of K and V, at each visit
    queries = sum(2 * r * d for r in {start: r for start, r, _ in visited}.values())  # q read, o written, once
    return keys + queries, 4 * n * n + 4 * n * d  # S and P written and read; Q, K, V read and O written


def show_movement(demo, rng, cost):
    sizes = [256, 512] if demo.quick else [512, 1024, 2048]
    d, M = 16, 2048
    by_n = {n: moved(n, d, M, rng) for n in sizes}
    by_d = {x: moved(512, x, M, rng)[0] for x in (16, 32, 64)}
    by_M = {x: moved(512, 32, x, rng)[0] for x in (1024, 2048, 4096)}  # M small against 16 d²: tiles of M / 4d rows
    theory = lambda n, d, M: n * n * d * d / M
    demo.table(
        f"Numbers moved forward, d = {d}, a fast memory of M = {M:,} numbers (tiles of {largest_tile(M, d)})",
        ["n", "plain", "flash, counted", "/ (n² d² / M)", "plain, ms", "flash, ms"],
        [
            (
                f"{n:,}",
                f"{plain:,}",
                f"{tiled:,}",
                f"{tiled / theory(n, d, M):.1f}",
                *(f"{cost[name][n][0] * 1e3:,.1f}" if n in cost[name] else "-" for name in ("plain", "flash")),
            )
            for n, (tiled, plain) in by_n.items()
        ],
    )
    demo.say("  (ms: forward + backward at d = 64, with the tiles of the fast kernel, from the table above.)")
    powers = [fit(list(x), list(x.values()))[0] for x in ({n: t for n, (t, _) in by_n.items()}, by_d, by_M)]
    demo.say()
    demo.claim(
        "flash attention moves n² d² / M: exponents {:.2f} in n, {:.2f} in d, {:.2f} in M (2, 2, -1 and edges)".format(
            *powers
        ),
        abs(powers[0] - 2) < 0.15 and abs(powers[1] - 2) < 0.35 and abs(powers[2] + 1) < 0.25,
    )
    tiled, plain = by_n[sizes[-1]]
    demo.claim(f"and {plain / tiled:.1f} times less than plain attention at n = {sizes[-1]:,}", plain > 1.5 * tiled)
    return {"moved": plain / tiled, "power": powers[2]}


def main(demo):
    rng = np.random.default_rng(demo.seed)
    lengths = [256, 512, 1024] if demo.quick else [1024, 2048, 4096, 8192, 16384]
    tensor = lambda n: ta.Tensor(rng.normal(size=(n, D)).astype(np.float32), requires_grad=True)
    tasks = []  # (name, n, form, inputs, gradient)
    for n in lengths:
        *inputs, g = (tensor(n) for _ in range(4))
        for name, form in forms(n, rng).items():
            if name == "plain" and 6 * 4 * n * n > free_memory() / 2:
                demo.say(f"plain attention at n = {n:,} would take half of the free memory: left out")
            else:
                tasks.append((name, n, form, inputs, g))
    cost = {name: {} for name in GIVES_UP}  # name -> n -> (seconds, bytes, seconds with the system's)
    rounds = [
        [seconds(form, *x, 0.01 if demo.quick else 0.1) for _, _, form, *x in tasks]
        for _ in demo.track(range(3), "rounds")
    ]
    for (name, n, form, *x), times in zip(tasks, zip(*rounds)):
        own, both = np.median(times, axis=0)
        cost[name][n] = own, peak(SMALL_TILES if name == "flash" else form, *x), both

    fits = {name: [fit(list(c), [x[k] for x in c.values()]) for k in (0, 1)] for name, c in cost.items()}
    for k, what, unit in ((0, "Time", "ms"), (1, "Peak memory", "MB")):
        scale = (1e3, 2**-20)[k]
        rows = [(f"{n:,}", *(f"{c[n][k] * scale:,.1f}" if n in c else "-" for c in cost.values())) for n in lengths]
        rows.append(("exponent", *(f"{fits[name][k][0]:.2f}" for name in cost)))
        demo.table(f"{what}, {unit}", ["n", *cost], rows)
        doubled = [
            (f"{a:,} → {b:,}", *(f"×{c[b][k] / c[a][k]:.2f}" if b in c else "-" for c in cost.values()))
            for a, b in itertools.pairwise(lengths)
        ]
        demo.table(f"{what}: twice the length", ["n", *cost], doubled)

    rows = []
    for name, c in cost.items():
        *_, before, last = c
        power = 2 if name == "plain" else 1
        guess, found = c[before][1] * (last / before) ** power, c[last][1]
        reach = [f"{last * (size * 2**30 / found) ** (1 / power):.1e}" for size in (1, 16, 80)]
        rows.append((name, f"{last:,}", f"{guess / 2**20:,.0f}", f"{found / 2**20:,.0f}", *reach))
    demo.table(
        "Where it stops fitting: MB, extrapolated from n / 2 and measured; and the n that fills a memory",
        ["", "n", "extrapolated", "measured", "1 GB", "16 GB", "80 GB"],
        rows,
    )
    demo.table("", ["", "what it gives up"], GIVES_UP.items())

    recalled = {(d, n): recall(n, d, rng, 3 if demo.quick else 20) for d in (16, 32, 64) for n in (16, 64, 256)}
    demo.table(
        "Recall: of n random pairs of a key and a value of width d, the share that is read back right by key",
        ["d", "n", "softmax", "Σ k vᵀ", "linear, elu + 1"],
        [(*pair, *(f"{share:.2f}" for share in shares)) for pair, shares in recalled.items()],
    )

    # Times are noisier, and for short sequences they are mostly overhead: so an exponent comes from the ends of a step.
    exponents = {name: [e for e, _ in f] for name, f in fits.items()}
    within = lambda name, k, target, by: abs(exponents[name][k] - target) <= by
    time_by, memory_by = (0.45, 0.25) if demo.quick else (0.2, 0.15)
    powers = lambda name: "{:.2f} in time, {:.2f} in memory".format(*exponents[name])
    demo.claim(
        f"plain attention: n² in both ({powers('plain')})",
        within("plain", 0, 2, time_by) and within("plain", 1, 2, memory_by),
    )
    demo.claim(
        f"flash attention: n² in time, n at most in memory ({powers('flash')})",
        within("flash", 0, 2, time_by) and exponents["flash"][1] < 1.1,
    )
    demo.claim(
        f"window and linear attention: n in time, at most n in memory (window {powers('window')}; "
        f"linear {powers('linear')})",
        all(within(x, 0, 1, time_by) and exponents[x][1] < 1.15 for x in ("window", "linear")),
    )
    demo.claim(
        f"blocks: n in memory, in time nearly so ({powers('blocks')}): among few blocks more of the random ones lie on "
        "or beside others",
        exponents["blocks"][1] < 1.15 and within("blocks", 0, 1.15, time_by),
    )
    movement = show_movement(demo, rng, cost)
    if not demo.quick:
        longest = max(cost["plain"])
        flashed, plain = (cost[name][longest][2] for name in ("flash", "plain"))
        demo.claim(
            f"flash attention takes less time than plain attention at n = {longest:,}, the system's included: "
            f"{flashed:.1f} s, {plain:.1f} s",
            flashed < plain,
        )
    demo.claim(
        "flash attention needs less memory than plain attention from the smallest n on",
        all(cost["flash"][n][1] < cost["plain"][n][1] for n in cost["plain"]),
    )
    demo.claim(
        "exactness costs the square: of 256 pairs softmax of width 16 reads nearly all, a state of 16 × 16 few",
        recalled[16, 256][0] > 0.95 and max(recalled[16, 256][1:]) < 0.2,
    )
    demo.claim(
        "a wider state holds more: of 64 pairs at d = 64 most, at d = 16 few",
        recalled[64, 64][1] > 0.9 and recalled[16, 64][1] < 0.5,
    )
    longest = max(cost["plain"])
    demo.measured(
        "exponents in time and memory, n = {low:,} … {high:,}: plain {plain}, flash {flash}, window {window}, blocks "
        "{blocks}, linear {linear}; n = {longest:,}: {mb:,.0f} MB against {mb_flash:,.0f}. Flash moves {moved:.1f} "
        "times fewer numbers than plain (d = 16, M = 2,048). Of 64 pairs a linear state of width 16 reads back "
        "{state:.2f}, softmax {softmax:.2f}",
        low=lengths[0],
        high=lengths[-1],
        **{name: "{:.1f}, {:.1f}".format(*exponents[name]) for name in cost},
        longest=longest,
        mb=cost["plain"][longest][1] / 2**20,
        mb_flash=cost["flash"][longest][1] / 2**20,
        state=recalled[16, 64][1],
        softmax=recalled[16, 64][0],
        **movement,
    )
    demo.plot("scaling", draw, cost, fits, size=(11, 4.8))


def recall(n, d, rng, repeats):
    """The share of n values that attention with the right key brings back: by softmax, by Σ k vᵀ, by linear attention.

    Softmax may be as sharp as it needs (keys of length 1, scale 30; training makes long queries). A scale does not help
    the others: in Σ k vᵀ it does not change k, and in linear attention it cancels. Linear attention brings back a mean
    of all values, so the mean of the values is subtracted. The answer is the value whose direction is nearest.
    """
    right = np.zeros(3)
    for _ in range(repeats):
        keys, values = rng.normal(size=(2, n, d))
        unit = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
        sharp = ta.scaled_dot_product_attention(unit, unit, values, scale=30.0).numpy()
        linear = efficient.linear_attention(keys, keys, values).numpy() - values.mean(0)
        directions = values / np.linalg.norm(values, axis=-1, keepdims=True)
        for k, out in enumerate((sharp, keys @ (keys.T @ values), linear)):
            right[k] += ((out @ directions.T).argmax(-1) == np.arange(n)).mean() / repeats
    return right


def draw(figure, cost, fits):
    for k, (ax, what) in enumerate(zip(figure.subplots(1, 2), ("seconds", "bytes"))):
        for name, c in cost.items():
            last, exponent = max(c), fits[name][k][0]
            far, power = np.array([last, 1e6]), 2 if name == "plain" or (name, k) == ("flash", 0) else 1
            label = f"{name}, $n^{{{exponent:.2f}}}$"
            ax.plot(
                list(c),
                [x[k] for x in c.values()],
                MARKERS[name] + "-",
                color=COLORS[name],
                label=label,
                linewidth=LINES[name],
                markersize=4 + LINES[name],
                zorder=9 - LINES[name],
            )
            ax.plot(far, c[last][k] * (far / last) ** power, ":", color=COLORS[name], linewidth=1.5)
        for size in (16, 80) if k == 1 else ():
            ax.axhline(size * 2**30, color=_demo.GREY, linewidth=1)
            ax.annotate(f"{size} GB", (1e6, size * 2**30), (0, 3), textcoords="offset points", fontsize=9, ha="right")
        ax.set(xscale="log", yscale="log", xlabel="n, positions", ylabel=what)
        ax.set_title(("time", "peak memory")[k] + f", n = {min(cost['plain']):,} …; dotted: extrapolated")
        ax.legend()


if __name__ == "__main__":
    _demo.run(main, __doc__)
