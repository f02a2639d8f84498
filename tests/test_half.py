"""Half precision and the ends of the range: sums in float32, rounded once; what is finite stays finite."""

import itertools
import math
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
@pytest.mark.parametrize("form", ["tanh", "none"])
def test_gelu_far_out(dtype, x, form):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs = [np.array([x, -x, 0.0], dtype)]
        (out, dx), _ = value_and_gradients(lambda x: ta.gelu(x, form), inputs, np.ones(3))
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


# --- the table: every op, from one end of the range to the other ----------------------------------------

X, Y = (rng.uniform(0.5, 1, (3, 4)) * signs for signs in (np.array([1, -1, 1, -1]), np.array([1, 1, -1, -1])))
SIZES = {
    HALF: [1e-7, 1e-5, 1e-3, 0.1, 1, 10, 200, 3e3, 6e4],
    np.float32: [1e-37, 1e-30, 1e-20, 1e-10, 1e-3, 1, 1e3, 1e10, 1e19, 1e30, 1e38],
}
UPSTREAM = {
    HALF: [1e-4, 1, 1e3],
    np.float32: [1],
}  # the size of dL/d(out); half precision is trained with scaled losses
REDUCTIONS = {
    f"{name}, axis {axis}": lambda x, name=name, axis=axis: getattr(ta, name)(x, axis=axis)
    for name in ("sum", "mean", "var", "std", "max", "min", "logsumexp")
    for axis in (None, 0, 1)
}
ONE = REDUCTIONS | {
    **{
        name: getattr(ta, name)
        for name in ("negative", "positive", "exp", "expm1", "square", "sign", "sin", "cos", "tanh", "sigmoid", "relu")
    },
    "absolute": ta.absolute,
    "gelu": ta.gelu,
    "erf": ta.erf,
    "softmax": ta.softmax,
    "log_softmax": ta.log_softmax,
    "log": lambda x: ta.log(ta.abs(x)),
    "log1p": lambda x: ta.log1p(ta.abs(x)),
    "sqrt": lambda x: ta.sqrt(ta.abs(x)),
    "exact gelu": lambda x: ta.gelu(x, approximate="none"),
    "layer_norm": ta.layer_norm,
    "layer_norm, eps 0": lambda x: ta.layer_norm(x, eps=0),
    "rms_norm": ta.rms_norm,
    "rms_norm, eps 0": lambda x: ta.rms_norm(x, eps=0),
    "prod": lambda x: ta.prod(x, axis=1),
    "cumsum": lambda x: ta.cumsum(x, 1),
    "square by power": lambda x: x**2,
    "reciprocal": lambda x: 1 / x,
    "root by power": lambda x: ta.abs(x) ** 0.5,
    "reciprocal root": lambda x: ta.abs(x) ** -0.5,
    "cross_entropy": lambda x: ta.cross_entropy(x, np.array([0, 1, 2])),
    "rotary": ta.rotary,
    "rows": lambda x: x[[0, 0, 1, 2, 2]],
    "embedding": lambda x: ta.embedding(np.array([0, 0, 1]), x),
    "dropout": lambda x: ta.dropout(x, 0.5, rng=0),
    "clip": lambda x: ta.clip(x, -1, 1),
    "concatenate": lambda x: ta.concatenate([x, x, x, -x]),
    "elu_plus_one": ta.efficient.elu_plus_one,
}
TWO = {
    **{name: getattr(ta, name) for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")},
    "power": lambda x, y: ta.abs(x) ** y,
    "add, broadcast": lambda x, y: x + y[0],
    "multiply, broadcast": lambda x, y: x * y[0],
    "divide, broadcast": lambda x, y: x / y[0],
    "matmul": lambda x, y: x @ y.mT,
    "dot": lambda x, y: ta.dot(x, y.T),
    "einsum": lambda x, y: ta.einsum("ij,kj->ik", x, y),
    "outer": lambda x, y: ta.outer(x[0], y[0]),
    "linear": lambda x, y: ta.linear(x, y, y[:, 0]),
    "where": lambda x, y: ta.where(X > 0, x, y),
    "masked_fill": lambda x, y: ta.masked_fill(x, X > 0, y[0, 0]),
    "layer_norm, weight": lambda x, y: ta.layer_norm(x, y[0], y[1]),
    "rms_norm, weight": lambda x, y: ta.rms_norm(x, y[0]),
}
# Steps of the dtype, at the size of the largest element, by which a value or gradient may be off: 8, but for these.
STEPS = {
    "softmax": 2000,  # where p is nearly 0 and 1, g - Σ g p is nearly g - g: few digits are left
    "log_softmax": 16,
    "layer_norm": 16,  # the gradient has no mean and nothing along x: two terms go
    "layer_norm, eps 0": 32,
    "power": 64,  # y - 1 is rounded, and counts |log x| = 85 times
}


def off_by(f, inputs, dtype, size):
    """How far value and gradients are from those in float64, in steps of dtype at the largest; inf: lost its range."""
    inputs = [x.astype(dtype) for x in inputs]
    g = np.random.default_rng(9).uniform(0.5, 1, ta.Tensor(f(*map(ta.Tensor, inputs)).numpy()).shape) * size
    found, _ = value_and_gradients(f, inputs, g.astype(dtype))
    exact, _ = value_and_gradients(f, [x.astype(float) for x in inputs], g.astype(dtype).astype(float))
    worst = 0.0
    for a, b in zip(found, exact):
        assert a.dtype == dtype
        inside = np.abs(b) < np.finfo(dtype).max
        if not np.isfinite(a[inside]).all():
            return math.inf
        top = np.abs(b[inside]).max(initial=0)
        step = float(np.spacing(np.asarray(top, dtype)))
        worst = max(worst, float(np.abs(a[inside] - b[inside]).max(initial=0)) / step)
    return worst


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", SIZES, ids=["float16", "float32"])
@pytest.mark.parametrize("name", ONE | TWO)
def test_every_op_from_one_end_of_the_range_to_the_other(name, dtype):
    sizes = SIZES[dtype]
    for a, b, size in itertools.product(sizes, sizes[::2] if name in TWO else [1], UPSTREAM[dtype]):
        inputs = [a * X, b * Y] if name in TWO else [a * X]
        off = off_by((ONE | TWO)[name], inputs, dtype, size)
        assert off <= STEPS.get(name, 8), (a, b, size)


def test_norms_of_many_float16_features():
    x = (rng.normal(size=(3, 5000)) * 200).astype(HALF)
    for f in (ta.layer_norm, ta.rms_norm):
        (out, dx), g = value_and_gradients(f, [x], None)
        exact, _ = value_and_gradients(f, [x.astype(float)], g)
        assert ulps(out, exact[0]) <= 1
        np.testing.assert_allclose(dx, exact[1], atol=2e-3 * np.abs(exact[1]).max())


def test_gradients_that_meet_are_added_up_in_float32():
    h = ta.Tensor(np.full(2, 0.1, HALF), requires_grad=True)
    for create in (False, True):
        y = h
        for _ in range(2999):
            y = y + h
        (g,) = ta.grad(y, h, np.full(2, h.data[0]), create_graph=create)
        np.testing.assert_array_equal(g.numpy(), HALF(3000 * float(h.data[0])))  # in float16 the sum stops at 256
    product = ta.Tensor(np.ones(1, HALF), requires_grad=True)
    (g,) = ta.grad(np.full(9000, 1e-4, HALF) * product, product, np.full(9000, 1e-4, HALF))
    assert g.item() == pytest.approx(9000 * float(HALF(1e-4)) ** 2, rel=1e-3)  # each product alone is 0 in float16
    single, double = (ta.Tensor(np.ones(1, dtype), requires_grad=True) for dtype in (np.float32, float))
    small = np.float32(2.0**-30)
    (g,) = ta.grad(single * double + small * (single * double) - single * double, single)
    assert g.dtype == np.float32 and g.item() == small  # three shares in float64, rounded once


def test_what_overflows_on_the_way_alone_does_not_count():
    x, y = (ta.Tensor(np.array([v], np.float32), requires_grad=True) for v in (1e20, 1e10))
    _, dy = ta.grad(x / y, (x, y), np.array([1e30], np.float32))
    np.testing.assert_allclose(dy.numpy(), [-1e30], rtol=1e-6)  # g · x / y is 1e40
    z = ta.Tensor(np.array([1e30, 1e30, 1e-30, 1e-30, 2], np.float32), requires_grad=True)
    out = ta.prod(z)
    assert out.item() == pytest.approx(2, rel=1e-6) and out.dtype == np.float32
    np.testing.assert_allclose(ta.grad(out, z)[0].numpy(), [2e-30, 2e-30, 2e30, 2e30, 1], rtol=1e-6)


def test_longer_dtypes_stay_what_they_are():
    h = ta.Tensor(np.array([1.0, 2.0], HALF), requires_grad=True)
    assert (h @ np.ones((2, 2), np.float32)).dtype == (h / np.float32([2.0])).dtype == np.float32
    assert (h / 2).dtype == (h / np.array([2], np.int8)).dtype == ta.softmax(h).dtype == HALF
    assert ta.astype(h, np.float32).dtype == np.float32
    (g,) = ta.grad((ta.softmax(h) ** 2).sum(), h, create_graph=True)
    assert g.dtype == ta.grad(g.sum(), h)[0].dtype == HALF
