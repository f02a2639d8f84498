"""Pictures: what the DOT text and the heatmaps hold. Rendering is tried where a program for it is there."""

import io
import itertools
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.draw import draw_graph, graph, heatmap, render
from tinyattn.draw.heatmap import GREY, Fonts
from tinyattn.modes import region
from tinyattn.text import VIRIDIS

graphviz = pytest.importorskip("graphviz")
from graphviz.backend import dot_command  # noqa: E402


class Drawing:
    """A DOT text read back: the lines of each node's label, its attributes, the edges in order."""

    def __init__(self, source):
        self.source = source
        self.nodes, self.style = {}, {}
        for name, label, rest in re.findall(r"^\t(\w+) \[label=<(.*)> (.*)\]$", source, re.M):
            rows = label.split("<BR/>")
            self.nodes[name] = ["".join(ET.fromstring(f"<a>{row}</a>").itertext()).strip() for row in rows]
            self.style[name] = rest
        self.edges = re.findall(r"^\t(\w+) -> (\w+)(?: \[headlabel=(\d+).*\])?", source, re.M)
        self.labels = dict(re.findall(r"^\t(\w+ -> \w+) \[.*?label=\" (.*?) \".*\]$", source, re.M))

    def named(self, heading):
        return [name for name, rows in self.nodes.items() if rows[0] == heading]

    def rows(self, heading):
        (name,) = self.named(heading)
        return self.nodes[name][1:]

    def fill(self, heading):
        (name,) = self.named(heading)
        return re.search(r'fillcolor="(.*?)"', self.style[name])[1]


def drawing(*args, **kwargs):
    return Drawing(draw_graph(*args, **kwargs).source)


def leaf(*shape, name=None, seed=0):
    return ta.Tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True, name=name)


# --- graphs: form ----------------------------------------------------------------------------------------------


def test_shared_tensors_multiple_edges_and_separate_constants():
    """VZ05"""
    x = ta.Tensor(3.0, requires_grad=True, name="x")
    d = drawing(x * x + 2.0 + 2.0)
    (node,), (product,), constants = d.named("x"), d.named("*"), d.named("2")
    assert [(a, b) for a, b, _ in d.edges].count((node, product)) == 2
    assert len(constants) == 2
    assert len(d.nodes) == 6
    assert len(d.edges) == 6


def test_operands_are_numbered_where_their_order_matters():
    a, b = leaf(name="a"), leaf(name="b")
    for output, numbers in ((a - b, ("1", "2")), (b / a, ("2", "1")), (a + b, ("", "")), (a * b, ("", ""))):
        d = drawing(output)
        found = {d.nodes[start][0]: k for start, _, k in d.edges}
        assert (found["a"], found["b"]) == numbers
    W, x = leaf(3, 4, name="W"), leaf(2, 3, name="x")
    d = drawing(x @ W)
    assert [d.nodes[start][0] for start, _, _ in d.edges] == ["x", "W"]  # as written, not as created


