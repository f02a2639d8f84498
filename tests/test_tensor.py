"""The engine: recording, walking back, letting go; and what it refuses."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.calling import op


def leaf(*shape, seed=0, **kwargs):
    return ta.Tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True, **kwargs)


# --- graphs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5_000, 200_000])
def test_long_chains_are_built_walked_and_freed(n, no_collector):
    x = ta.Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(n):
        y = y + 1.0
    assert y.item() == n + 1
    y.backward(retain_graph=True)
    assert x.grad.item() == 1
    assert "add" in repr(y)
    copy.copy(y), copy.deepcopy(y)
    del y  # frees the chain without recursion


def test_sixty_doublings_take_one_visit_each():
    x = ta.Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**60


def test_a_second_backward_is_refused_unless_the_graph_was_kept():
    x = leaf(3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * x.numpy())
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * x.numpy())


def test_two_losses_that_share_a_node():
    x = leaf(3)
    shared = ta.exp(x)
    first, second = shared.sum(), (shared * shared).sum()
    first.backward()
    with pytest.raises(RuntimeError, match="released"):
        second.backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.numpy()))  # the refused pass wrote nothing

    x.grad = None
    shared = ta.exp(x)
    first, second = shared.sum(), (shared * shared).sum()
    first.backward(retain_graph=True)
    second.backward()
    e = np.exp(x.numpy())
    np.testing.assert_allclose(x.grad.numpy(), e + 2 * e * e)


def test_an_unused_side_branch_changes_nothing():
    x = leaf(3)
    y = x * 2.0
    ta.exp(y)  # never used
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2, 2])


def test_everything_is_freed_by_reference_count():
    gc.collect()
    gc.disable()
    try:
        x = leaf(4, 5)
        q = ta.scaled_dot_product_attention(x, x, x, ta.causal_mask(4))
        h = ta.layer_norm(ta.gelu(q))
        loss = (h * h).sum()
        refs = [weakref.ref(t) for t in (q, h, loss)]
        loss.backward()
        del q, h, loss
        assert [r() for r in refs] == [None] * 3
        unused = ta.exp(x)  # never run backward
        ref = weakref.ref(unused)
        del unused
        assert ref() is None
    finally:
        gc.enable()


def test_the_graph_is_let_go_while_it_is_walked():
    x = leaf(3)
    inner = ta.exp(x)
    ref = weakref.ref(inner)
    y = inner.sum()
    del inner
    y.backward()
    assert ref() is None  # though y is alive


def test_gradients_are_kept_where_asked():
    x = leaf(3)
    h = x * x
    h.retain_grad()
    (h * 3.0).sum().backward()
    np.testing.assert_array_equal(h.grad.numpy(), [3, 3, 3])
    with pytest.raises(RuntimeError, match="needs no gradient"):
        ta.Tensor(1.0).retain_grad()


def test_gradients_of_every_tensor_touch_no_grad_and_keep_the_graph():
    x = leaf(3)
    h = x * x
    y = h.sum()
    found = ta.gradients(y)
    np.testing.assert_array_equal(found[h], [1, 1, 1])
    np.testing.assert_allclose(found[x], 2 * x.numpy())
    assert x.grad is None
    y.backward()


def test_backward_of_a_leaf_and_of_a_constant():
    x = ta.Tensor(2.0, requires_grad=True)
    x.backward()
    assert x.grad.item() == 1
    x.backward()
    assert x.grad == 2 and x.grad.data.shape == ()
    with pytest.raises(RuntimeError, match="requires_grad=True"):
        ta.Tensor(2.0).backward()


def test_gradient_of_wrong_shape_is_refused():
    y = leaf(3) * 2.0
    with pytest.raises(RuntimeError, match=r"shape \(3,\).*gradient="):
        y.backward()
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        y.backward(np.ones(2))


# --- ta.grad -----------------------------------------------------------------------------------------


def test_grad_gives_a_tuple_and_touches_nothing():
    x, w = leaf(2, 3, seed=1), leaf(3, 4, seed=2)
    dx, dw = ta.grad((x @ w).sum(), [x, w])
    np.testing.assert_allclose(dx.numpy(), np.tile(w.numpy().sum(1), (2, 1)))
    np.testing.assert_allclose(dw.numpy(), np.tile(x.numpy().sum(0)[:, None], 4))
    assert x.grad is None and not dx.requires_grad


def test_grad_of_an_inner_tensor_and_of_itself():
    x = leaf(3)
    h = x * x
    y = (h * h).sum()
    dh, dy = ta.grad(y, (h, y))
    np.testing.assert_allclose(dh.numpy(), 2 * h.numpy())
    assert dy.item() == 1


def test_grad_names_the_input_that_does_not_matter():
    x, stranger = leaf(3), leaf(3, name="stranger")
    with pytest.raises(RuntimeError, match=r"does not depend on input 1.*stranger"):
        ta.grad(x.sum(), (x, stranger))


def test_grad_stops_at_its_inputs_even_where_their_own_graph_is_gone():
    x = leaf(3)
    h = x * x
    h.sum().backward()
    (dh,) = ta.grad((h * h).sum(), h)
    np.testing.assert_allclose(dh.numpy(), 2 * h.numpy())
    with pytest.raises(RuntimeError, match="released"):
        ta.grad((h * h).sum(), x)
    h = x * x
    first, second = (h * h).sum(), (h * 3.0).sum()
    ta.grad(first, h)  # does not go behind h,
    second.backward()  # so that is still there


def test_second_and_third_derivatives():
    x = ta.Tensor(2.0, requires_grad=True)
    (first,) = ta.grad(x**4, x, create_graph=True)
    (second,) = ta.grad(first, x, create_graph=True)
    (third,) = ta.grad(second, x)
    assert [first.item(), second.item(), third.item()] == [32, 48, 48]


def test_create_graph_in_backward():
    x = leaf(3)
    (x * x * x).sum().backward(create_graph=True)
    (ddx,) = ta.grad(x.grad.sum(), x)
    np.testing.assert_allclose(ddx.numpy(), 6 * x.numpy())
    x.grad = None


def test_a_gradient_can_flow_through_the_cotangent():
    x, c = leaf(3), leaf(3, seed=1)
    (dx,) = ta.grad(ta.exp(x), x, c, create_graph=True)
    (dc,) = ta.grad(dx.sum(), c)
    np.testing.assert_allclose(dc.numpy(), np.exp(x.numpy()))


def test_gb_20_the_derivative_of_a_constant_gradient():
    x, y = ta.Tensor(2.0, requires_grad=True, name="x"), ta.Tensor(3.0, requires_grad=True, name="y")
    (slope,) = ta.grad(3 * x, x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"constant.*linear.*materialize_grads"):
        ta.grad(slope, x)
    assert ta.grad(slope, x, materialize_grads=True)[0].item() == 0
    first = ta.grad(x**2 + 3 * y, (x, y), create_graph=True)
    hessian = [ta.grad(g, (x, y), retain_graph=True, materialize_grads=True) for g in first]
    assert [[g.item() for g in row] for row in hessian] == [[2, 0], [0, 0]]
    with pytest.raises(RuntimeError, match=r"does not depend on input 1.*'y'.*materialize_grads"):
        ta.grad(first[0], (x, y))
    zeros = ta.grad(slope, (x, leaf(2, 3)), materialize_grads=True, create_graph=True)
    assert [g.shape for g in zeros] == [(), (2, 3)]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(
    "f", [lambda a, b: a + b, lambda a, b: ta.concatenate([a + b, b]), lambda a, b: ta.where([True, False], a, b)]
)
def test_no_two_gradients_share_an_array(f, create_graph):
    a, b, given = leaf(2, seed=1), leaf(2, seed=2), ta.Tensor(np.ones(2))
    out = f(a, b)
    given = ta.Tensor(np.ones(out.shape))
    found = [*ta.grad(out, (a, b, a), given, create_graph=create_graph, retain_graph=True), given]
    out.backward(given, create_graph=create_graph, retain_graph=True)
    found += [a.grad, b.grad]
    before = [g.numpy() for g in found]
    for i, g in enumerate(found):
        g.data[...] = 100.0
        for other, value in zip(found[i + 1 :], before[i + 1 :]):
            np.testing.assert_array_equal(other.numpy(), value)
    a.grad = b.grad = None


def test_accumulating_does_not_reach_the_other_side_of_an_addition():
    a, b = leaf(3, seed=1), leaf(3, seed=2)
    y = (a + b) * 1.0
    (y + a * 2.0 + a).sum().backward(retain_graph=True)
    (y * 3.0).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), 4 + 3)
    np.testing.assert_array_equal(b.grad.numpy(), 1 + 3)


def test_gradients_may_be_written_to():
    x = leaf(3)
    y = x + 1.0
    found = ta.gradients(y.sum())
    found[y][...] = 5.0
    np.testing.assert_array_equal(found[x], 1)


def test_a_formula_that_returns_its_input_shares_nothing():
    @op(lambda g, out, x: g)
    def same(x):
        return x

    x = ta.Tensor([1.0, 2.0])
    y = same(x)
    y.data[0] = 9.0
    assert x.numpy()[0] == 1


@pytest.mark.parametrize("f", [ta.fused_attention, ta.efficient.flash_attention])
def test_one_tensor_as_all_inputs_of_a_fused_op(f):
    assert ta.gradgradcheck(lambda x: f(x, x, x), np.random.default_rng(0).normal(size=(2, 3, 3)))
    assert ta.gradgradcheck(lambda w: ta.layer_norm(w, w, w), np.array([0.3, -1.0, 2.0]))


# --- data that changes -------------------------------------------------------------------------------


def test_changed_data_never_gives_a_mixed_gradient():
    x = leaf(3)
    before = x.numpy()
    held = x.data
    y = (x * x).sum()
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 100.0
    x.data[0] = 100.0  # a fresh copy: the graph keeps what it read, and sees that x is not that any more
    assert x.numpy()[0] == 100
    with pytest.raises(RuntimeError, match="changed after"):
        y.backward()
    assert x.grad is None
    x.data = before
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * before)


def test_rebound_data_never_gives_a_mixed_gradient():
    x = leaf(3)
    y = (x * x).sum()
    x.data = x.numpy() + 1
    for create_graph in (False, True):
        with pytest.raises(RuntimeError, match="changed after"):
            ta.grad(y, x, create_graph=create_graph)


def test_views_taken_before_cannot_reach_the_graph():
    x = leaf(3)
    before = x.numpy()
    view, memory = x.data.reshape(-1)[1:], memoryview(x.data)
    y = (x * x).sum()
    view[0], memory[0] = 100.0, 100.0
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * before)


def test_reading_data_disturbs_nothing():
    x = leaf(3)
    h = x * 1.0
    y = (h**3).sum()
    assert x.data.shape == h.data.shape == (3,)
    (first,) = ta.grad(y, x, create_graph=True)
    (second,) = ta.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy())


def test_results_and_views_are_protected_too():
    x = leaf(2, 3)
    e = ta.exp(x)
    assert e.data.shape == (2, 3)  # handed out before it is used: locked all the same
    y = (e * e).sum()
    e.data[0, 0] = 100.0
    with pytest.raises(RuntimeError, match="changed after"):
        y.backward()

    with ta.no_grad():
        view = x.reshape(6)
    x.data[0, 0] = 100.0
    assert view.numpy()[0] != 100

    e = ta.exp(x)
    e.data = np.ones((2, 3))
    y = (e * e).sum()
    e.data[0, 0] = 100.0
    with pytest.raises(RuntimeError, match="changed after"):
        ta.grad(y, e)

    same = x.squeeze()
    same.data[0, 0] = 7.0
    assert x.numpy()[0, 0] == 100

    detached = x.detach()
    x.data[0, 1] = 100.0
    assert detached.numpy()[0, 1] != 100


def test_arrays_from_outside_are_copied():
    x, a, mask = leaf(3), np.array([1.0, 2.0, 3.0]), np.array([True, False, False])
    picked = np.array([0, 0])
    y = (x * a).sum() + ta.masked_fill(x, mask, 0.0).sum() + x[picked].sum()
    a[0], mask[1], picked[1] = 100.0, True, 2
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1 + 0 + 2, 2 + 1, 3 + 1])


def test_new_data_must_fit():
    x = leaf(3)
    with pytest.raises(ValueError, match=r"\(4,\).*\(3,\)"):
        x.data = np.ones(4)
    with pytest.raises(TypeError, match="astype"):
        x.data = np.ones(3, int)
    x.data = ta.Tensor([1.0, 2.0, 3.0])
    assert x.numpy()[2] == 3


# --- what a tensor is --------------------------------------------------------------------------------


def test_integers_and_other_data_are_refused():
    with pytest.raises(TypeError, match="astype"):
        ta.Tensor([1, 2], requires_grad=True)
    for bad in (["a"], [1j], [object()], None):
        with pytest.raises(TypeError, match="real numbers"):
            ta.Tensor(bad)
    with pytest.raises(ValueError, match="equally long"):
        ta.Tensor([[1.0], [1.0, 2.0]])
    with pytest.raises(TypeError, match=r"ta\.stack"):
        ta.Tensor([leaf(2), leaf(2)])
    constant = ta.Tensor([1, 2])
    with pytest.raises(TypeError, match="astype"):
        constant.requires_grad = True
    with pytest.raises(RuntimeError, match="detach"):
        ta.exp(leaf(1)).requires_grad = False


def test_integer_results_need_no_gradient():
    assert not leaf(3).detach().astype(int).requires_grad
    with pytest.raises(TypeError, match=r"detach\(\)"):
        leaf(3).astype(int)


def test_the_constructor_copies():
    a = np.ones(3)
    t = ta.Tensor(a)
    a[0] = 5
    assert t.numpy()[0] == 1
    other = ta.Tensor(t)
    other.data[0] = 7
    assert t.numpy()[0] == 1


def test_float32_is_kept():
    x = ta.Tensor(np.ones((3, 4), np.float32), requires_grad=True)
    w = ta.Tensor(np.ones((4, 5), np.float32), requires_grad=True)
    y = ta.layer_norm(ta.softmax(ta.gelu(x @ w) * 2.0 - 1) ** 2 / 3).sum() + x.mean() + x.var() + x[0].max()
    assert y.dtype == np.float32
    y.backward()
    assert x.grad.dtype == w.grad.dtype == np.float32


def test_a_float64_constant_does_not_leak_into_a_float32_gradient():
    x = ta.Tensor(np.ones(3, np.float32), requires_grad=True)
    (x * np.ones(3)).sum().backward()
    assert x.grad.dtype == np.float32


def test_repr_is_one_line_and_says_what_matters():
    x = leaf(3, 4, name="Q")
    assert (
        repr(x)
        == f"Tensor('Q', {x.numpy().min():.4g} … {x.numpy().max():.4g}, shape=(3, 4), float64, leaf, no grad yet)"
    )
    (x * 2.0).sum().backward()
    assert repr(x).endswith("has grad)")
    assert repr(ta.Tensor(2.5)) == "Tensor(2.5, shape=(), float64)"
    assert "no finite values" in repr(ta.Tensor([np.nan, np.nan]))
    assert "1 not finite" in repr(ta.Tensor([1.0, np.inf]))
    assert "from exp" in repr(ta.exp(x))
    assert "\n" not in repr(ta.Tensor(np.zeros((0, 3))))
    assert f"{ta.Tensor([2.5]):.2f}" == "2.50" and f"{ta.Tensor(2.5)}" == repr(ta.Tensor(2.5))


def test_small_protocols():
    x = leaf(2, 3)
    rows = list(x)
    assert len(x) == len(rows) == 2 and rows[0].requires_grad
    assert float(ta.Tensor(2.5)) == 2.5 and int(ta.Tensor(2)) == 2 and [10, 20][ta.Tensor(1)] == 20
    assert not ta.Tensor(0.0) and ta.Tensor(1.0)
    assert len({x, x, ta.exp(x)}) == 2  # tensors hash by identity
    np.testing.assert_array_equal(x == x, True)
    np.testing.assert_array_equal(x < x, False)
    np.testing.assert_array_equal(x.numpy() <= x, True)
    assert ta.Tensor(2.0) == pytest.approx(2.0) and ta.Tensor(2.0) != "a"
    x.grad = np.ones((2, 3))
    assert isinstance(x.grad, ta.Tensor)
    with pytest.raises(ValueError, match="shape"):
        x.grad = np.ones(3)


def test_copies_and_pickles_are_leaves():
    x = leaf(3, name="w")
    for twin in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(twin.numpy(), x.numpy())
        assert twin.requires_grad and twin.name == "w"
    assert copy.deepcopy(ta.exp(x))._node is None


def test_no_grad_as_context_and_decorator():
    x = leaf(3)
    with ta.no_grad():
        assert not ta.exp(x).requires_grad
        with ta.no_grad():
            pass
        assert not ta.exp(x).requires_grad

    @ta.no_grad()
    def f(n):
        return f(n - 1) if n else ta.exp(x)

    assert not f(3).requires_grad

    @ta.no_grad
    def bare():
        return ta.exp(x)

    assert not bare().requires_grad
    once = ta.no_grad()
    with once, once:
        pass
    with pytest.raises(ZeroDivisionError), ta.no_grad():
        raise ZeroDivisionError
    assert ta.exp(x).requires_grad


# --- NumPy -------------------------------------------------------------------------------------------


def test_arrays_on_the_left():
    t = leaf(3, 3)
    a = np.arange(9.0).reshape(3, 3)
    for result in (a + t, a - t, a * t, a / t, a @ t, np.float64(2) * t, np.float32(2) - t, 2 - t, 2.0**t):
        assert isinstance(result, ta.Tensor) and result.shape == (3, 3) and result.requires_grad
    (dt,) = ta.grad((a @ t).sum(), t)
    np.testing.assert_allclose(dt.numpy(), a.T @ np.ones((3, 3)))
    with pytest.raises(TypeError, match=r"a = a \+ t"):
        a += t
    t.sum().backward()
    t.data -= 0.5 * t.grad  # no operand needs a gradient: nothing is lost
    np.add(a, t.grad, out=a)


def test_numpy_functions_differentiate():
    x = leaf(2, 3)
    for ours, theirs in [
        (np.exp(x), np.exp(x.numpy())),
        (np.sum(x, axis=0), x.numpy().sum(0)),
        (np.mean(x, axis=1, keepdims=True), x.numpy().mean(1, keepdims=True)),
        (np.where(x > 0, x, 0.0), np.maximum(x.numpy(), 0)),
        (np.concatenate([x, x.numpy()]), np.concatenate([x.numpy(), x.numpy()])),
        (np.stack([x, x]), np.stack([x.numpy(), x.numpy()])),
        (np.einsum("ij,kj->ik", x, x), x.numpy() @ x.numpy().T),
        (np.transpose(x), x.numpy().T),
        (np.maximum(x, 0.0), np.maximum(x.numpy(), 0)),
        (np.matmul(x, x.T), x.numpy() @ x.numpy().T),
    ]:
        assert isinstance(ours, ta.Tensor) and ours.requires_grad
        np.testing.assert_allclose(ours.numpy(), theirs)


def test_numpy_functions_without_a_rule_raise_or_have_no_gradient():
    x = leaf(2, 3)
    for f in (np.cumprod, np.median, np.arctan, np.linalg.norm, np.asarray, np.array, np.add.reduce):
        with pytest.raises(TypeError, match=r"numpy\(\)"):
            f(x)
    assert np.argmax(x) == x.numpy().argmax() and np.shape(x) == (2, 3) and np.isfinite(x).all()
    assert np.allclose(x, x.numpy())
    constant = ta.Tensor(x.numpy())
    np.testing.assert_array_equal(np.asarray(constant), x.numpy())
    np.testing.assert_array_equal(np.cumsum(constant), x.numpy().cumsum())
    assert np.asarray(constant, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy=False"):
        np.asarray(constant, copy=False)


# --- writing ops -------------------------------------------------------------------------------------


def test_a_missing_rule_is_loud():
    @op(None)
    def floor(x):
        return np.floor(x)

    y = floor(leaf(3, name="x")).sum()
    with pytest.raises(NotImplementedError, match=r"floor.*'x'"):
        y.backward()


def test_a_rule_of_wrong_shape_is_loud():
    @op(lambda g, out, x: g[:-1])
    def wrong(x):
        return x * 1.0

    with pytest.raises(AssertionError, match=r"wrong.*\(2,\).*\(3,\)"):
        wrong(leaf(3)).sum().backward()


def test_a_fused_op_uses_its_composition_for_second_derivatives():
    calls = []

    def composed(x):
        calls.append(x)
        return x * x * x

    @op(twin=composed, pull=lambda g, out, x, *, extra, needs: (g * 3 * extra,))
    def cube(x):
        return x**3, x * x

    x = leaf(3)
    y = cube(x * 1.0)
    (first,) = ta.grad(y.sum(), x, retain_graph=True)
    assert not calls
    np.testing.assert_allclose(first.numpy(), 3 * x.numpy() ** 2)
    (first,) = ta.grad(y.sum(), x, create_graph=True)
    (second,) = ta.grad(first.sum(), x)
    assert calls
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy())


def test_errors_name_the_op_and_the_shapes():
    with pytest.raises(ValueError, match=r"ta\.matmul of \(2, 3\) float64, \(4, 5\) float64"):
        leaf(2, 3) @ leaf(4, 5)
    with pytest.raises(ValueError, match=r"ta\.add of \(2,\) float64, \(3,\) float64"):
        leaf(2) + leaf(3)
    with pytest.raises(IndexError, match="getitem"):
        leaf(2)[5]
    with pytest.raises(IndexError, match=r"softmax.*axis=3"):
        ta.softmax(leaf(2), axis=3)
    with pytest.raises(TypeError, match="unexpected keyword"):
        ta.exp(leaf(2), axis=3)
    with pytest.raises(TypeError, match="too many positional"):
        ta.softmax(leaf(2), -1, 7)
    with pytest.raises(TypeError, match="multiple values"):
        ta.sum(leaf(2), 0, axis=0)
    with pytest.raises(ValueError, match="axis 5"):
        leaf(2).sum(axis=5)


def test_inputs_may_be_given_by_keyword():
    np.testing.assert_array_equal(ta.where(condition=[True, False], x=[1.0, 2.0], y=0.0).numpy(), [1, 0])
    np.testing.assert_allclose(ta.softmax(x=[1.0, 1.0]).numpy(), [0.5, 0.5])


def test_print_shows_the_numbers_of_a_small_tensor_and_the_range_of_a_large_one():
    x = ta.Tensor([[1.0, -2.0], [3.0, 4.0]], name="W")
    assert str(x) == "Tensor('W', [[ 1., -2.],\n             [ 3.,  4.]], shape=(2, 2), float64)"
    assert repr(x) == "Tensor('W', [[1., -2.], [3., 4.]], shape=(2, 2), float64)"  # one line, for error messages
    assert str(ta.Tensor(np.zeros((0, 3)))) == "Tensor([], shape=(0, 3), float64)"
    with np.printoptions(precision=2):
        assert "0.33" in str(ta.Tensor([1 / 3, 2.0])) and "0.333" not in str(ta.Tensor([1 / 3, 2.0]))
    large = ta.Tensor(np.linspace(0, 1, 101))
    assert str(large) == repr(large) == "Tensor(0 … 1, shape=(101,), float64)"


def test_a_recorded_backward_pass_inside_no_grad_is_refused():
    x = ta.Tensor([2.0], requires_grad=True)
    y = x * x * x
    with ta.no_grad():
        with pytest.raises(RuntimeError, match="no_grad"):
            ta.grad(y, x, create_graph=True)
        with pytest.raises(RuntimeError, match="no_grad"):
            y.backward(create_graph=True)
        assert x.grad is None
        assert ta.grad(y, x)[0].item() == 12.0  # a plain one is fine


def test_an_op_that_returns_its_own_input_shares_nothing_that_somebody_may_write_to():
    @op(lambda g, out, x: g)
    def same(x):
        return x

    x = ta.Tensor([1.0, 2.0])
    view = x.data[:]
    y = same(x)
    view[0] = 5.0
    assert y.numpy().tolist() == [1.0, 2.0]
