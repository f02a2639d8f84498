"""The attacks on n²: each exact form equals the plain one in value and in every gradient; linear forms agree."""

import functools
import itertools
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyattn as ta
from tinyattn import efficient as eff
from tinyattn.efficient import flash as paper
from tinyattn.efficient import tiles

NAN, INF = np.nan, np.inf
FORMS = ["flash", "window", "blocks"]


def T(x, **kwargs):
    return ta.Tensor(x, requires_grad=True, **kwargs)


def values_and_grads(f, inputs, cotangent_seed=1):
    out = f(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    cotangent = np.random.default_rng(cotangent_seed).normal(size=out.shape)
    return [out.numpy(), *(g.numpy() for g in ta.grad(out, wanted, cotangent))]


def assert_same(f, reference, inputs, tolerance=None):
    """Value and all gradients equal: within 1e-12 (float32: 1e-5) of the largest entry, where that is above 1.

    dQ = dS K · scale, and where a row's weights are 0 and 1, dS = P ∘ (g·v - Σ g·out) is the difference of two equal
    numbers: what remains is their rounding, times K. So a gradient of Q or K may also differ by that rounding:
    4 eps |g| |v| |k| · scale, with the longest row of each.
    """
    Q, K, V = inputs[:3]
    if tolerance is None:
        tolerance = 1e-12 if Q.dtype == np.float64 else 1e-5
    actual, expected = values_and_grads(f, inputs), values_and_grads(reference, inputs)
    longest = lambda x: np.linalg.norm(x, axis=-1).max(initial=0)
    g = np.random.default_rng(1).normal(size=expected[0].shape)  # the cotangent
    for x, a, e in zip([None, *(x for x in inputs if x.requires_grad)], actual, expected):
        assert a.dtype == e.dtype and a.shape == e.shape
        partner = K if x is Q else Q if x is K else None
        rounding = 0 if partner is None else 4 * np.finfo(e.dtype).eps * longest(g) * longest(V.numpy())
        rounding *= 0 if partner is None else longest(partner.numpy()) / np.sqrt(Q.shape[-1])
        allowed = max(tolerance * max(1.0, np.abs(e).max(initial=0)), rounding)
        np.testing.assert_allclose(a / allowed, e / allowed, rtol=0, atol=1)


# --- every exact form equals the plain one --------------------------------------------------------------


@st.composite
def qkv(draw, square=False):
    """Q, K, V with leading axes that broadcast, any lengths, sharp or flat, float64 or float32, some constant."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 12))
    m = n if square else draw(st.integers(1, 12))
    dv = draw(st.integers(1, 3))
    some = [((), (), ()), ((2,), (2,), (2,)), ((2, 1), (3,), (1, 3)), ((), (2,), ()), ((2, 3), (2, 3), (2, 3))]
    lead = draw(st.sampled_from(some))
    sharp = draw(st.booleans())
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    arrays = [rng.normal(size=(*a, length, d)) for a, length, d in zip(lead, (n, m, m), (4, 4, dv))]
    if sharp:  # scores of whole numbers up to ±10⁴, so that no form rounds them; ties and near ties are common
        arrays[0] = rng.integers(-2, 3, size=arrays[0].shape) * 50.0
        arrays[1] = rng.integers(-2, 3, size=arrays[1].shape) * 50.0
        arrays[0][..., 0, :] *= 0.02  # and a flat row
    inputs = [ta.Tensor(x.astype(dtype), requires_grad=True) for x in arrays]
    frozen = draw(st.sampled_from([None, None, 0, 1, 2]))
    if frozen is not None:
        inputs[frozen].requires_grad = False
    return rng, inputs


def leading(inputs):
    return np.broadcast_shapes(*(x.shape[:-2] for x in inputs))


@settings(max_examples=150)
@given(qkv(), st.integers(1, 14), st.booleans(), st.sampled_from([None, "boolean", "keys", "float", "learned", "row"]))
def test_flash_is_plain_attention(drawn, block_size, causal, kind):
    rng, (Q, K, V) = drawn
    n, m = Q.shape[-2], K.shape[-2]
    lead = leading((Q, K, V))
    shape = (n, m) if rng.random() < 0.5 else tuple(d if rng.random() < 0.7 else 1 for d in (*lead, n, m))
    allowed = rng.random(shape) < 0.6
    allowed[..., rng.integers(shape[-2]), :] = False  # an empty row
    inputs = [Q, K, V]
    mask = None
    if kind == "boolean":
        mask = allowed
    elif kind == "keys":
        mask = rng.random((*lead, 1, m)) < 0.6
    elif kind == "row":
        mask = rng.random(m) < 0.6
    elif kind in ("float", "learned"):
        bias = np.where(allowed, rng.normal(size=shape), -INF).astype(Q.dtype)
        mask = ta.Tensor(bias, requires_grad=kind == "learned")
    if kind == "learned":
        inputs.append(mask)

    def flash(Q, K, V, *bias):
        return ta.efficient.flash_attention(Q, K, V, causal=causal, mask=mask, block_size=block_size)

    def plain(Q, K, V, *bias):
        if not causal:
            return ta.scaled_dot_product_attention(Q, K, V, mask)
        triangle = ta.causal_mask(n, m)
        if isinstance(mask, ta.Tensor):
            return ta.scaled_dot_product_attention(Q, K, V, ta.masked_fill(mask, ~triangle, -INF))
        return ta.scaled_dot_product_attention(Q, K, V, triangle if mask is None else mask & triangle)

    if any(x.requires_grad for x in inputs):
        assert_same(flash, plain, inputs)


@settings(max_examples=100)
@given(qkv(square=True), st.integers(1, 14), st.booleans())
def test_window_is_plain_attention_under_its_mask(drawn, window, causal):
    _, inputs = drawn
    mask = ta.sliding_window_mask(inputs[0].shape[-2], window, causal=causal)
    assert_same(
        lambda *x: ta.efficient.sliding_window_attention(*x, window, causal=causal),
        lambda *x: ta.scaled_dot_product_attention(*x, mask),
        inputs,
    )


@pytest.mark.parametrize(("n", "window"), [(150, 1), (150, 70), (301, 80), (64, 64), (65, 300), (202, 100)])
@pytest.mark.parametrize("causal", [True, False])
def test_window_over_several_tiles(n, window, causal):
    rng = np.random.default_rng(n)
    inputs = [T(rng.normal(size=(n, d))) for d in (3, 3, 2)]
    mask = ta.sliding_window_mask(n, window, causal=causal)
    assert_same(
        lambda *x: ta.efficient.sliding_window_attention(*x, window, causal=causal),
        lambda *x: ta.scaled_dot_product_attention(*x, mask),
        inputs,
    )


def dense(block_mask, size, n, m):
    """The block mask position by position."""
    return block_mask[..., np.arange(n)[:, None] // size, np.arange(m) // size]


@settings(max_examples=100)
@given(qkv(), st.integers(1, 14), st.booleans())
def test_block_sparse_is_plain_attention_under_its_mask(drawn, size, per_head):
    rng, inputs = drawn
    n, m = inputs[0].shape[-2], inputs[1].shape[-2]
    lead = leading(inputs) if per_head else ()
    block_mask = rng.random((*lead, -(-n // size), -(-m // size))) < 0.5
    assert_same(
        lambda *x: ta.efficient.block_sparse_attention(*x, block_mask, size),
        lambda *x: ta.scaled_dot_product_attention(*x, dense(block_mask, size, n, m)),
        inputs,
    )


def test_block_sparse_over_several_tiles_of_a_run():
    rng = np.random.default_rng(5)
    inputs = [T(rng.normal(size=(1100, d))) for d in (3, 3, 2)]
    block_mask = eff.bigbird_blocks(11, rng)
    block_mask[4] = True  # a run of 1,100 keys: three tiles
    assert_same(
        lambda *x: ta.efficient.block_sparse_attention(*x, block_mask, 100),
        lambda *x: ta.scaled_dot_product_attention(*x, dense(block_mask, 100, 1100, 1100)),
        inputs,
    )


def form(name, n=5, m=5):
    """One of the exact forms with its parameters bound, with an empty row where it can have one."""
    rng = np.random.default_rng(2)
    if name == "flash":
        mask = rng.random((n, m)) < 0.7
        mask[1] = False
        return lambda Q, K, V, **kw: ta.efficient.flash_attention(Q, K, V, causal=True, mask=mask, block_size=2, **kw)
    if name == "window":
        return lambda Q, K, V, **kw: ta.efficient.sliding_window_attention(Q, K, V, 3, causal=False, **kw)
    blocks = np.array([[True, False, True], [False, False, False], [False, True, True]])
    return lambda Q, K, V, **kw: ta.efficient.block_sparse_attention(Q, K, V, blocks, 2, **kw)


@pytest.mark.parametrize("name", FORMS)
def test_first_and_second_derivatives(name):
    rng = np.random.default_rng(3)
    inputs = [T(rng.normal(size=s), name=k) for k, s in zip("QKV", [(2, 5, 2), (5, 2), (2, 5, 1)])]
    assert ta.gradcheck(form(name), inputs)
    assert ta.gradgradcheck(form(name), inputs)


def test_first_and_second_derivatives_with_a_learned_bias():
    rng = np.random.default_rng(3)
    shapes = {"Q": (2, 1, 3, 2), "K": (1, 2, 4, 2), "V": (4, 1), "bias": (1, 2, 3, 4)}
    inputs = [T(rng.normal(size=s), name=k) for k, s in shapes.items()]

    def f(Q, K, V, bias):
        return ta.efficient.flash_attention(Q, K, V, causal=True, mask=bias, block_size=2)

    assert ta.gradcheck(f, inputs)
    assert ta.gradgradcheck(f, inputs)


@pytest.mark.parametrize("shape", [(1, 7), (5, 1), (3, 1, 7), (3, 5, 7), (7,), (1, 5, 7)])
def test_a_broadcast_bias_gets_the_sum(shape):
    rng = np.random.default_rng(4)
    inputs = [T(rng.normal(size=s)) for s in [(3, 5, 2), (3, 7, 2), (3, 7, 4), shape]]
    assert_same(
        lambda Q, K, V, b: ta.efficient.flash_attention(Q, K, V, mask=b, block_size=2),
        ta.scaled_dot_product_attention,
        inputs,
    )


@pytest.mark.parametrize("name", FORMS)
def test_scale_is_used(name):
    rng = np.random.default_rng(4)
    Q, K, V = (rng.normal(size=(5, d)) for d in (3, 3, 2))
    np.testing.assert_allclose(
        form(name)(Q, K, V, scale=0.3).numpy(), form(name)(Q * 0.3 * np.sqrt(3), K, V).numpy(), atol=1e-12
    )


@pytest.mark.parametrize("name", FORMS)
def test_arrays_in_tensor_out_and_no_input_is_written_to(name):
    rng = np.random.default_rng(4)
    arrays = [rng.normal(size=(5, d)) for d in (3, 3, 2)]
    before = [a.copy() for a in arrays]
    out = form(name)(*arrays)
    assert isinstance(out, ta.Tensor) and not out.requires_grad
    tensors = [T(a) for a in arrays]
    form(name)(*tensors).backward(np.ones((5, 2)))
    for a, t, b in zip(arrays, tensors, before):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(t.numpy(), b)
        a[0] = 7  # still the caller's to write to


@pytest.mark.parametrize("name", FORMS)
def test_float32_stays(name):
    rng = np.random.default_rng(4)
    inputs = [T(rng.normal(size=(5, d)).astype(np.float32)) for d in (3, 3, 2)]
    assert all(x.dtype == np.float32 for x in values_and_grads(form(name), inputs))


def test_integers_are_taken_as_numbers():
    for x in (np.arange(6).reshape(3, 2), np.full((3, 2), -128, np.int8)):
        expected = ta.scaled_dot_product_attention(x / 1, x / 1, x / 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            flash = ta.efficient.flash_attention(x, x, x)
        np.testing.assert_allclose(flash.numpy(), expected.numpy(), atol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0)])
def test_nothing_to_attend_with_or_to(n, m):
    Q, K, V = (T(np.ones(s)) for s in [(2, n, 3), (2, m, 3), (2, m, 4)])
    out, *gradients = values_and_grads(ta.efficient.flash_attention, (Q, K, V))
    assert out.shape == (2, n, 4) and not out.any() and not any(g.any() for g in gradients)


def test_an_empty_row_is_zero_with_zero_gradient_and_touches_no_other():
    rng = np.random.default_rng(6)
    Q, K, V = (T(rng.normal(size=(5, d))) for d in (3, 3, 2))
    mask = np.ones((5, 5), bool)
    mask[2] = False
    out, dQ, dK, dV = values_and_grads(lambda *x: ta.efficient.flash_attention(*x, mask=mask, block_size=2), (Q, K, V))
    assert not out[2].any() and not dQ[2].any()
    assert np.isfinite(dK).all() and np.isfinite(dV).all()
    others = [0, 1, 3, 4]
    expected = ta.scaled_dot_product_attention(Q[others], K, V).numpy()
    np.testing.assert_allclose(out[others], expected, atol=1e-12)


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("where", ["key", "value", "both"])
def test_a_key_that_nobody_attends_may_hold_anything(bad, floats, where):
    rng = np.random.default_rng(7)
    Q, K, V = (rng.normal(size=(2, n, d)) for n, d in ((5, 3), (7, 3), (7, 2)))
    mask = rng.random((5, 7)) < 0.5
    mask[:, 4] = False
    mask[0, 5] = True  # above the diagonal: causal forbids it, and it is the only one
    mask[1:, 5] = False
    clean = [T(Q), T(K), T(V)]
    for x in {"key": [K], "value": [V], "both": [K, V]}[where]:
        x[:, 4:6] = bad
    spoilt = [T(Q), T(K), T(V)]
    if floats:
        mask = np.where(mask, 0.5, -INF)
    f = lambda *x: ta.efficient.flash_attention(*x, causal=True, mask=mask, block_size=3)
    for actual, expected in zip(values_and_grads(f, spoilt), values_and_grads(f, clean)):
        np.testing.assert_allclose(actual, expected, atol=1e-12)
    allowed = (mask > -INF if floats else mask) & ta.causal_mask(5, 7)  # 0.5 added to all scores changes nothing
    expected = ta.scaled_dot_product_attention(*clean, mask=allowed)
    np.testing.assert_allclose(f(*spoilt).numpy(), expected.numpy(), atol=1e-12)


def test_a_future_or_unlisted_key_with_nan_reaches_no_tile_that_excludes_it():
    Q, K, V = (np.ones((6, 2)) for _ in range(3))
    K[4:], V[4:] = NAN, NAN
    out = ta.efficient.flash_attention(Q, K, V, causal=True, block_size=2).numpy()
    assert np.isfinite(out[:4]).all()
    out = ta.efficient.block_sparse_attention(Q, K, V, np.array([[1, 1, 0]] * 3, bool), 2).numpy()
    assert np.isfinite(out).all()


def test_a_mask_changed_after_the_forward_pass_changes_no_gradient():
    rng = np.random.default_rng(8)
    inputs = [T(rng.normal(size=(5, d))) for d in (3, 3, 2)]
    mask, blocks = rng.random((5, 5)) < 0.6, rng.random((3, 3)) < 0.6
    for f, m in (
        (lambda *x: ta.efficient.flash_attention(*x, mask=mask, block_size=1), mask),
        (lambda *x: ta.efficient.block_sparse_attention(*x, blocks, 2), blocks),
    ):
        out = f(*inputs)
        expected = ta.grad(out, inputs, np.ones(out.shape), retain_graph=True)
        m[...] = ~m
        for a, b in zip(ta.grad(out, inputs, np.ones(out.shape)), expected):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("offset", [-1e4, 1e4])
@pytest.mark.parametrize("block_size", [1, 8])
def test_a_bias_may_lift_or_lower_a_whole_row(offset, block_size):
    rng = np.random.default_rng(10)
    inputs = [T(rng.normal(size=(n, d)).astype(np.float32)) for n, d in ((5, 3), (7, 3), (7, 2))]
    bias = np.array([0, offset, 0, offset, offset], np.float32)[:, None]
    flash = functools.partial(ta.efficient.flash_attention, mask=bias, block_size=block_size)
    assert_same(flash, ta.scaled_dot_product_attention, inputs, tolerance=2e-3)  # 1e4 + s keeps three digits of s


def test_an_infinite_score_gives_nan_in_its_own_row_as_the_plain_form_does():
    Q, K, V = np.ones((3, 1)), np.ones((5, 1)), np.ones((5, 2))
    Q[1] = INF
    with np.errstate(invalid="ignore", over="ignore"):
        flash = ta.efficient.flash_attention(Q, K, V, block_size=2).numpy()
        plain = ta.scaled_dot_product_attention(Q, K, V).numpy()
    np.testing.assert_allclose(flash, plain)
    assert np.isnan(flash[1]).all()


@pytest.mark.parametrize(
    ("dtype", "q", "k", "scale", "m", "v"),
    [
        (np.float32, 4, 5, 1, 5, 1e30),
        (np.float16, 1.64, 1.64, 1, 5000, 1),
        (np.longdouble, 200, 200, 1, 4, 1),
        (np.float32, 0, 1e20, 1, 5, 1),
        (np.float32, 1e20, 0, 1, 5, 1),
        (np.float32, 1e20, 1e20, 0, 5, 1),
        (np.float32, 9, -9, 1, 5, 1),
        (np.float32, 1, 1, 200, 5, 1),
        (np.float32, 1, -1, -200, 5, 1),
    ],
)
def test_sums_stay_in_range_and_nothing_warns(dtype, q, k, scale, m, v):
    inputs = [T(np.full(shape, x, dtype)) for shape, x in (((3, 1), q), ((m, 1), k), ((m, 2), v))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = ta.efficient.flash_attention(*inputs, scale=scale)
        gradients = ta.grad(out, inputs, np.ones((3, 2)))
    np.testing.assert_allclose(out.numpy(), np.full((3, 2), v, dtype), rtol=1e-3)
    np.testing.assert_allclose(gradients[2].numpy(), np.full((m, 2), 3 / m, dtype), rtol=2e-3)


@pytest.mark.parametrize("block_size", [2, 64])
@pytest.mark.parametrize("kind", ["boolean", "float", "causal"])
def test_a_query_that_attends_to_nobody_may_hold_anything(kind, block_size):
    rng = np.random.default_rng(11)
    arrays = [rng.normal(size=shape) for shape in ((7, 3), (5, 3), (5, 2))]
    arrays[0][1] = NAN
    inputs = [T(x) for x in arrays]
    allowed = ta.causal_mask(7, 5) if kind == "causal" else np.arange(7)[:, None] + np.zeros((7, 5)) != 1
    mask = {"boolean": allowed, "float": np.where(allowed, 0.5, -INF), "causal": None}[kind]
    assert_same(
        lambda *x: ta.efficient.flash_attention(*x, causal=kind == "causal", mask=mask, block_size=block_size),
        lambda *x: ta.scaled_dot_product_attention(*x, mask=allowed),
        inputs,
    )


def test_a_learned_scale_gets_its_gradient():
    rng = np.random.default_rng(12)
    inputs = [T(rng.normal(size=(5, d))) for d in (3, 3, 2)] + [T(0.7)]
    plain = lambda Q, K, V, scale: ta.scaled_dot_product_attention(Q, K, V, scale=scale)
    assert_same(lambda Q, K, V, scale: ta.efficient.flash_attention(Q, K, V, scale=scale), plain, inputs)
    assert_same(
        lambda Q, K, V, scale: ta.efficient.sliding_window_attention(Q, K, V, 9, causal=False, scale=scale),
        plain,
        inputs,
    )


def test_sizes_may_be_numpy_integers_and_larger_than_the_sequence():
    x = np.random.default_rng(13).normal(size=(5, 3))
    expected = ta.scaled_dot_product_attention(x, x, x, ta.causal_mask(5)).numpy()
    for out in (
        ta.efficient.flash_attention(x, x, x, causal=True, block_size=np.int64(10**10)),
        ta.efficient.sliding_window_attention(x, x, x, np.uint8(7)),
        ta.efficient.sliding_window_attention(x, x, x, 10**30),
    ):
        np.testing.assert_allclose(out.numpy(), expected, atol=1e-12)
    inputs = [T(x) for _ in range(3)]
    out = ta.efficient.block_sparse_attention(*inputs, np.array([[True]]), 10**6)
    ta.grad(out, inputs, x, create_graph=True)  # of five positions, not of a block's million


@pytest.mark.parametrize("name", FORMS)
def test_multi_head_attention_takes_it(name):
    rng = np.random.default_rng(9)
    f = {
        "flash": ta.efficient.flash_attention,
        "window": lambda Q, K, V: ta.efficient.sliding_window_attention(Q, K, V, 2),
        "blocks": lambda Q, K, V: ta.efficient.block_sparse_attention(Q, K, V, np.ones((2, 2), bool), 3),
    }[name]
    mask = {"window": ta.sliding_window_mask(6, 2)}.get(name)
    plain, other = ta.nn.MultiHeadAttention(8, 2, rng=0), ta.nn.MultiHeadAttention(8, 2, rng=0, attention=f)
    x = rng.normal(size=(3, 6, 8))
    np.testing.assert_allclose(other(x).numpy(), plain(x, mask=mask).numpy(), atol=1e-12)


# --- flash as the paper has it --------------------------------------------------------------------------


@settings(max_examples=60)
@given(qkv(), st.integers(1, 14), st.booleans())
def test_the_fast_kernel_is_the_papers_algorithm(drawn, tile, causal):
    _, inputs = drawn
    lead = leading(inputs)
    Q, K, V = (np.broadcast_to(x.numpy().astype(float), lead + x.shape[-2:]) for x in inputs)
    inputs = [T(x) for x in (Q, K, V)]
    out, *gradients = values_and_grads(
        lambda *x: ta.efficient.flash_attention(*x, causal=causal, block_size=tile), inputs
    )
    g = np.random.default_rng(1).normal(size=out.shape)
    plain, top, total = paper.forward(Q, K, V, causal, tile)
    expected = [plain, *paper.backward(g, Q, K, V, plain, top, total, causal, tile)]
    for a, e in zip([out, *gradients], expected):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-12 * max(1, np.abs(e).max()))


@pytest.mark.parametrize("tile", [1, 3, 4, 64])
@pytest.mark.parametrize(("n", "m", "causal"), [(5, 7, False), (5, 7, True), (7, 5, True)])
def test_the_papers_algorithm_is_attention(n, m, causal, tile):
    rng = np.random.default_rng(20)
    Q, K, V, g = (rng.normal(size=s) for s in [(2, n, 3), (2, m, 3), (2, m, 4), (2, n, 4)])
    inputs = [T(x) for x in (Q, K, V)]
    out = ta.scaled_dot_product_attention(*inputs, ta.causal_mask(n, m) if causal else None)
    expected = [out.numpy(), *(x.numpy() for x in ta.grad(out, inputs, g))]
    plain, top, total = paper.forward(Q, K, V, causal, tile)
    for a, e in zip([plain, *paper.backward(g, Q, K, V, plain, top, total, causal, tile)], expected):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-12)


# --- the ends of the range ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("v", [3e37, -3e37, 2e-38, -1e-40])
@pytest.mark.parametrize("g", [1.0, 1e30, -1e-30, 3e-41])
@pytest.mark.parametrize("s", [-80.0, -20.0, 0.0, 20.0, 80.0, 1e4])
def test_answers_and_gradients_are_finite_where_the_mathematics_is(name, v, g, s):
    """float32 against float64: huge and tiny values and gradients of either sign, and all scores low or high."""
    rng = np.random.default_rng(21)
    K, V, cotangent = s + rng.uniform(-1, 1, (5, 1)), v * rng.uniform(0.5, 1, (5, 2)), g * rng.uniform(0.5, 1, (5, 2))
    arrays = [x.astype(np.float32) for x in (np.ones((5, 1)), K, V)]
    cotangent = cotangent.astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        single = run(form(name), [T(x) for x in arrays], cotangent)
    double = run(form(name), [T(x.astype(float)) for x in arrays], cotangent)
    score = abs(g * v)  # the size of dS
    for a, e, size in zip(single, double, (abs(v), score * max(1, abs(s)), score, abs(g))):
        if size < 1e37:
            np.testing.assert_allclose(a, e, rtol=0, atol=1e-5 * (1 + abs(s)) * size + 1e-44)


def run(f, inputs, cotangent):
    out = f(*inputs)
    return [out.numpy(), *(x.numpy() for x in ta.grad(out, inputs, cotangent.astype(out.dtype)))]


@pytest.mark.parametrize("name", FORMS)
def test_half_precision_is_summed_in_single_and_rounded_once(name):
    rng = np.random.default_rng(22)
    arrays = [rng.normal(size=(5, d)).astype(np.float16) for d in (3, 3, 2)]
    g = rng.normal(size=(5, 2)).astype(np.float16)
    half, single = (run(form(name), [T(x.astype(d)) for x in arrays], g) for d in (np.float16, np.float32))
    for a, e in zip(half, single):
        assert a.dtype == np.float16
        np.testing.assert_array_equal(a, e.astype(np.float16))
    many = [T(np.full(shape, x, np.float16)) for shape, x in (((1, 1), 0), ((5000, 1), 0), ((5000, 1), 60))]
    assert ta.efficient.flash_attention(*many, block_size=64).item() == 60  # in half precision 5000 · 60 is infinite


@pytest.mark.parametrize("factor", [1, 6, 1000])
def test_gb_02_half_precision_scores_in_range_have_an_answer(factor):
    Q = np.full((1, 64), 40 * min(factor, 6), np.float16)
    K, V = np.stack([Q[0] / factor, (Q[0] - np.float16(1)) / factor]), np.array([[1], [2]], np.float16)
    for f in (
        ta.efficient.flash_attention,
        functools.partial(ta.efficient.block_sparse_attention, block_mask=[[True, True]], block_size=1),
    ):
        out = f(Q, K, V)
        right = ta.scaled_dot_product_attention(*(x.astype(float) for x in (Q, K, V)))
        np.testing.assert_allclose(out.numpy(), right.numpy(), rtol=2e-3)
    assert factor > 1 or out.item() == 1


def test_gb_31_indices_may_have_32_bits(monkeypatch):
    assert np.arange(3, dtype=np.int32).dtype == (np.arange(3, dtype=np.int32) + ta.efficient.FAR).dtype
    rng = np.random.default_rng(23)
    arrays = [rng.normal(size=(7, d)) for d in (3, 3, 2)]
    calls = {
        "flash": lambda *x: ta.efficient.flash_attention(*x, block_size=2),
        "flash causal": lambda *x: ta.efficient.flash_attention(*x, causal=True, block_size=2),
        "window": lambda *x: ta.efficient.sliding_window_attention(*x, 3),
        "blocks": lambda *x: ta.efficient.block_sparse_attention(*x, eff.local_blocks(4), 2),
        "linear": lambda *x: ta.efficient.linear_attention(*x, causal=True),
    }
    arrays[1][6], arrays[0][0] = NAN, NAN
    narrow = lambda *args, arange=np.arange: arange(*args).astype(np.int32)
    for f in calls.values():
        results = []
        for patched in (False, True):
            with monkeypatch.context() as patch:
                if patched:
                    patch.setattr(np, "arange", narrow)
                results.append(run(f, [T(x) for x in arrays], np.ones((7, 2))))
        for a, b in zip(*results):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["flash", "float mask", "blocks", "heads"])
def test_gb_34_what_an_idle_query_holds_cannot_matter_to_a_learned_scale(kind, causal):
    mask = np.array([[True, True], [False, False]])
    scale = T(0.5)
    Q, K, V = (T([[1.0], [NAN]]), T([[1.0], [2.0]]), T([[1.0], [3.0]]))
    options = {"scale": scale, "causal": causal}
    if kind == "heads":
        Q, K, V = (T(np.stack([x.numpy()] * 2)) for x in (Q, K, V))
        scale = options["scale"] = T(np.full((2, 1, 1), 0.25))
        mask = np.stack([mask, mask])
    if kind == "blocks":
        out = ta.efficient.block_sparse_attention(Q, K, V, mask, 1, scale=scale)
    elif kind == "float mask":
        out = ta.efficient.flash_attention(Q, K, V, mask=np.where(mask, 0.5, -INF), **options)
    else:
        out = ta.efficient.flash_attention(Q, K, V, mask=mask, **options)
    reference = ta.scaled_dot_product_attention(
        Q, K, V, mask & ta.causal_mask(2) if causal and kind != "blocks" else mask, scale=scale
    )
    expected = ta.grad(reference.sum(), (scale, Q, K, V))
    actual = ta.grad(out.sum(), (scale, Q, K, V))
    for a, e in zip(actual, expected):
        assert np.isfinite(a.numpy()).all()
        np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-12, atol=1e-15)
    if not causal and kind != "heads":
        assert abs(actual[0].item() - 0.470) < 5e-4


# --- what they refuse -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K[..., :2], V), ValueError, "last axes"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, mask=np.ones((4, 7), bool)), ValueError, "mask"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, mask=np.ones((5, 7), int)), TypeError, "astype"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, mask=np.ones((5, 7))), ValueError, "astype"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, block_size=0), ValueError, "block_size = 0"),
        (lambda Q, K, V: ta.efficient.sliding_window_attention(Q, K, V, 2), ValueError, "5 queries and 7 keys"),
        (lambda Q, K, V: ta.efficient.sliding_window_attention(K, K, V, 0), ValueError, "window = 0"),
        (lambda Q, K, V: ta.efficient.sliding_window_attention(K, K, V, None), TypeError, "window = None"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, block_size=64.0), TypeError, "use 64"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, block_size=True), TypeError, "block_size = True"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, scale="a"), TypeError, "scale = 'a'"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, scale=NAN), ValueError, "scale = nan"),
        (lambda Q, K, V: ta.efficient.flash_attention(Q, K, V, scale=np.ones(3)), TypeError, "scale = an array"),
        (lambda *x: ta.efficient.block_sparse_attention(*x, [[True], [True, True]], 2), ValueError, "block_mask"),
        (lambda *x: ta.efficient.block_sparse_attention(*x, np.ones((3, 4), bool), 2.5), TypeError, "block_size"),
        (lambda *x: ta.efficient.linear_attention(*x, feature_map=None), TypeError, "feature_map = None"),
        (lambda *x: ta.efficient.linear_attention(*x, feature_map=lambda x: x[:1]), ValueError, "feature_map made"),
        (lambda *x: ta.efficient.linear_attention(*x, key_mask=[[True], [True, True]]), ValueError, "key_mask"),
        (lambda Q, K, V: ta.efficient.linear_attention_step(1.0, 1.0, 1.0), ValueError, "one vector"),
        (lambda Q, K, V: ta.efficient.linear_attention_step(Q[0, 0], V[0, 0], V[0, 0]), ValueError, "equally long"),
        (lambda Q, K, V: ta.efficient.linear_attention_step(Q[0], Q[0], Q[0], V[0]), ValueError, "state"),
        (lambda Q, K, V: ta.efficient.local_blocks(2.5), TypeError, "n = 2.5"),
        (lambda Q, K, V: ta.efficient.global_blocks(3, -1), ValueError, "count = -1"),
        (lambda Q, K, V: ta.efficient.random_blocks(3, 1, "seed"), TypeError, "rng"),
        (lambda *x: ta.efficient.block_sparse_attention(*x, np.ones((3, 3), bool), 2), ValueError, r"\(3, 4\)"),
        (lambda *x: ta.efficient.block_sparse_attention(*x, np.ones((4, 3, 4), bool), 2), ValueError, r"\(3, 4\)"),
        (lambda *x: ta.efficient.block_sparse_attention(*x, np.ones((3, 4)), 2), TypeError, "astype"),
        (lambda *x: ta.efficient.block_sparse_attention(*x, np.ones((3, 4), bool), 0), ValueError, "block_size = 0"),
        (lambda Q, K, V: ta.efficient.linear_attention(Q, K, V, key_mask=np.ones(5, bool)), ValueError, "key_mask"),
        (lambda Q, K, V: ta.efficient.linear_attention(Q, K, V, key_mask=np.array(True)), ValueError, "key_mask"),
        (lambda Q, K, V: ta.efficient.linear_attention(Q, K, V, key_mask=np.ones(7)), TypeError, "astype"),
    ],
)
def test_bad_input_is_refused(call, error, says):
    Q, K, V = np.ones((2, 5, 3)), np.ones((2, 7, 3)), np.ones((2, 7, 4))
    with pytest.raises(error, match=says):
        call(Q, K, V)


# --- patterns of blocks ---------------------------------------------------------------------------------


def test_block_patterns():
    np.testing.assert_array_equal(eff.local_blocks(4), [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]])
    np.testing.assert_array_equal(eff.local_blocks(3, 0), np.eye(3))
    np.testing.assert_array_equal(eff.global_blocks(3), [[1, 1, 1], [1, 0, 0], [1, 0, 0]])
    random = eff.random_blocks(20, 3, np.random.default_rng(0))
    assert (random.sum(1) == 3).all() and random.any(0).sum() > 10
    np.testing.assert_array_equal(eff.longformer_blocks(4), eff.local_blocks(4) | eff.global_blocks(4))
    np.testing.assert_array_equal(random, eff.random_blocks(20, 3, 0))  # a seed
    both = eff.bigbird_blocks(20, np.random.default_rng(0), random=3)
    np.testing.assert_array_equal(both, eff.longformer_blocks(20) | random)
    assert both.dtype == bool


# --- linear attention -----------------------------------------------------------------------------------


@settings(max_examples=80)
@given(qkv(), st.booleans(), st.booleans(), st.integers(1, 6))
def test_linear_attention_is_its_matrix_form(drawn, causal, masked, chunk):
    rng, inputs = drawn
    m = inputs[1].shape[-2]
    inputs = [ta.Tensor(x.numpy().astype(float), requires_grad=True) for x in inputs]
    keep = rng.random((*leading(inputs), m)) < 0.6 if masked else np.ones(m, bool)

    def by_matrix(Q, K, V):
        q, k = eff.elu_plus_one(Q), eff.elu_plus_one(K)
        A = q @ k.mT * (keep[..., None, :] & (ta.causal_mask(Q.shape[-2], m) if causal else True))
        total = A.sum(-1, keepdims=True)
        return A @ V / ta.masked_fill(total, total == 0, 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eff.linear, "CHUNK", chunk)
        assert_same(
            lambda *x: ta.efficient.linear_attention(*x, causal=causal, key_mask=keep if masked else None),
            by_matrix,
            inputs,
        )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n", "m"), [(3, 5), (5, 3)])
def test_derivatives_of_linear_attention(causal, n, m, monkeypatch):
    monkeypatch.setattr(eff.linear, "CHUNK", 2)
    rng = np.random.default_rng(10)
    inputs = [T(rng.normal(size=s), name=k) for k, s in zip("QKV", [(2, n, 2), (m, 2), (2, m, 1)])]
    keep = np.arange(m) != 2

    def f(*x):
        return ta.efficient.linear_attention(*x, causal=causal, key_mask=keep)

    assert ta.gradcheck(f, inputs)
    assert ta.gradgradcheck(f, inputs)


def test_the_three_forms_of_linear_attention_agree():
    """Parallel, recurrent, and the last row of the form without a mask, over several chunks."""
    rng = np.random.default_rng(11)
    n = 300
    inputs = [T(rng.normal(size=(2, n, d))) for d in (3, 3, 4)]

    def recurrent(Q, K, V):
        state, out = None, []
        for i in range(n):
            step, state = ta.efficient.linear_attention_step(Q[:, i], K[:, i], V[:, i], state)
            out.append(step)
        assert state.shape == (2, 3, 5)
        return ta.stack(out, axis=1)

    assert_same(lambda *x: ta.efficient.linear_attention(*x, causal=True), recurrent, inputs)
    parallel = ta.efficient.linear_attention(*inputs, causal=True).numpy()
    np.testing.assert_allclose(ta.efficient.linear_attention(*inputs).numpy()[:, -1], parallel[:, -1], atol=1e-12)


def test_decoding_goes_on_from_a_prompt():
    """Bottom-right: the last of 9 queries alone, with 9 keys, gives the last row."""
    rng = np.random.default_rng(12)
    Q, K, V = (rng.normal(size=(9, d)) for d in (3, 3, 2))
    whole = ta.efficient.linear_attention(Q, K, V, causal=True).numpy()
    np.testing.assert_allclose(ta.efficient.linear_attention(Q[-2:], K, V, causal=True).numpy(), whole[-2:], atol=1e-12)


def test_a_masked_key_of_linear_attention_may_hold_anything():
    rng = np.random.default_rng(13)
    Q, K, V = (T(rng.normal(size=(5, d))) for d in (3, 3, 2))
    keep = np.array([True, False, True, True, False])
    f = lambda *x: ta.efficient.linear_attention(*x, causal=True, key_mask=keep)
    expected = values_and_grads(f, (Q, K, V))
    for x in (K, V):
        x.data[~keep] = NAN
    for a, b in zip(values_and_grads(f, (Q, K, V)), expected):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_a_feature_map_of_ones_own():
    rng = np.random.default_rng(14)
    Q, K, V = (rng.normal(size=(5, d)) for d in (3, 3, 2))
    A = np.maximum(Q, 0) @ np.maximum(K, 0).T
    expected = A @ V / np.where(A.sum(-1) == 0, 1, A.sum(-1))[:, None]
    out = ta.efficient.linear_attention(Q, K, V, feature_map=ta.relu)
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-12)


def test_the_feature_map_has_its_derivative_at_zero_too():
    x = T([-1.0, 0.0, 2.0])
    y = eff.elu_plus_one(x)
    np.testing.assert_allclose(y.numpy(), [np.exp(-1), 1, 3])
    np.testing.assert_allclose(ta.grad(y.sum(), x)[0].numpy(), [np.exp(-1), 1, 1])


@pytest.mark.parametrize("x", [800.0, -800.0, 1e5, -1e5])
def test_the_feature_map_is_finite_far_out(x):
    """e^800 is infinite, and infinity times the other branch's 0 would be NaN in the gradient."""
    Q, K, V = T(np.array([[x], [1.0]])), T(np.array([[x / 2], [2.0], [0.5]])), T(np.array([[1.0], [3.0], [-2.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for causal in (False, True):
            out, *gradients = values_and_grads(lambda *z: ta.efficient.linear_attention(*z, causal=causal), (Q, K, V))  # noqa: B023
            assert np.isfinite(out).all() and all(np.isfinite(g).all() for g in gradients)
            q, k = (np.where(z.numpy() > 0, z.numpy() + 1, np.exp(np.minimum(z.numpy(), 0))) for z in (Q, K))
            A = q @ k.T * (ta.causal_mask(2, 3) if causal else 1)
            weights = A / np.maximum(A.sum(-1, keepdims=True), 1e-300)
            np.testing.assert_allclose(out, weights @ V.numpy(), atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_of_linear_attention_is_summed_in_single(causal):
    rng = np.random.default_rng(16)
    n = 3000
    arrays = [rng.normal(size=(n, d)).astype(np.float16) for d in (3, 3, 2)]
    g = rng.normal(size=(n, 2)).astype(np.float16)
    f = lambda *x: ta.efficient.linear_attention(*x, causal=causal)
    half, single = (run(f, [T(x.astype(d)) for x in arrays], g) for d in (np.float16, np.float32))
    for a, e in zip(half, single):
        assert a.dtype == np.float16
        np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-3 * np.abs(e).max())


def test_linear_attention_in_float32():
    rng = np.random.default_rng(15)
    inputs = [T(rng.normal(size=(5, d)).astype(np.float32)) for d in (3, 3, 2)]
    for causal in (False, True):
        f = lambda *x: ta.efficient.linear_attention(*x, causal=causal)  # noqa: B023
        assert all(x.dtype == np.float32 for x in values_and_grads(f, inputs))


# --- trouble that people met elsewhere ------------------------------------------------------------------

FL01 = {
    "out": [
        [0.7654850753709036, -0.3409706292751229],
        [0.26087399385501736, -0.7197734827790417],
        [-0.49398215952769536, -0.33430469847514194],
        [0.9679440866030135, -0.5129019657575062],
        [-0.38585621149647414, -0.33343266221208934],
    ],
    "grad_q": [
        [-0.21202720360147004, 0.04466855031111555, -0.18202710592244972],
        [-0.16125589518635355, -0.04189933665332325, -0.26251331362599567],
        [0.008740865439651866, -0.02352158268617442, 0.08771497493039132],
        [-0.5028285085346611, -0.06642459115380987, -0.5931151809110612],
        [-0.05420562674652026, 0.017701816024305886, -0.08738323441096854],
    ],
}


@pytest.mark.parametrize("causal", [False, True])
def test_FL01_every_block_size(causal):
    rng = np.random.default_rng(4)
    arrays = [rng.normal(size=s) for s in ((5, 3), (7, 3), (7, 2))]
    g = rng.normal(size=(5, 2))
    inputs = [T(a) for a in arrays]

    def run(f):
        out = f(*inputs)
        return [out.numpy(), *(x.numpy() for x in ta.grad(out, inputs, g))]

    expected = run(lambda *x: ta.scaled_dot_product_attention(*x, ta.causal_mask(5, 7) if causal else None))
    if not causal:
        np.testing.assert_allclose(expected[0], FL01["out"], rtol=1e-9)
        np.testing.assert_allclose(expected[1], FL01["grad_q"], rtol=1e-9)
    for size in itertools.product(range(1, 9), range(1, 9)):
        for edge in range(1, size[0] + 1):
            plan = tiles.Plan(size, (0 if causal else -eff.FAR, eff.FAR), edge=edge, scale=3**-0.5)
            for a, b in zip(run(lambda *x: tiles.tiled(*x, plan=plan)), expected):  # noqa: B023
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_FL02_a_row_with_every_key_masked():
    Q, K, V = T(np.ones((1, 2))), T(np.ones((4, 2))), T(np.ones((4, 1)))
    for mask in (np.zeros((1, 4), bool), np.full((1, 4), -INF)):
        flash = functools.partial(ta.efficient.flash_attention, mask=mask, block_size=2)
        out, *gradients = values_and_grads(flash, (Q, K, V))
        assert out == 0 and not any(g.any() for g in gradients)


def test_FL03_the_running_maximum():
    V = np.array([[1.0], [2.0], [3.0], [4.0]])
    rows = {1.0: [1000.0, 0, 0, 0], 4.0: [0, 0, 0, 1000.0], 1.6570857647621078: [3.0, 1, 2, 0]}
    for right, s in rows.items():
        for block in (1, 2, 3):
            flash = functools.partial(ta.efficient.flash_attention, scale=1.0, block_size=block)
            with np.errstate(all="raise", under="ignore"):
                out = flash(np.ones((1, 1)), np.array(s)[:, None], V)
            np.testing.assert_allclose(out.item(), right, rtol=1e-12)


def test_FL04_the_window_counts_the_query_itself():
    q, v = np.zeros((4, 2)), np.array([[1.0], [2.0], [3.0], [4.0]])
    window = lambda W, causal=True: ta.efficient.sliding_window_attention(q, q, v, W, causal=causal).numpy()[:, 0]
    np.testing.assert_allclose(window(2), [1, 1.5, 2.5, 3.5])
    np.testing.assert_allclose(window(1), v[:, 0])
    np.testing.assert_allclose(window(9), [1, 1.5, 2, 2.5])
    np.testing.assert_allclose(window(2, causal=False), [1.5, 2, 3, 3.5])


def test_FL05_lengths_that_are_no_multiple_of_the_window():
    rng = np.random.default_rng(16)
    for n in (1, 3, 7):
        Q, K, V = (rng.normal(size=(n, d)) for d in (3, 3, 2))
        for W in (1, 2, 3, 10):
            for causal in (True, False):
                mask = ta.sliding_window_mask(n, W, causal=causal)
                out = ta.efficient.sliding_window_attention(Q, K, V, W, causal=causal)
                expected = ta.scaled_dot_product_attention(Q, K, V, mask)
                np.testing.assert_allclose(out.numpy(), expected.numpy(), atol=1e-12)


def test_FL06_linear_attention_divides_by_one_number_per_query():
    q = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])
    k = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 1.0]])
    v = np.array([[1.0], [2.0], [5.0]])
    full, causal = (ta.efficient.linear_attention(q, k, v, causal=c).numpy() for c in (False, True))
    np.testing.assert_allclose(full, [[2.3585006039412364], [2.6062022296936718], [2.1492445309105217]], rtol=1e-12)
    np.testing.assert_allclose(causal, [[1.0], [1.4444444444444444], [2.1492445309105217]], rtol=1e-12)


