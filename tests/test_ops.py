"""Every op: its value against NumPy, its gradient and second derivative against finite differences."""

import functools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tinyattn as ta
from tinyattn import ops
from tinyattn.einsum import _einsum

pytestmark = pytest.mark.filterwarnings("ignore:the output does not change")  # an empty index picks nothing

# name: (function of x, what keeps x where the op is smooth)
UNARY = {
    "exp": (ta.exp, lambda x: x),
    "log": (ta.log, lambda x: np.abs(x) + 0.5),
    "sqrt": (ta.sqrt, lambda x: np.abs(x) + 0.5),
    "sin": (ta.sin, lambda x: x),
    "cos": (ta.cos, lambda x: x),
    "tanh": (ta.tanh, lambda x: x),
    "sigmoid": (ta.sigmoid, lambda x: x),
    "relu": (ta.relu, lambda x: x + np.sign(x)),
    "abs": (ta.abs, lambda x: x + np.sign(x)),
    "erf": (ta.erf, lambda x: x),
    "negative": (ta.negative, lambda x: x),
    "positive": (ta.positive, lambda x: x),
    "astype": (lambda x: ta.astype(x, np.float64), lambda x: x),
    "log1p": (ta.log1p, lambda x: np.abs(x) - 0.5),
    "expm1": (ta.expm1, lambda x: x),
    "square": (ta.square, lambda x: x),
    "sign": (lambda x: ta.sign(x) * x + x * x, lambda x: x + np.sign(x)),
    "clip": (lambda x: ta.clip(x, -0.2, 0.25) * x, lambda x: x),
    "cube": (lambda x: x**3, lambda x: x),
    "inverse square root": (lambda x: x**-0.5, lambda x: np.abs(x) + 0.5),
    "power of 2": (lambda x: 2.0**x, lambda x: x),
    "reciprocal": (lambda x: 3.0 / x, lambda x: np.abs(x) + 0.5),
}
BINARY = {
    "add": (ta.add, np.add),
    "subtract": (ta.subtract, np.subtract),
    "multiply": (ta.multiply, np.multiply),
    "divide": (ta.divide, np.divide),
    "power": (ta.power, np.power),
    "maximum": (ta.maximum, np.maximum),
    "minimum": (ta.minimum, np.minimum),
    "where": (
        lambda x, y: ta.where(np.resize([True, False, False], np.broadcast_shapes(x.shape, y.shape)), x, y),
        None,
    ),
}
REDUCTIONS = {
    "sum": (ta.sum, np.sum),
    "mean": (ta.mean, np.mean),
    "var": (ta.var, np.var),
    "std": (ta.std, np.std),
    "var ddof": (functools.partial(ta.var, ddof=1), functools.partial(np.var, ddof=1)),
    "std ddof": (functools.partial(ta.std, ddof=1), functools.partial(np.std, ddof=1)),
    "max": (ta.max, np.max),
    "min": (ta.min, np.min),
    "prod": (ta.prod, np.prod),
    "logsumexp": (ta.logsumexp, lambda x, axis, keepdims: np.log(np.sum(np.exp(x), axis, keepdims=keepdims))),
}
SOFTMAXES = {"softmax": ta.softmax, "log_softmax": ta.log_softmax}


def values(shape, seed=0):
    """Distinct values of both signs, at least 0.01 apart: no ties, no kinks within a step."""
    n = int(np.prod(shape))
    return ((np.random.default_rng(seed).permutation(n) - n // 2) * 0.05 + 0.013).reshape(shape)


def check(f, *arrays):
    ta.gradcheck(f, list(arrays))
    ta.gradgradcheck(f, list(arrays))


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    f, domain = UNARY[name]
    check(f, domain(values((3, 4))))
    check(f, domain(np.array(0.7)))


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(BINARY)), shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)
)
@example("power", hnp.BroadcastableShapes(((2, 1, 3), (4, 1)), (2, 4, 3)))
@example("divide", hnp.BroadcastableShapes(((3,), (2, 1)), (2, 3)))
@example("where", hnp.BroadcastableShapes(((), (2, 3)), (2, 3)))
@example("maximum", hnp.BroadcastableShapes(((2, 3), (3,)), (2, 3)))
@example("minimum", hnp.BroadcastableShapes(((1,), (4, 3)), (4, 3)))
def test_binary_over_broadcasting_patterns(name, shapes):
    f, expected = BINARY[name]
    x, y = (values(s, i) for i, s in enumerate(shapes.input_shapes))
    if name in ("divide", "power"):
        x, y = np.abs(x) + 0.5, np.abs(y) + 0.5
    y = y + 0.021  # never equal to x
    if expected:
        np.testing.assert_allclose(f(x, y).numpy(), expected(x, y))
    check(f, x, y)


