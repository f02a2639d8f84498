"""Composed and fused functions: each fused one equals its plain composition, to second order."""

import math

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import attention, functional


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def value_and_gradients(f, *inputs):
    """f's value, and the gradients of Σ c · f for random c."""
    leaves = [ta.Tensor(x, requires_grad=True) for x in inputs]
    out = f(*leaves)
    grads = ta.grad((out * normal(*out.shape, seed=9)).sum(), leaves)
    return [out.numpy(), *(g.numpy() for g in grads)]


def attend(function, blocked):
    return lambda Q, K, V: function(Q, K, V, None if blocked is None else ~blocked, scale=0.7)


def both(blocked):
    return attend(ta.fused_attention, blocked), attend(ta.scaled_dot_product_attention, blocked)


BLOCKED = np.array([[[[0, 1, 0], [1, 1, 1]]], [[[0, 0, 0], [0, 1, 1]]]], dtype=bool)  # one query may attend to nothing
QKV = normal(2, 1, 2, 4), normal(2, 1, 3, 4, seed=1), normal(2, 1, 3, 5, seed=2)
FUSED = {  # fused, composed, inputs
    "gelu": (ta.gelu, functional.gelu_composed, [3 * normal(3, 4)]),
    "layer norm": (ta.layer_norm, functional.layer_norm_composed, [normal(2, 3, 5), normal(5), normal(5, seed=1)]),
    "layer norm, bare": (ta.layer_norm, functional.layer_norm_composed, [normal(2, 3, 5)]),
    "rms norm": (ta.rms_norm, functional.rms_norm_composed, [normal(2, 3, 5), normal(5)]),
    "rms norm, bare": (ta.rms_norm, functional.rms_norm_composed, [normal(2, 3, 5)]),
    "cross-entropy": (
        lambda z: ta.cross_entropy(z, np.array([4, -100, 0, 1])),
        lambda z: functional.cross_entropy_composed(z, np.array([0, 2, 3]), np.array([4, 0, 1])),
        [normal(4, 6)],
    ),
    "attention": (*both(None), QKV),
    "attention, masked": (*both(BLOCKED), QKV),
    "attention, one mask": (*both(BLOCKED[1, 0]), QKV),
    "attention, shared keys": (*both(None), (QKV[0], QKV[1][:1], QKV[2][0, 0])),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_is_composed(name):
    fused, composed, inputs = FUSED[name]
    for a, b in zip(value_and_gradients(fused, *inputs), value_and_gradients(composed, *inputs)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.filterwarnings("ignore:the output does not change")
@pytest.mark.parametrize("name", FUSED)
def test_fused_differentiates_twice(name):
    fused, _, inputs = FUSED[name]
    assert ta.gradcheck(fused, inputs)
    assert ta.gradgradcheck(fused, inputs)


@pytest.mark.parametrize("name", FUSED)
def test_fused_keeps_float32_and_leaves_its_inputs_alone(name):
    fused, composed, inputs = FUSED[name]
    inputs = [x.astype(np.float32) for x in inputs]
    before = [x.copy() for x in inputs]
    results = value_and_gradients(fused, *inputs)
    assert {r.dtype for r in results[1:]} == {np.dtype(np.float32)}
    assert all(np.array_equal(x, y) for x, y in zip(inputs, before))
    for a, b in zip(results, value_and_gradients(composed, *[x.astype(float) for x in inputs])):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_fused_attention_takes_the_steps_where_they_are_asked_for():
    Q, K, V = QKV
    out, weights = ta.fused_attention(Q, K, V, return_weights=True)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1)
    np.testing.assert_allclose(out.numpy(), ta.fused_attention(Q, K, V).numpy(), atol=1e-14)
    bias = normal(2, 3)
    right = ta.scaled_dot_product_attention(Q, K, V, bias).numpy()
    np.testing.assert_array_equal(ta.fused_attention(Q, K, V, bias).numpy(), right)
    mask = ~BLOCKED
    mask[..., 2] = False
    K = K.copy()
    K[..., 2, :] = np.nan  # a key for nobody
    assert np.isfinite(ta.fused_attention(Q, K, V, mask).numpy()).all()


def test_attention_keeps_the_memory_order_of_joined_heads():
    heads = np.swapaxes(normal(2, 4, 3, 6), 1, 2)
    out, _ = attention._attention.forward(heads, heads, heads, 1.0, None)
    assert out.swapaxes(1, 2).flags.c_contiguous


def test_gelu_far_out():
    x = np.array([-1e4, -30.0, -5.5, 0.0, 30.0, 1e4], dtype=np.float32)
    with np.errstate(all="raise", under="ignore"):
        value, gradient = value_and_gradients(ta.gelu, x)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(value[[0, 1, 3, 4, 5]], [0, 0, 0, 30, 1e4])
    assert value[2] == pytest.approx(-5.92764e-9, rel=1e-5)  # 1 + tanh would round it to 0
    assert ta.gelu(2.0).item() == pytest.approx(1.9545976940877752, rel=1e-14)


def test_exact_gelu_is_x_times_the_normal_distribution():
    x = np.linspace(-6, 6, 101)
    right = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(ta.gelu(x, approximate="none").numpy(), right, rtol=1e-12, atol=1e-15)
    assert ta.gradgradcheck(lambda t: ta.gelu(t, approximate="none"), normal(3, 4))
    with pytest.raises(ValueError, match="approximate"):
        ta.gelu(x, approximate="sigmoid")


def test_erf_against_the_standard_library():
    x = np.concatenate([np.linspace(-7, 7, 5001), [np.inf, -np.inf, -0.0, 1e-300]])
    np.testing.assert_allclose(ta.erf(x).numpy(), [math.erf(v) for v in x], rtol=5e-16, atol=0)
    assert np.isnan(ta.erf(np.nan).item())
    half = x.astype(np.float32)
    out = ta.erf(half)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.numpy(), [math.erf(v) for v in half], rtol=3e-7, atol=0)