NAMES = ["<lambda> <map>", "<b>", "a<b", "&lt;", '"q"', "a\\N", "x:y", "::", "</TABLE>", "\\"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are(name):
    """VZ01, VZ02"""
    output = ta.sum(leaf(2, name=name))
    output.name = name
    d = drawing(output)
    written = name.replace("\\", "\\\\")  # DOT's own escape
    assert [rows[0] for rows in d.nodes.values()] == [written, f"{written} = sum"]
    assert all(re.fullmatch(r"n\d+", node) for node in d.nodes)


def test_names_survive_rendering(tmp_path):
    """VZ01, VZ02"""
    if not render.find_program():
        pytest.skip("neither dot nor graphviz-pure is installed")
    leaves = [leaf(name=name) for name in [*NAMES, "", " ", "n" * 20_000, "a\nb\x00", "日本"]]
    total = leaves[0]
    for t in leaves[1:]:
        total = total + t
    draw_graph(total, title="<i> & $", path=tmp_path / "names.svg")
    svg = ET.parse(tmp_path / "names.svg").getroot()
    texts = [t.text.strip(" \xa0") for t in svg.iter() if t.tag.endswith("}text")]
    assert {*NAMES, "parameter", "n" * 59 + "…", r"a\nb\x00", "日本", "<i> & $"} <= set(texts)
    draw_graph(total, path=tmp_path / "names.png")
    assert (tmp_path / "names.png").read_bytes().startswith(b"\x89PNG")
    assert "image/svg+xml" in draw_graph(total)._repr_mimebundle_()


def test_names_do_not_identify():
    """VZ02"""
    a, b, nameless, long = leaf(name="w"), leaf(name="w"), leaf(name=""), leaf(name="n" * 20_000)
    d = drawing(a * b + nameless + long)
    assert len(d.named("w")) == 2
    assert len(d.named("parameter")) == 1
    assert len(d.named("n" * 59 + "…")) == 1


@pytest.mark.parametrize(("length", "show"), [(3_000, "gradients"), (100_000, "shapes")])
def test_a_long_loop_is_drawn_once_and_counted(length, show):
    """VZ04"""
    t = leaf(name="x")
    for _ in range(length):
        t = ta.sin(t)
    d = drawing(t, show=show)
    assert [rows[0] for rows in d.nodes.values()] == ["x", f"sin × {length:,}"]
    assert [(a, b) for a, b, _ in d.edges] == [("n0", "n1")]
    assert "peripheries=2" in d.style["n1"]


def test_rounds_of_several_steps_are_found_and_what_is_not_alike_stays():
    W, b, h = leaf(4, 4, name="W"), leaf(4, name="b"), ta.Tensor(np.ones((3, 4)))
    for _ in range(50):
        h = ta.tanh(h @ W + b)
    d = drawing(ta.sum(h))
    assert {rows[0] for rows in d.nodes.values()} == {"constant", "W", "b", "@ × 50", "+ × 50", "tanh × 50", "sum"}
    assert len(d.named("W")) == len(d.named("b")) == 1
    ends = [(d.nodes[a][0], d.nodes[b][0]) for a, b, _ in d.edges]
    assert ends.count(("W", "@ × 50")) == 1
    assert len(drawing(ta.sum(h), fold=False).nodes) == 3 + 150 + 1
    x = leaf(2, 3, name="x")  # each reads x alone, as three projections do: this is no loop
    assert len(drawing(ta.sum(ta.stack([ta.sin(x) for _ in range(100)]))).nodes) == 103


def test_a_graph_without_repetitions_is_not_drawn_beyond_a_limit(tmp_path, capsys):
    """VZ04"""
    rng = np.random.default_rng(0)
    t = leaf(name="x")
    for kind in rng.integers(0, 4, 3_000):
        t = (ta.sin, ta.cos, ta.tanh, ta.sigmoid)[kind](t)
    digraph = draw_graph(t, path=tmp_path / "g.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["g.dot"]
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"2,\d\d\d boxes are too many for a picture.*depth= or fold=.*g\.dot", line)
    assert "too many" in digraph._repr_mimebundle_()["text/plain"]


def test_sixty_doublings():
    t = leaf(name="x")
    for _ in range(60):
        t = t + t
    d = drawing(t, show="gradients")
    assert len(d.nodes) == 61
    assert len(d.edges) == 120
    assert d.rows("x")[-1] == f"grad {2.0**60:.4g}"


def test_functions_are_frames_and_leaves_stand_outside():
    inner = region(lambda x: ta.exp(x) * 2.0, "inner <1>")
    outer = region(lambda x: inner(x) + inner(ta.tanh(x)), "outer")
    x = leaf(3, name="x")
    source = draw_graph(ta.sum(outer(x))).source
    stack, frames, frame_of = [], [], {}
    for text in source.splitlines()[1:-1]:
        if opened := re.match(r"\tsubgraph (cluster\d+) .* label=<\s*(.*?)\s*>$", text):
            stack.append(opened[2])
            frames.append(opened[1])
        elif text == "\t}":
            stack.pop()
        elif node := re.match(r"\tn\d+ \[label=<(?:<B>)?(.*?)(?:</B>|> style)", text):
            frame_of.setdefault(node[1], []).append(tuple(stack))
    assert stack == []
    assert len(frames) == len(set(frames)) == 3
    assert frame_of["x"] == [()]
    assert frame_of["sum"] == [()]
    assert frame_of["tanh"] == frame_of["+"] == [("outer",)]
    assert frame_of["exp"] == [("outer", "inner &lt;1&gt;")] * 2
    assert frame_of["*"] == frame_of["2"] == [("outer", "inner &lt;1&gt;")] * 2


def gpt_loss(layers=4):
    model, ids = ta.nn.GPT(11, 8, 16, 4, layers, rng=0), np.random.default_rng(0).integers(0, 11, (2, 8))
    return ta.cross_entropy(model(ids), ids)


def test_a_gpt_is_an_overview_of_its_modules():
    d = drawing(gpt_loss(), show="gradients")
    headings = [d.nodes[name][0] for name in sorted(d.nodes, key=lambda name: int(name[1:]))]
    assert headings[:4] == [
        "embedding: Embedding",
        "positions: LearnedPositions",
        "blocks: TransformerBlock × 4",
        "norm: LayerNorm",
    ]
    assert len(headings) <= 10
    assert d.rows("blocks: TransformerBlock × 4")[:2] == ["3,280 parameters each", "→ (2, 8, 16)"]
    assert re.fullmatch(r"grad \d.\de-\d\d … \d.\de-\d\d", d.rows("blocks: TransformerBlock × 4")[2])
    ends = [(d.nodes[a][0].partition(":")[0], d.nodes[b][0].partition(":")[0]) for a, b, _ in d.edges]
    assert ends[:4] == [("embedding", "positions"), ("positions", "blocks"), ("blocks", "norm"), ("norm", "head")]


def test_depth_opens_boxes_and_fold_closes_them():
    loss = gpt_loss()
    assert [rows[0] for rows in drawing(loss, depth=0).nodes.values()] == ["GPT", "cross entropy"]
    d = drawing(loss, depth=2)
    assert "blocks: TransformerBlock × 4" in d.source
    assert d.rows("attention: MultiHeadAttention")[0] == "1,088 parameters each"
    d = drawing(loss, depth=3)
    assert len(d.named("q_proj: Linear")) == len(d.named("k_proj: Linear")) == len(d.named("v_proj: Linear")) == 1
    for closed in ("MultiHeadAttention", "attention", ["blocks.0.attention", "x"]):
        found = drawing(loss, depth=3, fold=closed)
        assert found.rows("attention: MultiHeadAttention")[0] == "1,088 parameters each"
        assert not found.named("q_proj: Linear")
    d = drawing(gpt_loss(2), fold=False)
    assert len(d.named("weights = softmax")) == 2
    assert d.source.count("MultiHeadAttention") == 2 + d.source.count('MultiHeadAttention"')
    d = drawing(gpt_loss(2), depth=9)  # fused ops are open too
    assert len(d.named("tanh")) == 1 and "layer_norm" in d.source
    with pytest.raises(ValueError, match="depth is -1"):
        draw_graph(loss, depth=-1)


def test_parameters_stand_in_their_modules_frames_with_their_paths():
    block, x = ta.nn.TransformerBlock(16, 4, rng=0), ta.Tensor(np.ones((2, 5, 16)), name="x")
    d = drawing(ta.sum(block(x, mask=ta.causal_mask(5))), fold=False)
    for name, p in block.named_parameters():
        (node,) = d.named(name) or [n for n, rows in d.nodes.items() if name in rows]
        lines = d.source.splitlines()
        before = lines[: next(i for i, line in enumerate(lines) if line.startswith(f"\t{node} ["))]
        assert sum("subgraph" in line for line in before) > before.count("\t}")  # inside of some frame
        assert f"{p.shape}" in d.nodes[node]
    assert d.rows("Wq")[0] == "attention.q_proj.weight"
    assert d.rows("blocked = ~mask") == ["(5, 5) bool"]

    class Mine(ta.nn.Module):
        def __init__(self):
            self.own = [leaf(3, 3)]

        def forward(self, x):
            return x @ self.own[0]

    assert drawing(Mine()(leaf(2, 3, name="x"))).rows("own.0") == ["(3, 3)"]


def test_a_block_at_a_glance_has_its_layers_as_boxes_that_tell_what_is_in_them():
    block, x = ta.nn.TransformerBlock(16, 4, rng=0), ta.Tensor(np.ones((2, 5, 16)), name="x")
    d = drawing(ta.sum(block(x)))
    assert len(d.nodes) <= 30
    assert d.rows("q_proj: Linear") == ["272 parameters", "→ (2, 5, 16)", "Wq, bias"]
    assert d.named("weights = softmax")
    inside = drawing(gpt_loss(), show="gradients").rows("blocks: TransformerBlock × 4")[-1]
    assert inside == "norm1, attention (Wq Wk Wv softmax Wo), norm2, feed_forward"
    states = ta.nn.RNN(3, 4, rng=0)(np.ones((1, 6, 3)))
    rnn = drawing(ta.sum(states), show="gradients")  # six calls of one layer: its weights are in no box of one call
    assert not rnn.named("state: Linear")
    assert len(rnn.nodes) <= 16


def test_attention_is_named_as_its_formula_and_an_array_is_one_node():
    X, weights = (
        np.random.default_rng(0).normal(size=(5, 8)),
        [leaf(8, 4, name=f"W{k}", seed=i) for i, k in enumerate("qkv")],
    )
    d = drawing(ta.sum(ta.scaled_dot_product_attention(*(X @ W for W in weights), ta.causal_mask(5))))
    (array,) = d.named("array")
    assert [a for a, _, _ in d.edges].count(array) == 3
    assert d.named("Q = @") and d.named("K = @") and d.named("V = @")
    chain = ["scores = @", "scaled = *", "masked = masked fill", "weights = softmax", "output = @"]
    ends = {(d.nodes[a][0], d.nodes[b][0]) for a, b, _ in d.edges}
    assert set(itertools.pairwise(chain)) <= ends
    assert [text.strip() for text in d.labels.values()] == ["transposed"]
    mha = ta.nn.MultiHeadAttention(8, 2, rng=0)  # fused, but opened
    assert drawing(ta.sum(mha(ta.Tensor(X)))).named("weights = softmax")
    assert {"Q = swapaxes", "K = swapaxes", "V = swapaxes"} <= {
        rows[0] for rows in drawing(mha(ta.Tensor(X))).nodes.values()
    }


def test_a_node_is_an_array_and_not_its_numbers():
    X, same, W = np.ones((3, 4)), np.ones((3, 4)), leaf(4, 4, name="W")
    assert len(drawing(ta.sum(X @ W + X @ W + X @ W)).named("array")) == 1
    assert len(drawing(ta.sum(X @ W + same @ W)).named("array")) == 2
    assert len(drawing(ta.sum(np.ones((3, 4)) @ W + np.ones((3, 4)) @ W)).named("array")) == 2  # freed at once
    before = X @ W
    X += 1  # the same array, but other numbers went into the graph
    assert len(drawing(ta.sum(before + X @ W)).named("array")) == 2
    first, second = ta.nn.Linear(4, 2, rng=0), ta.nn.Linear(4, 2, rng=1)
    assert len(drawing(ta.sum(first(X) + second(X))).named("constant")) == 1
    assert len(drawing(ta.sum(first(X) + second(X.copy()))).named("constant")) == 2
    a, b = ta.Tensor(X), ta.Tensor(X)  # two tensors
    assert len(drawing(ta.sum(a @ W + b @ W + a @ W)).named("constant")) == 2


def test_what_only_rearranges_is_told_on_its_edge():
    x = leaf(3, 4, name="x")
    d = drawing(ta.sum(x.reshape(1, 4, 3).swapaxes(0, 2) * 2.0))
    assert [rows[0] for rows in d.nodes.values()] == ["x", "2", "*", "sum"]
    assert [text.strip() for text in d.labels.values()] == ["as (3, 4, 1)"]
    assert [text.strip() for text in drawing(x @ x.mT.reshape(4, 3)).labels.values()] == ["transposed"]
    assert not drawing(x + x.mT.mT).labels
    d = drawing([x.mT, x.reshape(12)])  # results have boxes, and so has what has a name
    assert [rows[0] for rows in d.nodes.values()] == ["x", "xᵀ", "reshape"]
    assert [n for n in d.style if "peripheries" in d.style[n]] == ["n1", "n2"]
    y = x.reshape(12)
    y.name = "y"
    assert drawing(ta.sum(y)).named("y = reshape")


def test_a_closed_graph_and_an_open_one_have_the_same_gradients():
    """The steps inside a fused op are walked back one by one: to what the op's own way back gives."""
    block = ta.nn.TransformerBlock(16, 4, rng=0)
    loss = ta.sum(block(ta.Tensor(np.random.default_rng(1).normal(size=(2, 5, 16)))) ** 2)
    shown = [drawing(loss, show="gradients", depth=depth, fold=False) for depth in (None, 9)]
    assert len(shown[1].nodes) > len(shown[0].nodes)
    for name in ("norm1.weight", "attention.q_proj.bias", "feed_forward.up.weight"):
        assert shown[1].rows(name)[-1] == shown[0].rows(name)[-1]
    for d in shown:
        assert "but for rounding" in d.rows("attention.k_proj.bias")[-1]
        assert "dashed" in d.style[d.named("attention.k_proj.bias")[0]]


def test_the_verdict_names_a_gradient_that_is_zero_in_theory():
    layer = ta.nn.MultiHeadAttention(8, 2, rng=0)
    out = layer(ta.Tensor(np.random.default_rng(1).normal(size=(1, 4, 8))))
    drawn = drawing((out * out).mean(), show="gradients").source
    assert "the gradient dies nowhere, but is 0 in theory for k_proj.bias" in drawn


def test_edges_carry_gradients_and_slopes():
    x = ta.Tensor(2.0, requires_grad=True, name="x")
    b = x * 3.0
    b.name = "b"
    d = drawing(b * 2.0 + b * 5.0, show="gradients")
    assert d.rows("b = *")[-1] == "grad 2 + 5 = 7"
    labels = {(d.nodes[a][0], label.strip()) for a, label in ((k.split()[0], v) for k, v in d.labels.items())}
    assert {("x", "× 3"), ("b = *", "× 2"), ("b = *", "× 5")} <= labels
    y = leaf(4, name="y")
    d = drawing(ta.sum(y * 1e-6 + y * 2.0), show="gradients")
    assert sorted(text.strip() for text in d.labels.values()) == ["1.0e-06 dies: × 1e-06", "2.0e+00"]
    wide = [float(width) for width in re.findall(r"penwidth=(\S+) edgetooltip", d.source)]
    assert min(wide) < 1.5 < 3 < max(wide)


def test_what_the_colours_cannot_show_is_marked():
    a, b = leaf(3, name="a"), leaf(3, name="b")
    d = drawing(ta.sum(a + b * 7e-66), show="gradients")
    assert d.rows("b")[-1] == "grad 7.0e-66 ▼"
    assert d.rows("a")[-1] == "grad 1.0e+00"
    assert "▼ beyond the colours" in d.source
    assert drawing(ta.sum(a), show="gradients", limits=(1e-9, 1e-3)).rows("a")[-1] == "grad 1.0e+00 ▲"
    assert "▼" not in drawing(ta.sum(a + b), show="gradients").source


def test_tooltips_have_formula_rule_range_and_norm():
    x = leaf(4, name="x<&>")
    x.data[:] = [3, 4, 0, 0]
    d = drawing(ta.sum(ta.tanh(x)), show="gradients")
    (tanh,), (node,) = d.named("tanh"), d.named("x<&>")
    tip = re.search(r'tooltip="(.*?)"', d.style[tanh])[1]
    assert "tanh(x&lt;&amp;&gt;)" in tip
    assert "dx = g · (1 - tanh² x)" in tip and "dx = g * (1 - out * out)" in tip
    assert "0 to 4, norm 5" in re.search(r'tooltip="(.*?)"', d.style[node])[1]


def test_a_page_opens_and_closes_boxes_by_itself(tmp_path):
    if not render.find_program():
        pytest.skip("neither dot nor graphviz-pure is installed")
    draw_graph(gpt_loss(), path=tmp_path / "gpt.html", title="<GPT>")
    page = (tmp_path / "gpt.html").read_text()
    assert "<script" not in page and "&lt;GPT&gt;" in page
    assert not re.search(r"(src|href)=.https?:", page)
    sections = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', page, re.S))
    assert "TransformerBlock" not in sections["all"]
    inside = [sections[link].replace("\xa0", " ") for link in re.findall(r'href="#(\w+)"', sections["all"])]
    assert any("TransformerBlock × 4" in section for section in inside)
    links = {link for section in sections.values() for link in re.findall(r'href="#(\w+)"', section)}
    assert links == set(sections)  # every link leads somewhere, and every picture is reached
    ids = re.findall(r'\bid="(\w+)"', page)
    assert len(ids) == len(set(ids))
    assert "prefers-color-scheme: dark" in page and "the gradient" not in page
    draw_graph(gpt_loss(1), path=tmp_path / "gpt.html", show="gradients")
    page = (tmp_path / "gpt.html").read_text()
    assert page.count("zeros aside") == page.count("the gradient dies nowhere") == 1  # above the pictures, in none
    for svg in re.findall(r"<svg.*?>", page, re.S):  # as wide as the window, within what one can read
        least, most, points = (
            float(re.search(p, svg)[1]) for p in (r"min-width: (\d+)", r"max-width: (\d+)", r'width="(\d+)')
        )
        assert least < points < most


def test_several_outputs_are_one_picture_with_rims():
    x = leaf(3, name="x")
    y = x * x
    a, b = ta.sum(y), ta.exp(y)
    d = drawing([a, b, x])
    assert len(d.nodes) == 4
    assert {d.nodes[n][0] for n in d.nodes if "peripheries" in d.style[n]} == {"sum", "exp", "x"}


def test_shapes_values_and_parameters():
    X, W = ta.Tensor(np.arange(6).reshape(2, 3), name="X"), leaf(3, 5, name="W")
    S = ta.softmax(ta.masked_fill(X @ W, np.eye(2, 5, dtype=bool), -np.inf), axis=0)
    d = drawing(S)
    assert d.rows("X") == [f"(2, 3) {np.dtype(int)}"]
    assert d.rows("W") == ["(3, 5)"]
    assert d.rows("array") == ["(2, 5) bool"]
    assert d.rows("-inf") == []
    assert d.rows("softmax") == ["axis=0", "(2, 5)"]
    assert (d.fill("X"), d.fill("W"), d.fill("softmax")) == (graph.CONSTANT, graph.PARAMETER, graph.COMPUTED)
    d = drawing(S, show="values")
    assert d.rows("X") == [f"(2, 3) {np.dtype(int)}", "[[0 1 2]", "[3 4 5]]"]
    big = ta.Tensor(np.linspace(-2, 3, 101), requires_grad=True, name="big")
    assert drawing(big * 1, show="values").rows("big") == ["(101,)", "-2 to 3"]
    empty = ta.Tensor(np.ones((0, 2)), requires_grad=True, name="empty")
    assert drawing(ta.sum(empty), show="gradients").rows("empty") == ["(0, 2)"]
    data = big.numpy()
    data[:7] = [np.nan, np.inf, -np.inf, 0, 0, 0, 0]
    big.data = data
    assert drawing(big * 1, show="values").rows("big") == ["(101,)", "-1.65 to 3, 3 not finite"]


# --- graphs: gradients -----------------------------------------------------------------------------------------


def test_gradients_are_those_of_backward_and_touch_nothing():
    x, y = ta.Tensor(3.0, requires_grad=True, name="x"), ta.Tensor(-2.0, requires_grad=True, name="y")
    z = x * x * y + ta.exp(y)
    d = drawing(z, show="gradients")
    assert x.grad is None
    assert d.rows("x") == ["3", "grad -12"]
    assert d.rows("y") == ["-2", f"grad 9 + {np.exp(-2):.4g} = {9 + np.exp(-2):.4g}"]  # branches meet here
    assert d.rows("exp") == ["0.1353", "grad 1"]
    z.backward()  # the graph is still there
    assert x.grad.item() == -12


def test_gradients_of_several_outputs_add_up_and_take_seeds():
    x = leaf(3, name="x")
    a, b = ta.sum(x * 2.0), ta.sum(x * 5.0)
    assert drawing([a, b], show="gradients").rows("x") == ["(3,)", "grad 7.0e+00"]
    assert drawing([a, b], show="gradients", gradient=[10.0, 1.0]).rows("x") == ["(3,)", "grad 2.5e+01"]
    assert drawing(x * 2.0, show="gradients", gradient=np.full(3, -1.5)).rows("x") == ["(3,)", "grad 3.0e+00"]
    with pytest.raises(ValueError, match="1 gradients for 2 outputs"):
        draw_graph([a, b], show="gradients", gradient=[1.0])
    with pytest.raises(RuntimeError, match="gradient="):
        draw_graph(x * 2.0, show="gradients")


def test_colour_is_the_median_of_what_is_not_zero_on_a_log_scale():
    dying = ta.Tensor(np.zeros(7), requires_grad=True, name="dying")
    alive, dead = leaf(7, name="alive"), leaf(7, name="dead")
    constant = ta.Tensor(np.ones(7), name="constant")
    slope = np.array([1e3, 1e-4, -1e-4, 0, 0, 0, 0])
    L = ta.sum(dying * slope + alive * constant + dead * 0.0)
    d = drawing(L, show="gradients")
    assert d.rows("dying") == ["(7,)", "grad 1.0e-04", "57% are 0"]
    assert d.rows("alive") == ["(7,)", "grad 1.0e+00"]
    assert d.rows("dead") == ["(7,)", "grad 0"]
    assert d.rows("constant") == ["(7,)"]
    assert d.fill("dying") == VIRIDIS[4]  # 4 of the 8 decades
    assert d.fill("alive") == VIRIDIS[8]
    assert d.fill("constant") == graph.CONSTANT
    assert "dashed" in d.style[d.named("dead")[0]]
    assert "dashed" not in d.style[d.named("dying")[0]]
    d = drawing(L, show="gradients", limits=(1e-4, 1e4))
    assert (d.fill("dying"), d.fill("alive")) == (VIRIDIS[0], VIRIDIS[4])
    assert drawing(L, show="gradients", limits=(1e-2, 1e-1)).fill("alive") == VIRIDIS[8]
    assert "up to 1.0e-04" in d.source


def test_gradients_that_are_not_finite_stand_out():
    x = ta.Tensor(np.zeros(3), requires_grad=True, name="x")
    with np.errstate(all="ignore"):
        d = drawing(ta.sum(ta.sqrt(x)), show="gradients")
    assert d.fill("x") == graph.NOT_FINITE
    assert d.rows("x") == ["(3,)", "grad inf"]


def test_where_the_gradient_dies_without_scaling():
    rng = np.random.default_rng(0)
    Q, K, V = (ta.Tensor(rng.normal(size=(16, 512)), requires_grad=True, name=name) for name in "QKV")
    R = rng.normal(size=(16, 512))
    fills = {}
    for scale in (None, 1.0):
        d = drawing(ta.sum(ta.scaled_dot_product_attention(Q, K, V, scale=scale) * R), show="gradients")
        fills[scale] = VIRIDIS.index(d.fill("Q")), VIRIDIS.index(d.fill("weights = softmax"))
    assert fills[None][0] >= 6  # softmax is alive in both,
    assert fills[1.0][0] <= 4  # the queries before it are not
    assert fills[None][1] == fills[1.0][1] == 8


def test_a_graph_says_where_the_gradient_dies():
    said = lambda source: re.search(r"the gradient [^<]*?(?=\s*</B>)", source)[0].replace("\xa0", " ")
    rng = np.random.default_rng(0)
    Q, K, V = (ta.Tensor(rng.normal(size=(16, 512)), requires_grad=True, name=name) for name in "QKV")
    for scale, expected in ((None, "nowhere"), (1.0, "at scaled_dot_product_attention: weights = softmax")):
        d = drawing(ta.sum(ta.scaled_dot_product_attention(Q, K, V, scale=scale) * V), show="gradients")
        assert said(d.source) == f"the gradient dies {expected}"
        assert (graph.DYING in d.source) == (scale == 1.0)
    x = leaf(5_000, name="x")
    assert said(drawing((x * x).mean(), show="gradients").source) == "the gradient dies nowhere"  # spread, not lost
    assert said(drawing(ta.sum(x * 0.0), show="gradients").source) == "the gradient dies at *"
    t = x
    for _ in range(30):
        t = t * 0.5
    assert said(drawing(ta.sum(t), show="gradients").source) == "the gradient fades op by op, to 2e-09 at *"
    h = ta.Tensor(np.zeros((1, 3)))  # the first state of a recurrent net: weights get nothing there, but elsewhere
    W = leaf(3, 3, name="W")
    assert said(drawing(ta.sum(ta.tanh(h @ W + 1.0) @ W), show="gradients").source) == "the gradient dies nowhere"
    assert "dies at" in draw_graph(vanished_gpt(), show="gradients").source


def vanished_gpt():
    model, ids = ta.nn.GPT(11, 8, 16, 4, 2, rng=0), np.random.default_rng(0).integers(0, 11, (2, 8))
    model.blocks[1].attention.q_proj.weight.data *= 1e5
    return ta.cross_entropy(model(ids), ids)


def test_the_backward_pass_is_a_graph_of_its_own_hue_and_names():
    X, (Wq, Wk, Wv) = ta.Tensor(np.ones((5, 8)), name="X"), [leaf(8, 4, name=f"W{k}") for k in "qkv"]
    Q, K, V = X @ Wq, X @ Wk, X @ Wv
    Q.name, K.name, V.name = "Q", "K", "V"
    out = ta.scaled_dot_product_attention(Q, K, V)
    gradients = ta.grad(ta.sum(out * out), (Wq, Wk, Wv), create_graph=True)
    assert [g.name for g in gradients] == ["dWq", "dWk", "dWv"]
    d = drawing(gradients)
    headings = {rows[0] for rows in d.nodes.values()}
    assert {"dP (weights) = @", "dS (scores) = *", "dQ = @", "dV = @", "dWq = @", "Xᵀ"} <= headings
    assert not {"reshape", "transpose"} & headings
    assert d.fill("dQ = @") == graph.BACKWARD != d.fill("weights = softmax")
    assert re.search(r"label=<\s*backward\s*>", d.source) and "backward pass" in d.source
    seed = ta.Tensor(np.ones((5, 4)))
    ta.grad(out, Wq, seed, create_graph=True)
    assert seed.name is None  # what is given keeps its name


# --- graphs: what cannot be drawn ------------------------------------------------------------------------------


def test_outputs_without_a_graph_are_refused():
    x = leaf(3, name="x")
    L = ta.sum(x * x)
    L.backward()
    with pytest.raises(RuntimeError, match=r"retain_graph=True"):
        draw_graph(L)
    with pytest.raises(RuntimeError, match=r"released"):
        draw_graph(x.detach() * x + L, show="gradients")
    with pytest.raises(RuntimeError, match=r"requires_grad=True"):
        draw_graph(ta.sum(x.detach()))
    with ta.no_grad(), pytest.raises(RuntimeError, match=r"no_grad"):
        draw_graph(x * x)
    with pytest.raises(TypeError, match="ndarray"):
        draw_graph([x, np.ones(2)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"show": "grads"}, "'grads'.*gradients"),
        ({"direction": "down"}, "'down'.*TB"),
        ({"path": "graph.jpeg"}, "'.jpeg'.*svg"),
        ({"path": "graph"}, "''.*svg"),
        ({"limits": (0, 1)}, "lowest"),
        ({"limits": (1, 1)}, "lowest"),
    ],
)
def test_wrong_options_name_the_right_ones(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        draw_graph(leaf() * 2.0, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_program(monkeypatch, tmp_path):
    """An empty PATH and an empty folder of scripts."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "scripts"))
    monkeypatch.setattr(dot_command, "DOT_BINARY", "dot")
    (tmp_path / "scripts").mkdir()
    return tmp_path


def test_without_a_program_the_text_is_written_and_one_line_says_what_to_install(no_program, capsys):
    """VZ03"""
    L = leaf(name="x") * 2.0
    for suffix in ("svg", "png"):
        digraph = draw_graph(L, path=no_program / f"picture.{suffix}")
        (line,) = capsys.readouterr().err.splitlines()
        assert "dot is missing" in line
        assert "pip install graphviz-pure" in line
        assert "picture.dot" in line
        assert not (no_program / f"picture.{suffix}").exists()
        assert (no_program / "picture.dot").read_text() == digraph.source
    draw_graph(L, path=no_program / "text.gv")
    assert (no_program / "text.gv").read_text() == digraph.source
    assert capsys.readouterr() == ("", "")
    ((kind, shown),) = digraph._repr_mimebundle_(include=None, exclude=None).items()  # a notebook's display
    assert kind == "text/plain"
    assert "pip install graphviz-pure" in shown
    assert "\n" not in shown


def test_gb_21_a_dot_without_its_plug_ins_gets_what_a_missing_one_gets(no_program, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    dot, told = no_program / "scripts" / "dot", 'Format: "svg" not recognized. Use one of:'
    dot.write_text(f"#!/bin/sh\necho '{told}' >&2\nexit 1\n")
    dot.chmod(0o755)
    monkeypatch.setattr(dot_command, "DOT_BINARY", str(dot))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(no_program / "nowhere"))
    monkeypatch.setenv("PATH", str(no_program / "nowhere"))
    digraph = draw_graph(leaf(name="x") * 2.0, path=no_program / "g.svg")
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line and "dot -c" in line and "g.dot" in line
    assert (no_program / "g.dot").read_text() == digraph.source
    assert told in digraph._repr_mimebundle_()["text/plain"]
    pure = no_program / "scripts" / "graphviz-pure"  # steps in where it is installed
    pure.write_text("#!/bin/sh\necho '<svg/>'\n")
    pure.chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(no_program / "scripts"))
    draw_graph(leaf(name="x") * 2.0, path=no_program / "g.svg")
    assert (no_program / "g.svg").read_text() == "<svg/>\n"
    assert capsys.readouterr().err == ""


def test_dot_text_needs_no_package(no_program, capsys, monkeypatch):
    """VZ03"""
    L = leaf(name="x") * 2.0
    source = draw_graph(L).source
    monkeypatch.setitem(sys.modules, "graphviz", None)
    draw_graph(L, path=no_program / "graph.dot")
    assert capsys.readouterr() == ("", "")
    assert (no_program / "graph.dot").read_text() == source
    draw_graph(L, path=no_program / "graph.svg")
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install graphviz" in line
    with pytest.raises(ImportError, match=r"pip install graphviz.*path='graph.dot'"):
        draw_graph(L)


def test_graphviz_pure_is_found_in_the_environments_scripts(no_program):
    program = no_program / "scripts" / "graphviz-pure"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    assert draw_graph(leaf(name="x") * 2.0)._repr_mimebundle_() == {"image/svg+xml": "-Kdot -Tsvg\n"}
    assert str(dot_command.DOT_BINARY) == str(program)


def test_the_systems_dot_comes_first(no_program, monkeypatch):
    monkeypatch.setenv("PATH", str(no_program / "scripts"))
    for name in ("dot", "graphviz-pure"):
        (no_program / "scripts" / name).write_text("#!/bin/sh\n")
        (no_program / "scripts" / name).chmod(0o755)
    assert render.find_program()
    assert dot_command.DOT_BINARY == "dot"


def test_importing_draws_in_nothing_but_numpy():
    code = "import sys, tinyattn.draw; print({'graphviz', 'matplotlib', 'rich'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


# --- heatmaps --------------------------------------------------------------------------------------------------


def cells(text, rows):
    """The figures of a printed map, read back row by row."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("queries"))
    return [line.split() for line in lines[start + 1 : start + 1 + rows]]


def test_repeated_tokens_keep_their_rows_and_columns(capsys):
    """VZ08"""
    tokens = ["the", "cat", "the"]
    text = heatmap(np.arange(9.0).reshape(3, 3) / 36, tokens, tokens)
    assert capsys.readouterr().out == text + "\n"
    assert cells(text, 3) == [["the", "0", ".03", ".06"], ["cat", ".08", ".11", ".14"], ["the", ".17", ".19", ".22"]]
    assert text.splitlines()[2].split() == ["queries", "↓", *tokens]
    assert "keys →" in text.splitlines()[1]


STRANGE = ["$", "$x$", "$$", "Ba$$in", "%", "#", "_", "^", "\\", "[b]", "<s>", "a<b&c", '"q"', "</svg>", "it's"]


def test_strange_tokens_in_text():
    """VZ06, VZ07"""
    text = heatmap(np.eye(len(STRANGE)), STRANGE, STRANGE)
    assert [row[0] for row in cells(text, len(STRANGE))] == STRANGE
    assert text == heatmap(ta.Tensor(np.eye(len(STRANGE)), requires_grad=True), iter(STRANGE), STRANGE)
    text = heatmap(np.eye(3), ["", " ", "a\nb"], ["", " ", "\t"])
    assert len(text.splitlines()) == 7
    assert r"a\nb" in text


def test_strange_tokens_in_pictures(tmp_path):
    """VZ06, VZ07, VZ08: read back from the SVG, in order."""
    image = pytest.importorskip("matplotlib.image")
    n, tokens = len(STRANGE), [*STRANGE, "the", "cat", "the"]
    heatmap(np.full((n + 3, n), 1 / n), tokens, STRANGE, title="$\\frac$ [b]", path=tmp_path / "map.svg")
    root = ET.parse(tmp_path / "map.svg").getroot()
    texts = [t.text for t in root.iter() if t.tag.endswith("}text")]
    assert texts[:n] == STRANGE
    assert texts[n] == "keys"
    assert texts[n + 1 : 2 * n + 4] == tokens
    assert {"queries", "weight", "$\\frac$ [b]", "0.0", "1.0"} <= set(texts)
    places = [re.findall(r"[\d.]+", t.get("transform")) for t in root.iter() if t.tag.endswith("}text")]
    across = [float(x) for x, *_ in places[:n]]  # translate(x y) rotate(-90)
    down = [float(y) for *_, y in places[n + 1 : 2 * n + 4]]  # rotate(-0 x y)
    assert (np.diff(across) > 10).all()
    assert (np.diff(down) > 10).all()
    heatmap(np.eye(3), ["", " ", "$"], ["\\", "a\nb", "%"], path=tmp_path / "map.png")
    pixels = (image.imread(tmp_path / "map.png")[..., :3] * 255).round().astype(int).reshape(-1, 3)
    colors, counts = np.unique(pixels, axis=0, return_counts=True)
    common = colors[np.sort(np.argsort(-counts)[:3])]  # by their red, as np.unique sorts
    expected = [list(bytes.fromhex(color[1:])) for color in (GREY, VIRIDIS[-1], "#ffffff")]
    np.testing.assert_allclose(common, expected, atol=1)


def test_heads_are_drawn_one_at_a_time(tmp_path):
    pytest.importorskip("matplotlib")
    weights = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3))  # (heads, n, m)
    text = heatmap(weights)
    maps = text.split("\n\n")
    assert [m.splitlines()[0] for m in maps] == ["attention weights, head 0", "attention weights, head 1"]
    for m, values in zip(maps, weights):
        figures = [[f"{w:.2f}"[1:] for w in row] for row in values]
        assert [row[1:] for row in cells(m, 3)] == figures
    text = heatmap(weights[:, None], title="w", path=tmp_path / "maps.svg")
    assert [m.splitlines()[0] for m in text.split("\n\n")] == ["w, batch 0, head 0", "w, batch 1, head 0"]
    svg = (tmp_path / "maps.svg").read_text()
    assert "w, batch 0, head 0" in svg
    assert "w, batch 1, head 0" in svg
    assert heatmap(weights[None, None, 1:, :, :]).startswith("attention weights, 0, 0, 0\n")
    heatmap(np.full((3, 2, 12), 1 / 12), path=tmp_path / "maps.svg")  # a grid with an empty place
    assert (tmp_path / "maps.svg").read_text().count(">queries<") == 3


