"""The figures in the README: runs the full forms of the demos, keeps what they measured, and writes the table from it.

    python demos/figures.py                       all of them, about half an hour; each is kept when it ends
    python demos/figures.py bottleneck induction  these
    python demos/figures.py --render              none: the README's table from docs/figures.json

What a demo measured is a sentence that it makes of its own figures (demo.measured in _demo.py). Nothing is typed.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

import _demo
import sweep

ROOT = Path(__file__).resolve().parent.parent
FIGURES, README = ROOT / "docs" / "figures.json", ROOT / "README.md"
FILE = re.compile(r"^\| `(\w+(?:\.py|/))` \| \d+ \|", re.M)
ROW = re.compile(r"^(\| `(\w+)\.py` \| .*? \| )(.*)( \|)$", re.M)


def load():
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def lines_of(name):
    """How long a file of the package is, or a folder with all that is in it."""
    path = ROOT / "tinyattn" / name
    return sum(p.read_text(encoding="utf-8").count("\n") for p in ([path] if path.is_file() else path.rglob("*.py")))


def render(text, figures):
    """The README with measured figures in the last cell of each demo's row (a dash if its full form was not run), and
    with the number of lines of each file in the reading order."""

    def cell(row):
        path = ROOT / "demos" / f"{row[2]}.py"
        if not path.exists() or "demo.measured(" not in path.read_text(encoding="utf-8"):
            return row[0]
        return row[1] + figures.get(row[2], {}).get("measured", "–").replace("|", "\\|") + row[4]

    counted = FILE.sub(lambda row: f"| `{row[1]}` | {lines_of(row[1])} |", text)
    return ROW.sub(cell, counted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demos", nargs="*", metavar="DEMO", help="by default all")
    parser.add_argument("--render", action="store_true", help="run nothing")
    options = parser.parse_args()
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        for name in () if options.render else options.demos or sweep.DEMOS:
            print(f"{name} …", flush=True)
            result = sweep.run(name, seed=0, quick=False, folder=folder, echo=True)
            lost = [text for text, holds in result.get("claims", {}).items() if not holds]
            if "error" in result or lost:
                broken.append(name)
                print(f"{name} is not kept: {result.get('error') or lost}", flush=True)
                continue
            text = json.dumps(dict(sorted({**load(), name: result}.items())), ensure_ascii=False, indent=1)
            FIGURES.write_text(text + "\n", encoding="utf-8")
    README.write_text(render(README.read_text(encoding="utf-8"), load()), encoding="utf-8")
    sys.exit(f"not kept: {', '.join(broken)}" if broken else 0)


if __name__ == "__main__":
    _demo.run_program(main)
