"""The cells of the lesson in the page hold what they claim, and draw what the page can show, here as there."""

import json
import pathlib
import runpy

import pytest

WEB = pathlib.Path(__file__).parents[1] / "web"
CELLS = sorted((WEB / "cells").glob("*.py"))
PARTS = {"measures", "table", "curves", "matrix", "dot", "page", "beside"}


@pytest.mark.parametrize("path", CELLS, ids=lambda p: p.stem)
def test_cell(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell = runpy.run_path(str(path))
    title, *text, question = cell["__doc__"].strip().split("\n\n")
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


@pytest.fixture
def bridge(tmp_path, monkeypatch):
    """Calls the page's functions as the page does, and gives the answer and what was emitted on the way."""
    monkeypatch.chdir(tmp_path)
    call, emitted = runpy.run_path(str(WEB / "src" / "bridge.py"))["call"], []

    def asked(function, /, **job):
        return json.loads(call(function, json.dumps(job), emitted.append)), [*map(json.loads, emitted)]

    return asked


def run(bridge, source, **values):
    return bridge("run", source=source, file="mine.py", values=values)[0]


def test_what_a_reader_types_is_answered_at_its_line(bridge):
    figure = "def figure(x):\n    "
    assert run(bridge, figure + 'return {"measures": {"x": x / 3}}', x=1)["parts"] == {"measures": {"x": 1 / 3}}
    assert run(bridge, figure + "return 1 / (x - 1)", x=1)["line"] == 2
    assert run(bridge, figure + "return )", x=1)["line"] == 2
    assert run(bridge, "\n\nraise SystemExit", x=1)["line"] == 3
    assert run(bridge, "", x=1)["error"].startswith("NameError: there is no figure")
    assert run(bridge, figure + "pass", x=1)["error"].startswith("TypeError: figure(…) gives NoneType")
    assert run(bridge, figure + "yield 3", x=1)["error"].startswith("TypeError: figure(…) gives int")
    assert run(bridge, "import nothing", x=1)["error"].endswith("The page has NumPy and tinyattn, and nothing else")
    assert run(bridge, "x = []\nx.append(x)\ndef figure(**v): return {'text': x}")["error"].startswith("RecursionError")
    assert (
        "more than the page" in run(bridge, "import numpy\ndef figure(): return {'text': numpy.ones(10**6)}")["error"]
    )
    assert len(run(bridge, "for _ in range(10**5):\n    print('again')", x=1)["text"]) < 21_000


def test_a_figure_that_yields_shows_each_of_its_parts(bridge):
    source = "def figure(x):\n    for k in range(x):\n        yield {'text': str(k)}"
    told, emitted = bridge("run", source=source, file="mine.py", values={"x": 3})
    assert [part["text"] for part in emitted] == ["0", "1", "2"]
    assert told["parts"] == {"text": "2"}


GAME = [
    "softmax-over-queries",
    "inputs-modified",
    "heads-same-slice",
    "cross-sources-swapped",
    "backward-scale-missing",
]


@pytest.mark.parametrize("name", GAME)
def test_a_bug_of_the_game_shows_and_is_mended_at_its_places(bridge, name):
    bug, _ = bridge("bug", name=name)
    assert bug["wrong"] != bug["right"]
    assert bridge("check", source=bug["source"])[0]["verdict"] == "wrong"
    lines = bug["source"].splitlines()
    for place in reversed(bug["places"]):
        lines[place["line"] - 1 : place["line"] - 1 + place["wrong"]] = place["right"]
    assert bridge("check", source="\n".join(lines))[0]["verdict"] == "correct"


def test_a_program_for_another_library_is_told_what_the_page_has(bridge):
    for program in (
        "import torchy\ndef f(Q, K, V): return Q",
        "def attention(Q, K, V):\n    import torchy\n    return Q",
    ):
        (finding,) = (f for f in bridge("check", source=program)[0]["findings"] if f["severity"] == "bug")
        assert "No module named 'torchy'" in finding["message"]
        assert "The page has NumPy and tinyattn, and nothing else." in finding["message"]
