"""Every demo runs: its quick form makes its claims, holds them, and writes its pictures, in odd surroundings.

A demo whose quick form takes more than some seconds has a line `SLOW = True`, and runs where TINYATTN_SLOW is set.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "demos"
DEMOS = sorted(p for p in FOLDER.glob("*.py") if "\n    _demo.run(" in p.read_text(encoding="utf-8"))
ODD = {"MPLBACKEND": "module://nosuch.backend_inline", "NO_COLOR": "1", "HOME": "", "USERPROFILE": "", "COLUMNS": "60"}
IMPORT = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import _demo"


def run(*command: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONUTF8": "1"} | environ,
    )


@pytest.mark.parametrize("demo", DEMOS, ids=lambda p: p.stem)
def test_demo(demo, tmp_path):
    if re.search(r"^SLOW = True", demo.read_text(encoding="utf-8"), re.M) and not os.environ.get("TINYATTN_SLOW"):
        pytest.skip("slow: set TINYATTN_SLOW=1")
    pytest.importorskip("matplotlib")
    tmp_path.joinpath("matplotlibrc").write_text("text.usetex: True")
    done = run("-W", "error", demo, "--quick", "--out", tmp_path, MATPLOTLIBRC=str(tmp_path), **ODD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "✓" in done.stdout
    assert "✗" not in done.stdout
    wide = [line for line in done.stdout.splitlines() if len(line) > 80 and not line.startswith("picture: ")]
    assert not wide, "\n".join(wide)
    assert "This is the quick form." in done.stdout
    pictures = re.findall(r"^picture: (.+)\.svg and .png$", done.stdout, re.M)
    assert pictures, done.stdout
    for stem in pictures:
        assert stem.endswith("_seed0_quick")
        assert Path(f"{stem}.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
        assert Path(f"{stem}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["scaled_dot_product", "computation_graph"])
def test_numpy_alone_is_enough(name, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    for package in ("rich", "matplotlib", "graphviz"):
        (blocked / f"{package}.py").write_text(f"raise ImportError('{package}')")
    done = run(FOLDER / f"{name}.py", "--quick", "--out", tmp_path, PYTHONPATH=str(blocked))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓" in done.stdout
    assert "pip install" in done.stdout + done.stderr
    (graph, *_) = re.findall(r"^picture: (.+\.dot)$", done.stdout, re.M)
    assert Path(graph).read_text(encoding="utf-8").startswith("digraph")


def test_help_tells_the_claim_and_the_options():
    done = run(FOLDER / "vanishing_gradients.py", "--help")
    assert "√dk" in done.stdout
    assert all(option in done.stdout for option in ("--seed", "--quick", "--out"))


def test_a_claim_that_fails_is_told_and_fails_the_run():
    main = "lambda demo: [demo.claim('one is two', 1 == 2), demo.claim('one is one', 1 == 1)]"
    done = run("-c", f"{IMPORT}; _demo.run({main}, 'Two claims.')")
    assert done.returncode == 1
    assert "✗ DOES NOT HOLD: one is two" in done.stdout
    assert "✓ one is one" in done.stdout
    assert "one is two" in done.stderr


def test_one_blas_thread_unless_the_user_has_chosen():
    code = f"{IMPORT}; import os; print(os.environ['OPENBLAS_NUM_THREADS'])"
    environ = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    assert subprocess.check_output([sys.executable, "-c", code], env=environ).strip() == b"1"
    assert run("-c", code, OPENBLAS_NUM_THREADS="2").stdout.strip() == "2"


def test_a_sweep_counts_the_claims_and_ends_as_they_do(tmp_path):
    done = run(FOLDER / "sweep.py", "--seeds", "3-4", "computation_graph")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 seeds     8 of    8 claims hold" in done.stdout


def test_what_was_measured_goes_into_the_json(tmp_path):
    path = tmp_path / "figures.json"
    main = "lambda demo: [demo.claim('one', True), demo.measured('about {x:.1f}', x=1.25)]"
    code = f"{IMPORT}; sys.argv[1:] = ['--seed', '3', '--json', {str(path)!r}]; _demo.run({main}, 'One.')"
    assert run("-c", code).returncode == 0
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["measured"] == "about 1.2" and result["figures"] == {"x": 1.25}
    assert result["claims"] == {"one": True} and result["seed"] == 3 and not result["quick"]
