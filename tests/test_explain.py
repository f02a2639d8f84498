"""The backward pass, told: the rules are the table's, the numbers are the engine's, and what is noise is called so."""

import re

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.calling import op
from tinyattn.draw.steps import collect, rules, slopes


def leaf(*shape, name=None, seed=0):
    return ta.Tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True, name=name)


def entries(output, **options):
    """The entries of the list, each as its lines."""
    parts = str(ta.explain(output, **options)).split("\n\n")
    return [[line.strip() for line in part.splitlines()] for part in parts[1:]]


def test_an_expression_is_told_with_rules_and_numbers():
    a, b = ta.Tensor(0.5, requires_grad=True, name="a"), ta.Tensor(3.0, requires_grad=True, name="b")
    y = ta.tanh(a * b)
    first, second, third, leaves = entries(y * a)
    tanh = np.tanh(1.5)
    assert first[0] == "1. multiply(#2, a)"
    assert "dx = g · y" in first[1]
    assert first[2:] == ["g: 1", "d#2 = dx = g * y: 0.5", f"da = dy = g * x: {tanh:.4g}"]
    assert second[0] == "2. tanh(#3)"
    assert second[-1] == f"d#3 = dx = g * (1 - out * out): {0.5 * (1 - tanh**2):.4g}"
    assert third[0] == "3. multiply(a, b)"
    total = tanh + 1.5 * (1 - tanh**2)
    assert leaves == ["The leaves", f"da: {total:.4g}", f"db: {0.25 * (1 - tanh**2):.4g}"]
    assert a.grad is None


def test_what_only_rearranges_is_told_where_it_is_read():
    x = leaf(3, 4, name="x")
    first, *_ = entries(ta.tanh(ta.exp(x).reshape(4, 3)), gradient=np.ones((4, 3)))
    assert first[0] == "1. tanh(#2 as (4, 3))"
    assert first[-1].startswith("d#2 as (4, 3) = dx = ")


def test_names_sums_shapes_and_leaves_of_attention():
    Q, K, V = (leaf(5, 4, name=name, seed=i) for i, name in enumerate("QKV"))
    out = ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(5))
    told = entries((out * out).sum())
    heads = [part[0] for part in told]
    assert heads[2] == "3. output = matmul(weights, V)   in scaled_dot_product_attention"
    assert heads[3].startswith("4. weights = softmax(masked)")
    assert heads[6].startswith("7. scores = matmul(Q, Kᵀ)")
    assert told[2][2].startswith("g, the sum of 2 shares: (5, 4), norm")
    assert any(line.startswith("dweights = dx = g @ y.mT: (5, 5), norm") for line in told[2])
    norms = {line[:2]: float(re.search(r"norm (\S+)", line)[1]) for line in told[-1][1:]}
    for name, t in zip("QKV", (Q, K, V)):
        exact = np.linalg.norm(ta.gradients((out * out).sum())[t])
        assert norms[f"d{name}"] == pytest.approx(exact, rel=5e-3)


def test_every_rule_that_is_told_is_the_rule_that_runs():
    """The text is the table's own source: read back as Python, it computes what the op's rule computes."""
    x, y = np.random.default_rng(0).uniform(0.5, 2, (2, 3, 3))
    names = "add subtract multiply divide power negative exp log sqrt sin cos tanh sigmoid relu"
    for name in names.split():
        op = getattr(ta, name).op
        arrays = [x, y][: len(op.rules)]
        out, g = op.forward(*arrays), np.ones((3, 3)) * 0.7
        told = rules(op)[1]
        assert list(told) == ["dx", "dy"][: len(op.rules)]
        for text, rule in zip(told.values(), op.rules):
            space = vars(ta.ops) | {"g": g, "out": out, "x": x, "y": y}
            np.testing.assert_array_equal(eval(text, space), rule(g, out, *arrays))


