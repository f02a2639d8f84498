"""The tests bite: whatever is changed in a derivative or in an optimiser's formula, a check fails.

A mutant is one change to the source of one function: a rule, a pull, a helper that these call, an optimiser's update.
The whole result is negated, doubled, zeroed or transposed; a factor, a term, a sum or a function is left out, a sign
turned, a comparison reversed, an in-place step lost, or assigned where it should accumulate. The engine's own few lines
that add up, sum over copies, and copy are changed by hand, at the end. Every mutant must be killed: a gradient differs
from its finite differences, or a step from the written-out formula, or something raises. What survives is listed with
the reason, and must survive.
"""

import ast
import copy
import functools
import importlib
import inspect
import math
import operator
import textwrap
import types

import numpy as np
import pytest
import test_ops

import tinyattn as ta
from tinyattn import functional, graph, ops, optim
from tinyattn.efficient import linear, tiles

MODULES = ["ops", "einsum", "erf", "functional", "attention", "efficient.tiles", "efficient.linear"]
rng = np.random.default_rng(0)


# --- mutants of an expression or a function -------------------------------------------------------------


def alternatives(node):
    """(what was done, another node in its place; None: the statement is left out)"""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Mult, ast.Div, ast.MatMult, ast.Pow)):
            yield "factor dropped", node.left
        if isinstance(node.op, (ast.Mult, ast.MatMult)):
            yield "factor dropped", node.right
        if isinstance(node.op, (ast.Add, ast.Sub)):
            yield "term dropped", node.left
            yield "term dropped", node.right
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield "sign turned", ast.BinOp(node.left, other, node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield "sign dropped", node.operand
    elif isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        yield "not transposed", node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("sum", "copy"):
            yield f"no {node.func.attr}", node.func.value
        elif node.func.attr in ("exp", "log", "sin", "cos", "sqrt", "square"):
            yield f"no {node.func.attr}", node.args[0]
    elif isinstance(node, ast.AugAssign):
        yield "step lost", None
        if isinstance(node.op, ast.Add) and isinstance(node.target, ast.Subscript):
            yield "assigned, not accumulated", ast.Assign([node.target], node.value)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            turned = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield "sign turned", ast.AugAssign(node.target, turned, node.value)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Lt, ast.Gt)):
        turned = ast.Lt() if isinstance(node.ops[0], ast.Gt) else ast.Gt()
        yield "comparison reversed", ast.Compare(node.left, [turned], node.comparators)


def results(node):
    """The expressions that a lambda or a function returns; of a tuple or list each element."""
    left = (
        [node.body] if isinstance(node, ast.Lambda) else [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
    )
    while left:
        match left.pop():
            case ast.Tuple(parts):
                left += parts
            case ast.ListComp(part) | ast.IfExp(_, part, ast.Constant(None)):
                left.append(part)
            case ast.IfExp(_, one, other):
                left += [one, other]
            case result:
                yield result


def mutants(node):
    """(what was done, the changed copy) for every single change."""
    whole = {id(e): e for e in results(node)}
    for k, part in enumerate(ast.walk(node)):
        changes = list(alternatives(part))
        if id(part) in whole and not isinstance(part, ast.Constant):
            one = lambda op, n, e=part: ast.BinOp(e, op, ast.Constant(n))
            changes += [
                ("negated", one(ast.Mult(), -1)),
                ("doubled", one(ast.Mult(), 2)),
                ("zeroed", one(ast.Mult(), 0)),
            ]
            changes += [("transposed", ast.Attribute(part, "mT", ast.Load()))]
        for what, new in changes:
            twin = copy.deepcopy(node)
            old = list(ast.walk(twin))[k]
            yield f"{what}: {ast.unparse(part)}", Replace(old, copy.deepcopy(new)).visit(twin)


class Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        if node is self.old:
            return ast.Pass() if self.new is None else self.new
        return self.generic_visit(node)


def code_of(node):
    """The code object of a lambda or of a function without its decorators."""
    if isinstance(node, ast.Lambda):
        tree, mode = ast.Expression(node), "eval"
    else:
        node.decorator_list, tree, mode = [], ast.Module([node], []), "exec"
    consts = compile(ast.fix_missing_locations(tree), "mutant", mode, dont_inherit=True, flags=FUTURE).co_consts
    return next(c for c in consts if isinstance(c, types.CodeType))


FUTURE = importlib.import_module("__future__").annotations.compiler_flag


# --- what is mutated, and what is checked ---------------------------------------------------------------


def units():
    """{name: (function, its syntax, the ops that use it)} for every rule, every pull, and what these call."""
    found = {}
    for path in MODULES:
        module = importlib.import_module(f"tinyattn.{path}")
        tree = ast.parse(inspect.getsource(module))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for name, node in functions.items():
            for call in node.decorator_list:
                if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "op"):
                    continue
                record = getattr(module, name).op
                roots = [*call.args, *(k.value for k in call.keywords if k.arg == "pull")]
                for i, (root, rule) in enumerate(zip(call.args, record.rules)):
                    if isinstance(root, ast.Lambda):
                        found[f"{path}.{name}, rule {i}"] = (rule, root, {name})
                for helper in reachable(roots, functions):
                    function = getattr(module, helper)
                    if not hasattr(function, "op") and helper not in LEFT_OUT:
                        found.setdefault(f"{path}.{helper}", (function, functions[helper], set()))[2].add(name)
    return found