def test_nan_empty_rows_and_what_is_off_the_scale_are_marked(tmp_path):
    pytest.importorskip("matplotlib")
    weights = np.array([[0.0, 0, 0], [np.nan, 0.5, 0.5], [-1, 2, 0.996], [1, 0, 0]])
    text = heatmap(weights, path=tmp_path / "map.svg")
    assert cells(text, 4) == [
        ["0", "0", "0", "0", "←", "empty", "row"],
        ["1", "×", ".50", ".50"],
        ["2", "-1.00", "2.00", "1.00"],
        ["3", "1", "0", "0"],
    ]
    assert "× is NaN: 1" in text
    assert "outside the scale: 2" in text
    svg = (tmp_path / "map.svg").read_text()
    assert "hatched: empty row" in svg
    assert "×: NaN" in svg
    assert svg.count(">×<") == 1
    assert svg.count("<pattern") == 1
    plain = heatmap(np.eye(2), path=tmp_path / "map.svg")
    assert "NaN" not in plain + (tmp_path / "map.svg").read_text()


def test_a_mask_is_a_map():
    assert cells(heatmap(ta.causal_mask(2, 3)), 2) == [["0", "1", "1", "0"], ["1", "1", "1", "1"]]


def test_wide_maps_become_shades_then_pieces(monkeypatch):
    monkeypatch.setenv("COLUMNS", "65")
    weights = np.zeros((2, 100))
    weights[0] = np.linspace(0, 1, 100)
    weights[1, [0, 39, 40, 99]] = 0.01, 0.3, 0.7, np.nan
    text = heatmap(weights, column_labels=[f"token{j}" for j in range(100)])
    lines = text.splitlines()
    assert max(map(len, lines[:-1])) <= 65
    pieces = [line.strip() for line in lines if "keys →" in line]
    assert pieces == ["keys → 0 to 39", "keys → 40 to 79", "keys → 80 to 99"]
    rows = [[line[10:50].ljust(40) for line in lines if line.startswith(k)] for k in "01"]
    assert [row[2][20:].strip() for row in rows] == ["→ token99 1", "→ token40 .70"]
    rows = ["".join([*row[:2], row[2][:20]]) for row in rows]
    assert rows[0] == " " + "·" * 19 + "░" * 20 + "▒" * 20 + "▓" * 20 + "█" * 20
    assert [(j, c) for j, c in enumerate(rows[1]) if c != " "] == [(0, "·"), (39, "░"), (40, "▓"), (99, "×")]
    heads = [line[10:].ljust(40) for line in lines[2:9]]
    assert "".join(head[12] for head in heads) == "token12"
    assert "".join(head[3] for head in heads) == " token3"


