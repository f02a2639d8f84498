"""The inputs on which programs are compared. Small ones come first: the first that fails is shown.

Groups, in the order in which the diagnosis reads them:
    plain      no mask, ordinary numbers: which formula is it?
    masked     the same with boolean masks
    batch      both again with leading axes (a bonus)
    large      scores up to ±1e5              fill       allowed scores lower than a careless fill
    dominated  a forbidden score of 1e5       finite     allowed scores below any finite fill
    empty      a row that may attend to nothing
    the rest   pairs of calls whose answers are related, read by name in diagnose.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .reference import Affine, Array, causal_mask

KINDS = {  # what is checked, by name, and the names of its arguments
    "scaled_dot_product_attention": ("Q", "K", "V", "mask"),
    "causal_mask": ("n",),
    "multi_head_attention": ("X", "Wq", "Wk", "Wv", "Wo", "num_heads", "mask"),
    "cross_attention": ("X", "context", "Wq", "Wk", "Wv"),
    "scaled_dot_product_attention_backward": ("dO", "Q", "K", "V", "mask"),
}
BATCHED = {  # how many of them, from the first, would carry a batch axis
    "scaled_dot_product_attention": 3,
    "causal_mask": 0,
    "multi_head_attention": 1,
    "cross_attention": 2,
    "scaled_dot_product_attention_backward": 4,
}


@dataclass(frozen=True, eq=False)
class Probe:
    """One call of the learner's function."""

    name: str
    group: str
    args: tuple[Any, ...]
    read_only: bool = False
    before: tuple[Any, ...] = ()  # a call that comes first, of the same instance

    @property
    def masked(self) -> bool:
        return self.name.startswith("mask")

    @property
    def size(self) -> int:
        return sum(np.size(a) for a in self.args)


def irregular(rng: np.random.Generator, n: int, m: int) -> Array:
    """A mask with no pattern, in which every row and every column has something allowed and forbidden."""
    while True:
        mask = rng.random((n, m)) < 0.55
        if all(mask.any(axis).all() and not mask.all(axis).any() for axis in (0, 1)):
            return mask


