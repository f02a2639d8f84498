"""Half precision and the ends of the range: sums in float32, rounded once; what is finite stays finite."""

import warnings

import numpy as np
import pytest

import tinyattn as ta

HALF = np.float16


def ulps(found, exact):
    """How many steps of its dtype lie between a result and the exact one, rounded."""
    exact = np.asarray(exact).astype(found.dtype)
    return float(np.max(np.abs(found.astype(float) - exact.astype(float)) / np.spacing(np.abs(exact)).astype(float)))


def value_and_gradients(f, inputs, g):
    leaves = [ta.Tensor(x, requires_grad=True) for x in inputs]
    out = f(*leaves)
    if g is None:
        g = np.random.default_rng(9).uniform(0.5, 1, out.shape).astype(out.dtype)
    return [out.numpy(), *(d.numpy() for d in ta.grad(out, leaves, g.astype(out.dtype)))], g


def test_gb_01_means_and_variances_of_a_long_float16_array():
    x, y = np.full(1000, 100, HALF), np.tile(np.array([-30, 30], HALF), 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ta.mean(x).item() == 100 and ta.var(y).item() == 900
        assert ta.mean(x.reshape(10, 100), axis=(0, 1)).dtype == HALF
        np.testing.assert_array_equal(ta.var(y.reshape(2, 100), axis=1).numpy(), [900, 900])
        t = ta.Tensor(x, requires_grad=True)
        np.testing.assert_array_equal(ta.grad(ta.mean(t), t)[0].numpy(), HALF(0.001))
        t = ta.Tensor(y, requires_grad=True)
        np.testing.assert_array_equal(ta.grad(ta.var(t), t)[0].numpy(), HALF(2 / 200) * y)


def test_gb_01_sums_that_float16_would_lose():
    x = np.full(3000, 0.1, HALF)
    for f in (ta.sum, lambda x: ta.sum(x.reshape(30, 100), axis=0).sum(), lambda x: ta.einsum("i->", x)):
        assert f(ta.Tensor(x)).item() == HALF(float(x[0]) * 3000)
    for f in (lambda b: x[:, None] + b, lambda b: ta.linear(x[:, None] * np.zeros(2, HALF), np.zeros((1, 2), HALF), b)):
        b = ta.Tensor(np.zeros(1, HALF), requires_grad=True)  # the bias gets the sum of its copies' gradients
        assert ta.grad(f(b), b, x[:, None])[0].item() == HALF(float(x[0]) * 3000)
    table = ta.Tensor(np.zeros((2, 1), HALF), requires_grad=True)
    for rows in (table[np.zeros(3000, int)], ta.embedding(np.zeros(3000, int), table)):
        assert ta.grad(rows, table, x[:, None])[0].numpy()[0] == HALF(float(x[0]) * 3000)
    product = ta.prod(np.array([6e4, 6e4, 1e-6], HALF)).item()
    assert abs(product - 6e4 * 6e4 * float(HALF(1e-6))) < 3
    assert ta.logsumexp(np.zeros(60000, HALF)).item() == HALF(np.log(60000))


@pytest.mark.parametrize("f", [ta.scaled_dot_product_attention, ta.fused_attention, ta.efficient.flash_attention])
def test_gb_02_scores_that_leave_float16_before_they_are_scaled(f):
    Q = np.full((1, 64), 40, HALF)
    K, V = np.stack([Q[0], Q[0] - HALF(1)]), np.array([[1], [2]], HALF)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (out, *grads), g = value_and_gradients(f, (Q, K, V), None)
    assert out.dtype == HALF and out == 1 and all(d.dtype == HALF and np.isfinite(d).all() for d in grads)
    exact, _ = value_and_gradients(f, [x.astype(float) for x in (Q, K, V)], g)
    for found, right in zip(grads, exact[1:]):
        np.testing.assert_allclose(found, right, rtol=2e-3, atol=1e-3)
    _, weights = ta.scaled_dot_product_attention(Q, K, V, return_weights=True)
    assert weights.dtype == HALF


@pytest.mark.parametrize(
    ("dtype", "x"), [(HALF, 300), (HALF, 6e4), (np.float32, 2e19), (np.float32, 1e38), (float, 1e300)]
)
def test_gelu_far_out(dtype, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (out, dx), _ = value_and_gradients(ta.gelu, [np.array([x, -x, 0.0], dtype)], np.ones(3))
    np.testing.assert_array_equal(out, np.array([x, 0, 0], dtype))
    np.testing.assert_array_equal(dx, [1, 0, 0.5])


rng = np.random.default_rng(0)
WIDE = np.exp(rng.uniform(np.log(1e-3), np.log(2e2), (3, 40))) * rng.choice([-1, 1], (3, 40))
NEAR = rng.normal(size=(3, 40))
OPS = {
    "sum": (lambda x: ta.sum(x, 1), [np.abs(WIDE)]),
    "mean": (lambda x: ta.mean(x, 1), [np.abs(WIDE)]),
    "var": (lambda x: ta.var(x, 1), [WIDE]),
    "softmax": (ta.softmax, [NEAR]),
    "log_softmax": (ta.log_softmax, [NEAR * 20]),
    "logsumexp": (lambda x: ta.logsumexp(x, 1), [NEAR * 20]),
    "matmul": (lambda x, y: x @ y, [np.abs(NEAR), np.abs(NEAR.T) * 9]),
    "linear": (ta.linear, [np.abs(NEAR), np.abs(NEAR) * 9, np.abs(NEAR[0, :3])]),
    "einsum": (lambda x, y: ta.einsum("ij,kj->ik", x, y), [np.abs(NEAR), np.abs(NEAR) * 9]),
    "multiply": (lambda x, y: x * y, [WIDE, NEAR]),
    "divide": (lambda x, y: x / y, [WIDE, np.abs(WIDE[::-1]) + 1]),
    "power": (lambda x, y: x**y, [np.abs(NEAR) + 0.1, NEAR]),
    "exp": (ta.exp, [NEAR * 3]),
    "log": (ta.log, [np.abs(WIDE)]),
    "sqrt": (ta.sqrt, [np.abs(WIDE)]),
    "tanh": (ta.tanh, [NEAR]),
    "sigmoid": (ta.sigmoid, [NEAR * 4]),
    "erf": (ta.erf, [NEAR]),
}
ULPS = {"softmax": 8, "log_softmax": 8, "var": 2, "tanh": 8, "sigmoid": 8, "power": 3, "exp": 2, "sqrt": 2}


@pytest.mark.parametrize("name", OPS)
def test_float16_is_as_good_as_its_digits(name):
    """Value and gradients within 1 step of float16 of what float64 gives for the same numbers, or as the table says."""
    f, inputs = OPS[name]
    inputs = [x.astype(HALF) for x in inputs]
    found, g = value_and_gradients(f, inputs, None)
    exact, _ = value_and_gradients(f, [x.astype(float) for x in inputs], g)
    for i, (a, b) in enumerate(zip(found, exact)):
        assert a.dtype == HALF
        kept = np.abs(b) > 1e-3  # what cancels is held against the largest
        assert ulps(a[kept], b[kept]) <= ULPS.get(name, 1) or np.allclose(a, b, atol=1e-3 * np.abs(b).max()), (i, a, b)
        assert np.abs(a - b).max() <= 2e-3 * np.abs(b).max()


def test_norms_of_many_float16_features():
    x = (rng.normal(size=(3, 5000)) * 200).astype(HALF)
    for f in (ta.layer_norm, ta.rms_norm):
        (out, dx), g = value_and_gradients(f, [x], None)
        exact, _ = value_and_gradients(f, [x.astype(float)], g)
        assert ulps(out, exact[0]) <= 1
        np.testing.assert_allclose(dx, exact[1], atol=2e-3 * np.abs(exact[1]).max())


def test_longer_dtypes_stay_what_they_are():
    h = ta.Tensor(np.array([1.0, 2.0], HALF), requires_grad=True)
    assert (h @ np.ones((2, 2), np.float32)).dtype == (h / np.float32([2.0])).dtype == np.float32
    assert (h / 2).dtype == (h / np.array([2], np.int8)).dtype == ta.softmax(h).dtype == HALF
    assert ta.astype(h, np.float32).dtype == np.float32
    (g,) = ta.grad((ta.softmax(h) ** 2).sum(), h, create_graph=True)
    assert g.dtype == ta.grad(g.sum(), h)[0].dtype == HALF
