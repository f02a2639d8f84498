"""The pages in docs/ say what is so: their Python runs, the lines they quote stand in the functions they name."""

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tinyattn as ta
from tinyattn import ops

DOCS = Path(__file__).parent.parent / "docs"
DERIVATIONS = (DOCS / "derivations.md").read_text(encoding="utf-8")
INTRODUCTION, *SECTIONS = re.split(r"^## ", DERIVATIONS, flags=re.M)
STOPS = re.split(r"^## ", (DOCS / "tour.md").read_text(encoding="utf-8"), flags=re.M)[1:]
QUOTES = re.findall(r"^In the code, `([\w.]+)`:\n\n((?:    .+\n)+)", DERIVATIONS, re.M)


def blocks(text, kind="python"):
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)


def source(name):
    """The text of tinyattn's module, or function or class in one, of this name; decorators included."""
    try:
        return inspect.getsource(importlib.import_module(f"tinyattn.{name}"))
    except ModuleNotFoundError:
        module, _, name = f"tinyattn.{name}".rpartition(".")
    text = inspect.getsource(importlib.import_module(module))
    for node in ast.parse(text).body:
        if getattr(node, "name", None) == name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise AssertionError(f"{module} has no {name}")


def test_derivations_has_its_sections():
    titles = [s.splitlines()[0] for s in SECTIONS]
    assert titles == ["Softmax", "Cross-entropy", "Layer norm", "Attention", "Flash attention", "Linear attention"]
    assert all(blocks(s) and "In the code, `" in s and "```text" in s for s in SECTIONS)


@pytest.mark.parametrize("section", [INTRODUCTION, *SECTIONS], ids=lambda s: s.splitlines()[0])
def test_the_formulas_of_derivations_are_the_engines(section):
    preamble, *first = blocks(INTRODUCTION)
    space = {}
    exec(preamble, space)
    programs = first if section is INTRODUCTION else blocks(section)
    assert any("same(" in program for program in programs)
    for block in programs:
        exec(block, space)


@pytest.mark.parametrize(("name", "lines"), QUOTES)
def test_the_lines_that_derivations_quotes(name, lines):
    code = source(name)
    for line in lines.splitlines():
        assert line.strip() in code


def test_every_quote_is_found():
    assert len(QUOTES) == DERIVATIONS.count("In the code, `") >= 8


# --- the tour -------------------------------------------------------------------------------------------


def test_the_tour_has_a_dozen_stops_with_their_answers_folded():
    assert [s.split(".")[0] for s in STOPS] == [str(i) for i in range(1, 13)]
    for stop in STOPS:
        assert stop.splitlines()[0].endswith("?")
        before, folded = stop.split("<details><summary>Answer</summary>\n")
        assert len(blocks(before)) + len(blocks(before, "bash")) == 1
        assert folded.rstrip().endswith("</details>")


@pytest.mark.parametrize("stop", STOPS, ids=lambda s: s.split(".")[0])
def test_what_the_tour_reads_is_there(stop):
    named = re.findall(r"`([^`]+)`", re.search(r"^\*\*Read\*\* (.+)$", stop, re.M)[1])
    assert named
    for name in named:
        if name.endswith(".py"):
            assert (DOCS.parent / name).exists()
        elif "." in name or name == "values":
            assert source(name)


@pytest.mark.parametrize("stop", STOPS, ids=lambda s: s.split(".")[0])
def test_what_the_tour_tries_prints_what_it_shows(stop):
    printed = io.StringIO()
    if command := blocks(stop, "bash"):
        environment = os.environ | {"PYTHONPATH": str(DOCS.parent), "PYTHONIOENCODING": "utf-8"}
        words = [sys.executable if word == "python" else word for word in command[0].split()]
        done = subprocess.run(words, cwd=DOCS.parent, env=environment, capture_output=True, text=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        return
    with contextlib.redirect_stdout(printed):
        exec("import numpy as np\nimport tinyattn as ta\n" + blocks(stop)[0], {"__name__": "__main__"})
    assert printed.getvalue() == blocks(stop, "text")[0]


# --- how to add an op -----------------------------------------------------------------------------------


def test_the_op_that_contributing_adds_is_an_op():
    (entry,) = blocks((DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    space = dict(vars(ops))
    exec(entry, space)
    x = ta.Tensor([0.5, -0.3, 2.0], requires_grad=True)
    assert ta.gradcheck(space["log1p"], x) and ta.gradgradcheck(space["log1p"], x)
