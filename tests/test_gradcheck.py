"""The checker of derivatives: passes what is right, catches what is wrong, and says what it may be."""

import warnings

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.calling import op

RNG = np.random.default_rng(0)


def broken(formula, rule):
    @op(rule)
    def wrong(x):
        return formula(x)

    return wrong


def message(f, inputs, check=ta.gradcheck):
    with pytest.raises(ta.GradcheckError) as caught:
        check(f, inputs)
    assert not check(f, inputs, raise_exception=False)
    return str(caught.value)


X = ta.Tensor(RNG.normal(size=(3, 4)), name="X")
SQUARE = RNG.normal(size=(3, 3))


def test_names_input_index_and_both_values():
    rule = broken(np.exp, lambda g, out, x: g * out + (np.arange(12).reshape(3, 4) == 6))
    text = message(lambda a, b: a * rule(b), [np.ones((3, 4)), X])
    assert "gradient of X at (1, 2): " in text and "1 of 12 elements" in text
    analytic, numeric = (float(text.split(word)[0].split()[-1]) for word in (" by the rules", " by differences"))
    assert analytic - numeric == pytest.approx(1, abs=1e-6)
    assert "No simple pattern" in text


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        (lambda g, out, x: 2 * g * out, "twice too large"),
        (lambda g, out, x: 0.5 * g * out, "half"),
        (lambda g, out, x: -g * out, "wrong sign"),
        (lambda g, out, x: g * out / 4, "factor 0.25.*broadcast"),
        (lambda g, out, x: 0 * g, "graph has lost"),
    ],
)
def test_recognises_a_constant_factor(rule, cause):
    import re

    assert re.search(cause, message(broken(np.exp, rule), X))


def test_recognises_a_transpose():
    rule = broken(lambda x: SQUARE @ x, lambda g, out, x: (SQUARE.T @ g).T)
    assert "transpose" in message(rule, RNG.normal(size=(3, 3)))


def test_recognises_a_kink():
    assert "kink" in message(ta.relu, np.array([1.0, 1e-9, -1.0]))


def test_recognises_a_constant_output_with_a_gradient():
    assert "constant in this input" in message(broken(lambda x: 0 * x + 1, lambda g, out, x: g), X)


def test_recognises_float32_inside():
    f = broken(lambda x: np.exp(x.astype(np.float32)), lambda g, out, x: g * out * (1 + 0.1 * x))
    assert "float32" in message(f, X)
    assert ta.gradcheck(broken(lambda x: np.exp(x.astype(np.float32)), lambda g, out, x: g * out), X)


