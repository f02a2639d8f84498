"""Trouble that people met in other engines, as tests: graphs (GR), broadcasting (BR), shapes (SH), elements (EL),
softmax (SM), attention (AT), gradient checks (GC). The other areas are tested beside their modules."""

import gc
import tracemalloc
import warnings
import weakref

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.calling import op

NAN, INF = np.nan, np.inf


def T(x):
    return ta.Tensor(np.asarray(x, dtype=float), requires_grad=True)


def grads(loss, *inputs, **kwargs):
    return [g.numpy() for g in ta.grad(loss, inputs, **kwargs)]


def equal(actual, expected, rtol=1e-9):
    np.testing.assert_allclose(actual.numpy() if isinstance(actual, ta.Tensor) else actual, expected, rtol=rtol, atol=0)


# --- GR: graphs --------------------------------------------------------------------------------------


def test_GR01_a_reused_inner_node():
    a = T(1.0)
    b = a + a
    c = b + b
    assert c.item() == 4 and grads(c, a, b) == [4, 2]


def test_GR02_both_branches_reach_the_leaf():
    x = T(2.0)
    y = 3.0 * x
    c = 2.0 * y + 5.0 * y
    c.backward()
    assert c.item() == 42 and x.grad.item() == 21


def test_GR03_backward_twice():
    a, b, d = T(3.0), T(2.0), T(1.0)
    e = (a + b) * d
    e.backward(retain_graph=True)
    assert [t.grad.item() for t in (a, b, d)] == [1, 1, 5]
    e.backward()
    assert [t.grad.item() for t in (a, b, d)] == [2, 2, 10]
    with pytest.raises(RuntimeError, match="retain_graph"):
        e.backward()


@pytest.mark.parametrize(("n", "gradient"), [(20_000, 1.0202013298230708), (200_000, 1.2214026359998855)])
def test_GR04_a_long_chain(n, gradient, no_collector):
    x = T(1.0)
    y = x
    for _ in range(n):
        y = y + y * 1e-6
    y.backward()
    equal(x.grad, gradient)
    repr(y)
    del y


def test_GR05_gradients_share_no_memory():
    x, y, seed = T([1.0, 2.0]), T([3.0, 4.0]), np.array([1.0, 1.0])
    z = x + y
    (z.sum() + (x * x).sum()).backward()
    equal(x.grad, [3, 5])
    x.grad.data[:] = 0
    equal(y.grad, [1, 1])
    z = x + y
    z.backward(seed)
    assert not np.shares_memory(x.grad.data, y.grad.data)
    equal(seed, [1, 1])


def test_GR06_data_changed_in_place():
    array = np.array([1.0, 2.0, 3.0])
    x = ta.Tensor(array, requires_grad=True)
    loss = (x * x).sum()
    array[0] = 100.0  # the constructor copied
    equal(grads(loss, x, retain_graph=True)[0], [2, 4, 6])
    x.data[0] = 100.0
    with pytest.raises(RuntimeError, match="changed after"):
        loss.backward()


def test_GR07_a_seed_is_needed_and_must_fit():
    x = T([1.0, 2.0, 3.0])
    y = 2.0 * x
    with pytest.raises(RuntimeError, match="gradient="):
        y.backward()
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        y.backward(np.ones(2))
    y.backward(np.array([1.0, 10.0, 100.0]))
    equal(x.grad, [2, 20, 200])


def test_GR08_no_cycles_and_no_growth():
    x = T(np.ones((1000, 1000)))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(50):
            inner = x * x
            loss = (inner * x).sum()
            refs = weakref.ref(loss), weakref.ref(inner)
            loss.backward()
            del loss, inner
            assert refs[0]() is None and refs[1]() is None
            x.grad = None
        assert tracemalloc.get_traced_memory()[1] < 10 * x.data.nbytes
    finally:
        tracemalloc.stop()
        gc.enable()


