"""What n² costs

Plain attention stores all n × n weights. FlashAttention computes the same numbers in tiles: for each tile of keys it
keeps a running maximum and a running sum for every query, so no tile is stored. A sliding window gives something up:
a query sees only the last W = 32 keys, and the cost grows with n instead of n². Time and memory are measured here, in
your browser; which tiles are visited, too.

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
    "flash": lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, causal=True, block_size=TILE),
    "window": lambda Q, K, V: ta.efficient.sliding_window_attention(Q, K, V, 32),
}


TILE = 64


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


def visited(kind, n):
    """Which tiles of the scores are computed, 1 or 0 each, a column of tiles at a time. The values of one tile become
    NaN: where the tile is visited, NaN comes out."""
    Q, K, V = inputs(n)
    tiles = np.zeros((n // TILE, n // TILE), int)
    for j in range(n // TILE):
        marked = V.copy()
        marked[j * TILE : (j + 1) * TILE] = np.nan
        out = KINDS[kind](Q, K, marked).numpy()
        tiles[:, j] = np.isnan(out).any(-1).reshape(-1, TILE).any(-1)
        yield tiles


def figure(n=512, kind="flash"):
    sizes = [size for size in CONTROLS["n"]["values"] if size <= n]
    costs = [cost(kind, size) for size in sizes]
    milliseconds, megabytes = zip(*costs)
    curves = {"x": sizes, "y": {"milliseconds": milliseconds, "megabytes": megabytes}, "log": "xy"}
    names = [str(TILE * i) for i in range(n // TILE)]
    for tiles in visited(kind, n):
        told = {
            "milliseconds": milliseconds[-1],
            "megabytes": megabytes[-1],
            "tiles visited": f"{tiles.sum()} of {tiles.size}",
        }
        title = f"tiles of {TILE} × {TILE} scores that are visited: 1"
        yield [
            {"measures": told},
            {
                "beside": [
                    {"curves": curves | {"labels": ["n", f"{kind}, forward"]}},
                    {"matrix": {"title": title, "rows": names, "columns": names, "values": tiles}},
                ]
            },
        ]


def claim():
    Q, K, V = inputs(256)
    plain, flash = KINDS["plain"](Q, K, V).numpy(), KINDS["flash"](Q, K, V).numpy()
    assert np.allclose(plain, flash, atol=1e-5)
    *_, tiles = visited("flash", 256)
    assert (tiles == np.tri(4)).all()  # nothing above the diagonal
    *_, tiles = visited("window", 256)
    assert tiles.sum() == 4 + 3  # the diagonal, and one tile to its left
    assert cost("flash", 1024)[1] < cost("plain", 1024)[1] / 4
    window = ta.sliding_window_mask(256, 32)
    expected = ta.scaled_dot_product_attention(Q, K, V, window).numpy()
    assert np.allclose(KINDS["window"](Q, K, V).numpy(), expected, atol=1e-5)
