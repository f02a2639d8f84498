"""The pages in docs/ say what is so: their Python runs, the lines they quote stand in the functions they name."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
DERIVATIONS = (DOCS / "derivations.md").read_text(encoding="utf-8")
INTRODUCTION, *SECTIONS = re.split(r"^## ", DERIVATIONS, flags=re.M)
QUOTES = re.findall(r"^In the code, `([\w.]+)`:\n\n((?:    .+\n)+)", DERIVATIONS, re.M)


def python(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def source(name):
    """The text of tinyattn's function or class of this name, decorators included."""
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
    assert all(python(s) and "In the code, `" in s and "```text" in s for s in SECTIONS)


@pytest.mark.parametrize("section", [INTRODUCTION, *SECTIONS], ids=lambda s: s.splitlines()[0])
def test_the_formulas_of_derivations_are_the_engines(section):
    preamble, *first = python(INTRODUCTION)
    space = {}
    exec(preamble, space)
    blocks = first if section is INTRODUCTION else python(section)
    assert sum(b.count("same(") for b in blocks) >= 1
    for block in blocks:
        exec(block, space)


@pytest.mark.parametrize(("name", "lines"), QUOTES)
def test_the_lines_that_derivations_quotes(name, lines):
    code = source(name)
    for line in lines.splitlines():
        assert line.strip() in code


def test_every_quote_is_found():
    assert len(QUOTES) == DERIVATIONS.count("In the code, `") >= 8
