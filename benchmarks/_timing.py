"""What the benchmarks share: one BLAS thread, interleaved runs, ratios of neighbours.

Import this module before NumPy: the number of BLAS threads is read from the environment when NumPy loads.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from typing import Any

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

THREADS = int(os.environ["OPENBLAS_NUM_THREADS"])

# One thread: the processor's time is what an idle machine's clock would show, and other processes do not count in it.
clock = time.process_time if THREADS == 1 else time.perf_counter


def options(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has; add your own before parse_args()."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tiny sizes, one round: shows that it runs, not how fast")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of interleaved runs (default 15)")
    return parser


def torch_or_none() -> Any:
    """PyTorch with the same number of threads, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: its columns are left out.\n")
        return None
    torch.set_num_threads(THREADS)
    return torch


def interleaved(
    functions: dict[str, Callable[[], Any]], rounds: int = 15, least: float = 0.02
) -> dict[str, list[float]]:
    """Seconds per call of each function, one figure a round; in a round each function runs once, in turn.

    Whatever slows the machine for a while then slows all of them, and the ratio within a round stays right.
    A run repeats its function until it lasts about `least` seconds. One run of each, to warm up, is not counted.
    """
    repeats = {}
    for name, function in functions.items():
        function()
        start = clock()
        function()
        repeats[name] = max(1, round(least / max(clock() - start, 1e-7)))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    for _ in range(rounds):
        for name in order:
            start = clock()
            for _ in range(repeats[name]):
                functions[name]()
            seconds[name].append((clock() - start) / repeats[name])
        order.append(order.pop(0))  # nobody always follows the same neighbour
    return seconds


def ratio(mine: Sequence[float], other: Sequence[float]) -> float:
    """The median over rounds of mine / other."""
    return statistics.median(a / b for a, b in zip(mine, other))


def duration(seconds: float) -> str:
    """0.00123 -> '1.23 ms'"""
    factor, unit = (1e6, "µs") if seconds < 1e-3 else (1e3, "ms") if seconds < 1 else (1, "s")
    return f"{seconds * factor:.3g} {unit}"


def peak_memory(function: Callable[[], Any]) -> int:
    """The most bytes that lived at one time during function(), beyond those before it.

    By tracemalloc, to which NumPy reports every array: the arrays' own sizes, not what the system set aside.
    """
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table, first column to the left, columns aligned."""
    cells = [[str(c) for c in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    for first, *rest in (cells[0], rule, *cells[1:]):
        print("|", " | ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:]))]), "|")
    print()


def machine() -> str:
    """One line: processor, versions, threads."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            processor = next(line.split(":")[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    blas: dict[str, Any] = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
    return (
        f"{processor}, {os.cpu_count()} cores; Python {platform.python_version()}, NumPy {np.__version__} "
        f"({blas['name']} {blas.get('version', '')}); {THREADS} BLAS thread{'s' * (THREADS > 1)}"
    )
