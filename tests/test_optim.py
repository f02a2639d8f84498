"""Optimisers: their formulas step by step, their memory, their refusals."""

import math

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import optim


def leaf(value):
    return ta.Tensor(np.asarray(value, dtype=float), requires_grad=True)


def run(optimizer, p, grads):
    values = []
    for g in grads:
        p.grad = None if g is None else np.asarray(g, dtype=float)
        optimizer.step()
        values.append(p.item())
    return values


def test_op01_adam_corrects_its_start_with_the_power_of_t():
    p = leaf(1.0)
    values = run(optim.Adam([p], 0.1), p, [0.5, 0.5, -1.0, 0.0])
    right = [0.900000002, 0.8000000040000006, 0.8075649369687123, 0.8137616697312646]
    np.testing.assert_allclose(values, right, rtol=1e-15)


@pytest.mark.parametrize("g", [1e-3, 7.0, -2e5])
def test_op01_adams_first_step_is_lr_whatever_the_gradient(g):
    p = leaf(1.0)
    assert run(optim.Adam([p], 0.1), p, [g])[0] == pytest.approx(1 - 0.1 * np.sign(g), abs=1e-5)


def test_op02_a_zero_gradient_moves_on_and_a_cleared_one_does_not():
    for second, right in (0.0, [0.9, 0.81]), (None, [0.9, 0.9]):
        p = leaf(1.0)
        assert run(optim.SGD([p], 0.1, momentum=0.9), p, [1.0, second]) == pytest.approx(right, rel=1e-14)
    for g, right in (0.0, 0.99), (None, 1.0):
        p = leaf(1.0)
        assert run(optim.SGD([p], 0.1, weight_decay=0.1), p, [g]) == pytest.approx([right], rel=1e-14)


def test_op03_parameters_stay_leaves_and_the_same_objects():
    layer = ta.nn.Linear(1, 1, bias=False)
    layer.weight.data = np.array([[1.0]])
    w = layer.weight
    optimizer = optim.SGD(layer.parameters(), 0.1)
    for _ in range(10):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    assert w is layer.weight
    assert w._node is None
    assert w.requires_grad
    assert w.item() == pytest.approx(0.10737418240000006, rel=1e-14)
    assert layer(np.ones((1, 1))).item() == w.item()


def test_op04_half_batches_add_up_and_uncleared_gradients_double():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    w = leaf(2.0)
    ((w * x) ** 2).mean().backward()
    assert w.grad.item() == 30
    ((w * x) ** 2).mean().backward()
    assert w.grad.item() == 60
    optim.SGD([w], 0.1).zero_grad()
    assert w.grad is None
    for half in x[:2], x[2:]:
        (((w * half) ** 2).mean() / 2).backward()
    assert w.grad.item() == 30


def test_sgd_with_momentum_and_decay_is_its_formula():
    p, x, b = leaf(1.5), 1.5, 0.0
    optimizer = optim.SGD([p], 0.1, momentum=0.8, weight_decay=0.3)
    for g in [0.7, -0.2, 1.1]:
        b = 0.8 * b + g + 0.3 * x
        x -= 0.1 * b
        assert run(optimizer, p, [g]) == pytest.approx([x], rel=1e-14)


def test_adamw_is_adam_with_decay_apart():
    g, lr, decay = 0.7, 0.1, 0.3
    p, q, r = leaf(2.0), leaf(2.0), leaf(2.0)
    first = run(optim.AdamW([p], lr, weight_decay=decay), p, [g])[0]
    assert first == pytest.approx(2 * (1 - lr * decay) - lr, abs=1e-8)
    plain = run(optim.Adam([q], lr), q, [0.3, -0.7, 0.2])
    assert run(optim.AdamW([r], lr, weight_decay=0), r, [0.3, -0.7, 0.2]) == plain


