"""What the demos share: options, tables, claims, progress and pictures. A demo reads

    import _demo  # first: it sets one BLAS thread before NumPy is loaded

    def main(demo):
        demo.table("Row sums", ["row", "sum"], [(0, "1.000"), (1, "1.000")])
        demo.claim("every row sums to 1", True)
        demo.plot("sums", lambda figure: figure.subplots().plot([1, 1]))
        demo.measured("row sums {low:.3f} to {high:.3f}", low=1.0, high=1.0)

    if __name__ == "__main__":
        _demo.run(main, __doc__)

and its users get --seed, --quick, --out and --json. demo.measured makes one sentence of its figures, and the README's
table shows it: figures.py runs the full forms, and keeps their JSON in docs/figures.json. test_demos.py runs the
quick form of every demo here, and sweep.py runs it at many seeds. A demo that takes more than some seconds has a line
SLOW = True: tests run it only if one asks for it.

The terminal and the pictures are at their best with rich, matplotlib and graphviz (pip install -e '.[demos]').
Without them, or into a pipe, the same figures come as plain text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # two threads that share a busy core wait for each other
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the tinyattn of this clone, installed or not

from tinyattn.draw.heatmap import import_matplotlib, own_style  # noqa: E402
from tinyattn.text import console, is_terminal, run_program  # noqa: E402

FIGURES = ROOT / "docs" / "figures.json"  # what the full forms measured, see figures.py
COLUMNS = 80  # of text; if a table is wider, its cells are broken into lines

# Colours that colour-blind eyes can tell apart too (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, PURPLE, SKY, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#777777"

NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( ?(%|s|ms|×))?|[-·]|")

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "svg.hashsalt": "tinyattn",
}


class Demo:
    """One run of a demo: its options (seed, quick, out, and its own), and how it shows things."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        vars(self).update(vars(options))
        self.name = name
        self.rich = console() is not None
        self.missing: set[str] = set()  # packages whose absence has been told
        self.pictures: list[Path] = []
        self.claims: dict[str, bool] = {}
        self.found, self.figures = "", {}  # a sentence, and the numbers in it, by name
        self.notes = [f"{name}.py", f"seed {self.seed}", *["quick form"] * self.quick]  # in the corner of each picture
        self.doing = "working"

    # --- the terminal -------------------------------------------------------------------------------

    def say(self, text: str = "") -> None:
        for line in text.split("\n"):
            indent = " " * (len(line) - len(line.lstrip()))
            print(textwrap.fill(line, COLUMNS, subsequent_indent=indent, break_on_hyphens=False), flush=True)

    def heading(self, text: str) -> None:
        self.say(f"\n\033[1m{text}\033[0m" if self.rich else f"\n{text}\n{'=' * len(text)}")

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Rows of texts and numbers under their column names; numbers are aligned right."""
        cells = [[str(cell) for cell in row] for row in rows]
        right = [all(NUMBER.fullmatch(row[i]) for row in cells) for i in range(len(columns))]
        if self.rich:
            from rich import box
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text  # shows [ ] as they are

            table = Table(title=Text(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD)
            for name, is_right in zip(columns, right):
                table.add_column(Text(name), justify="right" if is_right else "left")
            for row in cells:
                table.add_row(*map(Text, row))
            Console().print(table)
            return
        self.say(f"\n{title}" if title else "")
        widths = _fit(columns, cells)
        for row in [columns, ["-" * w for w in widths], *cells]:
            lines = [textwrap.wrap(cell, w, break_on_hyphens=False) or [""] for cell, w in zip(row, widths)]
            for parts in zip_longest(*lines, fillvalue=""):
                padded = (c.rjust(w) if is_right else c.ljust(w) for c, w, is_right in zip(parts, widths, right))
                print(("  " + "  ".join(padded)).rstrip())

    def claim(self, text: str, holds: Any) -> None:
        """Say whether a claim of the demo holds. If it does not, the demo goes on, and ends with exit code 1."""
        mark, color = ("✓", 32) if holds else ("✗ DOES NOT HOLD:", 31)
        text = " ".join(text.split())
        told = textwrap.fill(f"{mark} {text}", COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
        print(told.replace(mark, f"\033[{color}m{mark}\033[0m", 1) if self.rich else told, flush=True)
        self.claims[text] = bool(holds)

    def measured(self, text: str, **figures: Any) -> None:
        """What this run found: a sentence with the figures' names in braces, for README and docs/figures.json."""
        self.figures |= figures
        self.found = text.format(**figures)

    def track(self, items: Sequence[Any], what: str) -> Iterator[Any]:
        """Iterate over items with a bar on the terminal; in a pipe, see _report."""
        if self.rich:
            from rich.progress import track

            yield from track(items, what, transient=True)
            return
        for i, item in enumerate(items, 1):
            self.doing = f"{what}, {i} of {len(items)}"
            if is_terminal(sys.stderr):
                print(f"\r{self.doing} ", end="\n" if i == len(items) else "", file=sys.stderr, flush=True)
            yield item

    # --- pictures -----------------------------------------------------------------------------------

    def plot(self, name: str, draw: Callable[..., None], *args: Any, size: tuple[float, float] = (8, 4)) -> None:
        """Call draw(figure, *args) on an empty matplotlib Figure; save it as SVG and PNG."""
        if not import_matplotlib():
            self._tell("matplotlib", "the curves are not drawn (their figures are above)")
            return
        from matplotlib.figure import Figure  # no pyplot: neither a window nor a display is needed

        with own_style(**STYLE):
            figure = Figure(figsize=size)
            draw(figure, *args)
            figure.supxlabel(", ".join(self.notes), x=0.995, ha="right", fontsize=7, color=GREY)
            figure.savefig(self.path(f"{name}.svg"), metadata={"Date": None})
            figure.set_layout_engine("none")  # keep the layout: no need to compute it again
            figure.savefig(self.path(f"{name}.png"), dpi=150)

    def graph(self, name: str, output: Any, **options: Any) -> None:
        """Draw the computation graph of output (see ta.draw_graph) as SVG and PNG; without graphviz as DOT text."""
        import tinyattn as ta

        options["title"] = ", ".join([*filter(None, [options.get("title")]), *self.notes[1:]])
        svg = self.path(f"{name}.svg")
        svg.unlink(missing_ok=True)  # else an earlier run's picture could seem to be this one's
        ta.draw_graph(output, path=svg, **options)
        if svg.exists():
            ta.draw_graph(output, path=self.path(f"{name}.png"), **options)
        else:
            self.pictures[-1] = svg.with_suffix(".dot")

    def heatmap(self, name: str, weights: Any, *labels: Any, **options: Any) -> None:
        """Print the weights as a heatmap (see ta.heatmap), and save it as SVG and PNG."""
        import tinyattn as ta

        self.say()
        options["title"] = ", ".join([*filter(None, [options.get("title")]), *self.notes[1:]])
        if import_matplotlib():
            ta.heatmap(weights, *labels, path=self.path(f"{name}.svg"), **options)
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                ta.heatmap(weights, *labels, path=self.path(f"{name}.png"), **options)
        else:
            ta.heatmap(weights, *labels, **options)
            self._tell("matplotlib", "the heatmap is not drawn (its figures are above)")

    def path(self, file_name: str) -> Path:
        """The path of a picture of this demo, named by seed and form; it is listed at the end."""
        self.out.mkdir(parents=True, exist_ok=True)
        stem, dot, suffix = file_name.rpartition(".")
        self.pictures.append(self.out / f"{self.name}_{stem}_seed{self.seed}{'_quick' * self.quick}{dot}{suffix}")
        return self.pictures[-1]

    def _tell(self, package: str, consequence: str) -> None:
        if package not in self.missing:
            self.missing.add(package)
            self.say(f"\n{package} is missing, so {consequence}: pip install -e '.[demos]'")