def test_GR09_a_maximum_that_is_broadcast():
    x = T([[2.0, 3.0]])
    equal(grads(ta.max(x) + x, x, grad_output=np.ones((1, 2)))[0], [[1, 3]])
    equal(grads(ta.max(x), x)[0], [[0, 1]])


# --- BR: broadcasting and reductions -----------------------------------------------------------------


def test_BR01_both_sides_broadcast():
    a, b = T([[1.0], [2.0], [3.0], [4.0]]), T([[10.0, 20.0, 30.0, 40.0]])
    da, db = grads((a * b).sum(), a, b)
    equal(da, np.full((4, 1), 100.0))
    equal(db, np.full((1, 4), 10.0))


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        (np.array([1.0, 2.0, 3.0]), [84, 92, 100]),
        (np.ones((4, 1)), [[42], [60], [78], [96]]),
        (np.ones((2, 1, 3)), [[[18, 22, 26]], [[66, 70, 74]]]),
    ],
)
def test_BR02_missing_leading_axes(b, expected):
    x, b = np.arange(24.0).reshape(2, 4, 3), T(b)
    equal(grads((x * b).sum(), b)[0], expected)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [(1, 2), (-2, -1), (-1, -2), (2, 1)])
def test_BR03_several_axes(axis, keepdims):
    x = T(np.ones((2, 3, 4)))
    (dx,) = grads(ta.mean(x, axis, keepdims), x, grad_output=np.reshape([1.0, 10.0], (2, 1, 1) if keepdims else (2,)))
    equal(dx, np.broadcast_to(np.reshape([1 / 12, 10 / 12], (2, 1, 1)), (2, 3, 4)))
    (dx,) = grads((np.array([1.0, 10.0, 100.0]) * ta.mean(x, (0, 2))).sum(), x)
    equal(dx, np.broadcast_to(np.reshape([1 / 8, 10 / 8, 100 / 8], (3, 1)), (2, 3, 4)))


def test_BR04_what_comes_from_above_counts():
    x = T([[1.0, 2.0], [3.0, 4.0]])
    equal(grads(3.0 * x.sum(), x)[0], np.full((2, 2), 3.0))
    equal(grads(x.sum() ** 2, x)[0], np.full((2, 2), 20.0))


def test_BR05_ties_share():
    x, X = T([1.0, 3.0, 3.0]), T(np.ones((4, 3)))
    equal(grads(ta.max(x), x)[0], [0, 0.5, 0.5])
    equal(grads(ta.max(X, axis=0).sum(), X)[0], np.full((4, 3), 0.25))