@pytest.mark.parametrize("name", [n for n in BINARY if n not in ("maximum", "minimum", "where")])
def test_the_same_tensor_twice(name):
    check(lambda x: BINARY[name][0](x, x), np.abs(values((2, 3))) + 0.5)


def axes_of(rank):
    one = st.integers(-rank, rank - 1)
    return st.none() | one | st.lists(one, min_size=1, max_size=rank, unique_by=lambda a: a % rank).map(tuple)


@settings(max_examples=40)
@given(name=st.sampled_from(sorted(REDUCTIONS)), axis=axes_of(3), keepdims=st.booleans())
def test_reductions_over_axes(name, axis, keepdims):
    f, expected = REDUCTIONS[name]
    x = values((2, 3, 4))
    result = f(x, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(result.numpy(), expected(x, axis=axis, keepdims=keepdims), rtol=1e-12, atol=1e-15)
    assert result.shape == expected(x, axis=axis, keepdims=keepdims).shape
    check(lambda t: f(t, axis=axis, keepdims=keepdims), x)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmaxes_over_axes(name, axis):
    x = values((2, 3, 4))
    e = np.exp(x)
    p = e / e.sum(axis, keepdims=True)
    np.testing.assert_allclose(SOFTMAXES[name](x, axis=axis).numpy(), p if name == "softmax" else np.log(p), rtol=1e-12)
    check(lambda t: SOFTMAXES[name](t, axis), x)


MATMULS = [
    ((2, 3), (3, 4)),
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((1, 2, 3), (5, 3, 1)),
]


@pytest.mark.parametrize(("a", "b"), MATMULS)
def test_matmul(a, b):
    x, y = values(a), values(b, 1)
    np.testing.assert_allclose(ta.matmul(x, y).numpy(), x @ y)
    check(ta.matmul, x, y)


def test_matmul_with_itself():
    check(lambda w: w @ w, values((3, 3)))
    check(lambda w: w.mT @ w @ w.T, values((3, 3)))


@settings(max_examples=40)
@given(index=hnp.basic_indices((3, 4, 2), allow_newaxis=True, allow_ellipsis=True))
def test_getitem_basic(index):
    x = values((3, 4, 2))
    np.testing.assert_array_equal(ta.Tensor(x)[index].numpy(), x[index])
    check(lambda t: t[index], x)


@pytest.mark.parametrize(
    "index",
    [
        np.array([0, 1, 1, 1]),
        [2, 0, 2],
        (slice(None), np.array([0, 0])),
        (np.array([[0], [1]]), np.array([1, 1, 3])),
        (np.array([0, 0]), Ellipsis, np.array([1, 1])),
        values((3, 4, 2)) > 0,
        (values((3, 4)) > 0, 1),
        (None, np.array([1, 1]), slice(None, None, -1)),
        (slice(None), (0, 0)),
        ((0, 0),),
        np.int64(1),
        np.array([], int),
    ],
    ids=lambda index: " ".join(str(index).split()),  # in one line: mutmut names tests on a command line
)
def test_getitem_advanced(index):
    x = values((3, 4, 2))
    np.testing.assert_array_equal(ta.Tensor(x)[index].numpy(), x[index])
    check(lambda t: t[index], x)


def test_a_tensor_as_index():
    x = values((3, 2))
    np.testing.assert_array_equal(ta.Tensor(x)[ta.Tensor([2, 0])].numpy(), x[[2, 0]])


SHAPES = {
    "reshape": (lambda x: x.reshape(4, 6), lambda x: x.reshape(4, 6)),
    "reshape with -1": (lambda x: x.reshape((-1, 2)), lambda x: x.reshape(-1, 2)),
    "transpose": (lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "transpose negative": (lambda x: ta.transpose(x, (-1, 0, 1)), lambda x: x.transpose(-1, 0, 1)),
    "T": (lambda x: x.T, lambda x: x.T),
    "mT": (lambda x: x.mT, lambda x: x.mT),
    "swapaxes": (lambda x: x.swapaxes(0, -1), lambda x: x.swapaxes(0, -1)),
    "expand_dims": (lambda x: ta.expand_dims(x, (0, -1)), lambda x: np.expand_dims(x, (0, -1))),
    "squeeze": (lambda x: ta.squeeze(x[:1]), lambda x: x[0]),
    "squeeze axis": (lambda x: x[:, :, :1].squeeze(-1), lambda x: x[:, :, 0]),
    "broadcast_to": (
        lambda x: ta.broadcast_to(x[:, :1], (5, 2, 3, 4)),
        lambda x: np.broadcast_to(x[:, :1], (5, 2, 3, 4)),
    ),
    "concatenate": (
        lambda x: ta.concatenate([x, x[:, :1] * 2.0, x], 1),
        lambda x: np.concatenate([x, x[:, :1] * 2, x], 1),
    ),
    "concatenate -1": (lambda x: ta.concatenate([x, x], axis=-1), lambda x: np.concatenate([x, x], -1)),
    "stack": (lambda x: ta.stack([x, x * x], -1), lambda x: np.stack([x, x * x], -1)),
    "split": (lambda x: ta.split(x, [1, 2], -1)[1] * 3.0, lambda x: np.split(x, [1, 2], -1)[1] * 3),
    "ravel": (lambda x: ta.ravel(x.T) + x.flatten(), lambda x: x.T.ravel() + x.ravel()),
    "flip": (lambda x: ta.flip(x, (0, -1)) + ta.flip(x, 1), lambda x: np.flip(x, (0, 2)) + np.flip(x, 1)),
    "flip all": (ta.flip, np.flip),
    "roll": (lambda x: ta.roll(x, (1, -2), (0, 2)), lambda x: np.roll(x, (1, -2), (0, 2))),
    "roll flat": (lambda x: ta.roll(x, 5), lambda x: np.roll(x, 5)),
    "repeat": (lambda x: ta.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1)),
    "repeat each": (lambda x: x.repeat([2, 0, 1, 3], -1), lambda x: np.repeat(x, [2, 0, 1, 3], -1)),
    "repeat flat": (lambda x: ta.repeat(x, 2), lambda x: np.repeat(x, 2)),
    "tile": (lambda x: ta.tile(x, (2, 1, 3, 2)), lambda x: np.tile(x, (2, 1, 3, 2))),
    "tile last": (lambda x: ta.tile(x, 2), lambda x: np.tile(x, 2)),
    "cumsum": (lambda x: ta.cumsum(x, 1), lambda x: np.cumsum(x, 1)),
    "cumsum flat": (lambda x: x.cumsum(), lambda x: np.cumsum(x)),
    "masked_fill": (lambda x: ta.masked_fill(x, x > 0, 7.0), lambda x: np.where(x > 0, 7, x)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    f, expected = SHAPES[name]
    x = values((2, 3, 4))
    np.testing.assert_array_equal(f(ta.Tensor(x)).numpy(), expected(x))
    check(f, x)


def test_masked_fill_with_a_learned_value():
    check(lambda x, v: ta.masked_fill(x, np.array([True, False, True]), v), values((2, 3)), np.array(0.3))
    with pytest.raises(TypeError, match="boolean"):
        ta.masked_fill(values((2, 3)), np.ones((2, 3)), 0.0)


DOTS = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((), (2, 3)), ((2, 5, 3), (4, 3, 2))]


@pytest.mark.parametrize(("a", "b"), DOTS)
def test_dot_is_numpys(a, b):
    x, y = values(a), values(b, 1)
    np.testing.assert_allclose(ta.dot(x, y).numpy(), np.dot(x, y))
    assert isinstance(np.dot(ta.Tensor(x), y), ta.Tensor)
    check(ta.dot, x, y)


def test_outer_takes_all_pairs():
    x, y = values((2, 2)), values((3,), 1)
    np.testing.assert_array_equal(ta.outer(x, y).numpy(), np.outer(x, y))
    check(ta.outer, x, y)


def test_learned_bounds_get_what_lies_beyond_them():
    x, low, high = (
        np.array([-2.0, 0.1, 0.5, 3.0]),
        ta.Tensor(-1.0, requires_grad=True),
        ta.Tensor(0.5, requires_grad=True),
    )
    t = ta.Tensor(x, requires_grad=True)
    dx, dlow, dhigh = ta.grad(ta.clip(t, low, high), (t, low, high), np.array([1.0, 2.0, 4.0, 8.0]))
    assert dx.numpy().tolist() == [0, 2, 4, 0] and dlow == 1 and dhigh == 8  # at the bound itself: x gets it
    assert ta.clip(t) is not t and np.array_equal(t.clip(None, 1.0).numpy(), np.minimum(x, 1))
    assert np.array_equal(np.clip(t, -1.0, 1.0).numpy(), np.clip(x, -1, 1))


def test_the_spread_of_equal_numbers_has_no_slope():
    x = ta.Tensor(np.full(4, 3.0), requires_grad=True)
    assert ta.std(x) == 0 and ta.grad(ta.std(x), x)[0].numpy().tolist() == [0, 0, 0, 0]
    with np.errstate(all="ignore"):
        assert np.isnan(ta.var(x, ddof=4).item()) and np.isnan(ta.std(x[:1], ddof=2).item())
    half = ta.Tensor(np.array([-300, 300], np.float16), requires_grad=True)
    assert ta.std(half) == 300 and ta.grad(ta.std(half), half)[0].numpy().tolist() == [-0.5, 0.5]


def test_split_into_equal_sections():
    x = values((6, 2))
    for ours, theirs in zip(ta.split(x, 3), np.split(x, 3), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    with pytest.raises(ValueError, match="equal sections"):
        ta.split(x, 4)


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("ba", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij,j->i", (3, 3, 2), (2,)),
    ("...nd,...md->...nm", (5, 2, 3), (4, 3)),
    ("...i,...i", (2, 3), (2, 3)),
    ("...ij->...ji", (2, 3, 4)),
    ("i,j,k->kij", (2,), (3,), (4,)),
    ("ij,ij,j->i", (2, 3), (2, 3), (3,)),
    ("ij,j->j", (2, 3), (3,)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum(case):
    subscripts, *shapes = case
    xs = [values(s, i) for i, s in enumerate(shapes)]
    np.testing.assert_allclose(ta.einsum(subscripts, *xs).numpy(), np.einsum(subscripts, *xs), rtol=1e-12, atol=1e-12)
    check(lambda *t: ta.einsum(subscripts, *t), *xs)


def test_einsum_with_a_stretched_letter():
    check(lambda x, y: ta.einsum("ij,jk->ik", x, y), values((2, 1)), values((3, 4), 1))


def test_axes_that_are_not_there():
    for f in (ta.sum, ta.mean, ta.max, ta.prod, ta.softmax):
        with pytest.raises(ValueError, match="axis 5"):
            f(values((2, 3)), 5)
    with pytest.raises(ValueError, match="axis 7"):
        ta.split(values((2, 3)), 2, axis=7)
    x = ta.Tensor(3.0, requires_grad=True)
    for f in (ta.sum, ta.mean, ta.prod):  # NumPy lets axis 0 of a number pass
        assert ta.grad(f(x, axis=0), x)[0] == 1
    assert ta.softmax(x).item() == 1


def test_axes_are_the_tensors_own():
    x, axes = ta.Tensor(values((3, 3)), requires_grad=True), [1, 0]
    y = x.transpose(axes)
    axes.reverse()
    c = values((3, 3), 1)
    np.testing.assert_array_equal(ta.grad(y, x, c)[0].numpy(), c.T)
    assert ta.transpose([1.0, 2.0], 0).shape == (2,)
    check(lambda t: ta.concatenate([t, t * 2.0], axis=None), values((2, 3)))


@pytest.mark.parametrize("empty", [[], [[]], ([],), ([], 0), ((),), np.zeros(0, int)])
def test_an_empty_index_takes_nothing(empty):
    x = ta.Tensor(values((3, 2)), requires_grad=True)
    y = x[empty]
    whole = isinstance(empty, tuple)
    index = tuple(np.array(i, int) for i in empty) if whole else np.array(empty, int)
    assert y.shape == x.numpy()[index].shape
    np.testing.assert_array_equal(ta.grad(y.sum(), x)[0].numpy(), 0)


@pytest.mark.parametrize("subscripts", ["i...j...->...", "......->...", "...i->......", "i.j->ij", "..i->i"])
def test_einsum_has_one_ellipsis_in_a_term(subscripts):
    with pytest.raises(ValueError, match=r"more dots than one '\.\.\.'"):
        ta.einsum(subscripts, np.ones((2, 3)))


def test_einsum_with_wrong_operands():
    with pytest.raises(ValueError, match="names 2 operands, got 1"):
        ta.einsum("ij,jk->ik", np.ones((2, 2)))


@pytest.mark.parametrize("zeros", [(), (1,), (0, 2)])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 7])
def test_prod_where_factors_are_zero(n, zeros):
    x = values((n,)) + 2
    x[[z for z in zeros if z < n]] = 0
    np.testing.assert_allclose(ta.prod(x).numpy(), np.prod(x))
    if n:
        check(ta.prod, x)


def test_powers_at_zero():
    x = ta.Tensor(np.zeros(4), requires_grad=True)
    y = ta.stack([x[0] ** 2, x[1] ** 1, x[2] ** 0, x[3] ** np.array(0.0)])
    np.testing.assert_array_equal(y.numpy(), [0, 0, 1, 1])
    (first,) = ta.grad(y.sum(), x, create_graph=True)
    np.testing.assert_array_equal(first.numpy(), [0, 1, 0, 0])
    (second,) = ta.grad(first.sum(), x)
    np.testing.assert_array_equal(second.numpy(), [2, 0, 0, 0])

    y = ta.Tensor([2.0, 3.0], requires_grad=True)
    (dy,) = ta.grad((np.array([0.0, 2.0]) ** y).sum(), y)
    np.testing.assert_allclose(dy.numpy(), [0, 8 * np.log(2)])


def test_gb_32_second_derivatives_of_a_power_are_symmetric_where_the_exponent_is_zero():
    x, y = ta.Tensor(0.5, requires_grad=True), ta.Tensor(0.0, requires_grad=True)
    gx, gy = ta.grad(x**y, (x, y), create_graph=True)
    assert ta.grad(gx, y)[0].item() == ta.grad(gy, x)[0].item() == 2  # 1/x
    assert ta.gradgradcheck(lambda x, y: x**y, [np.array([0.5, 2.0, 3.0]), np.array([0.0, 0.0, 1.5])])


@pytest.mark.parametrize("base", [0.0, -0.0])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0, 3.0])
def test_second_derivatives_of_a_power_are_symmetric_where_the_base_is_zero(base, exponent):
    x, y = ta.Tensor(base, requires_grad=True), ta.Tensor(exponent, requires_grad=True)
    gx, gy = ta.grad(x**y, (x, y), create_graph=True)
    mixed = [ta.grad(g, t, retain_graph=True)[0].item() for g, t in ((gx, y), (gy, x))]
    assert mixed[0] == mixed[1] == float(exponent == 1)  # x^(y - 1), with 0 ** 0 = 1; log x is left out at 0


def test_powers_at_the_ends_of_the_range():
    y = ta.Tensor([2.0, 0.5, 0.0, -1.0], requires_grad=True)
    with np.errstate(divide="ignore"):
        (dy,) = ta.grad((0.0**y).sum(), y)
    np.testing.assert_array_equal(dy.numpy(), [0, 0, 0, -np.inf])
    x = ta.Tensor([np.inf, np.inf, 0.0, 3.0], requires_grad=True)
    for zero in (0, 0.0, np.zeros(4), ta.Tensor(np.zeros(4))):
        (dx,) = ta.grad((x**zero).sum(), x)
        np.testing.assert_array_equal(dx.numpy(), 0)  # x ** 0 is 1, whatever x
    (dy,) = ta.grad(((x[:1] * 1.0) ** y[3:]).sum(), y)
    np.testing.assert_array_equal(dy.numpy(), 0)  # inf ** -1 is 0, and stays it


def test_kinks_and_ties_have_the_chosen_gradient():
    x = ta.Tensor([0.0, 0.0, 1.0], requires_grad=True)
    assert ta.grad(ta.relu(x).sum(), x)[0].numpy().tolist() == [0, 0, 1]
    assert ta.grad(ta.abs(x).sum(), x)[0].numpy().tolist() == [0, 0, 1]
    assert ta.grad(ta.min(x), x)[0].numpy().tolist() == [0.5, 0.5, 0]
    y = ta.Tensor([0.0, 1.0, 1.0], requires_grad=True)
    for f, dx in ((ta.maximum, [0.5, 0, 0.5]), (ta.minimum, [0.5, 1, 0.5])):
        shares = ta.grad(f(x, y).sum(), (x, y))
        assert shares[0].numpy().tolist() == dx
        np.testing.assert_array_equal(shares[0].numpy() + shares[1].numpy(), 1)


def test_every_op_is_tested_here():
    named = {*UNARY, *BINARY, *REDUCTIONS, *SOFTMAXES, *SHAPES, "matmul", "einsum", "absolute"}
    assert not set(ops.__all__) - named, set(ops.__all__) - named


def test_empty_tensors():
    x = ta.Tensor(np.zeros((0, 3)), requires_grad=True)
    for y in (ta.exp(x), x @ np.ones((3, 2)), ta.softmax(x), ta.concatenate([x, x]), x.reshape(3, 0), x * x, x[:, :1]):
        (dx,) = ta.grad(y.sum(), x)
        assert dx.shape == (0, 3)
    for a, b in [((3, 0), (0, 5)), ((3, 4), (4, 0)), ((0,), (0,)), ((2, 3, 0), (0, 5))]:
        y, z = ta.Tensor(np.zeros(a), requires_grad=True), ta.Tensor(np.zeros(b), requires_grad=True)
        assert [g.shape for g in ta.grad((y @ z).sum(), (y, z))] == [a, b]
    with np.errstate(all="raise"):
        assert np.isnan(ta.mean(x).item()) and np.isnan(ta.var(x).item())


# --- the tests above bite: a corrupted rule is caught --------------------------------------------------

ONE, TWO = (values((3, 4)),), (values((3, 4)), values((3, 4), 1) + 0.021)
POSITIVE = (np.abs(values((3, 4))) + 0.5, np.abs(values((3, 4), 1)) + 0.521)
RULED = {n for n in ops.__all__ if hasattr(getattr(ops, n), "op")} - {"sign"}  # whose rule is 0: doubled, it stays 0
USES = {
    **{getattr(ops, n): (f, (smooth(ONE[0]),)) for n, (f, smooth) in UNARY.items() if n in RULED},
    **{getattr(ops, n): (BINARY[n][0], POSITIVE) for n in BINARY},
    **{
        getattr(ops, n): (lambda x, f=REDUCTIONS[n][0]: f(x, -1), ONE)
        for n in REDUCTIONS
        if n != "prod" and " " not in n
    },
    **{getattr(ops, n): (SOFTMAXES[n], ONE) for n in SOFTMAXES},
    ops.masked_fill: (lambda x, v: ta.masked_fill(x, x.numpy() > 0, v), TWO),
    ops._matmul: (lambda x, y: x @ y.mT, TWO),
    ops.flip: (lambda x: ta.flip(x, 0), ONE),
    ops.roll: (lambda x: ta.roll(x, 1, 0), ONE),
    ops._cumsum: (lambda x: ta.cumsum(x, 0), ONE),
    ops._mT: (lambda x: x.mT, ONE),
    ops.reshape: (lambda x: x.reshape(-1), ONE),
    ops._transpose: (lambda x: x.T, ONE),
    ops.swapaxes: (lambda x: x.swapaxes(0, 1), ONE),
    ops.expand_dims: (lambda x: ta.expand_dims(x, 1), ONE),
    ops.squeeze: (lambda x: x[:1].squeeze(), ONE),
    ops.broadcast_to: (lambda x: ta.broadcast_to(x, (5, 3, 4)), ONE),
    ops._getitem: (lambda x: x[[0, 0, 2]], ONE),
    ops._concatenate: (lambda x, y: ta.concatenate([x, y * 2.0]), TWO),
    _einsum: (lambda x, y: ta.einsum("ij,kj->ik", x, y), TWO),
}
CORRUPTIONS = {
    "off by 1 %": lambda dx: dx * 1.01,
    "shifted": lambda dx: dx + 0.01,
    "twice": lambda dx: dx * 2.0,
    "lost": lambda dx: dx * 0.0,
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
@pytest.mark.parametrize("function", USES, ids=lambda f: f.__name__)
def test_a_corrupted_rule_is_caught(function, corruption, monkeypatch):
    f, inputs = USES[function]

    def corrupted(rule):
        return lambda *args, **params: CORRUPTIONS[corruption](rule(*args, **params))

    def corrupted_pull(pull, i):
        def wrong(*args, **params):
            return [
                CORRUPTIONS[corruption](dx) if k == i and dx is not None else dx
                for k, dx in enumerate(pull(*args, **params))
            ]

        return wrong

    op = function.op
    wrong = [
        ("rules", (*op.rules[:i], corrupted(rule), *op.rules[i + 1 :])) for i, rule in enumerate(op.rules) if rule
    ] or [("pull", corrupted_pull(op.pull, i)) for i in range(len(inputs))]
    for name, way_back in wrong:
        with monkeypatch.context() as patch:
            patch.setattr(op, name, way_back)
            with pytest.raises(ta.GradcheckError):
                ta.gradcheck(f, list(inputs))
    assert ta.gradcheck(f, list(inputs))


def test_every_rule_is_among_them():
    with_rules = {f for f in vars(ops).values() if hasattr(f, "op")}
    assert with_rules - set(USES) == {ops._scatter, ops.sign}  # getitem's second derivative: gradgradcheck
