"""The door to the project: one file, NumPy alone, at most 120 lines of code; and what it says is right."""

import ast
import importlib.util
import io
import os
import subprocess
import sys
import tokenize
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parent.parent / "demos" / "whole_idea.py"
SOURCE = FILE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def idea():
    spec = importlib.util.spec_from_file_location("whole_idea", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder):
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONIOENCODING": "ascii"}  # any terminal will do
    return subprocess.run(
        [sys.executable, str(FILE)], env=environment, capture_output=True, text=True, encoding="ascii", timeout=60
    )


def test_it_proves_itself_beside_the_package():
    done = run(FILE.parent.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal: ") == 2 and "tinyattn differ" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_it_needs_numpy_alone(tmp_path):
    (tmp_path / "tinyattn.py").write_text("raise ImportError")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal: ") == 1 and "left out" in done.stdout
    imports = [n for n in ast.walk(ast.parse(SOURCE)) if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert {alias.name for n in imports for alias in n.names} == {"itertools", "numpy", "tinyattn"}


def test_it_has_at_most_120_lines_of_code():
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(SOURCE).readline) if t.type not in silent]
    docstrings = {t.start for t in tokens if t.type == tokenize.STRING and t.line.lstrip().startswith('"""')}
    code = {line for t in tokens if t.start not in docstrings for line in range(t.start[0], t.end[0] + 1)}
    assert 60 < len(code) <= 120


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("add", [(3, 4), (3, 4)]),
        ("add", [(3, 4), (1, 4)]),
        ("subtract", [(3, 1), (3, 4)]),
        ("multiply", [(4,), (3, 4)]),
        ("multiply", [(3, 4), ()]),
        ("divide", [(3, 4), (3, 1)]),
        ("matmul", [(3, 4), (4, 2)]),
        ("transpose", [(3, 4)]),
        ("exp", [(3, 4)]),
        ("sum_rows", [(3, 4)]),
        ("softmax", [(3, 4)]),
        ("attention", [(4, 3), (4, 3), (4, 2)]),
    ],
)
def test_every_rule_of_the_table(idea, name, shapes):
    rng = np.random.default_rng(0)
    inputs = [idea.Tensor(rng.uniform(0.5, 2, shape)) for shape in shapes]
    f = lambda: getattr(idea, name)(*inputs)
    g = rng.normal(size=f().data.shape)
    found = idea.gradients(f(), g)
    for x in inputs:
        np.testing.assert_allclose(found[x], idea.differences(f, x, g), atol=1e-8)


def test_shares_add_up_and_the_order_is_right(idea):
    x = idea.Tensor(3.0)
    y = x + x
    z = y * y + x  # 4x² + x; y is used twice, x three times, and x by an older and by a younger step than y
    np.testing.assert_allclose(idea.gradients(z, np.array(1.0))[x], 25)
    for _ in range(60):
        y = y + y
    assert idea.gradients(y, np.array(1.0))[x] == 2.0**61