def _attention(rng: np.random.Generator) -> Iterator[Probe]:
    def qkv(n: int, m: int, dk: int, dv: int, *batch: int) -> tuple[Array, Array, Array]:
        return (rng.normal(size=(*batch, n, dk)), rng.normal(size=(*batch, m, dk)), rng.normal(size=(*batch, m, dv)))

    Q = np.array([[2.0, 0, 1, 1], [0, 2, -1, 1], [1, -1, 2, 2]])
    K = np.array([[1.0, 0, 2, 1], [0, 3, 1, -2], [2, 1, 0, 1]])
    yield Probe("2 × 3, V = I, so the output is the weights", "plain", (Q[:2], K, np.eye(3)))
    yield Probe("3 × 3, V = I, so the output is the weights", "plain", (Q, K, np.eye(3)))
    args = (Q[:2], K, np.eye(3), np.array([[1, 0, 1], [1, 1, 0]], dtype=bool))
    yield Probe("mask with holes, V = I, so the output is the weights", "masked", args)
    args = (Q, K, np.eye(3), causal_mask(3))
    yield Probe("mask, causal, V = I, so the output is the weights", "masked", args)
    for name, shape in {
        "one query": (1, 4, 3, 2),
        "one key": (4, 1, 3, 2),
        "values of width 1": (3, 5, 2, 1),
        "keys of width 1": (3, 4, 1, 2),
        "more keys": (5, 7, 3, 4),
        "the same sizes again": (5, 7, 3, 4),
        "more queries": (7, 5, 2, 3),
        "as many keys as queries": (5, 5, 3, 4),
        "dv = dk": (5, 7, 4, 4),
        "all sizes equal": (4, 4, 4, 4),
        "dk = 64": (3, 5, 64, 2),
        "long": (67, 131, 5, 3),
    }.items():
        yield Probe(name, "plain", qkv(*shape))
    Q, K, V = qkv(5, 7, 3, 4)
    yield Probe("small values", "plain", (Q, K, 1e-5 * V))
    yield Probe("one sharp and one flat row", "plain", (Q * np.array([[9.0], [1], [1], [1], [0]]), K, V))
    yield Probe("arrays in column order", "plain", tuple(np.asfortranarray(a) for a in (Q, K, V)))

    Q, K, V = qkv(5, 5, 3, 4)
    holes = irregular(rng, 5, 5), irregular(rng, 5, 5)
    yield Probe("mask, square, not causal", "masked", (Q, K, V, holes[0]))
    yield Probe("mask, square, another one", "masked", (Q, K, V, holes[1]))
    yield Probe("mask, causal", "masked", (*qkv(6, 6, 3, 4), causal_mask(6)))
    yield Probe("mask, n ≠ m", "masked", (*qkv(5, 7, 3, 4), irregular(rng, 5, 7)))
    yield Probe("mask, more queries", "masked", (*qkv(7, 5, 4, 4), irregular(rng, 7, 5)))
    yield Probe("mask, causal with a past", "masked", (*qkv(3, 7, 3, 2), np.tri(3, 7, 4, dtype=bool)))
    yield Probe("mask, all allowed", "masked", (*qkv(3, 5, 3, 2), np.ones((3, 5), dtype=bool)))
    yield Probe("mask, long", "masked", (*qkv(67, 131, 5, 3), irregular(rng, 67, 131)))

    yield Probe("batch", "batch", qkv(5, 7, 3, 4, 2))
    yield Probe("batch, square", "batch", qkv(5, 5, 3, 4, 2))
    yield Probe("batch and heads", "batch", qkv(5, 7, 3, 4, 2, 3))
    yield Probe("mask over a batch", "batch", (*qkv(5, 7, 3, 4, 2), irregular(rng, 5, 7)))
    per_entry = np.stack([irregular(rng, 5, 7), irregular(rng, 5, 7)])[:, None]
    yield Probe("mask per batch entry", "per-entry", (*qkv(5, 7, 3, 4, 2, 2), per_entry))

    one = np.array([[1.0, 0], [0, 1]])
    yield Probe("scores of 1414", "large", (np.array([[2000.0, 0]]), one, np.array([[1.0], [2]])))
    Q, K, V = qkv(5, 7, 3, 4)
    Q, K = np.round(2 * Q) + 0.5, np.round(2 * K) + np.arange(7)[:, None]
    yield Probe("logits × 3600", "large", (3600 * Q, K, V))
    yield Probe("scores of −100000", "large", (np.full((2, 1), -1e5), np.array([[1.0], [0.5]]), one))
    rows = np.array([[1.0], [-1], [0]]), np.array([[0.25], [1], [0.5]])
    yield Probe("rows far apart", "large", (1e5 * rows[0], rows[1], np.eye(3)))
    low = np.zeros((3, 3))
    low[0, 0] = low[1, 1] = low[2, 2] = low[1, 0] = low[2, 0] = 1.0
    eye = np.eye(3)
    for depth in (5e4, 1e5):  # dk = 4, so that √dk = 2 is exact
        Q = np.pad(-2 * depth * low, ((0, 0), (0, 1)))
        args = Q, np.pad(eye, ((0, 0), (0, 1))), eye, causal_mask(3)
        yield Probe(f"mask, allowed scores of −{depth:.0f}", "fill", args)
    first = np.array([[1.0, 0, 0, 0]])
    Q, K = np.array([[2e5], [0]]) * first, np.array([[0.0], [0], [1]]) * first
    args = Q, K, eye, np.array([[1, 1, 0], [0, 1, 0]], dtype=bool)
    yield Probe("mask, a forbidden score of 100000", "dominated", args)
    Q, K = np.array([[-1e17], [-1e17]]) * first, np.array([[2e16], [2e16], [0]]) * first
    args = Q, K, eye, np.array([[1, 1, 0], [1, 0, 0]], dtype=bool)
    yield Probe("mask, allowed scores of −1e33", "finite", args)
    Q, K, V = qkv(3, 4, 3, 2)
    empty = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]], dtype=bool)
    yield Probe("mask with an empty row", "empty", (Q, K, V, empty))

    holes4 = irregular(rng, 3, 4)
    yield Probe("float mask", "float-mask", (Q, K, V, np.where(holes4, 0.0, -np.inf)))
    yield Probe("its boolean twin", "float-twin", (Q, K, V, holes4))
    yield Probe("float32", "float32", tuple(a.astype(np.float32) for a in (Q, K, V)))
    yield Probe("base", "pair", (Q, K, V))
    yield Probe("V = 1", "pair", (Q, K, np.ones_like(V)))
    yield Probe("keys permuted", "pair", (Q, K[[2, 0, 3, 1]], V[[2, 0, 3, 1]]))
    yield Probe("queries permuted", "pair", (Q[[2, 0, 1]], K, V))
    yield Probe("scores shifted", "pair", (Q, K + np.array([1.0, -2.0, 0.5]), V))
    yield Probe("Q changed", "pair", (Q[::-1] + 1.0, K, V))
    yield Probe("K changed", "pair", (Q, K[::-1] + 0.5 * V[:, :1], V))
    yield Probe("V changed", "pair", (Q, K, V[::-1]))
    yield Probe("masked base", "pair", (Q, K, V, holes4))
    changed = np.where(holes4[0][:, None], 0.0, 3.0)
    yield Probe("what row 0 may not see changed", "pair", (Q, K + changed, V - changed, holes4))
    yield Probe("causal base", "pair", (Q, K[:3], V[:3], causal_mask(3)))
    future = np.array([[0.0], [0], [5]])
    yield Probe("the future changed", "pair", (Q, K[:3] + future, V[:3] - future, causal_mask(3)))
    for dk in (4, 64):
        q = np.full((1, dk), 0.5)
        keys = np.stack([np.full(dk, 1.0 / np.sqrt(dk)), np.zeros(dk)])
        yield Probe(f"scale at dk = {dk}", "pair", (q, keys, np.eye(2)))


