"""What a notebook shows: every object once, as itself, and never as an escaped string."""

import pydoc
import re

import numpy as np
import pytest

import tinyattn as ta

CELLS = {  # what a cell ends with: (what its output holds once, in which form it is shown)
    "ta.Tensor([[1.5, 2.5], [3.5, 4.5]], name='W')": ("4.5", "text/html"),
    "ta.Tensor(np.ones((30, 40)), name='large')": ("shape=(30, 40)", "text/html"),
    "print(ta.Tensor([1.5, 2.5]))": ("[1.5, 2.5]", "stream"),
    "ta.nn.MultiHeadAttention(4, 2)": ("80 parameters", "text/html"),
    "ta.heatmap(np.eye(2), ['the', 'cat'], title='a map')": ("a map", "text/html"),
    "shown = ta.heatmap(np.eye(2), title='a map')": ("a map", "text/html"),
    "print(ta.explain((ta.Tensor([3.0, 4.0], requires_grad=True, name='v') * 2).sum()))": ("multiply", "stream"),
    "ta.show_mask(ta.causal_mask(3))": ("■ ■ ■", "text/html"),
    "print(ta.check(lambda n: np.tri(n, k=1, dtype=bool)))": ("causal-sees-next", "stream"),
    "ta.check(lambda n: np.tri(n, k=1, dtype=bool))": ("causal-sees-next", "text/html"),
    "x = ta.Tensor(2.0, requires_grad=True); ta.draw_graph(x * x)": ("</svg>", "image/svg+xml"),
    "ta.microscope(np.eye(3), np.eye(3), np.eye(3))": ("&lt;/html&gt;", "text/html"),
}


def test_a_notebook_shows_each_thing_once(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    setup = "import numpy as np\nimport tinyattn as ta"
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in (setup, *CELLS)])
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=60, kernel_name="python3", resources=place).execute()
    for cell, (text, form) in zip(book.cells[1:], CELLS.values()):
        outputs = [{"stream": out.text} if out.output_type == "stream" else out.data for out in cell.outputs]
        shown = [out for out in outputs if any(text in re.sub("<[^/].*?>", "", str(value)) for value in out.values())]
        assert len(outputs) == len(shown) == 1, (cell.source, outputs)
        assert form in shown[0], (cell.source, shown[0].keys())
        assert all("\\n" not in value for value in shown[0].values() if form != "stream"), cell.source


def test_what_notebooks_ask_for():
    t = ta.Tensor([[1.0, -2.5], [3.0, 4.0]], name="<W>")
    assert "<td>-2.5</td>" in t._repr_html_() and "&lt;W&gt;" in t._repr_html_()
    for many in (ta.Tensor(np.ones((2, 2, 2))), ta.Tensor(np.ones((30, 40))), ta.Tensor(2.0)):
        assert many._repr_html_().startswith("<pre>Tensor(")
    block = ta.nn.TransformerBlock(4, 2)
    assert block._repr_html_().count("<details open>") == 3 and "q_proj" in block._repr_html_()
    block.whole = block
    assert "above" in block._repr_html_() and "above" in repr(block)


def test_check_shows_the_solution_and_helps():
    def causal_mask(n):
        return np.tri(n, k=1, dtype=bool)

    plain, solved = ta.check(causal_mask), ta.check(causal_mask, solution=True)
    assert "The right lines" in repr(solved) and "The right lines" in solved._repr_html_()
    assert "The right lines" not in repr(plain) and "The right lines" not in plain._repr_html_()
    told = pydoc.render_doc(ta.check, renderer=pydoc.plaintext)
    assert "check(function: " in told and "solution: bool" in told and "ta.check(function" in told
    assert {"check", "Tensor", "nn", "softmax", "heatmap"} <= set(dir(ta))
