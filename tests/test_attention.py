"""Scaled dot-product attention: its formula, its derivatives by hand, its masks, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyattn as ta

RNG = np.random.default_rng(0)
N, M, DK, DV = 5, 7, 3, 4


def qkv(*leading, n=N, m=M, dk=DK, dv=DV, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(*leading, *s)) for s in ((n, dk), (m, dk), (m, dv))]


def plain(Q, K, V, allowed=None, bias=0.0, scale=None):
    """Attention by NumPy loops over queries, the long way round."""
    scores = np.einsum("...nd,...md->...nm", Q, K) * (Q.shape[-1] ** -0.5 if scale is None else scale) + bias
    allowed = np.broadcast_to(True if allowed is None else allowed, scores.shape)
    weights = np.zeros_like(scores)
    for i in np.ndindex(scores.shape[:-1]):
        if allowed[i].any():
            e = np.exp(scores[i] - scores[i][allowed[i]].max()) * allowed[i]
            weights[i] = e / e.sum()
    return weights @ V, weights


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_value_and_weights(leading):
    Q, K, V = qkv(*leading)
    out, weights = ta.scaled_dot_product_attention(Q, K, V, return_weights=True)
    expected, expected_weights = plain(Q, K, V)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(weights.numpy(), expected_weights, rtol=1e-12)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-12)
    assert isinstance(ta.scaled_dot_product_attention(Q, K, V), ta.Tensor)


def test_leading_axes_broadcast():
    Q, K, V = qkv()
    Q = RNG.normal(size=(2, 1, N, DK))
    V = RNG.normal(size=(3, M, DV))
    np.testing.assert_allclose(ta.scaled_dot_product_attention(Q, K, V).numpy(), plain(Q, K, V)[0], rtol=1e-12)
    ta.gradcheck(ta.scaled_dot_product_attention, [Q, K, V])


def test_the_derivatives_by_hand():
    Q, K, V = (ta.Tensor(x, requires_grad=True) for x in qkv())
    out, weights = ta.scaled_dot_product_attention(Q, K, V, return_weights=True)
    dO = RNG.normal(size=out.shape)
    out.backward(dO)
    P = weights.numpy()
    dP = dO @ V.numpy().T
    dS = P * (dP - (dP * P).sum(-1, keepdims=True))
    np.testing.assert_allclose(V.grad.numpy(), P.T @ dO, rtol=1e-10)
    np.testing.assert_allclose(Q.grad.numpy(), dS @ K.numpy() / math.sqrt(DK), rtol=1e-10)
    np.testing.assert_allclose(K.grad.numpy(), dS.T @ Q.numpy() / math.sqrt(DK), rtol=1e-10)


@pytest.mark.parametrize("leading", [(), (2,)])
@pytest.mark.parametrize("kind", ["none", "boolean", "causal", "learned"])
def test_gradients(kind, leading):
    Q, K, V = qkv(*leading)
    irregular = RNG.random((N, M)) > 0.4
    irregular[2] = False
    mask = {"none": None, "boolean": irregular, "causal": ta.causal_mask(N, M), "learned": None}[kind]
    if kind == "learned":
        bias = np.where(irregular, RNG.normal(size=(N, M)), 0)
        bias = ta.Tensor(bias, name="bias")
        f, inputs = (lambda q, k, v, b: ta.scaled_dot_product_attention(q, k, v, b)), [Q, K, V, bias]
    else:
        f, inputs = (lambda q, k, v: ta.scaled_dot_product_attention(q, k, v, mask)), [Q, K, V]
    assert ta.gradcheck(f, inputs)
    assert ta.gradgradcheck(f, inputs)


@given(st.integers(0, 10_000))
def test_masks_against_loops(seed):
    rng = np.random.default_rng(seed)
    leading = [(), (2,), (2, 3)][seed % 3]
    Q, K, V = qkv(*leading, seed=seed)
    shape = (*leading, N, M) if seed % 2 else (N, M)
    allowed = rng.random(shape) > 0.5
    out, weights = ta.scaled_dot_product_attention(Q, K, V, allowed, return_weights=True)
    expected, expected_weights = plain(Q, K, V, allowed)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(weights.numpy(), expected_weights, rtol=1e-11, atol=1e-14)
    assert (weights.numpy()[~np.broadcast_to(allowed, weights.shape)] == 0).all()
    additive = ta.scaled_dot_product_attention(Q, K, V, np.where(allowed, 0, -np.inf))
    np.testing.assert_array_equal(additive.numpy(), out.numpy())


def test_a_float_mask_is_added():
    Q, K, V = qkv()
    bias = RNG.normal(size=(N, M))
    np.testing.assert_allclose(ta.scaled_dot_product_attention(Q, K, V, bias).numpy(), plain(Q, K, V, bias=bias)[0])
    Q = np.rint(Q).astype(int)
    np.testing.assert_allclose(ta.scaled_dot_product_attention(Q, K, V, bias).numpy(), plain(Q, K, V, bias=bias)[0])


def test_scale():
    Q, K, V = qkv()
    np.testing.assert_allclose(ta.scaled_dot_product_attention(Q, K, V, scale=1.0).numpy(), plain(Q, K, V, scale=1)[0])
    np.testing.assert_allclose(
        ta.scaled_dot_product_attention(Q, K, V, scale=0.3).numpy(), plain(Q, K, V, scale=0.3)[0]
    )


def test_float32_is_kept_whatever_the_mask():
    Q, K, V = (x.astype(np.float32) for x in qkv())
    for mask in (None, ta.causal_mask(N, M), np.zeros((N, M)), np.zeros((N, M), np.float32)):
        assert ta.scaled_dot_product_attention(Q, K, V, mask).dtype == np.float32


def test_a_fully_masked_row_is_zero_and_disturbs_nobody():
    Q, K, V = (ta.Tensor(x, requires_grad=True) for x in qkv())
    allowed = np.ones((N, M), bool)
    allowed[2] = False
    others = [0, 1, 3, 4]
    out, weights = ta.scaled_dot_product_attention(Q, K, V, allowed, return_weights=True)
    assert (out.numpy()[2] == 0).all() and (weights.numpy()[2] == 0).all()
    c = RNG.normal(size=out.shape)
    out.backward(c)
    assert (Q.grad.numpy()[2] == 0).all()
    q = ta.Tensor(Q.numpy()[others], requires_grad=True)
    k, v = (ta.Tensor(x.numpy(), requires_grad=True) for x in (K, V))
    ta.scaled_dot_product_attention(q, k, v).backward(c[others])
    np.testing.assert_allclose(Q.grad.numpy()[others], q.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(K.grad.numpy(), k.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(V.grad.numpy(), v.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_key_for_nobody_cannot_matter(bad):
    clean, dirty = qkv(2), qkv(2)
    dirty[1][:, 3] = bad
    dirty[2][:, 3] = bad
    allowed = np.ones((N, M), bool)
    allowed[:, 3] = False
    c = RNG.normal(size=(2, N, DV))
    results = []
    for q, k, v in (clean, dirty):
        leaves = [ta.Tensor(x, requires_grad=True) for x in (q, k, v)]
        out = ta.scaled_dot_product_attention(*leaves, allowed)
        out.backward(c)
        results.append([out.numpy()] + [t.grad.numpy() for t in leaves])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (results[1][2][:, 3] == 0).all()


def test_a_query_for_nobody_cannot_matter():
    Q, K, V = (ta.Tensor(x, requires_grad=True) for x in qkv())
    Q.data[2] = np.nan
    allowed = np.ones((N, M), bool)
    allowed[2] = False
    for f in (ta.scaled_dot_product_attention, ta.attention.fused_attention):
        out = f(Q, K, V, allowed)
        gradients = ta.grad(out, (Q, K, V), RNG.normal(size=out.shape))
        assert all(np.isfinite(g.numpy()).all() for g in gradients) and (gradients[0].numpy()[2] == 0).all()


def test_empty_sequences_and_widths():
    for n, m, dk, dv in [(0, 7, 3, 4), (5, 0, 3, 4), (5, 7, 0, 4), (5, 7, 3, 0)]:
        leaves = [ta.Tensor(x, requires_grad=True) for x in qkv(n=n, m=m, dk=dk, dv=dv)]
        out = ta.scaled_dot_product_attention(*leaves)
        assert out.shape == (n, dv)
        assert [g.shape for g in ta.grad(out.sum(), leaves)] == [t.shape for t in leaves]


def test_padding_with_nan_in_one_sequence_only():
    Q, K, V = qkv(2, 3)
    K[1, :, 5:] = V[1, :, 5:] = np.nan
    mask = ta.padding_mask([7, 5], M)
    out = ta.scaled_dot_product_attention(Q, K, V, mask).numpy()
    np.testing.assert_allclose(out[1], plain(Q[1], K[1, :, :5], V[1, :, :5])[0], rtol=1e-12)


def test_large_scores_do_not_overflow():
    Q, K, V = qkv()
    with np.errstate(over="raise", invalid="raise"):
        out = ta.scaled_dot_product_attention(Q * 1e4, K, V).numpy()
    assert np.isfinite(out).all()


# --- masks -------------------------------------------------------------------------------------------


def test_causal_mask():
    np.testing.assert_array_equal(ta.causal_mask(4), np.tril(np.ones((4, 4), bool)))
    np.testing.assert_array_equal(ta.causal_mask(2, 4), [[1, 1, 1, 0], [1, 1, 1, 1]])
    np.testing.assert_array_equal(ta.causal_mask(3, 2), [[0, 0], [1, 0], [1, 1]])
    assert ta.causal_mask(3).dtype == bool


def test_padding_mask():
    mask = ta.padding_mask([1, 3], 4)
    assert mask.shape == (2, 1, 1, 4) and mask.dtype == bool
    np.testing.assert_array_equal(mask[:, 0, 0], [[1, 0, 0, 0], [1, 1, 1, 0]])
    assert (mask & ta.causal_mask(4)).shape == (2, 1, 4, 4)
    for bad in ([5], [-1], [1.5], 3):
        with pytest.raises(ValueError, match="m = 4"):
            ta.padding_mask(bad, 4)


def test_sliding_window_mask():
    for n, m, window, causal in [(5, 5, 2, True), (3, 7, 3, True), (6, 6, 1, False), (6, 6, 3, False), (4, 4, 9, True)]:
        mask = ta.sliding_window_mask(n, window, m, causal)
        for i in range(n):
            for j in range(m):
                behind = i + m - n - j
                assert mask[i, j] == (0 <= behind < window if causal else abs(behind) < window)
    np.testing.assert_array_equal(ta.sliding_window_mask(4, 9), ta.causal_mask(4))
    with pytest.raises(ValueError, match="window 0"):
        ta.sliding_window_mask(4, 0)


def test_show_mask(capsys):
    text = ta.show_mask(ta.causal_mask(3))
    assert text == "■ · ·\n■ ■ ·\n■ ■ ■"
    assert capsys.readouterr().out == text + "\n"
    assert ta.show_mask(np.array([[0.0, -np.inf]])) == "■ ·"
    assert ta.show_mask(ta.padding_mask([1, 2], 2)) == "■ ·\n\n■ ■"
    assert ta.show_mask(ta.Tensor([[0.0, -np.inf]])) == "■ ·"
    for bad in (np.tri(3), np.ones((2, 2), int)):
        with pytest.raises((TypeError, ValueError), match=r"astype\(bool\)"):
            ta.show_mask(bad)


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((5, 3), (7, 4), (7, 4)), r"dot product.*3 is not 4"),
        (((5, 3), (7, 3), (6, 4)), r"equally long, not 7 and 6"),
        (((3,), (7, 3), (7, 4)), r"x\[None\]"),
        (((2, 5, 3), (3, 7, 3), (3, 7, 4)), r"leading axes"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=message):
        ta.scaled_dot_product_attention(*(np.ones(s) for s in shapes))


def test_masks_that_do_not_fit():
    Q, K, V = qkv(2, 3)
    with pytest.raises(ValueError, match=r"\(5, 6\).*\(2, 3, 5, 7\).*\(5, 7\)"):
        ta.scaled_dot_product_attention(Q, K, V, np.ones((N, 6), bool))
    with pytest.raises(ValueError, match=r"\(2, 1, 5, 7\)"):  # (B, n, m) with heads: ask for the heads' axis
        ta.scaled_dot_product_attention(Q, K, V, np.ones((2, N, M), bool))
    with pytest.raises(ValueError, match="scores of shape"):  # a mask never enlarges the scores
        ta.scaled_dot_product_attention(*qkv(), np.ones((2, N, M), bool))
    with pytest.raises(ValueError, match=r"astype\(bool\)"):
        ta.scaled_dot_product_attention(Q, K, V, np.tril(np.ones((N, M))))
    with pytest.raises(TypeError, match=r"astype\(bool\)"):
        ta.scaled_dot_product_attention(Q, K, V, np.ones((N, M), int))
    ta.scaled_dot_product_attention(Q, K, V, np.zeros((N, M)))  # zeros alone add nothing: harmless
    ta.scaled_dot_product_attention(Q, K, V, ta.Tensor(np.ones((N, M)), requires_grad=True))  # learned: may be anything


def test_inputs_are_left_alone():
    Q, K, V = qkv()
    mask = ta.causal_mask(N, M)
    before = [x.copy() for x in (Q, K, V, mask)]
    ta.scaled_dot_product_attention(Q, K, V, mask)
    for x, y in zip((Q, K, V, mask), before, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.flags.writeable


@pytest.mark.parametrize("shape", [(), (1,), (4, 1), (2, 1, 1), (2, 4, 1), (6,), (4, 6)])
@pytest.mark.parametrize("make", [np.array, lambda a: ta.Tensor(a, requires_grad=True)])
def test_a_scale_that_is_no_number_means_the_same_in_every_form(shape, make):
    rng = np.random.default_rng(0)
    Q, K, V = (ta.Tensor(rng.standard_normal(s), requires_grad=True) for s in [(2, 4, 6), (2, 6, 6), (2, 6, 3)])
    scale, g = make(rng.uniform(0.5, 2, shape)), rng.standard_normal((2, 4, 3))

    def outcome(form):
        out = form(Q, K, V, scale=scale)
        return [out, *ta.grad(out, (Q, K, V), g)]

    steps = outcome(ta.scaled_dot_product_attention)
    for form in (ta.fused_attention, ta.efficient.flash_attention):
        if form is not ta.fused_attention and (scale.ndim if make is np.array else shape[-1:] == (6,)):
            with pytest.raises((TypeError, ValueError), match=r"not a number|last axis must be 1"):  # one for each key
                form(Q, K, V, scale=scale)
            continue
        for ours, theirs in zip(outcome(form), steps):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-13)
