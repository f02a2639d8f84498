"""A second witness for the rules of smooth ops: dL/dx = Im L(x + ih) / h, which subtracts nothing: no digit is lost.

(Squire and Trapp 1998.) It shares no code with the finite differences of gradcheck.
"""

import numpy as np
import pytest

import tinyattn as ta

H = 1e-30
RNG = np.random.default_rng(0)


def positive(*shape):
    return RNG.uniform(0.5, 2.0, size=shape)


def normal(*shape):
    return RNG.normal(size=shape)


CASES = {
    "exp": (lambda x: ta.exp(x), [normal(3, 4)]),
    "log": (lambda x: ta.log(x), [positive(3, 4)]),
    "sqrt": (lambda x: ta.sqrt(x), [positive(3, 4)]),
    "tanh": (lambda x: ta.tanh(x), [normal(3, 4)]),
    "sin": (lambda x: ta.sin(x), [normal(3, 4)]),
    "cos": (lambda x: ta.cos(x), [normal(3, 4)]),
    "log1p": (lambda x: ta.log1p(x), [positive(3, 4)]),
    "expm1": (lambda x: ta.expm1(x), [normal(3, 4)]),
    "square": (lambda x: ta.square(x), [normal(3, 4)]),
    "add": (lambda x, y: x + y, [normal(3, 4), normal(4)]),
    "multiply": (lambda x, y: x * y, [normal(3, 1), normal(2, 1, 4)]),
    "divide": (lambda x, y: x / y, [normal(3, 4), positive(3, 1)]),
    "power": (lambda x, y: x**y, [positive(3, 4), normal(4)]),
    "matmul": (lambda x, y: x @ y, [normal(2, 3, 4), normal(4, 5)]),
    "sum": (lambda x: x.sum(axis=1), [normal(3, 4, 2)]),
    "mean": (lambda x: x.mean(axis=(0, 2)), [normal(3, 4, 2)]),
    "prod": (lambda x: x.prod(axis=1), [positive(3, 4)]),
    "cumsum": (lambda x: ta.cumsum(x, 1), [normal(3, 4)]),
    "einsum": (lambda x, y: ta.einsum("ij,kj->ik", x, y), [normal(3, 4), normal(5, 4)]),
    "concatenate": (lambda x, y: ta.concatenate([x, y], 1), [normal(3, 4), normal(3, 2)]),
    "index": (lambda x: x[[0, 2, 2], 1:], [normal(3, 4)]),
    "transpose": (lambda x: x.transpose((2, 0, 1)), [normal(3, 4, 2)]),
}


def complex_slopes(f, inputs, c):
    """The same formulas run on complex arrays: op.forward, as the engine would call it, with the graph left out."""
    slopes = []
    for k, x in enumerate(inputs):
        slope = np.zeros_like(x)
        for i in np.ndindex(x.shape):
            moved = x.astype(complex)
            moved[i] += 1j * H
            args = [Complex(moved if j == k else y.astype(complex)) for j, y in enumerate(inputs)]
            slope[i] = (f(*args).array * c).sum().imag / H
        slopes.append(slope)
    return slopes


class Complex:
    """An array that takes an expression's operators, methods and ta.functions to the formulas of the table."""

    def __init__(self, array):
        self.array = np.asarray(array)

    def __getattr__(self, name):
        return lambda *args, **params: run(name, self, *args, **params)

    def __add__(self, other):
        return run("add", self, other)

    def __mul__(self, other):
        return run("multiply", self, other)

    def __truediv__(self, other):
        return run("divide", self, other)

    def __pow__(self, other):
        return run("power", self, other)

    def __matmul__(self, other):
        return run("matmul", self, other)

    def __getitem__(self, index):
        return Complex(self.array[index])


def run(name, *args, **params):
    numpy = getattr(np, name)
    plain = [[y.array for y in x] if isinstance(x, list) else x.array if isinstance(x, Complex) else x for x in args]
    return Complex(numpy(*plain, **params))


@pytest.mark.parametrize("name", CASES)
def test_a_rule_agrees_with_the_complex_step(name, monkeypatch):
    f, inputs = CASES[name]
    leaves = [ta.Tensor(x, requires_grad=True) for x in inputs]
    out = f(*leaves)
    c = np.random.default_rng(1).normal(size=out.shape)
    rules = ta.grad(out, leaves, c)
    for op in (
        "exp",
        "log",
        "sqrt",
        "tanh",
        "sin",
        "cos",
        "log1p",
        "expm1",
        "square",
        "cumsum",
        "einsum",
        "concatenate",
    ):
        monkeypatch.setattr(ta, op, lambda *args, op=op, **params: run(op, *args, **params))
    for rule, slope in zip(rules, complex_slopes(f, inputs, c)):
        np.testing.assert_allclose(rule.numpy(), slope, rtol=1e-13, atol=1e-14)


def softmax(s):
    e = np.exp(s - s.real.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_agrees_with_the_complex_step(masked):
    Q, K, V = normal(3, 2), normal(5, 2), normal(5, 4)
    mask = np.tri(3, 5, 2, dtype=bool) if masked else None

    def attention(Q, K, V):
        s = Q @ K.T / np.sqrt(2)
        return softmax(np.where(mask, s, -1e300) if masked else s) @ V

    leaves = [ta.Tensor(x, requires_grad=True) for x in (Q, K, V)]
    out = ta.scaled_dot_product_attention(*leaves, mask)
    c = np.random.default_rng(1).normal(size=out.shape)
    for k, rule in enumerate(ta.grad(out, leaves, c)):
        x = (Q, K, V)[k]
        for i in np.ndindex(x.shape):
            moved = x.astype(complex)
            moved[i] += 1j * H
            args = [moved if j == k else y.astype(complex) for j, y in enumerate((Q, K, V))]
            slope = (attention(*args) * c).sum().imag / H
            assert rule.numpy()[i] == pytest.approx(slope, rel=1e-12, abs=1e-15)