@pytest.mark.parametrize("f", ["flash", "linear", "linear causal", "window", "blocks"])
def test_FL07_nothing_of_size_n_by_m_is_stored(f):
    n, d = 2048, 16
    rng = np.random.default_rng(17)
    Q, K, V, g = (T(rng.normal(size=(n, d)).astype(np.float32)) for _ in range(4))
    call = {
        "flash": lambda: ta.efficient.flash_attention(Q, K, V, block_size=128),
        "linear": lambda: ta.efficient.linear_attention(Q, K, V),
        "linear causal": lambda: ta.efficient.linear_attention(Q, K, V, causal=True),
        "window": lambda: ta.efficient.sliding_window_attention(Q, K, V, 64),
        "blocks": lambda: ta.efficient.block_sparse_attention(Q, K, V, eff.longformer_blocks(32, count=0), 64),
    }[f]
    scores = 4 * n * n
    tracemalloc.start()
    ta.grad(call(), (Q, K, V), g)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * scores  # 16 MB of scores; Q is 0.13 MB


@pytest.mark.parametrize("causal", [False, True])
def test_flash_needs_a_twentieth_of_the_score_matrix(causal):
    n = 8192
    rng = np.random.default_rng(18)
    Q, K, V, g = (T(rng.normal(size=(n, 64)).astype(np.float32)) for _ in range(4))
    tracemalloc.start()
    ta.grad(ta.efficient.flash_attention(Q, K, V, causal=causal), (Q, K, V), g)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 0.05 * 4 * n * n  # three of these five are the output and three gradients


def test_AT05_one_new_query_sees_all_keys():
    q, k, v = np.zeros((1, 2)), np.zeros((8, 2)), np.arange(1.0, 9.0)[:, None]
    assert ta.efficient.flash_attention(q, k, v, causal=True).item() == 4.5
    assert ta.efficient.linear_attention(q, k, v, causal=True).item() == 4.5


def test_AT07_causal_and_a_mask_both_hold():
    q, v = np.zeros((4, 2)), np.array([[1.0], [3.0], [5.0], [8.0]])
    keep = np.array([True, True, False, True])
    flash = ta.efficient.flash_attention(q, q, v, causal=True, mask=keep).numpy()
    linear = ta.efficient.linear_attention(q, q, v, causal=True, key_mask=keep).numpy()
    np.testing.assert_allclose(flash, [[1.0], [2.0], [2.0], [4.0]])
    np.testing.assert_allclose(linear, [[1.0], [2.0], [2.0], [4.0]])