# How the tiles are walked is held against plain attention in test_efficient.py; what they read from is no formula.
LEFT_OUT = {"_walk", "_room", "_places", "_norms", "_floating", "_axes", "_is_basic", "_leading"}


def reachable(roots, functions):
    names, left = set(), list(roots)
    while left:
        for part in ast.walk(left.pop()):
            if isinstance(part, ast.Name) and part.id in functions and part.id not in names:
                names.add(part.id)
                if part.id not in LEFT_OUT:
                    left.append(functions[part.id])
    return sorted(names)


def normal(*shape):
    return rng.normal(size=shape)


def check(f, *arrays):
    """A check by finite differences, tighter than the defaults."""
    return functools.partial(ta.gradcheck, f, list(arrays), rtol=1e-5, atol=1e-7)


def twice(f, *arrays):
    return functools.partial(ta.gradgradcheck, f, list(arrays))


ALLOWED, FOUR = rng.random((4, 5)) < 0.6, normal(4, 4, 2)
ROTATED = {"cos": np.cos(normal(5, 2)), "sin": np.sin(normal(5, 2))}
PLAN = tiles.Plan((2, 2), (0, tiles.FAR), edge=1, scale=0.5)


tiled, plain = functools.partial(tiles.tiled, plan=PLAN), functools.partial(tiles._plain, plan=PLAN)


def alike(f, twin, *arrays):
    """A check that f has the values and gradients of its twin."""

    def checked():
        a, b = ([f(*inputs), *ta.grad(f(*inputs), inputs, g)] for f in (f, twin))
        for x, y in zip(a, b):
            np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=0, atol=1e-12)

    inputs = [ta.Tensor(x, requires_grad=True) for x in arrays]
    g = normal(*twin(*inputs).shape)
    return checked


def extremes():
    """Values and gradients at both ends of float32, against float64."""
    for v, g in ((2e38, 1e-20), (-2e38, 1e-20), (1e-36, 1e20), (1.0, 1e-36), (1e20, 1e-30), (1e-25, 1e10)):
        Q, K, V, bias = FOUR[0], FOUR[1], v * np.abs(FOUR[2]).clip(0.5, 1), FOUR[3] @ FOUR[3].T
        x = [ta.Tensor(a.astype(np.float32), requires_grad=True) for a in (Q, K, V, bias)]
        y = [ta.Tensor(t.numpy().astype(float), requires_grad=True) for t in x]
        cotangent = (g * FOUR[0]).astype(np.float32)
        for masks in (3, 4):
            outs = [tiled(*t[:masks]) for t in (x, y)]
            pairs = [outs, *zip(*(ta.grad(out, t[:masks], cotangent) for out, t in zip(outs, (x, y))))]
            for a, b in pairs:
                size = np.abs(b.numpy()).max()
                np.testing.assert_allclose(a.numpy() / size, b.numpy() / size, atol=1e-4)