def _backward(rng: np.random.Generator) -> Iterator[Probe]:
    """The probes of the forward pass with a gradient that arrives, dO, in front."""
    groups = ("plain", "masked", "batch", "large", "float32")
    for probe in _attention(rng):
        if probe.group in groups and probe.name != "logits × 3600":
            Q, _, V, *_ = probe.args
            dO = rng.normal(size=(*Q.shape[:-1], V.shape[-1])).astype(Q.dtype)
            yield Probe(probe.name.split(", so")[0], probe.group, (dO, *probe.args))
    Q, K, V, dO = (rng.normal(size=s) for s in ((2, 5, 3), (7, 3), (7, 4), (2, 5, 4)))
    yield Probe("K and V shared by a batch", "broadcast", (dO, Q, K, V))
    yield Probe("base", "pair", (dO[0], Q[0], K, V))


def _multi_head(rng: np.random.Generator) -> Iterator[Probe]:
    def inputs(n: int, d_model: int, num_heads: int, *batch: int) -> tuple[Any, ...]:
        weights = (rng.normal(size=(d_model, d_model)) / np.sqrt(d_model) for _ in range(4))
        return (1.5 * rng.normal(size=(*batch, n, d_model)), *weights, num_heads)

    X = np.array([[1.0, 0, 2, 1], [0, 2, -1, 1], [2, 1, 0, -1]])
    mixed = 2 * np.eye(4), np.eye(4)[::-1], np.eye(4), np.array([[1.0, 0, 0, 1], [0, 1, 1, 0]] * 2)
    yield Probe("3 tokens, 2 heads", "plain", (X, *mixed, 2))
    for name, shape in {
        "one token": (1, 6, 2),
        "5 tokens, 2 heads": (5, 6, 2),
        "5 tokens, 3 heads": (5, 6, 3),
        "one head": (5, 6, 1),
        "heads of width 1": (5, 3, 3),
        "7 tokens, 4 heads": (7, 12, 4),
        "long": (67, 8, 4),
    }.items():
        yield Probe(name, "plain", inputs(*shape))
    yield Probe("mask, causal, 3 tokens", "masked", (X, *mixed, 2, causal_mask(3)))
    square = inputs(5, 6, 2)
    yield Probe("mask, not causal", "masked", (*square, irregular(rng, 5, 5)))
    yield Probe("mask, another one", "masked", (*square, irregular(rng, 5, 5)))
    yield Probe("mask, causal", "masked", (*inputs(7, 6, 3), causal_mask(7)))
    yield Probe("mask, one head", "masked", (*inputs(5, 6, 1), irregular(rng, 5, 5)))
    yield Probe("mask, all allowed", "masked", (*inputs(4, 6, 2), np.ones((4, 4), dtype=bool)))
    yield Probe("batch", "batch", inputs(5, 6, 3, 2))
    yield Probe("batch of 3", "batch", inputs(4, 6, 2, 3))
    yield Probe("two leading axes", "batch", inputs(5, 6, 3, 2, 4))
    yield Probe("mask over a batch", "batch", (*inputs(5, 6, 3, 2), irregular(rng, 5, 5)))
    per_entry = np.stack([irregular(rng, 5, 5), irregular(rng, 5, 5)])[:, None]
    yield Probe("mask per batch entry", "per-entry", (*inputs(5, 6, 2, 2), per_entry))
    X, *rest = inputs(5, 6, 2)
    yield Probe("large scores", "large", (100 * X, *rest))
    first, eye = np.vstack([np.ones(4), np.zeros((2, 4))]), np.eye(4)
    for depth in (5e4, 1e5):
        args = first, -depth / np.sqrt(2) * eye, eye, eye, eye, 2, causal_mask(3)
        yield Probe(f"mask, allowed scores of −{depth:.0f}", "fill", args)
    X, *rest = inputs(4, 6, 2)
    hole = causal_mask(4)
    hole[1] = False
    yield Probe("mask with an empty row", "empty", (X, *rest, hole))
    yield Probe("float mask", "float-mask", (X, *rest, np.where(causal_mask(4), 0.0, -np.inf)))
    yield Probe("its boolean twin", "float-twin", (X, *rest, causal_mask(4)))
    X32, *rest32 = (a.astype(np.float32) for a in (X, *rest[:-1]))
    yield Probe("float32", "float32", (X32, *rest32, 2))
    yield Probe("4 heads for d_model = 6", "divides", (X, *rest[:-1], 4))
    yield Probe("base", "pair", (X, *rest))
    yield Probe("queries permuted", "pair", (X[[2, 0, 3, 1]], *rest))
    yield Probe("causal base", "pair", (X, *rest, causal_mask(4)))
    yield Probe("the future changed", "pair", (X + np.array([[0], [0], [0], [2]]), *rest, causal_mask(4)))


