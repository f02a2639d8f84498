"""Random programs, held against finite differences, against the plain twin of what is fused, and against PyTorch.

Each program is drawn from a seed: leaves of distinct shapes, then ops on what there is so far (shared nodes,
broadcasting, views, the same tensor twice), then a random sum of the last results. TINYATTN_FUZZ=10000 tries that many
of each kind.
"""

import os

import numpy as np
import pytest

import tinyattn as ta

COUNT = int(os.environ.get("TINYATTN_FUZZ", "40"))
SEEDS = range(COUNT)
ONCE_ALARMS = (2012, 4180, 6316, 6612, 6660, 7260, 7828)  # programs whose second derivatives cancel to nearly 0

UNARY = {  # name: (here, in PyTorch)
    "exp": (lambda x: ta.exp(0.3 * x), lambda t, x: t.exp(0.3 * x)),
    "tanh": (ta.tanh, lambda t, x: t.tanh(x)),
    "sin": (ta.sin, lambda t, x: t.sin(x)),
    "sigmoid": (ta.sigmoid, lambda t, x: t.sigmoid(x)),
    "gelu": (ta.gelu, lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    "log": (lambda x: ta.log(x * x + 0.5), lambda t, x: t.log(x * x + 0.5)),
    "sqrt": (lambda x: ta.sqrt(x * x + 0.5), lambda t, x: t.sqrt(x * x + 0.5)),
    "cube": (lambda x: 0.1 * x**3, lambda t, x: 0.1 * x**3),
    "negative": (lambda x: -x, lambda t, x: -x),
    "softmax": (lambda x: ta.softmax(x, -1), lambda t, x: t.softmax(x, -1)),
    "softmax over 0": (lambda x: ta.softmax(x, 0), lambda t, x: t.softmax(x, 0)),
    "log_softmax": (lambda x: ta.log_softmax(x), lambda t, x: t.log_softmax(x, -1)),
    "logsumexp": (lambda x: ta.logsumexp(x, 0, keepdims=True), lambda t, x: t.logsumexp(x, 0, keepdim=True)),
    "sum": (lambda x: x.sum(axis=0, keepdims=True), lambda t, x: x.sum(0, keepdim=True)),
    "mean": (lambda x: x.mean(axis=1, keepdims=True), lambda t, x: x.mean(1, keepdim=True)),
    "var": (lambda x: x.var(axis=0, keepdims=True), lambda t, x: x.var(0, keepdim=True, correction=0)),
    "layer_norm": (
        lambda x: ta.layer_norm(x, eps=0.1),
        lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:], eps=0.1),
    ),
    "transpose": (lambda x: x.T, lambda t, x: x.T),
    "rows": (lambda x: x[[0, -1, 0]], lambda t, x: x[[0, -1, 0]]),
    "columns": (lambda x: x[:, ::-1], lambda t, x: x.flip(1)),
    "slice": (lambda x: x[:2, :1], lambda t, x: x[:2, :1]),
    "reshape": (lambda x: x.reshape(1, -1), lambda t, x: x.reshape(1, -1)),
    "masked": (
        lambda x: ta.masked_fill(x, np.eye(*x.shape, dtype=bool), 0.7),
        lambda t, x: x.masked_fill(t.eye(*x.shape, dtype=t.bool), 0.7),
    ),
}
BINARY = {
    "add": (lambda x, y: x + y, lambda t, x, y: x + y),
    "subtract": (lambda x, y: x - y, lambda t, x, y: x - y),
    "multiply": (lambda x, y: x * y, lambda t, x, y: x * y),
    "divide": (lambda x, y: x / (1.0 + y * y), lambda t, x, y: x / (1.0 + y * y)),
    "power": (lambda x, y: (x * x + 0.5) ** ta.tanh(y), lambda t, x, y: (x * x + 0.5) ** t.tanh(y)),
    "matmul": (lambda x, y: x @ y / 3, lambda t, x, y: x @ y / 3),
    "matmul, transposed": (lambda x, y: x @ y.mT / 3, lambda t, x, y: x @ y.mT / 3),
    "einsum": (lambda x, y: ta.einsum("ij,kj->ki", x, y) / 3, lambda t, x, y: t.einsum("ij,kj->ki", x, y) / 3),
    "stack": (lambda x, y: ta.concatenate([x, y, x], 0), lambda t, x, y: t.cat([x, y, x], 0)),
    "where": (
        lambda x, y: ta.where(np.tri(2, 2)[:1] > 0, x, y),
        lambda t, x, y: t.where(t.tensor([[True, False]]), x, y),
    ),
}