def test_BR06_empty_reductions():
    x = T(np.zeros((0, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ta.sum(x).item() == 0
        equal(ta.sum(x, axis=0), [0, 0, 0])
        assert np.isnan(ta.mean(x).item())
        assert grads(ta.sum(x, axis=0).sum(), x)[0].shape == (0, 3)
    with pytest.raises(ValueError, match=r"ta\.max of \(0, 3\)"):
        ta.max(x)


def test_BR07_logsumexp_and_keepdims():
    x = T([[1.0, 2.0], [3.0, 4.0]])
    equal(ta.logsumexp(x, 1), [2.3132616875182226, 4.313261687518223])
    assert ta.logsumexp(x, 1, keepdims=True).shape == (2, 1)
    equal(ta.logsumexp(x, 0), [3.1269280110429727, 4.126928011042972])
    equal(ta.logsumexp(x), 4.440189698561196)
    equal(grads(ta.logsumexp(x, 1).sum(), x)[0], [[0.2689414213699951, 0.7310585786300049]] * 2)


# --- SH: products, indices, shapes -------------------------------------------------------------------


def test_SH01_matrix_times_vector():
    A, b = T([[1.0, 2.0], [3.0, 4.0]]), T([5.0, 6.0])
    y = A @ b
    dA, db = grads(y, A, b, grad_output=np.array([1.0, 10.0]))
    equal(y, [17, 39])
    equal(dA, [[5, 6], [50, 60]])
    equal(db, [31, 42])


def test_SH02_batched_products():
    A, B, v = T(np.arange(6.0).reshape(2, 3)), T(np.arange(24.0).reshape(4, 3, 2)), T([1.0, 2.0, 3.0])
    C = T(np.arange(24.0).reshape(4, 2, 3))
    dA, dB = grads((A @ B).sum(), A, B)
    equal(dA, [[76, 92, 108]] * 2)
    equal(dB, np.broadcast_to([[3.0], [5.0], [7.0]], (4, 3, 2)))
    equal(grads((C @ v).sum(), v)[0], [84, 92, 100])
    D = T(np.ones((5, 1, 2, 3)))
    assert (D @ B).shape == (5, 4, 2, 2)
    assert [g.shape for g in grads((D @ B).sum(), D, B)] == [(5, 1, 2, 3), (4, 3, 2)]


def test_SH03_repeated_indices_accumulate():
    x, X = T([10.0, 20.0, 30.0]), T(np.ones((3, 2)))
    equal(grads((np.array([1.0, 2.0, 3.0, 4.0]) * x[np.array([0, 1, 1, 1])]).sum(), x)[0], [1, 9, 0])
    equal(grads(X[[0, 0], [1, 1]].sum(), X)[0], [[0, 2], [0, 0], [0, 0]])


@pytest.mark.parametrize("ids", [[-1], [8], [1.0], [True]])
def test_SH04_token_ids_outside_the_table(ids):
    with pytest.raises((IndexError, TypeError), match=r"8|bool|float"):
        ta.embedding(np.array(ids), T(np.ones((8, 2))))


def test_SH04_no_token_ids():
    E = T(np.ones((8, 2)))
    out = ta.embedding(np.array([], int), E)
    assert out.shape == (0, 2)
    equal(grads(out.sum(), E)[0], np.zeros((8, 2)))
    assert ta.embedding([], E).shape == (0, 2)


def test_SH05_split_and_concatenate():
    x = T(np.arange(16.0).reshape(4, 4))
    a, _ = ta.split(x, 2, axis=0)
    equal(grads(a.sum(), x)[0].sum(1), [4, 4, 0, 0])
    up = np.random.default_rng(0).normal(size=(4, 8))
    equal(grads(ta.concatenate([x, x], axis=-1), x, grad_output=up)[0], up[:, :4] + up[:, 4:])


def test_SH06_iteration():
    t, s = T([[1.0, 2.0], [3.0, 4.0]]), T(5.0)
    a, b = t
    assert len(list(t)) == len(t) == 2 and a.requires_grad
    equal(b, [3, 4])
    for f in (list, len):
        with pytest.raises(TypeError, match="0-d"):
            f(s)
    with pytest.raises(IndexError):
        t[2]


def test_SH07_item_assignment_is_refused_with_the_way_out():
    y = ta.Tensor(np.zeros((3, 4)))
    with pytest.raises(TypeError, match=r"ta\.where.*ta\.concatenate"):
        y[1] = T(np.ones((1, 4)))


# --- EL: elements, dtypes, NumPy ---------------------------------------------------------------------


def test_EL01_the_branch_not_taken():
    a = T(1000.0)
    with np.errstate(over="ignore", invalid="ignore"):
        b = ta.where(a.numpy() <= 0, ta.exp(a), 1 + a)
        (db,) = grads(b, a)
    assert b.item() == 1001 and np.isnan(db)  # as in PyTorch and JAX, and documented in ta.where
    safe = ta.where(a.numpy() <= 0, a, 0.0)
    assert grads(ta.where(a.numpy() <= 0, ta.exp(safe), 1 + a), a) == [1]


def test_EL02_missing_targets():
    x, t, keep = T([1.0, 2.0]), np.array([0.0, NAN]), np.array([True, False])
    loss = (ta.where(keep, x - t, 0.0) ** 2).sum()
    assert loss.item() == 1
    equal(grads(loss, x)[0], [2, 0])
    loss = ta.where(keep, (x - t) ** 2, 0.0).sum()
    assert loss.item() == 1
    equal(grads(loss, x)[0], [2, NAN])


def test_EL03_the_length_of_nothing():
    x = T(np.zeros(3))
    equal(grads((x * x).sum(), x)[0], np.zeros(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        assert np.isnan(grads(ta.sqrt((x * x).sum()), x)[0]).all()  # documented in ta.sqrt
        assert grads(ta.sqrt(x[0]), x)[0][0] == INF
    equal(grads(ta.sqrt((x * x).sum() + 1e-12), x)[0], np.zeros(3))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_EL04_sigmoid_of_large_numbers(dtype):
    x = ta.Tensor(np.array([-1000.0, -40.0, 0.0, 40.0, 1000.0], dtype), requires_grad=True)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        s = ta.sigmoid(x)
        (ds,) = grads(s.sum(), x)
    equal(s, [0, 4.248354255291589e-18, 0.5, 1, 1], 1e-9 if dtype == np.float64 else 1e-5)
    equal(ds, [0, 4.248354255291589e-18, 0.25, 0, 0], 1e-9 if dtype == np.float64 else 1e-5)


def test_EL05_integers():
    with pytest.raises(TypeError, match="astype"):
        ta.Tensor([1, 2, 3], requires_grad=True)
    t = T([1, 2, 3])
    equal(grads(ta.mean(t * t) * 0.5, t)[0], [1 / 3, 2 / 3, 1])
    equal(ta.Tensor([1, 2, 3]) / 2, [0.5, 1, 1.5])
    assert np.argmax(t) == 2 and not isinstance(np.argmax(t), ta.Tensor)


def test_EL06_arrays_on_the_left():
    A, s, t = np.eye(3), np.float64(2.0), T(np.ones((3, 3)))
    for y in (A + t, A * t, A @ t, s * t, np.float32(2) - t):
        assert isinstance(y, ta.Tensor) and y.shape == (3, 3) and y.dtype == np.float64 and y.requires_grad
    equal(grads((A * t).sum(), t)[0], A)
    equal(grads((A @ t).sum(), t)[0], np.ones((3, 3)))
    equal(grads((s * t).sum(), t)[0], np.full((3, 3), 2.0))


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x**3, 12),
        (ta.log, -0.25),
        (ta.sigmoid, -0.07996250105615312),
        (lambda x: ta.softmax(ta.stack([x, ta.Tensor(0.0)]))[0], -0.07996250105615312),
    ],
)
def test_EL07_second_derivatives(f, expected):
    x = T(2.0)
    (first,) = ta.grad(f(x), x, create_graph=True)
    equal(grads(first, x)[0], expected)


# --- SM: softmax and its relatives -------------------------------------------------------------------


def test_SM01_widely_spread_logits():
    x, z = T([-1047.0, -981.0, 1891.0]), T([-431.0, 279.0, 427.0])
    equal(ta.softmax(x), [0, 0, 1])
    equal(grads(ta.softmax(x).sum(), x)[0], [0, 0, 0])
    loss = ta.cross_entropy(z, np.array(0))
    assert loss.item() == 858
    equal(grads(loss, z)[0], [-1, 5.301718666092324e-65, 1])


def test_SM02_logsumexp_of_infinities():
    x, y, z = T([-INF, -INF]), T([-INF, 1.0]), T([INF, 0.0])
    with np.errstate(invalid="raise"):
        assert [ta.logsumexp(t).item() for t in (x, y, z)] == [-INF, 1, INF]
        equal(grads(ta.logsumexp(y), y)[0], [0, 1])
        equal(grads(ta.logsumexp(x), x)[0], [0, 0])


def test_SM03_masked_softmax():
    x, keep = T([1.0, 1.0, 1000.0]), np.array([True, True, False])
    masked = ta.masked_fill(x, ~keep, -INF)
    equal(ta.softmax(masked), [0.5, 0.5, 0])
    equal(grads(ta.softmax(masked).sum(), x)[0], [0, 0, 0])
    equal(ta.log_softmax(masked)[keep], [-np.log(2)] * 2)


def test_SM04_cross_entropy_does_not_underflow():
    z = T([0.0, 1000.0])
    loss = ta.cross_entropy(z, np.array(0))
    assert loss.item() == 1000
    equal(grads(loss, z)[0], [-1, 1])


def test_SM05_ignoring_a_class_that_is_no_target():
    t = np.array([1, 2])
    equal(ta.cross_entropy(np.ones((2, 3)), t, ignore_index=0), 1.0986122886681098)
    equal(ta.cross_entropy(np.array([[0.0, 1.0, 1.0]] * 2), t, ignore_index=0), 0.8619948040582511)
    with np.errstate(divide="ignore"):
        equal(ta.cross_entropy(np.array([[-INF, 1.0, 1.0]] * 2), t), np.log(2))


def test_SM06_odd_axes():
    a, b, d = T(np.ones((4, 0))), T([[7.0], [9.0]]), np.arange(6.0).reshape(1, 3, 2)
    assert ta.softmax(a).shape == (4, 0) and grads(ta.softmax(a).sum(), a)[0].shape == (4, 0)
    equal(ta.softmax(b), [[1], [1]])
    equal(grads(ta.softmax(b).sum(), b)[0], [[0], [0]])
    equal(ta.softmax(np.array([1, 2])), [0.2689414213699951, 0.7310585786300049])
    for axis in (1, -2):
        equal(ta.softmax(d, axis)[0, :, 0], [0.015876239976466765, 0.11731042782619838, 0.8668133321973349])


# --- AT: attention and masks -------------------------------------------------------------------------

attention = ta.scaled_dot_product_attention


def test_AT01_an_empty_row():
    q, k, v = T(np.eye(2)), T(np.eye(2)), T([[1.0, 2.0], [3.0, 4.0]])
    keep = np.array([[True, True], [False, False]])
    out, weights = attention(q, k, v, keep, return_weights=True)
    equal(out, [[1.6604769013466862, 2.6604769013466862], [0, 0]])
    equal(weights, [[0.6697615493266569, 0.3302384506733431], [0, 0]])
    dq, dk, dv = grads(out.sum(), q, k, v)
    equal(dq, [[-0.6255943861804416, 0.6255943861804415], [0, 0]])
    equal(dk, [[-0.6255943861804416, 0], [0.6255943861804415, 0]])
    equal(dv, [[0.6697615493266569] * 2, [0.33023845067334306] * 2])


def test_AT02_scores_below_a_finite_fill():
    q, k, v = np.array([[-20000.0], [0.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [100.0]])
    equal(attention(q, k, v, np.array([[True, False], [True, False]]), scale=1.0), [[1], [1]])


def test_AT03_a_float_mask_of_ones_and_zeros():
    mask, v = np.tril(np.ones((3, 3))), np.array([[1.0], [2.0], [3.0]])
    q = k = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"astype\(bool\)"):
        attention(q, k, v, mask)
    equal(attention(q, k, v, mask.astype(bool)), [[1], [1.5], [2]])
    equal(attention(q, k, v, mask + 1)[0], [1.6358246728512564])  # added: the same as adding 1s and 0s


def test_AT04_integer_masks():
    m, q, k, v = np.array([1, 1, 0]), np.zeros((1, 2)), np.zeros((3, 2)), np.array([[1.0], [2.0], [6.0]])
    for mask in (m, m.astype(np.uint8), m[None]):
        with pytest.raises(TypeError, match=r"astype\(bool\)"):
            attention(q, k, v, mask)
    for mask in (m.astype(bool), np.array([0, 0, -INF]), m[None].astype(bool)):
        equal(attention(q, k, v, mask), [[1.5]])


def test_AT05_one_new_query_sees_the_whole_cache():
    q, k, v = np.zeros((1, 2)), np.zeros((8, 2)), np.arange(1.0, 9.0)[:, None]
    equal(attention(q, k, v, ta.causal_mask(1, 8)), [[4.5]])


def test_AT06_padding_of_each_sequence():
    keep = np.array([[True, False], [True, True]])
    q = k = np.zeros((2, 2, 2))
    v = np.array([[[1.0], [3.0]], [[5.0], [9.0]]])
    equal(attention(q, k, v, keep[:, None, :]), [[[1], [1]], [[7], [7]]])
    equal(attention(q, k, v, keep), [[[1], [2]], [[5], [7]]])
    with pytest.raises(ValueError, match=r"\(3, 2\).*\(2, 2\)"):
        attention(q, k, v, np.ones((3, 2), bool))


def test_AT07_causal_and_padding_together():
    keep, v = np.array([True, True, False, True]), np.array([[1.0], [3.0], [5.0], [8.0]])
    q = k = np.zeros((4, 2))
    equal(attention(q, k, v, ta.causal_mask(4) & keep), [[1], [2], [2], [4]])


@pytest.mark.parametrize("n", [1, 2, 4])
def test_AT08_the_diagonal_is_allowed(n):
    assert (ta.causal_mask(n) == np.tril(np.ones((n, n)))).all()
    assert ta.causal_mask(n).sum(1).tolist() == list(range(1, n + 1))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_AT09_two_masks_in_low_precision(dtype):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=s).astype(dtype) for s in ((4, 3), (5, 3), (5, 2)))
    causal = ta.causal_mask(4, 5)
    padding = np.array([False, False, False, True, True])  # rows 0 and 1 are blocked everywhere
    lowest = np.finfo(dtype).min
    with np.errstate(over="ignore"):
        added = np.where(causal, dtype(0), lowest) + np.where(padding, dtype(0), -INF).astype(dtype)
    out = attention(q, k, v, causal & padding)
    assert out.dtype == dtype and np.isfinite(out.numpy()).all() and (out.numpy()[:1] == 0).all()
    np.testing.assert_array_equal(attention(q, k, v, np.where(added > lowest, dtype(0), -INF)).numpy(), out.numpy())