def _cross(rng: np.random.Generator) -> Iterator[Probe]:
    def inputs(n: int, m: int, d: int, dc: int, dk: int, dv: int, *batch: int) -> tuple[Array, ...]:
        X, C = rng.normal(size=(*batch, n, d)), rng.normal(size=(*batch, m, dc))
        return X, C, rng.normal(size=(d, dk)), rng.normal(size=(dc, dk)), rng.normal(size=(dc, dv))

    X, C = np.array([[1.0, 0], [0, 1]]), np.array([[2.0, 1], [0, -1], [1, 1]])
    yield Probe("2 tokens, 3 of context", "plain", (X, C, 2 * np.eye(2), np.eye(2)[::-1], np.eye(2)))
    for name, shape in {
        "one token": (1, 4, 3, 3, 4, 2),
        "one of context": (4, 1, 3, 3, 2, 5),
        "more context": (5, 7, 3, 3, 4, 2),
        "the same sizes again": (5, 7, 3, 3, 4, 2),
        "less context": (7, 5, 3, 3, 2, 4),
        "as long as the context": (5, 5, 3, 3, 4, 2),
        "all sizes equal": (4, 4, 4, 4, 4, 4),
        "a context of another width": (5, 7, 3, 6, 4, 2),
        "long": (67, 131, 5, 5, 3, 4),
    }.items():
        yield Probe(name, "plain", inputs(*shape))
    yield Probe("batch", "batch", inputs(5, 7, 3, 3, 4, 2, 2))
    yield Probe("two leading axes", "batch", inputs(5, 7, 3, 3, 4, 2, 2, 3))
    X, C, *rest = inputs(3, 4, 3, 3, 4, 2)
    yield Probe("large scores", "large", (100 * X, 100 * C, *rest))
    yield Probe("float32", "float32", tuple(a.astype(np.float32) for a in (X, C, *rest)))
    yield Probe("base", "pair", (X, C, *rest))
    yield Probe("queries permuted", "pair", (X[[2, 0, 1]], C, *rest))
    yield Probe("keys permuted", "pair", (X, C[[2, 0, 3, 1]], *rest))