def sum_of_nothing_but_itself():
    """gradcheck sums its losses up, so a sum that has the wrong sign has it twice there."""
    x, g = ta.Tensor(normal(2, 3), requires_grad=True), normal(3)
    np.testing.assert_array_equal(ta.grad(ta.sum(x, 0), x, g)[0].numpy(), np.stack([g, g]))


def variance_over_n_less_one():
    """What divides forward and back by the same wrong number has the right gradient of a wrong value."""
    np.testing.assert_allclose(ta.var(FOUR, 0, ddof=1).numpy(), np.var(FOUR, 0, ddof=1))


def rows_of_minus_infinity():
    x = ta.Tensor([[-np.inf, -np.inf], [0.0, -np.inf]], requires_grad=True)
    np.testing.assert_array_equal(ta.grad(ta.logsumexp(x, -1), x, [2.0, 3.0])[0].numpy(), [[0, 0], [3, 0]])


CHECKS = {
    "_matmul": [check(ops.matmul, normal(2, 3, 4), normal(2, 4, 5)), check(ops.matmul, normal(2, 3, 4), normal(4, 5))],
    "power": [
        test_ops.test_kinks_and_ties_have_the_chosen_gradient,
        check(lambda x: x ** np.array([0.0, 1.0, 3.0, 3.0]), np.array([0.0, 0.0, 0.0, 2.0])),
        check(lambda x: x**3.0, normal(3)),
        twice(lambda x: x**1.0, normal(3)),
    ],
    "where": [check(lambda x, y: ta.where(ALLOWED, x, y), normal(4, 5), normal(4, 5))],
    "abs": [],
    "_getitem": [check(lambda x: x[1:, ::2], normal(3, 4)), check(lambda x: x[[0, 0, 2], [1, 1, 3]], normal(3, 4))],
    "_scatter": [twice(lambda x: x[[0, 0, 2]] ** 3, normal(3, 4)), twice(lambda x: x[1:, ::2] ** 3, normal(3, 4))],
    "_transpose": [check(lambda x: ta.transpose(x, (2, 0, 1)), normal(2, 3, 4))],
    "_concatenate": [check(lambda x, y: ta.concatenate([x, y], -1), normal(2, 3), normal(2, 4))],
    "_einsum": [
        check(lambda x, y: ta.einsum("bij,jk->ik", x, y), normal(2, 3, 4), normal(4, 5)),
        check(lambda x: ta.einsum("iij->j", x), normal(3, 3, 2)),
        check(lambda x: ta.einsum("ij->i", x), normal(3, 4)),
        check(lambda x, y: ta.einsum("ij,ij->i", x, y), normal(3, 1), normal(3, 4)),
    ],
    "_linear": [check(ta.functional.linear, normal(2, 3, 4), normal(5, 4), normal(5))],
    "_embedding": [check(lambda w: functional.embedding(np.array([[0, 2], [2, 1]]), w), normal(4, 3))],
    "_add_rows": [twice(lambda w: functional.embedding(np.array([0, 2, 2]), w) ** 3, normal(4, 3))],
    "_gelu_tanh": [check(ta.gelu, normal(3, 4) * 2)],
    "_gelu_exact": [check(functools.partial(ta.gelu, approximate="none"), normal(3, 4))],
    "erf": [check(ta.erf, normal(3, 4))],
    "_layer_norm": [alike(ta.layer_norm, functional.layer_norm_composed, normal(2, 3, 4), normal(4), normal(4))],
    "_rms_norm": [check(ta.rms_norm, normal(2, 3, 4), normal(4))],
    "_rotate": [check(lambda x: functional._rotate(x, **ROTATED), normal(5, 4))],
    "_cross_entropy": [
        check(lambda z: 0.7 * ta.cross_entropy(z, np.array([[0, 2, -100], [3, 3, 1]])), normal(2, 3, 4))
    ],
    "_attention": [
        alike(
            functools.partial(ta.fused_attention, mask=ALLOWED),
            functools.partial(ta.scaled_dot_product_attention, mask=ALLOWED),
            *(normal(2, 4, 3), normal(5, 3), normal(2, 5, 2)),
        ),
        check(ta.fused_attention, normal(4, 3), normal(5, 3), normal(5, 2)),
    ],
    "tiled": [
        *(
            alike(tiled, plain, normal(2, 4, 3), normal(5, 3), normal(2, 5, 2), normal(*mask))
            for mask in ((2, 1, 5), (4, 5), (2, 4, 1), (1, 4, 5))
        ),
        alike(tiled, plain, 20 * normal(4, 3), normal(5, 3), normal(5, 2)),
        alike(tiled, plain, normal(1, 3), normal(2, 3), normal(2, 2)),
        extremes,
    ],
    "_prefix_product": [
        check(lambda *x: linear._prefix_product(*x, 1), normal(4, 3), normal(5, 3), normal(5, 2)),
        check(lambda *x: linear._prefix_product(*x, -1), normal(2, 5, 3), normal(4, 3), normal(2, 4, 2)),
    ],
}
for f, (use, arrays) in test_ops.USES.items():
    CHECKS.setdefault(f.__name__, []).insert(0, check(use, *arrays))