def test_AT10_value_width_and_scale():
    q, k, v = np.array([[1.0, 0.0, 0.0]]), np.eye(3)[:2], np.array([[1.0, 2.0], [3.0, 5.0]])
    out, weights = attention(q, k, v, return_weights=True)
    equal(weights, [[0.6404574756806275, 0.3595425243193725]])
    equal(out, [[1.7190850486387448, 3.0786275729581174]])


def test_AT11_a_sequence_of_one():
    q, k, v = T([[3.0, -1.0]]), T([[2.0, 5.0]]), T([[7.0, 8.0]])
    out, weights = attention(q, k, v, ta.causal_mask(1), return_weights=True)
    equal(weights, [[1]])
    equal(out, [[7, 8]])
    dq, dk, dv = grads(out.sum(), q, k, v)
    assert (dq == 0).all() and (dk == 0).all() and (dv == 1).all()


def test_AT12_order_of_keys_and_queries():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=s) for s in ((4, 3), (5, 3), (5, 2)))
    p, r = np.array([3, 0, 4, 1, 2]), np.array([2, 3, 1, 0])
    out = attention(q, k, v).numpy()
    equal(out[0], [0.1135549898668887, -0.34168156276321715])
    equal(out[3], [-0.48684018184684147, -0.5402291000721289])
    equal(attention(q, k[p], v[p]), out, 1e-12)
    equal(attention(q[r], k, v), out[r], 1e-12)
    mask = ta.causal_mask(4, 5)
    assert np.abs(attention(q, k, v, mask).numpy() - attention(q, k[p], v[p], mask).numpy()).max() > 1e-3