_MAKERS = {
    "scaled_dot_product_attention": _attention,
    "multi_head_attention": _multi_head,
    "cross_attention": _cross,
    "scaled_dot_product_attention_backward": _backward,
}


def probes(kind: str) -> list[Probe]:
    """Every call that is made of a function, in order; the base once more at the end, and read-only."""
    if kind == "causal_mask":
        return [Probe(f"n = {n}", "plain", (n,)) for n in (3, 1, 2, 4, 5, 17)]
    if kind not in _MAKERS:
        return within(kind, Limits(heads=True, shared=True, output=True, width="d = h·dk", square=True))
    made = list(_MAKERS[kind](np.random.default_rng(2017)))
    base = next(p for p in made if p.name == "base")
    made.append(Probe("base, once more", "again", base.args))
    made.append(Probe("read-only arrays", "read-only", base.args, read_only=True))
    masked = [p for p in made if p.name == "its boolean twin"]
    return made + [Probe("read-only arrays and mask", "read-only", p.args, read_only=True) for p in masked]


# ---- the inputs for a program of a form that was read off it --------------------------------------------------

ARGUMENTS = KINDS | {
    "softmax": ("x",),
    "attention_layer": ("X", "Xk", "Xv", "Wq", "Wk", "Wv", "Wo", "num_heads", "num_kv_heads", "mask"),
    "self_attention_backward": ("dO", "X", "Wq", "Wk", "Wv"),
}


@dataclass(frozen=True)
class Limits:
    """What a form can take: it decides which probes are made and kept."""

    mask: bool = True
    key_mask: bool = False  # the mask may only differ by key
    lengths: bool = False  # the mask is told by the number of keys that stay
    square: bool = False  # as many keys as queries
    equal: bool = False  # values as wide as keys
    lead: tuple[int, ...] = (0, 1, 2)  # numbers of leading axes
    lift: int = 0  # leading axes that a 2-D probe gets
    heads: bool = False
    shared: bool = False  # key/value heads of their own number
    single: bool = False  # one key/value head for all
    output: bool = False  # an output projection
    width: str = "free"  # of a layer: "free", "dk = dv", "d = h·dk"
    biases: str = ""  # which of q, k, v and o have a bias
    weights: bool = True  # of a layer; without any, queries, keys and values are the inputs themselves
    sources: int = 1  # of a layer: X alone, X and a context, or queries, keys and values of their own
    vector: bool = False  # a softmax of one vector
    sizes: tuple[int, ...] = ()  # the only sizes there are (a script's)
    causal: bool = False
    longest: int = 1 << 30

    def takes(self, probe: Probe, arrays: int) -> bool:
        """Whether a probe of scaled_dot_product_attention (or its backward) is within the limits."""
        *given, last = [a for a in probe.args if isinstance(a, np.ndarray)][:arrays]
        Q, K, V = (*given, last)[-3:]
        lead = max(Q.ndim - 2, 0) or self.lift
        mask = probe.args[arrays] if len(probe.args) > arrays else None
        return (
            (mask is None or (self.mask and (not self.key_mask or bool((mask == mask[..., :1, :]).all()))))
            and (not self.square or Q.shape[-2] == K.shape[-2])
            and (not self.equal or Q.shape[-1] == V.shape[-1])
            and lead in self.lead
            and max(Q.shape[-2], K.shape[-2]) <= self.longest
            and (not self.sizes or (Q.shape[-2], K.shape[-2], Q.shape[-1], V.shape[-1]) == self.sizes)
        )