def run(main: Callable[[Demo], None], doc: str | None, **options: Any) -> None:
    """Parse the command line, call main(demo), list the pictures: _run, in a form that every terminal can show.

    options: the demo's own, with their defaults: steps=300. sentence=None is an optional argument without a name.
    """
    run_program(lambda: _run(main, doc, options))


def _run(main: Callable[[Demo], None], doc: str | None, options: dict[str, Any]) -> None:
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(
        prog=f"{name}.py", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (default 0)")
    parser.add_argument("--quick", action="store_true", help="a smaller form, in seconds")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="FOLDER", help="for pictures (default out/)")
    for key, default in options.items():
        if default is None:
            parser.add_argument(key, nargs="?")
            continue
        parser.add_argument(
            f"--{key.replace('_', '-')}", type=type(default), default=default, help="default: %(default)r"
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="for what was measured, in figures")
    demo = Demo(name, parser.parse_args())
    start, worked = time.perf_counter(), time.process_time()
    demo.say((doc or name).strip().splitlines()[0])
    if demo.quick:
        full = json.loads(FIGURES.read_text(encoding="utf-8")).get(name) if FIGURES.exists() else None
        reached = f" takes {full['seconds']:.0f} s, and measured: {full['measured']}" if full else " measures more."
        demo.say(f"This is the quick form. The full one{reached}")
    with _report(demo):
        main(demo)
    demo.say()
    if demo.found:
        demo.say(f"measured: {demo.found}")
    by_stem: dict[Path, list[str]] = {}
    for picture in demo.pictures:
        by_stem.setdefault(picture.with_suffix(""), []).append(picture.suffix)
    for stem, suffixes in by_stem.items():
        print(f"picture: {stem}{' and '.join(suffixes)}")
    demo.say(f"{', '.join(demo.notes)}: {time.perf_counter() - start:.1f} s")
    if demo.json:
        result = {
            "seed": demo.seed,
            "quick": demo.quick,
            "seconds": round(time.process_time() - worked, 1),
            "measured": demo.found,
            "figures": demo.figures,
            "claims": demo.claims,
        }
        text = json.dumps(result, ensure_ascii=False, indent=1, default=lambda x: x.tolist())
        demo.json.write_text(text + "\n", encoding="utf-8")
    failed = [text for text, holds in demo.claims.items() if not holds]
    if failed:
        sys.exit(f"{len(failed)} of the claims did not hold: " + "; ".join(failed))


def outline(axes: Any, row: int, column: int) -> None:
    """Mark a cell of a picture: the one that a claim is about."""
    x, y = ([at - 0.5, at + 0.5] for at in (column, row))
    axes.plot([x[0], x[1], x[1], x[0], x[0]], [y[0], y[0], y[1], y[1], y[0]], color=ORANGE, lw=2.5)


@contextmanager
def _report(demo: Demo) -> Iterator[None]:
    """Meanwhile, in a pipe, a line on stderr every 10 s shows that the demo is still at work."""
    done, start = threading.Event(), time.perf_counter()

    def report() -> None:
        while not done.wait(10):
            print(f"{demo.name}.py: {demo.doing}, {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)

    if not is_terminal(sys.stderr):
        threading.Thread(target=report, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _fit(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    """Widths that fit into 80 columns, if the longest words allow it: the widest column shrinks first."""
    table = list(zip(columns, *cells))
    widths = [max(map(len, column)) for column in table]
    least = [max((len(word) for cell in column for word in cell.split()), default=1) for column in table]
    while sum(widths) + 2 * len(widths) > COLUMNS:
        give = [(w, -i) for i, w in enumerate(widths) if w > least[i]]
        if not give:
            break
        widths[-max(give)[1]] -= 1
    return widths