def test_AT13_the_future_has_no_influence():
    rng = np.random.default_rng(1)
    x = T(rng.normal(size=(5, 4)))
    mask = ta.causal_mask(5)
    out = attention(x, x, x, mask)
    for i in range(5):
        (dx,) = grads(out[i].sum(), x, retain_graph=True)
        assert (dx[i + 1 :] == 0).all() and (dx[: i + 1] != 0).any()
        changed = x.numpy()
        changed[i + 1 :] = rng.normal(size=changed[i + 1 :].shape)
        np.testing.assert_array_equal(attention(changed, changed, changed, mask).numpy()[i], out.numpy()[i])


# --- GC: finite differences --------------------------------------------------------------------------


def test_GC01_float32_inputs():
    assert ta.gradcheck(lambda x: (x * x).sum(), ta.Tensor(np.array([1.1], np.float32)))


@pytest.mark.parametrize(
    "x",
    [
        np.arange(1.0, 7.0).reshape(2, 3).T,
        np.arange(1.0, 13.0).reshape(2, 6)[:, ::2],
        np.asfortranarray(np.ones((2, 3))),
    ],
)
def test_GC02_inputs_that_are_not_contiguous(x):
    assert ta.gradcheck(lambda t: (t**3).sum(), x)


def test_GC03_functions_that_are_not_deterministic():
    x = np.linspace(0.1, 1.0, 10)
    with pytest.raises(ValueError, match="not deterministic"):
        ta.gradcheck(lambda t: ta.dropout(t, 0.5).sum(), x)
    f = lambda t: ta.dropout(t, 0.5, rng=np.random.default_rng(0)).sum()
    assert ta.gradcheck(f, x)
    keep = np.random.default_rng(0).random(10) >= 0.5
    t = T(x)
    equal(grads(f(t), t)[0], keep / 0.5)