def program(seed):
    """The leaves' arrays, and a list of (name, where its arguments stand)."""
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(k) for k in rng.integers(1, 4, 2)) for _ in range(rng.integers(2, 4))]
    leaves = [rng.normal(size=shape) for shape in shapes]
    values, steps = [ta.Tensor(x) for x in leaves], []
    while len(steps) < rng.integers(4, 10):
        binary = rng.random() < 0.55
        name = str(rng.choice([*(BINARY if binary else UNARY)]))
        at = [int(i) for i in rng.integers(len(values), size=2 if binary else 1)]
        try:
            out = (BINARY if binary else UNARY)[name][0](*(values[i] for i in at))
        except ValueError:
            continue  # these shapes do not go together
        if out.size <= 40 and np.abs(out.numpy()).max() < 50:
            steps.append((name, at))
            values.append(out)
    return leaves, steps


def results(leaves, steps, torch=None):
    values = list(leaves)
    for name, at in steps:
        here, there = (UNARY | BINARY)[name]
        args = [values[i] for i in at]
        values.append(there(torch, *args) if torch else here(*args))
    return tuple(values[len(leaves) :][-3:])


@pytest.mark.filterwarnings("ignore:the output does not change")
@pytest.mark.parametrize("seed", [*SEEDS, *(s for s in ONCE_ALARMS if s >= COUNT)])
def test_a_program_against_differences(seed):
    leaves, steps = program(seed)
    tensors = [ta.Tensor(x, requires_grad=True) for x in leaves]
    last = results(tensors, steps)
    weights = [np.random.default_rng(k).normal(size=y.shape) for k, y in enumerate(last)]

    def loss(*xs):
        return sum(((y * w).sum() for y, w in zip(results(xs, steps), weights)), start=0.0 * xs[0].sum())

    assert ta.gradcheck(loss, tensors)
    if seed % 4 == 0:
        assert ta.gradgradcheck(loss, tensors, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_against_pytorch_to_second_order(seed):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    leaves, steps = program(seed)
    ours = [ta.Tensor(x, requires_grad=True) for x in leaves]
    theirs = [torch.tensor(x, requires_grad=True) for x in leaves]
    gradients = []
    for xs, torch_ in ((ours, None), (theirs, torch)):
        loss = sum(((y * y).sum() for y in results(xs, steps, torch_)), start=0.0 * sum(x.sum() for x in xs))
        if torch_:
            first = torch.autograd.grad(loss, xs, create_graph=True)
            second = torch.autograd.grad(sum((g * g).sum() for g in first), xs, allow_unused=True)
            second = [torch.zeros_like(x) if g is None else g for g, x in zip(second, xs)]
        else:
            first = ta.grad(loss, xs, create_graph=True)
            second = ta.grad(sum((g * g).sum() for g in first), xs, materialize_grads=True)
        gradients.append([*first, *second])
    for mine, other in zip(*gradients):
        scale = max(1.0, float(other.detach().abs().max()))
        np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-10 * scale)


def setup(seed):
    """A random attention: shapes, mask, scale, size of the scores."""
    rng = np.random.default_rng(seed)
    n, m, dk, dv = (int(k) for k in rng.integers(1, 9, 4))
    leading = [(), (2,), (2, 3)][rng.integers(3)]
    size = 10.0 ** rng.integers(-1, 3)
    Q, K, V = (rng.normal(size=(*leading, *shape)) for shape in ((n, dk), (m, dk), (m, dv)))
    masks = [None, rng.random((n, m)) < 0.6, np.tri(n, m, m - n, dtype=bool), rng.random((*leading, n, m)) < 0.5]
    scale = [None, 1.0, 0.3][rng.integers(3)]
    return size * Q, K, V, masks[rng.integers(4)], scale, rng