for name, f in {**test_ops.REDUCTIONS, "softmax": (ta.softmax,), "log_softmax": (ta.log_softmax,)}.items():
    for axis in (None, 0, (0, 2)) if name in test_ops.REDUCTIONS and name != "prod" else (0,):
        CHECKS.setdefault(name, []).append(check(lambda x, f=f[0], axis=axis: f(x, axis), test_ops.values((2, 3, 4))))
    if name in test_ops.REDUCTIONS and name != "prod":
        CHECKS[name].append(check(lambda x, f=f[0]: f(x, 1, keepdims=True), test_ops.values((2, 3, 4))))
for name in ("max", "min", "maximum", "minimum", "relu", "absolute"):
    CHECKS.setdefault(name, []).append(test_ops.test_kinks_and_ties_have_the_chosen_gradient)
UNITS = units()
CHECKS["sign"] = [check(lambda x: ta.sign(x) * x + x, test_ops.values((3, 4)))]
CHECKS["var"].append(variance_over_n_less_one)
CHECKS["sum"].append(sum_of_nothing_but_itself)
CHECKS["logsumexp"] += [rows_of_minus_infinity, check(lambda x: ta.logsumexp(x + 800, -1) * x, normal(3, 3))]
EQUIVALENT = {  # what survives, and why
    "ops._both_zero": ["negated: (x == 0) & (y == 0)", "doubled: (x == 0) & (y == 0)"],  # only its truth counts
    "ops.sign, rule 0": [f"{what}: np.where(False, g, 0.0)" for what in ("negated", "doubled", "zeroed")],  # it is 0
    "ops._flat": ["negated: x.reshape(math.prod(x.shape[:-1]), x.shape[-1])"],  # it stands on both sides of a product
    "functional._linear, rule 2": ["factor dropped: np.ones(len(_flat(g)), g.dtype) @ _flat(g)"],  # walk sums as well
    "optim._norm": ["doubled: largest"],  # it is 0 or inf
}


def killed(checks):
    with np.errstate(all="ignore"):
        for f in checks:
            try:
                if f() is False:
                    return True
            except Exception:
                return True
    return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", UNITS)
def test_every_mutant_of_a_derivative_is_killed(unit):
    function, node, users = UNITS[unit]
    checks = [f for name in sorted(users) for f in CHECKS[name]]
    assert not killed(checks)
    assert survivors_of(function, node, checks) == EQUIVALENT.get(unit, [])


def survivors_of(function, node, checks):
    """What was done in the mutants that no check kills."""
    right, survivors = function.__code__, []
    for what, mutant in mutants(node):
        try:
            function.__code__ = code_of(mutant)
            if not killed(checks):
                survivors.append(what)
        finally:
            function.__code__ = right
    return survivors