def test_GC04_differences_are_central():
    x = T([1.0])

    @op(lambda g, out, x: g * (3 * x * x + 3e-4))  # what a one-sided difference with h = 1e-4 would say
    def cube(x):
        return x**3

    assert ta.gradcheck(lambda t: t**3, x, eps=1e-4, rtol=1e-7, atol=1e-7)
    with pytest.raises(ta.GradcheckError):
        ta.gradcheck(cube, x, eps=1e-4, rtol=1e-7, atol=1e-7)


def test_GC05_zero_gradients_and_nan():
    x = np.array([1.0, 2.0])
    with pytest.warns(UserWarning, match="proves nothing"):
        assert ta.gradcheck(lambda t: (0.0 * t).sum(), x)
    assert ta.gradcheck(lambda t: t[0], x)
    with pytest.raises(ta.GradcheckError, match=r"nan at \(1,\)"):
        ta.gradcheck(lambda t: t * np.array([1.0, NAN]), x)


def test_GC06_small_and_large_gradients():
    @op(lambda g, out, x: g * 2e-7)
    def wrong(x):
        return 1e-7 * x

    with pytest.raises(ta.GradcheckError, match="twice too large"):
        ta.gradcheck(wrong, np.array([1.0]))
    assert ta.gradcheck(lambda x: 1e8 * x**2, np.array([1.0]))


@pytest.mark.parametrize("x", [1e8, 1e10, 1e12])
def test_GC07_large_inputs(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ta.gradcheck(lambda t: t**2, np.array([x]))
    with pytest.raises(ta.GradcheckError, match="half"):
        ta.gradcheck(op(lambda g, out, x: g * x)(lambda x: x**2), np.array([x]))


def test_GC08_many_elements():
    calls = []
    with pytest.warns(UserWarning, match="200000 elements"):
        assert ta.gradcheck(
            lambda x: calls.append(0) or ta.tanh(x).sum(), np.random.default_rng(0).normal(size=200_000)
        )
    assert len(calls) < 300  # not 400,000