def test_warns_where_nothing_is_proven():
    with pytest.warns(UserWarning, match="proves nothing"):
        assert ta.gradcheck(lambda x: ta.softmax(x).sum(-1), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ta.gradcheck(ta.softmax, X)  # random cotangents: the same op, really checked


def test_a_wrong_softmax_is_caught():
    wrong = broken(lambda x: ta.softmax.forward(x), lambda g, out, x: out * g)
    message(wrong, X)
    wrong = broken(lambda x: ta.softmax.forward(x), lambda g, out, x: g * out * (1 - out))
    message(wrong, X)


def test_a_fused_op_must_be_its_composed_twin():
    @op(twin=lambda x: 1.01 * x * x, pull=lambda g, out, x, *, extra, needs: [2 * g * x])
    def square(x):
        return x * x, None

    assert ta.gradcheck(square, X)
    text = message(square, X, ta.gradgradcheck)
    assert "gradient of X under create_graph differs" in text and "composed twin" in text


def test_second_order_catches_what_first_order_cannot():
    f = broken(np.exp, lambda g, out, x: g * np.exp(ta.Tensor(x).numpy() if isinstance(x, np.ndarray) else x.numpy()))
    assert ta.gradcheck(f, X)
    assert message(f, X, ta.gradgradcheck).startswith("second order")


def test_tuples_are_checked_each():
    wrong = broken(np.sin, lambda g, out, x: g)
    assert ta.gradcheck(lambda x: (x * x, ta.exp(x)), X)
    assert "of output 1" in message(lambda x: (x * x, wrong(x)), X)


def test_inputs_and_outputs_must_fit():
    with pytest.raises(TypeError, match=r"input 0 is int\d+"):
        ta.gradcheck(lambda x: x, np.array([1, 2]))
    with pytest.raises(TypeError, match="returned ndarray"):
        ta.gradcheck(lambda x: x.numpy(), X)


def test_nan_is_a_failure_that_names_its_place():
    assert "(1,)" in message(ta.log, np.array([1.0, -1.0]) + 0j.real)
    assert "not finite at (1,)" in message(ta.sqrt, np.array([1.0, 0.0]))


def test_large_inputs_are_sampled_and_it_is_said():
    x = RNG.normal(size=5000)
    with pytest.warns(UserWarning, match="5000 elements"):
        assert ta.gradcheck(ta.tanh, x)
    wrong = broken(np.tanh, lambda g, out, x: g * (1 - out * out) * np.where(np.arange(5000) < 2500, 1, 2))
    message(wrong, x)
    picked = np.sort(np.random.default_rng(0).choice(5000, 100, replace=False))
    rest = np.isin(np.arange(5000), picked, invert=True)
    assert "random direction" in message(broken(np.tanh, lambda g, out, x: g * (1 - out * out) + rest), x)


@pytest.mark.parametrize("error", [1e-3, 5e-4, 1e-4, 3e-5])
@pytest.mark.parametrize("formula", [np.exp, np.tanh, np.sin])
def test_a_rule_that_is_slightly_wrong_is_caught(formula, error):
    slope = {np.exp: lambda x: np.exp(x), np.tanh: lambda x: 1 - np.tanh(x) ** 2, np.sin: np.cos}[formula]
    text = message(broken(formula, lambda g, out, x: g * slope(x) * (1 + error)), X)
    assert "close, and not equal" in text
    assert "factor 1" not in text
    assert "kink" not in text
    assert ta.gradcheck(broken(formula, lambda g, out, x: g * slope(x)), X)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_coarse_floats_inside_are_named_also_where_the_output_is_float64(dtype):
    def f(x):
        return (ta.exp(x).astype(dtype) * 3).astype(np.float64)

    assert ta.gradcheck(f, X)
    off = 0.1 if dtype is np.float32 else 2  # float16's differences show no more
    wrong = broken(np.exp, lambda g, out, x: g * out * (1 + off * x))
    text = message(lambda x: (wrong(x).astype(dtype) * 3).astype(np.float64), X)
    assert np.dtype(dtype).name in text
    assert "kink" not in text


def test_what_is_no_float_is_left_alone_beside_floats():
    ids, mask = np.array([2, 0, 2]), np.array([True, False, True])

    def f(table, ids, mask):
        assert ids.dtype == int
        assert mask.dtype == bool
        return ta.where(mask[:, None], ta.embedding(ids, table), 0.0)

    assert ta.gradcheck(f, [X, ids, mask])
    assert ta.gradgradcheck(lambda x, k: x**k, [X, 3])
    wrong = broken(np.sin, lambda g, out, x: g)
    assert "gradient of input 1" in message(lambda ids, x: wrong(x[ids]), [ids, np.ones((3, 2))])


def test_what_cancels_is_no_false_alarm():
    """Of a result that cancels to nearly 0 the terms tell how much rounding there is, not the result."""
    x, y = RNG.normal(size=(4, 1)), RNG.normal(size=(4, 1))
    for f in (
        lambda x, y: ta.layer_norm(ta.exp(x) * y, eps=0.1),
        lambda x, y: ta.softmax(ta.sin(x * y)),
        lambda x, y: (x + 3 * y) - (x + y * 3),
        lambda x, y: ta.log_softmax(ta.tanh(x) * y),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ta.gradcheck(f, [x, y]) and ta.gradgradcheck(f, [x, y])


def test_a_mask_hides_no_mistake():
    """Scores of -inf on the way, times a gradient of 0, say nothing of rounding."""
    wrong = broken(np.tanh, lambda g, out, x: g * (1 - 1.001 * out * out))
    mask = np.tri(3, 4, dtype=bool)
    for f in (
        lambda x: ta.softmax(ta.masked_fill(wrong(x), ~mask, -np.inf)) ** 2,
        lambda x: ta.scaled_dot_product_attention(wrong(x), x, x, mask[:, :3]),
    ):
        message(f, X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ta.gradcheck(ta.sin, RNG.normal(size=1100))
    assert caught[0].filename == __file__


def test_chance_that_agreed_once_is_still_chance():
    noise = iter([0.0, 0.0, *np.random.default_rng(0).normal(size=500)])
    with pytest.raises(ValueError, match="not deterministic"):
        ta.gradcheck(lambda t: (t * next(noise)).sum(), np.ones(2))
