"""The cells of the lesson in the page hold what they claim, and draw what the page can show, here as there."""

import pathlib
import runpy

import pytest

CELLS = sorted((pathlib.Path(__file__).parents[1] / "web" / "cells").glob("*.py"))
PARTS = {"measures", "table", "curves", "matrix", "dot", "page"}


@pytest.mark.parametrize("path", CELLS, ids=lambda p: p.stem)
def test_cell(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell = runpy.run_path(str(path))
    title, text, question = cell["__doc__"].strip().split("\n\n")
    assert title
    assert text
    assert question.startswith("Predict: ")
    assert all(control["at"] in control["values"] for control in cell["CONTROLS"].values())
    cell["claim"]()
    for edge in 0, -1:
        shown = cell["figure"](**{name: control["values"][edge] for name, control in cell["CONTROLS"].items()})
        for parts in [shown] if isinstance(shown, (dict, list)) else shown:
            for part in [parts] if isinstance(parts, dict) else parts:
                assert part.keys() <= PARTS