def test_a_step_between_forward_and_backward_is_noticed():
    w = leaf([2.0, 3.0])
    loss = (w**3).sum()
    w.grad = np.ones(2)
    optim.Adam([w], 0.5).step()
    with pytest.raises(RuntimeError, match="changed after"):
        loss.backward()


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: optim.SGD(ps, 0.05, momentum=0.9),
        lambda ps: optim.SGD(ps, 0.05),
        lambda ps: optim.Adam(ps, 0.05),
        lambda ps: optim.AdamW(ps, 0.05, weight_decay=0.1),
    ],
)
def test_state_survives_save_and_load(make, tmp_path):
    rng = np.random.default_rng(0)
    ps = [leaf(rng.normal(size=(2, 3))), leaf(rng.normal(size=4)), leaf(1.0)]
    grads = rng.normal(size=(6, 11))

    def step(optimizer, ps, g):
        for p, piece in zip(ps[:2], np.split(g, [6])):  # the third never gets a gradient
            p.grad = piece[: p.size].reshape(p.shape)
        optimizer.step()

    optimizer = make(ps)
    for g in grads[:3]:
        step(optimizer, ps, g)
    ta.save(optimizer, tmp_path / "optimizer.npz")
    copies = [ta.Tensor(p.numpy(), requires_grad=True) for p in ps]
    resumed = make(copies)
    resumed.lr = 9.0
    resumed.load_state_dict(ta.load(tmp_path / "optimizer.npz"))
    for g in grads[3:]:
        step(optimizer, ps, g)
        step(resumed, copies, g)
    assert all(np.array_equal(p.numpy(), c.numpy()) for p, c in zip(ps, copies))


def test_a_state_of_other_parameters_is_refused_and_changes_nothing():
    p, q = leaf([1.0, 2.0]), leaf([1.0, 2.0, 3.0])
    one, other = optim.Adam([p], 0.1), optim.Adam([q], 0.2)
    p.grad, q.grad = np.ones(2), np.ones(3)
    one.step()
    other.step()
    before = other.state_dict()
    other.step()
    assert other.state_dict()["steps"] == before["steps"] + 1
    assert not np.array_equal(other.state_dict()["m.0"], before["m.0"])
    other.load_state_dict(before)
    for bad in one.state_dict(), optim.SGD([q], 0.1).state_dict() | {"m.0": np.ones(3)}, {}:
        with pytest.raises(ValueError, match="does not fit Adam"):
            other.load_state_dict(bad)
    assert all(np.array_equal(a, before[name]) for name, a in other.state_dict().items())


def test_float32_stays_float32():
    p = ta.Tensor(np.ones(3, np.float32), requires_grad=True)
    for optimizer in optim.SGD([p], 0.1), optim.SGD([p], 0.1, momentum=0.9), optim.AdamW([p], 0.1):
        p.grad = np.ones(3)  # even from a float64 gradient
        optimizer.step()
        assert p.dtype == np.float32


def test_bad_arguments_are_refused():
    p = leaf(1.0)
    for params in [], [p, p]:
        with pytest.raises(ValueError, match="parameter"):
            optim.SGD(params, 0.1)
    for bad in ta.Tensor([1, 2]), p * 2, np.ones(3):
        with pytest.raises(TypeError, match="parameter 0"):
            optim.SGD([bad], 0.1)
    for lr in -0.1, math.nan:
        with pytest.raises(ValueError, match="lr"):
            optim.SGD([p], lr)
    with pytest.raises(ValueError, match="betas"):
        optim.Adam([p], betas=(0.9, 1.0))


def test_clipping_scales_all_gradients_together():
    p, q, idle = leaf([1.0, 2.0]), leaf(3.0), leaf(4.0)
    p.grad, q.grad = np.array([3.0, 4.0]), np.array(12.0)
    assert optim.clip_grad_norm([p, q, idle], 26) == 13
    assert p.grad.numpy().tolist() == [3.0, 4.0]
    assert optim.clip_grad_norm([p, q, idle], 6.5) == 13
    np.testing.assert_allclose(p.grad.numpy(), [1.5, 2.0])
    np.testing.assert_allclose(q.grad.numpy(), 6.0)
    assert idle.grad is None
    q.grad = np.array(np.nan)
    with pytest.raises(ValueError, match="nan"):
        optim.clip_grad_norm([p, q], 1.0)


def test_warmup_then_cosine():
    lr = [optim.warmup_cosine(t, 11, warmup=3, final=0.1) for t in range(11)]
    assert lr[:4] == [0.25, 0.5, 0.75, 1.0]
    assert lr[-1] == pytest.approx(0.1, abs=1e-15)
    assert lr[3:] == sorted(lr[3:], reverse=True)
    middle = optim.warmup_cosine(7, 12, warmup=3, final=0.0)
    assert middle == pytest.approx((1 + math.cos(math.pi * 4 / 8)) / 2)
    assert optim.warmup_cosine(0, 1) == 1.0
    assert optim.warmup_cosine(99, 11, final=0.1) == pytest.approx(0.1)