# --- optimisers -----------------------------------------------------------------------------------------


def steps(make, formula):
    """A check of three steps against the formula as the paper has it: formula(x, g, t, memory) -> the new x."""

    def checked():
        x = FOUR[0].copy()
        p, memory = ta.Tensor(x, requires_grad=True), {}
        optimizer = make([p])
        for t, g in enumerate(FOUR[1:], 1):
            p.grad = g.copy()
            optimizer.step()
            x = formula(x, g, t, memory)
            np.testing.assert_allclose(p.numpy(), x, rtol=1e-13)
            np.testing.assert_array_equal(p.grad.numpy(), g)  # it is not the optimiser's to write to

    return checked


def sgd(x, g, t, memory):
    memory["b"] = 0.7 * memory.get("b", 0) + g + 0.2 * x
    return x - 0.3 * memory["b"]


def adam(x, g, t, memory, decay=0.0):
    memory["m"] = 0.8 * memory.get("m", 0) + 0.2 * g
    memory["v"] = 0.9 * memory.get("v", 0) + 0.1 * g**2
    m, v = memory["m"] / (1 - 0.8**t), memory["v"] / (1 - 0.9**t)
    return x - 0.3 * decay * x - 0.3 * m / (np.sqrt(v) + 0.1)


def clipped():
    grads = [np.array([3.0, 0.0]), np.array([[4.0]])]
    for limit, share in ((10.0, 1.0), (2.0, 0.4)):
        params = [ta.Tensor(np.zeros(g.shape), requires_grad=True) for g in grads]
        for p, g in zip(params, grads):
            p.grad = g
        assert ta.optim.clip_grad_norm(params, limit) == 5.0
        for p, g in zip(params, grads):
            np.testing.assert_allclose(p.grad.numpy(), g * share, rtol=1e-6)
    cases = [
        (float, [-3e200, 4e200], 5e200, math.inf),
        (float, [0.0, 0.0], 0.0, 1.0),
        (np.float32, [3e37, 4e37], 5e37, 1e-4),
    ]
    for dtype, g, norm, limit in cases:
        p = ta.Tensor(np.zeros(2, dtype), requires_grad=True)
        p.grad = np.array(g, dtype)
        np.testing.assert_allclose(ta.optim.clip_grad_norm([p], limit), norm, rtol=1e-6)
        np.testing.assert_allclose(p.grad.numpy(), np.array(g) * min(1.0, limit / (norm or 1)), rtol=1e-6)
    p.grad = np.array([1.0, math.inf])
    with pytest.raises(ValueError, match="norm is inf"):
        ta.optim.clip_grad_norm([p], 1.0)


def warmed_up():
    shares = [ta.optim.warmup_cosine(t, 9, warmup=3, final=0.2) for t in range(9)]
    cosine = [0.2 + 0.8 * (1 + math.cos(math.pi * k / 5)) / 2 for k in range(6)]
    np.testing.assert_allclose(shares, [1 / 4, 2 / 4, 3 / 4, *cosine])


FORMULAS = {
    "SGD.update": [steps(lambda p: ta.optim.SGD(p, 0.3, momentum=0.7, weight_decay=0.2), sgd)],
    "Adam.update": [
        steps(lambda p: ta.optim.Adam(p, 0.3, (0.8, 0.9), 0.1), adam),
        steps(lambda p: ta.optim.AdamW(p, 0.3, (0.8, 0.9), 0.1, 0.4), functools.partial(adam, decay=0.4)),
    ],
    "clip_grad_norm": [clipped],
    "_norm": [clipped],
    "warmup_cosine": [warmed_up],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMULAS)
def test_every_mutant_of_an_optimiser_is_killed(name):
    owner, _, method = name.rpartition(".")
    function = getattr(getattr(optim, owner) if owner else optim, method)
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert not killed(FORMULAS[name])
    assert survivors_of(function, node, FORMULAS[name]) == EQUIVALENT.get(f"optim.{name}", [])


