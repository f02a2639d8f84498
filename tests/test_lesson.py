"""docs/lesson.md: every sentence names a command that exists and asserts something; every demo is named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = re.findall(r"^\| (.+?) \| `(python .+?)` \| (.+?) \|$", (ROOT / "docs" / "lesson.md").read_text("utf-8"), re.M)


def test_the_table_is_whole():
    lines = [line for line in (ROOT / "docs" / "lesson.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(lines) - 2 == len(ROWS) >= 25


@pytest.mark.parametrize("command", sorted({command for _, command, _ in ROWS}))
def test_the_command_asserts_something(command):
    _, *words = command.split()
    if words[0] == "-m":
        done = subprocess.run([sys.executable, *words, "--help"], capture_output=True, cwd=ROOT)
        assert done.returncode == 0
    else:
        assert "demo.claim(" in (ROOT / words[0]).read_text("utf-8")


def test_every_demo_proves_a_sentence():
    named = {command.split("/")[-1] for _, command, _ in ROWS}
    demos = {p.name for p in (ROOT / "demos").glob("*.py") if "demo.claim(" in p.read_text("utf-8")}
    assert not demos - named - {"_demo.py", "microscope.py"}