def test_shades_are_scaled_to_what_is_there(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = heatmap(np.full((3, 40), 1 / 40))
    assert [line.split()[1] for line in text.splitlines()[-4:-1]] == ["█" * 40] * 3
    assert "█ up to .005 .01 .015 .02 .025" in text
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, heatmap(np.full((3, 40), 1 / 40)).splitlines())) <= 60


def test_two_digits_take_four_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "51")
    weights = np.random.default_rng(0).dirichlet(np.ones(10), size=10)
    weights[0] = 0.001
    weights[0, 3] = 0.996
    text = heatmap(weights)
    assert cells(text, 10)[0] == ["0", ".00", ".00", ".00", "1.0"] + [".00"] * 6
    assert [row[1:] for row in cells(text, 10)[1:]] == [[f"{w:.2f}"[1:] for w in row] for row in weights[1:]]
    monkeypatch.setenv("COLUMNS", "49")
    assert "█" in heatmap(weights)


def test_marked_cells(tmp_path):
    pytest.importorskip("matplotlib")
    weights = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 3))
    text = heatmap(weights, mark=[(0, 1), (1, -1, 0)], path=tmp_path / "map.svg")
    first, second = (cells(m, 3) for m in text.split("\n\n"))
    assert [[i, j] for i in range(3) for j in range(3) if first[i][j + 1][0] == ">"] == [[0, 1]]
    assert [[i, j] for i in range(3) for j in range(3) if second[i][j + 1][0] == ">"] == [[0, 1], [2, 0]]
    assert (tmp_path / "map.svg").read_text().count("stroke: #d62728") == 3
    for wrong in ((0, 3), (1,), (2, 0, 0), (0, -4)):
        with pytest.raises(ValueError, match=r"mark .* no cell"):
            heatmap(weights, mark=[wrong])