# --- the engine -----------------------------------------------------------------------------------------


def leaves(*arrays):
    return [ta.Tensor(x, requires_grad=True) for x in arrays]


def used_twice():
    x, y = leaves(3.0, 5.0)
    out = x * x + x * y + y
    assert [g.item() for g in ta.grad(out, (x, y))] == [11, 4]


def an_array_that_two_inputs_got():
    """The rules of x + y hand the same g to x and to y: adding to one's must not change the other's."""
    x, y = leaves(np.zeros(2), np.zeros(2))
    out = 1 * x + (x + y)
    assert [g.numpy().tolist() for g in ta.grad(out, (x, y), np.ones(2))] == [[2, 2], [1, 1]]


def copies_are_summed():
    x, y, z = leaves(np.zeros((2, 1)), np.zeros(3), np.zeros((2, 3), np.float32))
    dx, dy, dz = ta.grad(x * 2.0 + y + z, (x, y, z), np.arange(6.0).reshape(2, 3))
    assert dx.numpy().tolist() == [[6], [24]] and dy.numpy().tolist() == [3, 5, 7] and dz.dtype == np.float32


def many_small_shares():
    (h,) = leaves(np.ones(1, np.float16))
    assert ta.grad(functools.reduce(operator.add, [h] * 3000), h)[0].numpy() == 3000  # float16 would stop at 2048


def gradients_are_ones_own():
    x, y = leaves(np.zeros(2), np.zeros(2))
    g = np.ones(2)
    every = ta.gradients(x + y, g)
    for dx, dy in (ta.grad(x + y, (x, y), g), (every[x], every[y])):
        (dx.data if isinstance(dx, ta.Tensor) else dx)[0] = 7
        assert np.asarray(dy).tolist() == [1, 1] and g.tolist() == [1, 1]
    (x + y).backward(g)
    x.grad.data[0] = 7
    assert y.grad.numpy().tolist() == [1, 1] and g.tolist() == [1, 1]
    (x + y).backward(g)
    assert x.grad.numpy().tolist() == [8, 2] and y.grad.numpy().tolist() == [2, 2]


ADD = "total[x] = total[x] + (dx.astype(np.float32) if dx.dtype is HALF else dx) if x in total else dx"
ENGINE = [  # function, what it says, what the mutant says, what kills it
    ("walk", ADD, "total[x] = dx", used_twice),
    ("walk", ADD, "total.setdefault(x, dx)", used_twice),
    ("walk", ADD, "total[x] = np.add(total[x], dx, out=total[x]) if x in total else dx", an_array_that_two_inputs_got),
    ("walk", "t = path.pop()", "t = path.pop(0)", used_twice),
    ("unbroadcast", "g.sum(axis=copied, keepdims=True)", "g", copies_are_summed),
    ("unbroadcast", "g.sum(axis=copied, keepdims=True)", "g.mean(axis=copied, keepdims=True)", copies_are_summed),
    ("unbroadcast", "g.sum(axis=copied, keepdims=True)", "g.max(axis=copied, keepdims=True)", copies_are_summed),
    ("unbroadcast", "i < g.ndim - x.ndim or", "", copies_are_summed),
    ("walk", "else g.astype(t._data.dtype)", "else g", copies_are_summed),
    ("walk", "(dx.astype(np.float32) if dx.dtype is HALF else dx)", "dx", many_small_shares),
    ("own", "np.array(g)", "g", gradients_are_ones_own),
    ("gradients", "np.array(g)", "g", gradients_are_ones_own),
    ("own", "before._data + g", "g", gradients_are_ones_own),
]


@pytest.mark.parametrize(("name", "right", "wrong", "check"), ENGINE)
def test_every_mutant_of_the_engine_is_killed(name, right, wrong, check):
    function = operator.attrgetter(name)(graph)
    function = getattr(function, "__func__", function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1
    check()
    code = function.__code__
    try:
        function.__code__ = code_of(ast.parse(source.replace(right, wrong)).body[0])
        assert killed([check])
    finally:
        function.__code__ = code
    check()
