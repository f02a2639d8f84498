"""Every benchmark runs in its small form, with PyTorch or without it. How fast is no matter here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
BENCHMARKS = sorted(path.name for path in FOLDER.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_small_form(name):
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error::RuntimeWarning", str(FOLDER / name), "--small"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert run.returncode == 0, run.stderr
    assert "|" in run.stdout and "nan" not in run.stdout  # a table
