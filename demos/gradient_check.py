"""Can a gradient be trusted? Compare it with finite differences: for attention, and for rules broken on purpose.

(L(x + h) - L(x - h)) / 2h comes close to dL/dx if h is small, but not too small. A large step misses the curvature:
this error is proportional to h². A small step loses digits, because two almost equal numbers are subtracted: this error
is proportional to ε / h. So the curve is a V, lowest near h = ε^(1/3): 6e-6 in float64, 5e-3 in float32. In float32
only four or five digits agree, so ta.gradcheck works in float64. It also says what is wrong with a broken rule.

Practice: step 8 (python -m tinyattn practice).
"""

import textwrap
import warnings

import _demo
import numpy as np

import tinyattn as ta
from tinyattn.calling import op

# --- the V --------------------------------------------------------------------------------------------


def errors(dtype, steps, seed):
    """The largest error of dL/dQ by central differences, for each step; relative to the largest gradient."""
    rng = np.random.default_rng(seed)
    Q, K, V, C = (rng.normal(size=(4, d)).astype(dtype) for d in (3, 3, 5, 5))

    def loss(Q):  # C is random: a plain sum could not see a softmax, because its rows always sum to 1
        return (ta.scaled_dot_product_attention(Q, K, V) * C).sum()

    q = ta.Tensor(Q, requires_grad=True)
    exact = ta.grad(loss(q), q)[0].numpy()
    worst = []
    for h in steps:
        numeric = np.empty(Q.shape)
        for i in np.ndindex(Q.shape):
            up, down = Q.copy(), Q.copy()
            up[i] += h
            down[i] -= h
            numeric[i] = (loss(up).item() - loss(down).item()) / (2 * h)
        worst.append(np.abs(numeric - exact).max() / np.abs(exact).max())
    return np.array(worst)


def slopes(steps, error, epsilon):
    """The exponents of the two arms of the V: for steps of 100 ε^(1/3) and more, up to .1; and for those far below."""
    best = epsilon ** (1 / 3)
    arms = [(steps > 50 * best) & (steps < 0.15), steps < best / 50]
    return [np.polyfit(np.log(steps[arm]), np.log(error[arm]), 1)[0] for arm in arms]


def plot_v(figure, steps, curves):
    axes = figure.subplots()
    for color, (name, (error, epsilon)) in zip((_demo.BLUE, _demo.ORANGE), curves.items()):
        axes.loglog(steps, error, "o-", color=color, ms=4, label=name)
        axes.axvline(epsilon ** (1 / 3), color=color, ls=":", lw=1.2, label=f"ε^(1/3) of {name}")
    h = np.array([1e-4, 1])
    axes.loglog(h, 0.3 * h**2, color=_demo.GREY, ls="--", lw=1.2, label="~ h²")
    h = np.array([1e-12, 1e-7])
    axes.loglog(h, 2e-17 / h, color=_demo.GREY, ls="-.", lw=1.2, label="~ ε / h")
    axes.set(
        title=f"Finite differences of attention, dL/dQ: best {min(e.min() for e, _ in curves.values()):.0e}",
        xlabel="step h",
        ylabel="largest relative error",
        ylim=(1e-13, 10),
    )
    axes.legend(fontsize=8, loc="lower left", ncols=2)


# --- rules broken on purpose --------------------------------------------------------------------------


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


X = np.array([[0.4, -1.2, 2.0], [0.9, 0.0, -0.7], [1.5, -0.3, 0.6]])

BROKEN = [  # an op with its rule, what is wrong with it, and the word by which gradcheck shows it
    ("x²", op(lambda g, out, x: g * x)(lambda x: x * x), "the rule says x, but x² has 2x", "half"),
    ("-x", op(lambda g, out, x: g)(lambda x: -x), "the rule forgets the minus", "sign"),
    ("xᵀ", op(lambda g, out, x: g)(lambda x: x.T.copy()), "the rule does not transpose back", "transpose"),
    ("mean", op(lambda g, out, x: g + 0 * x)(lambda x: x.mean(keepdims=True)), "the rule forgets 1/N", "factor"),
    ("softmax", op(lambda g, out, x: out * g)(softmax), "the rule forgets the mean, p · (g - Σ p · g)", "term by term"),
    (
        "relu",
        op(lambda g, out, x: np.where(x > 0, g, 0.0))(lambda x: np.maximum(x, 0)),
        "the rule is right, but X holds a 0",
        "kink",
    ),
]


