"""Whatever the terminal and the surroundings, every text is printed and the exit code tells the truth."""

import io
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.__main__ import run
from tinyattn.text import PLAIN, printed

ROOT = Path(__file__).resolve().parents[1]
DEMOS = sorted(path for path in (ROOT / "demos").glob("[a-z]*.py") if path.stem != "whole_idea")
RIGHT = """import numpy as np

def causal_mask(n):
    return np.tri(n, dtype=bool)

def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ V
"""
WRONG = RIGHT.replace(" / np.sqrt(Q.shape[-1])", "")


class Bare:
    """What some editors and loggers put in place of a stream."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass


STREAMS = {
    name: lambda encoding=name: io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    for name in ("utf-8", "cp1252", "ascii", "gbk", "cp932")
} | {"none": lambda: None, "bare": Bare}
LACKING = [name for name in STREAMS if name not in ("utf-8", "gbk", "cp932")]


def print_to(name, monkeypatch):
    """From here on standard output and standard error are of this kind (a fixture's would be pytest's again)."""
    for place in ("stdout", "stderr"):
        monkeypatch.setattr(sys, place, STREAMS[name]())
    return sys.stdout


def written(stream):
    if stream is None:
        return None
    if isinstance(stream, Bare):
        return stream.text
    stream.flush()
    return stream.buffer.getvalue().decode(stream.encoding)


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["tinyattn", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        run()
    return end.value.code or 0


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 0, "practice"),
        (["--help"], 0, "practice"),
        (["nonsense"], 2, ""),
        (["break", "--list"], 0, "no-scale"),
        (["practice", "practice.py"], 0, "practice.py"),
        (["practice", "right.py"], 2, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_gb_17_commands_print_to_every_stream(kind, words, code, told, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("right.py").write_text(RIGHT)
    stream = print_to(kind, monkeypatch)
    assert command(monkeypatch, *words) == code
    assert told in (written(stream) or told)


@pytest.mark.parametrize("kind", ["ascii", "none"])
def test_gb_17_a_round_of_break(kind, monkeypatch):
    stream = print_to(kind, monkeypatch)
    assert command(monkeypatch, "break", "mask-transposed") == 0
    assert "mask-transposed" in (written(stream) or "mask-transposed")


@pytest.mark.parametrize("kind", LACKING)
@pytest.mark.parametrize(
    ("text", "code", "told"), [(RIGHT, 0, "ok causal_mask: correct"), (WRONG, 1, "no-scale"), ("def", 2, "error")]
)
def test_gb_17_a_verdict_is_the_same_on_every_stream(kind, text, code, told, monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(text)
    stream = print_to(kind, monkeypatch)
    assert command(monkeypatch, "check", file) == code
    assert told in (written(stream) or told).replace("✓", "ok")


@pytest.mark.parametrize("kind", ["ascii", "cp1252", "none"])
@pytest.mark.parametrize("demo", DEMOS, ids=lambda path: path.stem)
def test_gb_17_every_demo_has_a_help(kind, demo, monkeypatch):
    stream = print_to(kind, monkeypatch)
    monkeypatch.syspath_prepend(str(demo.parent))
    monkeypatch.setattr(sys, "argv", [str(demo), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(demo), run_name="__main__")
    assert not end.value.code
    assert "--" in (written(stream) or "--")


@pytest.mark.parametrize("kind", STREAMS)
def test_gb_17_in_somebody_elses_program(kind, monkeypatch):
    """There the stream is not ours to configure: the texts fit themselves to it."""
    stream = print_to(kind, monkeypatch)
    x = ta.Tensor(np.linspace(-1, 1, 600).reshape(20, 30), requires_grad=True, name="x")
    weights = ta.softmax(x)
    report = ta.check(lambda n: np.tri(n, k=1, dtype=bool))
    for shown in (ta.show_mask(ta.causal_mask(3)), ta.heatmap(weights, title="÷ √dk → ✓"), report, x, weights):
        print(shown)
        print(f"{shown} {shown!r}")
    assert "causal-sees-next" in (written(stream) or "causal-sees-next")


def test_marks_and_shades_have_plain_forms_that_differ(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert printed("✓ ✗ ÷ √dk λ Δ x² Kᵀ é 動") == "ok no: / sqrt dk lambda Delta x2 KT e ?"
    shades = [printed(shade) for shade in " ·░▒▓█"]
    assert len(set(shades)) == 6 and all(len(shade) == 1 for shade in shades)  # a table stays one
    assert all(form.isascii() for form in PLAIN.values())


PROGRAM = """
import sys, numpy as np, tinyattn as ta
x = ta.Tensor(np.eye(3), requires_grad=True, name="x")
print(x, repr(x * 2))
print(ta.show_mask(ta.causal_mask(3)))
for suffix in ("png", "svg"):
    ta.heatmap(np.eye(3), ["é", "動", "$x$"], path=f"map.{suffix}")
ta.draw_graph((x * x).sum(), path="graph.svg")
print(ta.check(lambda n: np.tri(n, dtype=bool)))
"""
SURROUNDINGS = {
    "no home, ASCII, no colour": (
        (),
        {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1", "HOME": None, "USERPROFILE": None},
    ),
    "gb_18 a notebook's backend": ((), {"MPLBACKEND": "module://nosuch.backend_inline"}),
    "LaTeX asked for, cp1252": ((), {"MATPLOTLIBRC": "text.usetex: True", "PYTHONIOENCODING": "cp1252"}),
    "warnings are errors": (("-W", "error"), {}),
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@pytest.mark.parametrize(
    "program",
    [
        ("-c", PROGRAM),
        ("-m", "tinyattn", "check", "mine.py"),
        (str(ROOT / "demos" / "scaled_dot_product.py"), "--quick", "--out", "."),
    ],
    ids=["program", "check", "demo"],
)
def test_any_surroundings(surroundings, program, tmp_path):
    tmp_path.joinpath("mine.py").write_text(RIGHT)
    options, changes = SURROUNDINGS[surroundings]
    if "MATPLOTLIBRC" in changes:
        tmp_path.joinpath("matplotlibrc").write_text(changes["MATPLOTLIBRC"])
        changes = changes | {"MATPLOTLIBRC": str(tmp_path)}
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "60"} | changes
    done = subprocess.run(
        [sys.executable, *options, *program],
        cwd=tmp_path,
        env={key: value for key, value in environment.items() if value is not None},
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr and b"\x1b" not in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="no pipe that closes early")
@pytest.mark.parametrize(
    ("program", "code"),
    [
        (("-m", "tinyattn", "check", "mine.py"), {1}),
        (("-m", "tinyattn", "break", "--list"), {0, 130}),
        ((str(ROOT / "demos" / "why_topological_order.py"), "--quick", "--out", "."), {0, 130}),
    ],
    ids=["check", "break", "demo"],
)
def test_a_reader_who_stops_reading(program, code, tmp_path):
    tmp_path.joinpath("mine.py").write_text(WRONG)
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, *program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=writes,
        stderr=subprocess.PIPE,
    )
    os.close(writes)
    assert done.returncode in code
    assert done.stderr == b""


@pytest.mark.parametrize("text", [RIGHT, WRONG])
def test_a_report_fits_into_60_columns(text, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "60")
    file = tmp_path / "mine.py"
    file.write_text(text)
    from tinyattn.check import check_file

    assert max(map(len, repr(check_file(file)).splitlines())) <= 60
    assert max(map(len, ta.heatmap(np.eye(30)).splitlines()[1:-1])) <= 60