def test_zeros_of_theory_rounding_and_tiny_gradients_are_told_apart():
    """A key's bias shifts all scores of a query alike, and softmax does not see it: its gradient is 0 in theory."""
    mha = ta.nn.MultiHeadAttention(16, 4, rng=0)
    x = ta.Tensor(np.random.default_rng(1).normal(size=(2, 5, 16)))
    told = str(ta.explain((mha(x, mask=ta.causal_mask(5)) ** 2).sum())).splitlines()
    (bias,) = [line for line in told if line.startswith("dk_proj.bias")]
    assert "0 in theory: what is left is rounding" in bias
    assert sum("rounding" in line for line in told) <= 3  # the bias where it is made, and among the leaves
    dead, small, a = leaf(7, name="dead"), leaf(7, name="small"), leaf(7, name="a")
    told = str(ta.explain(ta.sum(dead * 0.0 + small * 1e-30 + a))).splitlines()
    assert any(line.startswith("ddead") and "exactly 0" in line for line in told)
    assert any(line.startswith("dsmall") and "tiny, 1e-30" in line and "rounding" not in line for line in told)
    assert any("it dies here: 1e-30" in line for line in told)
    assert not any(line.startswith("da:") and "←" in line for line in told)
    with np.errstate(all="ignore"):
        assert "not finite" in str(ta.explain(ta.sum(ta.sqrt(a * 0.0))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_small_gradient_is_no_rounding(dtype):
    """Through a saturated softmax come gradients of 1e-20 with all their digits, and zeros that are noise."""
    x = ta.Tensor(np.array([0.0, 46.0, 3.0], dtype), requires_grad=True, name="x")
    p = ta.softmax(x)
    L = (p * np.array([1.0, 0.0, 0.0], dtype)).sum()
    steps, ends = collect([L], lambda name, level: False)
    slopes(steps, ends)
    (step,) = [step for step in steps if step.name == "x"]
    assert not step.rounding
    assert step.slope[0] == pytest.approx(np.exp(-46.0), rel=1e-5)
    shift, scores, R = leaf(6, 1, name="shift"), leaf(6, 5, seed=1), np.random.default_rng(2).normal(size=(6, 5))
    L = ta.sum(ta.softmax(scores.astype(dtype) + shift.astype(dtype)) * R.astype(dtype))
    steps, ends = collect([L], lambda name, level: False)
    slopes(steps, ends)
    assert [step.rounding for step in steps if step.name == "shift"] == [True]
    assert sum(step.rounding for step in steps) == (1 if dtype == np.float64 else 2)  # and where it is cast


def test_an_op_without_source_and_an_empty_tensor_are_told_as_well():
    space = {"op": op}
    exec("@op(lambda g, out, x: g * 2)\ndef twice(x):\n    '''2 x.   dx = 2 g'''\n    return x * 2", space)
    x, empty = leaf(3, name="x"), ta.Tensor(np.ones((0, 3)), requires_grad=True, name="empty")
    _, second, _ = entries(ta.sum(space["twice"](x)))
    assert second[:2] == ["2. twice(x)", "2 x. dx = 2 g"]
    assert re.fullmatch(r"dx: \(3,\), norm 3\.46", second[-1])
    assert entries(ta.sum(empty * 2.0))[-1] == ["The leaves", "dempty: (0, 3), norm 0"]


def test_loops_are_told_once():
    t = leaf(3, name="x")
    for _ in range(500):
        t = ta.sin(t)
    told = entries(ta.sum(t))
    assert [part[0] for part in told[:-1]] == ["1. sum(#2)", "2. sin(x) × 500"]


def test_it_is_a_text_that_shows_itself():
    x = leaf(3, name="<x>")
    told = ta.explain(ta.sum(x * x))
    assert repr(told) == str(told) == told
    assert "&lt;x&gt;" in told._repr_html_() and "<x>" not in told._repr_html_()
    with pytest.raises(RuntimeError, match="gradient="):
        ta.explain(x * x)
    assert "norm" in ta.explain(x * x, gradient=np.ones(3))
    L = ta.sum(x * x)
    L.backward()
    with pytest.raises(RuntimeError, match="released"):
        ta.explain(L)
    with pytest.raises(RuntimeError, match="requires_grad"):
        ta.explain(x.detach() * 2)