def verdict(function, x):
    """What gradcheck says."""
    try:
        ta.gradcheck(function, x)
        return "passes"
    except ta.GradcheckError as error:
        return str(error)


def main(demo):
    demo.heading("The error of a finite difference against its step")
    steps = 10.0 ** -np.arange(0, 13, 1 if demo.quick else 0.25)
    curves = {np.dtype(t).name: (errors(t, steps, demo.seed), np.finfo(t).eps) for t in (np.float64, np.float32)}
    demo.table(
        "attention, dL/dQ: largest relative error",
        ["step h", *curves],
        [
            (f"{h:.0e}", *(f"{error[i]:.0e}" for error, _ in curves.values()))
            for i, h in enumerate(steps)
            if demo.quick or i % 4 == 0
        ],
    )
    demo.say()
    for name, (error, epsilon) in curves.items():
        best = steps[error.argmin()]
        demo.claim(
            f"{name}: best step {best:.0e}, near ε^(1/3) = {epsilon ** (1 / 3):.0e}; error {error.min():.0e}, "
            f"about ε^(2/3) = {epsilon ** (2 / 3):.0e}",
            0.1 < best / epsilon ** (1 / 3) < 10 and 0.003 < error.min() / epsilon ** (2 / 3) < 30,
        )
    large, small = slopes(steps, *curves["float64"])
    demo.claim(
        f"float64, larger steps: the error grows like h to the power of {large:.2f}, as h² says", 1.8 < large < 2.2
    )
    demo.claim(f"smaller steps: like h to the power of {small:.2f}, as ε / h says", -1.4 < small < -0.6)
    demo.plot("v", plot_v, steps, curves, size=(7.5, 4.5))

    demo.heading("The engine's attention, first and second derivatives")
    rng = np.random.default_rng(demo.seed)
    Q, K, V = (rng.normal(size=(4, d)) for d in (3, 3, 5))
    attention = lambda Q, K, V: ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(4))
    demo.claim("gradcheck passes for causal attention", ta.gradcheck(attention, (Q, K, V), raise_exception=False))
    demo.claim("gradgradcheck passes as well", ta.gradgradcheck(attention, (Q, K, V), raise_exception=False))

    demo.heading("Rules broken on purpose, and what gradcheck says")
    hints = []
    for name, function, fault, hint in BROKEN:
        message = verdict(function, X)
        hints.append(hint in message)
        demo.say(f"\n{name}: {fault}\n{textwrap.fill(message, 80, initial_indent='    ', subsequent_indent='    ')}")
    demo.say()
    demo.claim("each is caught, and its message points to the fault", all(hints))

    demo.heading("Why the outputs are weighed with random numbers")
    broken = op(lambda g, out, x: 0 * g)(softmax)  # as wrong as can be
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gradcheck warns that this proves nothing
        blind = ta.gradcheck(lambda x: broken(x).sum(axis=-1), X, raise_exception=False)
    demo.claim("a softmax whose rule is 0 passes where its rows are summed up: the sum is 1 whatever x is", blind)
    demo.claim("and fails with random weights", verdict(broken, X) != "passes")
    demo.measured(
        "float64: best step {step:.0e}, error {error:.0e}; float32: {step32:.0e} and {error32:.0e}; arms of the V: "
        "powers {large:.1f} and {small:.1f}; five broken rules and a kink named",
        step=steps[curves["float64"][0].argmin()],
        error=curves["float64"][0].min(),
        step32=steps[curves["float32"][0].argmin()],
        error32=curves["float32"][0].min(),
        large=large,
        small=small,
    )


if __name__ == "__main__":
    _demo.run(main, __doc__)