def test_linear_takes_any_leading_axes_and_differentiates_twice():
    W, b = normal(3, 5), normal(3, seed=1)
    for shape in (5,), (4, 5), (2, 4, 5), (0, 5):
        x = normal(*shape)
        np.testing.assert_allclose(ta.linear(x, W, b).numpy(), x @ W.T + b, atol=1e-14)
        np.testing.assert_allclose(ta.linear(x, W).numpy(), x @ W.T, atol=1e-14)
    assert ta.gradgradcheck(lambda x, W, b: ta.linear(x, W, b) ** 2, [normal(2, 4, 5), W, b])
    with pytest.raises(ValueError, match=r"\(2, 4\) for weights \(3, 5\)"):
        ta.linear(normal(2, 4), W)


def test_embedding_adds_up_repeated_ids_and_differentiates_twice():
    ids = np.array([[3, 0, 3], [3, 5, 0]])
    table = ta.Tensor(normal(7, 4), requires_grad=True)
    c = normal(2, 3, 4, seed=1)
    (g,) = ta.grad((ta.embedding(ids, table) * c).sum(), table)
    right = np.zeros((7, 4))
    np.add.at(right, ids, c)
    np.testing.assert_allclose(g.numpy(), right, atol=1e-15)
    assert ta.gradgradcheck(lambda w: ta.embedding(ids, w) ** 2, normal(7, 4))
    assert ta.embedding(np.uint8(3), table).shape == (4,)
    empty = ta.embedding(np.zeros((0, 2), int), table)
    assert ta.grad(empty.sum(), table)[0].numpy().tolist() == np.zeros((7, 4)).tolist()


def test_dropout_at_its_ends():
    x = ta.Tensor(np.ones(50), requires_grad=True)
    assert ta.dropout(x, 0.5, training=False) is x
    assert np.array_equal(ta.dropout(x, 1.0).numpy(), np.zeros(50))
    rng = np.random.default_rng(0)
    out = ta.dropout(x, 0.4, rng=rng)
    np.testing.assert_allclose(ta.grad(out.sum(), x)[0].numpy(), out.numpy())
    for p in -0.1, 1.1, math.nan:
        with pytest.raises(ValueError, match="probability"):
            ta.dropout(x, p)


def test_cross_entropy_over_any_leading_axes_is_the_mean_over_what_counts():
    z, t = normal(2, 3, 5), np.array([[0, 4, 1], [-100, 2, -100]])
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    right = -np.mean([log_p[b, i, t[b, i]] for b, i in np.argwhere(t >= 0)])
    assert ta.cross_entropy(z, t).item() == pytest.approx(right, rel=1e-14)
    assert ta.cross_entropy(z, np.where(t < 0, 3, t), ignore_index=3).item() == pytest.approx(right, rel=1e-14)
    assert ta.cross_entropy(z, ta.Tensor(t)).item() == pytest.approx(right, rel=1e-14)
    (g,) = ta.grad(ta.cross_entropy(leaf := ta.Tensor(z, requires_grad=True), t), leaf)
    assert np.all(g.numpy()[t < 0] == 0)


@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        (np.array([0.0, 1.0]), TypeError, "integer"),
        (np.array([0, 5]), IndexError, "target 5 is outside the 5 classes"),
        (np.array([-1, 1]), IndexError, "target -1"),
        (np.array([0, 1, 2]), ValueError, r"\(3,\) for logits of shape \(2, 5\)"),
        (np.array([-100, -100]), ValueError, "mean of nothing"),
    ],
)
def test_cross_entropy_refuses(targets, error, message):
    with pytest.raises(error, match=message):
        ta.cross_entropy(normal(2, 5), targets)


def test_layer_norm_of_integers_vectors_and_constants():
    np.testing.assert_allclose(ta.layer_norm([1, 2, 3]).numpy(), np.array([-1, 0, 1]) * math.sqrt(1.5), rtol=1e-5)
    np.testing.assert_array_equal(ta.layer_norm(np.full((2, 3), 7.0)).numpy(), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="one per feature"):
        ta.layer_norm(normal(2, 3), np.ones(1))
    with pytest.raises(ValueError, match="one per feature"):
        ta.rms_norm(normal(2, 3), np.ones((2, 3)))


def test_integer_logits_are_numbers_like_any():
    np.testing.assert_allclose(
        ta.cross_entropy(np.array([[1, 2, 3]]), np.array([0])).item(),
        ta.cross_entropy(np.array([[1.0, 2.0, 3.0]]), np.array([0])).item(),
    )