def test_layers_and_heads_are_one_grid(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    rng = np.random.default_rng(0)
    layers = [rng.dirichlet(np.ones(40), size=(12, 40)) for _ in range(6)]
    text = heatmap(layers, path=tmp_path / "grid.png")
    lines = text.splitlines()
    assert len(lines) == 3 + 6
    assert "layer" in lines[1] and "head" in lines[1]
    figures = [[f"{w:.2f}"[1:] for w in layer.max(-1).mean(-1)] for layer in layers]
    assert [line.split()[1:] for line in lines[3:]] == figures
    high, wide = image.imread(tmp_path / "grid.png").shape[:2]
    assert high < 2_000 and wide < 3_000
    heatmap(layers[0][:8], path=tmp_path / "heads.png")  # eight heads of forty tokens
    high, wide = image.imread(tmp_path / "heads.png").shape[:2]
    assert high < 2_200 and wide < 3_000


def brightness(color):
    red, green, blue = (int(part) / 255 for part in color)
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


@pytest.mark.parametrize("columns", ["40", "400"])
def test_gb_19_brightness_rises_with_the_weight(columns, monkeypatch):
    pytest.importorskip("rich.style").Style.parse.cache_clear()  # which keeps the codes of the first terminal
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    heatmap(np.linspace(0, 1, 60).reshape(2, 30))
    styled = re.findall(r"38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m", terminal.getvalue())
    fills = [brightness(part[3:]) for part in styled]
    assert len(fills) >= 60 or columns == "40"  # equal neighbours may share a code
    assert fills[-1] == max(fills) and fills[0] == min(fills)
    order = fills if columns == "400" else sorted(fills)
    assert order == sorted(order)
    if columns == "40":  # shades: the ink is the fill's
        assert all(part[:3] == part[3:] for part in styled)


def test_a_map_shows_itself_once_in_a_notebook(monkeypatch, capsys):
    """Displayed by the call; not printed, and not shown again by the cell that ends with it."""
    published = []
    shell = type("Shell", (), {"execution_count": 1, "display_pub": type("P", (), {"publish": published.append})()})()
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: shell)})())
    shown = heatmap(np.eye(2), ["<b>", "c"])
    shown._ipython_display_()
    assert capsys.readouterr().out == ""
    assert len(published) == 1
    assert published[0]["text/plain"] == shown
    assert "&lt;b&gt;" in published[0]["text/html"] and "background" in published[0]["text/html"]
    shell.execution_count = 2
    shown._ipython_display_()
    assert len(published) == 2