def within(kind: str, limits: Limits) -> list[Probe]:
    """The probes of a kind for a program of this form."""
    plain, rng = kind.partition("/")[0], np.random.default_rng(1706)
    if plain == "causal_mask":
        return [Probe(f"n = {n}", "plain", (n,)) for n in (3, 1, 2, 4, 5, 17)]
    if plain == "softmax":
        made = list(_softmax(rng, limits))
    elif plain == "attention_layer":
        made = list(_layer(rng, limits))
    elif plain == "self_attention_backward":
        made = list(_self_backward(rng, limits))
    else:
        backward = plain.endswith("backward")
        made = list(_MAKERS[plain](rng)) + list(_squares(rng, limits, backward))
        if plain == "scaled_dot_product_attention":
            Q, K = 1.5 * rng.normal(size=(4, 6)), rng.normal(size=(23, 6))
            made.append(Probe("23 keys, V = I, so the output is the weights", "plain", (Q, K, np.eye(23))))
            steep = np.linspace(-1, 1, 23)[:, None]
            made.append(Probe("rows far apart, 23 keys", "large", (1e5 * np.array([[1.0], [-1]]), steep, np.eye(23))))
        if limits.mask and limits.key_mask:
            made += _key_masks(rng, limits, backward)
        if limits.causal:
            made = [p for p in made if p.group != "pair" or p.name in ("base", "causal base", "the future changed")]
        made = [p for p in made if limits.takes(p, 3 + backward)]
    base = next((p for p in made if p.name == "base"), next((p for p in made if p.group == "plain"), None))
    if base is None:
        return made
    if base.name != "base":
        base = Probe("base", "pair", base.args)
        made.append(base)
    made.append(Probe("base, once more", "again", base.args, before=base.args))
    if not limits.sizes and plain != "softmax":
        made.append(Probe("another length, after the first", "again", _longer(plain, base.args), before=base.args))
    made.append(Probe("read-only arrays", "read-only", base.args, read_only=True))
    masked = [p for p in made if p.name == "its boolean twin"]
    return made + [Probe("read-only arrays and mask", "read-only", p.args, read_only=True) for p in masked]


def _key_masks(rng: np.random.Generator, limits: Limits, backward: bool) -> Iterator[Probe]:
    """Masks that are the same for every query; the first key stays, so that a causal row keeps one."""
    for n, m in ((2, 3), (5, 5), (5, 7), (6, 6), (7, 5)):
        Q, K, V = (rng.normal(size=s) for s in ((n, 4), (m, 4), (m, 4)))
        keys = np.arange(m)
        two = (keys < m - 1, keys < 2) if limits.lengths else (keys % 3 != 1, keys % 3 != 2)
        for name, which in zip(("", ", another one"), two):
            dO = (rng.normal(size=(n, 4)),) * backward
            mask = np.broadcast_to(which, (n, m)).copy()
            yield Probe(f"mask by key, {n} × {m}{name}", "masked", (*dO, Q, K, V, mask))


