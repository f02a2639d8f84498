"""All demos at many seeds: every claim holds at every seed.

Most demos draw random numbers or train, so one run proves little. This runs each demo at each seed, and reports a
failed claim at once. It ends with code 1 if a claim failed.

    python demos/sweep.py --seeds 0-19 --quick
    python demos/sweep.py --full --seeds 0,7,42,123 vanishing_gradients multi_head
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _demo

FOLDER = Path(__file__).parent
DEMOS = sorted(p.stem for p in FOLDER.glob("*.py") if "\n    _demo.run(" in p.read_text(encoding="utf-8"))


def numbers(text):
    """ "0-3,7" -> [0, 1, 2, 3, 7]"""
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return [seed for part in ends for seed in range(part[0], part[-1] + 1)]


def run(name, seed, quick, folder, echo=False):
    """One run of a demo: the content of its --json, or {"error": its last line on stderr} if there is none."""
    result = Path(folder) / f"{name}_{seed}.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, FOLDER / f"{name}.py", "--seed", str(seed), "--out", folder, "--json", result]
    done = subprocess.run(
        [*command, *["--quick"] * quick],
        stdout=subprocess.DEVNULL,
        stderr=None if echo else subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | {"PYTHONUTF8": "1"},
    )
    if result.exists():
        return json.loads(result.read_text(encoding="utf-8"))
    return {"error": ((done.stderr or "").strip().splitlines() or [f"ended with code {done.returncode}"])[-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demos", nargs="*", default=DEMOS, metavar="DEMO", help="by default all")
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2], help='such as "0-19" or "0,7,42" (default 0-2)')
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="the quick forms (the default)")
    form.add_argument("--full", action="store_true", help="the full forms")
    options = parser.parse_args()
    start, failures = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for name in options.demos:
            name = Path(name).stem
            claims, seconds = [], 0.0
            for seed in options.seeds:
                print(f"\r{name}, seed {seed} ", end="", file=sys.stderr, flush=True)
                result = run(name, seed, not options.full, folder)
                seconds += result.get("seconds", 0)
                claims += result.get("claims", {}).values()
                failed = [text for text, holds in result.get("claims", {}).items() if not holds]
                for text in [*failed, *([result["error"]] if "error" in result else [])]:
                    failures += 1
                    print(f"\r    {name}, seed {seed}: {text}", flush=True)
            held = f"{sum(claims):4} of {len(claims):4} claims hold"
            print(f"\r{name:24} {len(options.seeds)} seeds  {held}  {seconds:6.0f} s", flush=True)
    print(f"{failures} failures; {time.perf_counter() - start:.0f} s")
    sys.exit(failures > 0)


if __name__ == "__main__":
    _demo.run_program(main)