def test_long_and_wide_tokens_are_cut_and_keep_the_columns_straight(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    labels = ["extraordinarily long token", "日本語日本語", "e\u0301te\u0301", "ＡＢＣＤ"]
    lines = heatmap(np.eye(4), labels, labels).splitlines()
    assert lines[2] == "queries ↓        " + " extraor…" + "  日本語…" + "      e\u0301te\u0301" + " ＡＢＣＤ"
    assert lines[3:7] == [
        "extraordinarily…         1        0        0        0",
        "日本語日本語             0        1        0        0",
        "e\u0301te\u0301                      0        0        1        0",
        "ＡＢＣＤ                 0        0        0        1",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.eye(3), ["a", "b"]), "2 row_labels for 3 rows"),
        ((np.eye(3), None, "abcd"), "4 column_labels for 3 columns"),
        ((np.ones(3),), r"\(3,\).*queries, keys"),
        ((np.ones((0, 3)),), r"\(0, 3\)"),
    ],
)
def test_heatmap_refuses_what_it_cannot_draw(arguments, message, capsys):
    with pytest.raises(ValueError, match=message):
        heatmap(*arguments)
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match=r"\.svg"):
        heatmap(np.eye(2), path="map.gif")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_a_terminal_gets_colours_and_a_pipe_does_not(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    tokens, weights = ["[red]", ":cat:", "[/]"], np.array([[0.0, 1, 0], [0, 0, 0], [0.5, np.nan, 0.5]])
    plain = heatmap(weights, tokens, tokens)
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    assert heatmap(weights, tokens, tokens) == plain
    colored = terminal.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain + "\n"
    assert len(set(re.findall(r"\x1b\[38[\d;]*m", colored))) == 3  # the colours of 0, .5 and 1
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    heatmap(weights, tokens, tokens)
    assert terminal.getvalue() == plain + "\n"


def test_a_pipe_that_cannot_encode_gets_plain_forms(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    text = heatmap(np.eye(2), ["é", "動物"])
    sys.stdout.flush()
    assert "é" in text
    assert b"\ne  " in raw.getvalue() and b"\n??" in raw.getvalue() and b"keys >" in raw.getvalue()


def test_pictures_have_glyphs_or_escapes_and_no_warnings(tmp_path, recwarn, caplog, monkeypatch):
    font_manager = pytest.importorskip("matplotlib.font_manager")
    labels = ["日本", "x", "\U0001f600"]
    heatmap(np.eye(3), labels, labels, path=tmp_path / "map.png")
    ours = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", ours)
    fonts = Fonts(labels)
    assert fonts.families == ["DejaVu Sans"]
    assert [fonts.shown(label) for label in labels] == [r"\u65e5\u672c", "x", "\U0001f600"]
    heatmap(np.eye(3), labels, labels, path=tmp_path / "map.png")
    heatmap(np.eye(3), labels, labels, path=tmp_path / "map.svg")
    assert "日本" in (tmp_path / "map.svg").read_text()  # the viewer's fonts
    assert not recwarn.list and not caplog.records


def test_without_matplotlib_the_text_is_printed_and_a_line_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = heatmap(np.eye(2), path=tmp_path / "map.png")
    out, err = capsys.readouterr()
    assert out == text + "\n"
    assert "pip install matplotlib" in err
    assert len(err.splitlines()) == 1
