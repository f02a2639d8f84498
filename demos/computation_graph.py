"""Draw your own computation: an expression, a softmax, an attention head, and the head's backward pass as a graph.

A computation leaves a graph behind: which operation made each number, and from what. backward() walks that graph in
reverse; and as the gradient rules are made of the same operations, the walk back is a computation as well, with a
graph of its own (create_graph=True), that can be drawn, or differentiated once more.

    python demos/computation_graph.py --expression "tanh(a * b + c) ** 2"

draws yours: the functions are those of tinyattn, every other name is a parameter with a random value.
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
    """exp(x - max) / Σ exp(x - max), of primitives: ta.softmax is one op, for speed."""
    e = ta.exp(x - ta.max(x, axis=-1, keepdims=True))
    return e / ta.sum(e, axis=-1, keepdims=True)


def head(rng, n=5, d=8, dk=4):
    """One attention head: queries, keys and values of X by their projections."""
    parameter = lambda name, *shape: ta.Tensor(rng.normal(size=shape), requires_grad=True, name=name)
    X = ta.Tensor(rng.normal(size=(n, d)), name="X")
    Wq, Wk, Wv = (parameter(name, d, dk) for name in ("Wq", "Wk", "Wv"))
    Q, K, V = X @ Wq, X @ Wk, X @ Wv  # (n, d) @ (d, dk) -> (n, dk)
    Q.name, K.name, V.name = "Q", "K", "V"
    return ta.scaled_dot_product_attention(Q, K, V), (Wq, Wk, Wv)  # (n, dk)


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

    out, weights = head(rng)
    loss = (out * ta.Tensor(rng.normal(size=out.shape), name="C")).sum()  # C: the gradient that arrives at out
    demo.graph("head", loss, show="shapes", title="one attention head, forward")

    gradients = ta.grad(loss, weights, create_graph=True)
    for g, w in zip(gradients, weights):
        g.name = f"dL/d{w.name}"
    demo.graph("head_backward", gradients, show="shapes", title="the same head, backward: one graph, down to dL/dW")
    loss.backward(retain_graph=True)
    demo.claim(
        "the drawn gradients are those that backward() computes",
        all(np.allclose(g.numpy(), w.grad.numpy()) for g, w in zip(gradients, weights)),
    )
    Q, K, V = (rng.normal(size=(3, 4)) for _ in range(3))
    demo.claim(
        "a backward pass can be differentiated again: second derivatives agree with finite differences",
        ta.gradgradcheck(ta.scaled_dot_product_attention, [Q, K, V], raise_exception=False),
    )


if __name__ == "__main__":
    _demo.run(main, __doc__, expression="tanh(a * b + c) * a")
