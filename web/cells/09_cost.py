"""What n² costs

Plain attention stores all n × n weights. FlashAttention computes the same numbers in tiles: for each tile of keys it
keeps a running maximum and a running sum for every query, so no tile is stored. A sliding window gives something up:
a query sees only the last W keys, and the cost grows with n instead of n².

Predict: if n doubles, how much longer does plain attention take?
"""

import time
import tracemalloc

import numpy as np

import tinyattn as ta

CONTROLS = {
    "n": {"values": [64, 128, 256, 512, 1024], "at": 512},
    "kind": {"values": ["plain", "flash", "window"], "at": "flash"},
}
KINDS = {
    "plain": lambda Q, K, V: ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(len(Q))),
    "flash": lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, causal=True, block_size=64),
    "window": lambda Q, K, V: ta.efficient.sliding_window_attention(Q, K, V, 32),
}


def inputs(n):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(n, 16)).astype(np.float32) for _ in range(3)]


def cost(kind, n):
    """(milliseconds, megabytes at the peak) of one forward pass; the best of three."""
    Q, K, V = inputs(n)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        KINDS[kind](Q, K, V)
        times.append(1e3 * (time.perf_counter() - start))
    tracemalloc.start()
    KINDS[kind](Q, K, V)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return min(times), peak


def visited(kind, n, tile=64):
    """Which tiles of the n × n scores are computed: 1 or 0 each."""
    k = max(n // tile, 1)
    i, j = np.arange(k)[:, None], np.arange(k)
    if kind == "plain":
        return np.ones((k, k), int)
    return (j <= i).astype(int) * (1 if kind == "flash" else (i - j <= 1).astype(int))


def figure(n=512, kind="flash"):
    sizes = [size for size in CONTROLS["n"]["values"] if size <= n]
    costs = [cost(kind, size) for size in sizes]
    tiles = visited(kind, n)
    names = [str(64 * i) for i in range(len(tiles))]
    yield [
        {"measures": {"milliseconds": costs[-1][0], "megabytes": costs[-1][1], "tiles visited": int(tiles.sum())}},
        {
            "curves": {
                "x": sizes,
                "y": {f"{kind}: megabytes": [c[1] for c in costs]},
                "log": "xy",
                "labels": ["n", "peak"],
            }
        },
        {
            "matrix": {
                "title": "tiles of 64 × 64 scores that are visited",
                "rows": names,
                "columns": names,
                "values": tiles,
            }
        },
    ]


def claim():
    Q, K, V = inputs(256)
    plain, flash = KINDS["plain"](Q, K, V).numpy(), KINDS["flash"](Q, K, V).numpy()
    assert np.allclose(plain, flash, atol=1e-5)
    assert cost("flash", 1024)[1] < cost("plain", 1024)[1] / 4
    window = ta.sliding_window_mask(256, 32)
    expected = ta.scaled_dot_product_attention(Q, K, V, window).numpy()
    assert np.allclose(KINDS["window"](Q, K, V).numpy(), expected, atol=1e-5)