@pytest.mark.parametrize("seed", SEEDS)
def test_every_attention_is_the_plain_one(seed):
    Q, K, V, mask, scale, rng = setup(seed)
    c = rng.normal(size=(*Q.shape[:-1], V.shape[-1]))
    block = int(rng.integers(1, 5))
    forms = {
        "fused": lambda *xs: ta.fused_attention(*xs, mask, scale=scale),
        "flash": lambda *xs: ta.efficient.flash_attention(*xs, mask=mask, scale=scale, block_size=block),
        "plain": lambda *xs: ta.scaled_dot_product_attention(*xs, mask, scale=scale),
    }
    found = {}
    for name, form in forms.items():
        leaves = [ta.Tensor(x, requires_grad=True) for x in (Q, K, V)]
        out = form(*leaves)
        first = ta.grad(out, leaves, c, create_graph=name != "flash" or seed % 3 == 0)
        found[name] = [out, *first]
        if first[0].requires_grad:
            total = sum((g * g).sum() for g in first)
            found[name] += ta.grad(total, leaves, materialize_grads=True)
    for name in ("fused", "flash"):
        for mine, plain in zip(found[name], found["plain"]):
            scale_ = max(1.0, float(np.abs(plain.numpy()).max(initial=0)))
            np.testing.assert_allclose(mine.numpy(), plain.numpy(), rtol=1e-9, atol=1e-11 * scale_)


@pytest.mark.parametrize("seed", SEEDS)
def test_optimisers_are_pytorch_s(seed):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(seed)
    lr, decay = float(10 ** rng.uniform(-3, -1)), float(rng.choice([0.0, 0.1]))
    kind, options = [
        ("SGD", {"momentum": float(rng.choice([0.0, 0.9])), "weight_decay": decay}),
        ("Adam", {"betas": (0.8, 0.95), "eps": 1e-6}),
        ("AdamW", {"weight_decay": decay}),
    ][rng.integers(3)]
    start = [rng.normal(size=(3, 2)), rng.normal(size=4)]
    ours = [ta.Tensor(x, requires_grad=True) for x in start]
    theirs = [torch.tensor(x, requires_grad=True) for x in start]
    mine, other = getattr(ta.optim, kind)(ours, lr, **options), getattr(torch.optim, kind)(theirs, lr, **options)
    for _ in range(5):
        for p, q in zip(ours, theirs):
            g = rng.normal(size=p.shape)
            p.grad, q.grad = g, torch.tensor(g)
        mine.step()
        other.step()
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_a_block_against_differences(seed):
    rng = np.random.default_rng(seed)
    heads = int(rng.choice([1, 2, 4]))
    mha = ta.nn.MultiHeadAttention(
        8, heads, num_kv_heads=int(rng.choice([1, heads])), bias=bool(rng.random() < 0.5), rng=seed
    )
    block = ta.nn.TransformerBlock(8, heads, pre_norm=bool(rng.random() < 0.5), rng=seed) if seed % 8 else mha
    mask = [None, ta.causal_mask(3)][rng.integers(2)]
    parameters = block.parameters()[:4]
    x = ta.Tensor(rng.normal(size=(2, 3, 8)), requires_grad=True, name="x")

    def f(x, *values):
        before = [p.data.copy() for p in parameters]
        for p, v in zip(parameters, values):
            p.data = v.numpy()
        try:
            return block(x, mask=mask)
        finally:
            for p, v in zip(parameters, before):
                p.data = v

    assert ta.gradcheck(lambda x: block(x, mask=mask), x)
    out = block(x, mask=mask)
    c = rng.normal(size=out.shape)
    rules = ta.grad(out, parameters, c)
    for k, (p, rule) in enumerate(zip(parameters, rules)):
        direction = rng.normal(size=p.shape)
        ends = []
        for side in (1, -1):
            step = side * 1e-6 * direction
            values = [ta.Tensor(q.numpy() + step if j == k else q.numpy()) for j, q in enumerate(parameters)]
            ends.append(float((f(x, *values).numpy() * c).sum()))
        expected = (ends[0] - ends[1]) / 2e-6
        assert float((rule.numpy() * direction).sum()) == pytest.approx(expected, rel=1e-6, abs=1e-7)
