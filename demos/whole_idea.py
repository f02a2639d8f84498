"""The whole idea of tinyattn in one file, with NumPy alone: attention, and its derivatives by the walk back.

A computation is a chain of small steps. For each kind of step the derivative is known: the rules below are a table of
them. So each tensor remembers the step that made it. To get the gradient of a long computation, walk back over these
steps, from the result to the inputs, and apply the rules of each step. That is all. Run it:

    python demos/whole_idea.py
"""

import itertools

import numpy as np

# --- a tensor remembers how it was made -----------------------------------------------------------------


class Tensor:
    """An array, and the step that made it: its inputs, and one rule for each. A tensor that you create has none."""

    clock = itertools.count()

    def __init__(self, data, inputs=(), rules=()):
        self.data, self.inputs, self.rules = np.array(data, float), inputs, rules
        self.time = next(Tensor.clock)  # results are made after their inputs


def op(*rules):
    """Makes a step from a formula on arrays, and from the rules above it, one per input.

    Let L be the number at the end of the whole computation. A rule is given g = dL/d(out), out and the inputs; it
    returns dL/d(input), the input's share of g.
    """

    def define(formula):
        def step(*inputs):
            inputs = [x if isinstance(x, Tensor) else Tensor(x) for x in inputs]
            return Tensor(formula(*(x.data for x in inputs)), inputs, rules)

        return step

    return define


# --- the table of derivatives ---------------------------------------------------------------------------


@op(
    lambda g, out, x, y: g,
    lambda g, out, x, y: g,
)
def add(x, y):
    return x + y


@op(
    lambda g, out, x, y: g,
    lambda g, out, x, y: -g,
)
def subtract(x, y):
    return x - y


@op(
    lambda g, out, x, y: g * y,
    lambda g, out, x, y: g * x,
)
def multiply(x, y):
    return x * y


@op(
    lambda g, out, x, y: g / y,
    lambda g, out, x, y: -g * out / y,
)
def divide(x, y):
    return x / y


@op(
    lambda g, out, x, y: g @ y.T,  # (n, m) @ (m, k) -> (n, k), the shape of x
    lambda g, out, x, y: x.T @ g,  # (k, n) @ (n, m) -> (k, m), the shape of y
)
def matmul(x, y):
    return x @ y


@op(lambda g, out, x: g.T)
def transpose(x):
    return x.T


@op(lambda g, out, x: g * out)
def exp(x):
    return np.exp(x)


@op(lambda g, out, x: np.broadcast_to(g, x.shape))
def sum_rows(x):
    return x.sum(-1, keepdims=True)


Tensor.__add__, Tensor.__sub__, Tensor.__mul__, Tensor.__truediv__ = add, subtract, multiply, divide
Tensor.__matmul__, Tensor.T = matmul, property(transpose)


# --- the walk back --------------------------------------------------------------------------------------


def gradients(output, g):
    """{t: dL/dt} for every tensor t that output was made of; g is dL/d(output). This is the chain rule.

    A tensor that several steps used gets the sum of their shares. The results of these steps are newer than it. So when
    it is the newest tensor left, it has all its shares, and can pass its gradient on.
    """
    found, left = {output: g}, {output}
    while left:
        t = max(left, key=lambda t: t.time)
        left.remove(t)
        for x, rule in zip(t.inputs, t.rules):
            share = rule(found[t], t.data, *(i.data for i in t.inputs))
            found[x] = found.get(x, 0) + sum_copies(share, x.data.shape)
            left.add(x)
    return found


def sum_copies(share, shape):
    """If NumPy copied an element to fit a larger array (broadcasting), the element gets the sum over its copies."""
    share = share.sum(tuple(range(share.ndim - len(shape))))
    return share.sum(tuple(i for i, length in enumerate(shape) if length == 1), keepdims=True)


# --- attention ------------------------------------------------------------------------------------------


def softmax(x):
    """e^x / Σ e^x, row by row. The row's maximum is subtracted first: it cancels, and e^x stays in range."""
    e = exp(x - x.data.max(-1, keepdims=True))
    return e / sum_rows(e)


def attention(Q, K, V):
    """softmax(Q Kᵀ / √dk) V, causal: the query at position i sees the keys at positions j ≤ i."""
    n, dk = Q.data.shape
    scores = Q @ K.T * dk**-0.5  # (n, dk) @ (dk, n) -> (n, n): how well each key answers each query
    future = np.triu(np.full((n, n), -np.inf), 1)  # e^(-inf) = 0: no weight on what comes later
    weights = softmax(scores + future)  # (n, n): each row sums to 1
    return weights @ V  # (n, n) @ (n, dv) -> (n, dv): each query's mean of the values


def self_attention(X, Wq, Wk, Wv):
    """Every word of X asks, advertises, and hands over: queries X Wq, keys X Wk, values X Wv."""
    return attention(X @ Wq, X @ Wk, X @ Wv)


# --- the proof ------------------------------------------------------------------------------------------


def differences(f, x, g, h=1e-6):
    """dL/dx once more, without calculus: move one element by ±h and see how L = Σ g · f() changes."""
    slopes = np.zeros(x.data.shape)
    for i in np.ndindex(slopes.shape):
        middle = x.data[i]
        x.data[i] = middle + h
        above = (g * f().data).sum()
        x.data[i] = middle - h
        below = (g * f().data).sum()
        x.data[i] = middle
        slopes[i] = (above - below) / (2 * h)
    return slopes


def main():
    rng = np.random.default_rng(0)
    shapes = {"X": (4, 3), "Wq": (3, 2), "Wk": (3, 2), "Wv": (3, 3)}  # 4 words, dk = 2, dv = 3
    inputs = [Tensor(rng.normal(size=shape)) for shape in shapes.values()]
    g = rng.normal(size=(4, 3))
    found = gradients(self_attention(*inputs), g)
    columns = {
        "the walk back": [found[x] for x in inputs],
        "differences": [differences(lambda: self_attention(*inputs), x, g) for x in inputs],
    }
    try:
        import tinyattn as ta

        X, *W = tensors = [ta.Tensor(x.data, requires_grad=True) for x in inputs]
        out = ta.scaled_dot_product_attention(*(X @ w for w in W), ta.causal_mask(4))
        columns["tinyattn"] = [t.numpy() for t in ta.grad(out, tensors, g)]
    except ImportError:
        print("tinyattn is not installed, so its gradients are left out.\n")

    np.set_printoptions(precision=3, suppress=True, floatmode="fixed", sign="+")
    print("The gradient of self-attention, 4 words:\n\n   ", *(f"{name:22}" for name in columns))
    for name, *arrays in zip(shapes, *columns.values()):
        for rows in zip(*arrays):
            print(f"{name:3}", *(f"{row!s:22}" for row in rows))
    for name, limit in (("differences", 1e-8), ("tinyattn", 1e-12)):
        if name in columns:
            largest = max(np.abs(a - b).max() for a, b in zip(columns["the walk back"], columns[name]))
            assert largest < limit, f"{name}: {largest}"
            print(f"equal: the walk back and {name} differ by {largest:.0e} at most")


if __name__ == "__main__":
    main()
