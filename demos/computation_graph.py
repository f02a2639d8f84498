"""Draw your own computation: an expression, a softmax, an attention head, and the head's backward pass as a graph.

A computation leaves a graph behind: which operation made each number, and from what. backward() walks that graph in
reverse. The gradient rules are made of the same operations, so the walk back is a computation too. It has a graph of
its own (create_graph=True), which can be drawn, or differentiated once more.

    python demos/computation_graph.py --expression "tanh(a * b + c) ** 2"

draws yours. The functions are those of tinyattn; every other name is a parameter with a random value.
"""

import _demo
import numpy as np

import tinyattn as ta
from tinyattn.modes import region


def parse(expression, rng):
    """The expression's value as a tensor, and its parameters: every name that is no function of tinyattn."""
    functions = {name: getattr(ta, name) for name in ta.ops.__all__}
    try:
        code = compile(expression, "--expression", "eval")
        parameters = {
            name: ta.Tensor(round(rng.uniform(0.2, 2), 1), requires_grad=True, name=name)
            for name in sorted(set(code.co_names) - set(functions))
        }
        return eval(code, {"__builtins__": {}} | functions, parameters), parameters
    except Exception as error:
        raise SystemExit(f"--expression {expression!r} cannot be computed: {error}") from None


@region
def softmax(x):
    """exp(x - max) / Σ exp(x - max), in single ops; ta.softmax is one op, for speed."""
    e = ta.exp(x - ta.max(x, axis=-1, keepdims=True))
    return e / ta.sum(e, axis=-1, keepdims=True)


def head(X, Wq, Wk, Wv):
    """One attention head: queries, keys and values of X by their projections. (n, d), (d, dk) each -> (n, dk)"""
    X = ta.Tensor(X, name="X")
    Q, K, V = X @ Wq, X @ Wk, X @ Wv  # (n, d) @ (d, dk) -> (n, dk)
    Q.name, K.name, V.name = "Q", "K", "V"
    return ta.scaled_dot_product_attention(Q, K, V)


@ta.no_grad()
def off(f, inputs, i, gradient, h=1e-6):
    """How far a gradient is from central differences of f at input i, as a share of its largest element."""
    numeric = np.empty(gradient.shape)
    for at in np.ndindex(gradient.shape):
        step = np.zeros(gradient.shape)
        step[at] = h
        up, down = (f(*inputs[:i], inputs[i].numpy() + sign * step, *inputs[i + 1 :]).item() for sign in (1, -1))
        numeric[at] = (up - down) / (2 * h)
    return np.abs(numeric - gradient).max() / np.abs(numeric).max()


def main(demo):
    rng = np.random.default_rng(demo.seed)

    value, parameters = parse(demo.expression, rng)
    value.backward(retain_graph=True)
    demo.graph("expression", value, show="gradients", direction="LR", title=demo.expression)
    cells = [(name, f"{t.item():.4g}", f"{t.grad.item():.4g}") for name, t in parameters.items()]
    demo.table(f"{demo.expression} = {value.item():.4g}", ["", "value", "slope"], cells)
    demo.say()

    x = ta.Tensor([2.0, 1.0, -1.0, 3.0], requires_grad=True, name="x")
    demo.graph("softmax", softmax(x), show="values", title="softmax, taken apart")
    demo.claim("softmax of primitives is ta.softmax", np.allclose(softmax(x).numpy(), ta.softmax(x).numpy()))

    X, weights = rng.normal(size=(5, 8)), [rng.normal(size=(8, 4)) for _ in range(3)]
    C = ta.Tensor(rng.normal(size=(5, 4)), name="C")  # the gradient that arrives at the output
    weights = [ta.Tensor(w, requires_grad=True, name=name) for w, name in zip(weights, ("Wq", "Wk", "Wv"))]
    loss_of = lambda *weights: (head(X, *weights) * C).sum()
    loss = loss_of(*weights)
    demo.graph("head", loss, show="shapes", title="one attention head, forward")

    gradients = ta.grad(loss, weights, create_graph=True)
    for g, w in zip(gradients, weights):
        g.name = f"dL/d{w.name}"
    demo.graph("head_backward", gradients, show="shapes", title="the same head, backward: one graph, down to dL/dW")
    worst = max(off(loss_of, weights, i, g.numpy()) for i, g in enumerate(gradients))
    demo.claim(
        f"the drawn gradients are derivatives: finite differences of the loss agree, to {worst:.0e} of the largest",
        worst < 1e-6,
    )
    loss.backward(retain_graph=True)
    demo.claim(
        "and they are those that backward() computes",
        all(np.array_equal(g.numpy(), w.grad.numpy()) for g, w in zip(gradients, weights)),
    )
    Q, K, V = (rng.normal(size=(3, 4)) for _ in range(3))
    demo.claim(
        "a backward pass can be differentiated again: second derivatives agree with finite differences",
        ta.gradgradcheck(ta.scaled_dot_product_attention, [Q, K, V], raise_exception=False),
    )
    demo.measured("the drawn gradients of a head agree with finite differences to {worst:.0e}", worst=worst)


if __name__ == "__main__":
    _demo.run(main, __doc__, expression="tanh(a * b + c) * a")