def _longer(kind: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same call with two more positions."""
    count = {"attention_layer": 3, "self_attention_backward": 2}.get(kind, len(args))
    grown = {id(a): np.concatenate([a, 0.5 - a[..., :2, :]], axis=-2) for a in args[:count]}
    return (*(grown[id(a)] for a in args[:count]), *args[count:])


def _squares(rng: np.random.Generator, limits: Limits, backward: bool) -> Iterator[Probe]:
    """More inputs with n = m, and of a script's sizes; scores that a causal mask has to keep out."""
    sizes = [(6, 6, 3, 4), (7, 7, 2, 5), (3, 3, 5, 5), (9, 9, 16, 16), (2, 2, 4, 3)]
    for n, m, dk, dv in [limits.sizes] * 4 if limits.sizes else sizes if limits.square or limits.causal else []:
        Q, K, V = (rng.normal(size=s) for s in ((n, dk), (m, dk), (m, dv)))
        dO = (rng.normal(size=(n, dv)),) * backward
        yield Probe(f"{n} × {m}, widths {dk} and {dv}", "plain", (*dO, Q, K, V))
    if backward:
        return
    for n, m, dk, dv in [limits.sizes] if limits.sizes else [(5, 5, 3, 4), (4, 4, 4, 4)]:
        Q, K, V = (rng.normal(size=s) for s in ((n, dk), (m, dk), (m, dv)))
        yield Probe("logits × 3600, square", "large", (3600 * np.round(2 * Q + 0.3), np.round(2 * K) + 0.5, V))
        rows = np.zeros((n, dk))
        rows[:, 0] = np.linspace(1, -1, n)
        keys = np.zeros((m, dk))
        keys[:, 0] = 1 + np.arange(m) % 3 / 4
        yield Probe("rows far apart, square", "large", (1e5 * rows, keys, V))
        if limits.causal:
            late = np.zeros((m, dk))
            late[:, 0] = np.arange(m) * 30.0 * np.sqrt(dk)
            yield Probe("later keys score higher", "plain", (np.eye(n, dk, dtype=float) * 0 + np.eye(1, dk), late, V))


def _softmax(rng: np.random.Generator, limits: Limits) -> Iterator[Probe]:
    def rows(*shape: int) -> Array:
        return rng.normal(size=shape[-1:] if limits.vector else shape)

    small = np.array([[1.0, 2, 3], [0, 0, 1]])
    yield Probe("2 × 3", "plain", (small[0] if limits.vector else small,))
    for shape in ((3, 5), (5, 3), (4, 4), (1, 6), (6, 1), (3, 4)):
        yield Probe(f"{shape[0]} × {shape[1]}", "plain", (2 * rows(*shape),))
    if not limits.vector:
        for shape3 in ((2, 3, 5), (2, 3, 4, 5)):
            if len(shape3) - 2 in limits.lead:
                yield Probe(" × ".join(map(str, shape3)), "batch", (rows(*shape3),))
    for name, low, high in (("scores of 1000", 1000.0, 1001.0), ("scores of −100000", -1e5, -1e5 + 2)):
        numbers = np.linspace(low, high, 8).reshape(2, 4)
        yield Probe(name, "large", (numbers[0] if limits.vector else numbers,))
    steep = 1e5 * np.stack([np.linspace(-1, 1, 23), np.linspace(1, -1, 23)])
    yield Probe("scores up to ±100000, 23 of them", "large", (steep[1] if limits.vector else steep,))
    far = np.array([[1e5, 1e5 - 1, 0], [0, 1, 2], [-1e5, -1e5, -1e5 - 1]])
    yield Probe("scores up to ±100000", "large", (far[0] if limits.vector else far,))
    if not limits.vector:
        yield Probe("base", "pair", (rows(4, 3),))


def _layer(rng: np.random.Generator, limits: Limits) -> Iterator[Probe]:
    def inputs(n: int, m: int, heads: int, dk: int, *batch: int, scale: float = 1.5) -> tuple[Any, ...]:
        shared = 1 if limits.single else max(1, heads // 2) if limits.shared else heads
        if limits.sizes:
            n, m, d, dk, dv, heads, out = limits.sizes
            shared, batch = heads, ()
        else:
            dv, out = dk if limits.width != "free" else dk + 1, 0
            d = heads * dk if limits.width == "d = h·dk" else heads * dk + 3
            out = d if limits.width == "d = h·dk" else d + 1
        X = scale * rng.normal(size=(*batch, n, d))
        m = n if limits.square else m
        Xk = X if limits.sources == 1 else scale * rng.normal(size=(*batch, m, d))
        Xv = Xk if limits.sources < 3 else scale * rng.normal(size=(*batch, m, d))

        def weight(name: str, rows: int, columns: int) -> Any:
            if not limits.weights:
                return np.eye(rows)
            W = rng.normal(size=(rows, columns)) / np.sqrt(rows)
            return Affine(W, rng.normal(size=columns)) if name in limits.biases else W

        Wq, Wk, Wv = weight("q", d, heads * dk), weight("k", d, shared * dk), weight("v", d, shared * dv)
        Wo = weight("o", heads * dv, out) if limits.output else np.eye(heads * dv)
        return X, Xk, Xv, Wq, Wk, Wv, Wo, heads, shared

    many = (2, 3, 4) if limits.heads else (1, 1, 1)
    if limits.shared:
        many = (2, 4, 4)
    m = 4
    yield Probe("3 tokens", "plain", inputs(3, m, many[0], 2))
    for name, shape in {
        "one token": (1, 4, many[0], 3),
        "5 tokens": (5, 7, many[0], 3),
        "the same sizes again": (5, 7, many[0], 3),
        "5 tokens, more heads": (5, 7, many[1], 2),
        "6 tokens": (6, 6, many[0], 3),
        "7 tokens, 4 heads": (7, 5, many[2], 3),
        "4 tokens, width 4": (4, 4, many[0], 4),
        "wide": (5, 7, many[1], 16),
        "long": (41, 53, many[0], 3),
    }.items():
        yield Probe(name, "plain", inputs(*shape))

    def holes(n: int, m: int) -> Array:
        mask = irregular(rng, n, m)
        mask = np.broadcast_to(np.arange(m) < m - 1, (n, m)) if limits.lengths else mask
        return np.broadcast_to(mask[:1], (n, m)).copy() if limits.key_mask else mask

    if limits.mask:
        for name, shape in {
            "mask, 3 tokens": (3, m, many[0], 2),
            "mask, not causal": (5, 7, many[0], 3),
            "mask, another one": (5, 7, many[0], 3),
            "mask, more heads": (6, 5, many[1], 3),
        }.items():
            args = inputs(*shape)
            yield Probe(name, "masked", (*args, holes(*(a.shape[-2] for a in args[:2]))))
        if not limits.key_mask and not limits.causal:
            args = inputs(7, 7, many[1], 2)
            yield Probe("mask, causal", "masked", (*args, causal_mask(7)))
            args = inputs(3, 3, many[0], 2, scale=60.0)
            yield Probe("mask, a strict fill is due", "masked", (*args, causal_mask(3)))
    for name, batch in (("batch", (2,)), ("batch of 3", (3,)), ("two leading axes", (2, 4))):
        if len(batch) in limits.lead:
            yield Probe(name, "batch", inputs(5, 7, many[1], 2, *batch))
    for factor in (100.0, 400.0):
        yield Probe(f"large scores, inputs × {factor:.0f}", "large", inputs(5, 7, many[0], 3, scale=factor))
    if limits.causal:
        X, Xk, Xv, *rest = inputs(4, 4, many[0], 3)
        grow = np.arange(1, 1 + Xk.shape[-2])[:, None] ** 2
        larger = Xk * grow
        grown = {1: (larger,) * 3, 2: (X, larger, larger), 3: (X, larger, Xv)}[limits.sources]
        yield Probe("later tokens are larger", "plain", (*grown, *rest))
    X, Xk, Xv, *rest = inputs(4, 5, many[0], 3)
    yield Probe("base", "pair", (X, Xk, Xv, *rest))
    if limits.sizes:
        return
    order = [2, 0, 3, 1]
    if not limits.causal:
        turned = (X[order],) * 3 if limits.sources == 1 else (X[order], Xk, Xv)
        yield Probe("queries permuted", "pair", (*turned, *rest))
    if limits.mask and limits.sources == 1 and not limits.key_mask:
        later = X + np.array([[0], [0], [0], [2]])
        yield Probe("causal base", "pair", (X, X, X, *rest, causal_mask(4)))
        yield Probe("the future changed", "pair", (later, later, later, *rest, causal_mask(4)))


def _self_backward(rng: np.random.Generator, limits: Limits) -> Iterator[Probe]:
    for name, (n, d, dk, dv) in {
        "2 tokens": (2, 3, 2, 4),
        "5 tokens": (5, 4, 3, 2),
        "4 tokens": (4, 6, 5, 3),
        "7 tokens": (7, 3, 2, 5),
        "square": (4, 4, 4, 4),
    }.items():
        dk = d if limits.width == "d = h·dk" else dk
        dv = dv if limits.width == "free" else dk
        Wq, Wk, Wv = (rng.normal(size=(d, w)) for w in (dk, dk, dv))
        yield Probe(name, "plain", (rng.normal(size=(n, dv)), rng.normal(size=(n, d)), Wq, Wk, Wv))
