"""Every demo runs: its quick form makes its claims, holds them, and writes its pictures.

A demo whose quick form takes more than a few seconds has a line `SLOW = True`, and runs where TINYATTN_SLOW is set.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMOS = sorted(p for p in (Path(__file__).parent.parent / "demos").glob("*.py") if not p.stem.startswith("_"))


def run(demo: Path, out: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(demo), "--quick", "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8",
                          env=os.environ | {"PYTHONUTF8": "1"} | environ)  # fmt: skip


@pytest.mark.parametrize("demo", DEMOS, ids=lambda p: p.stem)
def test_demo(demo, tmp_path):
    if re.search(r"^SLOW = True", demo.read_text(encoding="utf-8"), re.M) and not os.environ.get("TINYATTN_SLOW"):
        pytest.skip("slow: set TINYATTN_SLOW=1")
    pytest.importorskip("matplotlib")
    done = run(demo, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓" in done.stdout
    pictures = re.findall(r"^picture: (.+?)(\.svg)(?: and (\.png))?$", done.stdout, re.M)
    assert pictures, done.stdout
    for stem, *suffixes in pictures:
        for suffix in filter(None, suffixes):
            assert Path(stem + suffix).stat().st_size > 500
