"""What the right program has on its way: every value that the reference computes, and the numbers it is made of.

The reference is run through the same hook as a learner's program, so each right value comes with its own text.
"""

import re
from typing import Any, NamedTuple

import numpy as np

from ..known import mutants, reference
from ..known.mutants import Edit
from ..known.probes import ARGUMENTS, Probe
from ..known.reference import Array
from .rewrite import HOOK, Site, rewritten


class Step(NamedTuple):
    """A right value."""

    words: str
    text: str  # the reference's
    value: Array
    place: int  # when the reference computes it; 0 for what it is given


UNMASKED = "without the mask"
WORDS = {  # of the reference's lines, by their names
    "scores": "the scores Q Kᵀ",
    "scale": "the scores divided by √dk",
    "mask": "the scores with −∞ where attending is forbidden",
    "shift": "the scores less each row's maximum",
    "exp": "exp of the scores",
    "normalise": "the weights P",
    "mix": "the output P V",
    "dV": "dV = Pᵀ dO",
    "dP": "dP = dO Vᵀ",
    "dS": "dS = P ∘ (dP − rowsum(dP ∘ P))",
    "dQ": "dQ = dS K / √dk",
    "dK": "dK = dSᵀ Q / √dk",
    "split": "the heads",
    "attend": "each head's answer",
    "join": "the heads' answers side by side",
    "output": "the joined heads times Wo",
    "causal": "True where j ≤ i",
}


def names_of(kind: str) -> tuple[str, ...]:
    return ARGUMENTS[mutants.base_kind(kind)]


def trace(kind: str, edits: tuple[Edit, ...], probe: Probe) -> list[tuple[Site, Array]]:
    """Every array that the right program (with these edits) computes, in order."""
    text = mutants.source(kind, edits)
    assert text is not None
    code, sites = rewritten(text, "<reference>")
    seen: list[tuple[Site, Array]] = []

    def hook(number: int, value: Any) -> Any:
        if isinstance(value, (np.ndarray, np.generic)):
            seen.append((sites[number], np.array(value)))
        return value

    space = {**vars(reference), HOOK: hook, mutants.FILL: -10.0, mutants.KEPT: {}}
    exec(code, space)
    with np.errstate(all="ignore"):
        space[mutants.base_kind(kind)](*(np.copy(a) if isinstance(a, np.ndarray) else a for a in probe.args))
    return seen


def steps(kind: str, edits: tuple[Edit, ...], probe: Probe) -> list[Step]:
    """The right values in the order of the data, then the same in other forms. For one program they come in
    the same order on every input, so that their numbers are their names."""
    named = {line: WORDS[name] for name, line in mutants.lines_named(kind).items() if name in WORDS}
    given = zip(names_of(kind), (getattr(a, "weight", a) for a in probe.args))
    found = [Step(name, name, a, 0) for name, a in given if isinstance(a, np.ndarray)]
    lines, whose = (mutants.source(kind, edits) or "").splitlines(), iter("QKV")
    for place, (site, value) in enumerate(trace(kind, edits, probe), 1):
        if value.ndim and not site.text.isidentifier() and "attention" not in site.text:
            words = named.get(lines[site.statement - 1].strip()) if site.whole else None
            if words == WORDS["split"]:
                words = f"the heads of {next(whose, 'V')}, each with its own block of features"
            found.append(Step(words or pretty(site.text), site.text, value, place))
    found += [*_softmax(found), *_heads(kind, probe)]
    for step in [s for s in found if s.words == WORDS["dS"]]:
        root = np.sqrt(next(s.value for s in found if s.words in ("K", "X Wk")).shape[-1])
        found.append(Step("dS / √dk", f"({step.text}) / np.sqrt(Q.shape[-1])", step.value / root, step.place))
    return [*found, *(view for step in found for view in _views(step))]


def passing(kind: str, edits: tuple[Edit, ...], probe: Probe) -> list[tuple[Array, int, str]]:
    """Values that a right program may have on its way too: what would be without the mask, scaled Q or K."""
    made: list[tuple[Array, int, str]] = []
    known = steps(kind, edits, probe)
    places = {step.words: step.place for step in known}
    names = names_of(kind)
    if "mask" in names and len(probe.args) > names.index("mask"):
        bare = Probe(probe.name, probe.group, probe.args[: names.index("mask")])
        made = [(s.value, places.get(s.words, s.place), UNMASKED) for s in steps(kind, edits, bare)]
    for step in known:
        if step.words in ("Q", "K", "Kᵀ") and "K" in names:
            made.append((step.value / np.sqrt(probe.args[names.index("K")].shape[-1]), 0, step.words))
    return made


def _softmax(found: list[Step]) -> list[Step]:
    """Other ways through the softmax, and the mask in its other forms."""
    by_words = {step.words: step for step in found}
    weights, scaled = by_words.get(WORDS["normalise"]), by_words.get(WORDS["scale"])
    if weights is None or scaled is None or np.isnan(weights.value).any():
        return []
    forms, allowed = [], weights.value > 0
    inner = allowed.reshape(-1, *allowed.shape[-2:])[0]
    if not allowed.all() and (allowed == inner).all():
        additive = "np.where(mask, 0.0, -np.inf)"
        forms = [
            Step("the mask, True where attending is allowed", "mask", inner, 0),
            Step("the mask, True where attending is forbidden", "~mask", ~inner, 0),
            Step("the mask, 1 where attending is allowed", "1.0 * mask", 1.0 * inner, 0),
            Step("the mask, 1 where attending is forbidden", "1.0 - mask", 1.0 - inner, 0),
            Step("0 where attending is allowed, −∞ where not", additive, np.where(inner, 0, -np.inf), 0),
        ]
        scores = by_words.get(WORDS["scores"])
        if scores is not None:
            low = np.where(allowed, scores.value, -np.inf)
            text = "np.where(mask, scores, -np.inf)"
            masked = by_words[WORDS["mask"]].place if WORDS["mask"] in by_words else scaled.place + 1
            forms.append(Step("the scores Q Kᵀ with −∞ where attending is forbidden", text, low, masked))
    with np.errstate(all="ignore"):
        plain = np.exp(scaled.value) * allowed
    total = plain.sum(-1, keepdims=True)
    if np.isfinite(plain).all() and (total > 0).all():
        text = "np.exp(scores)"
        forms.append(Step("exp of the scores, no maximum subtracted", text, plain, weights.place - 2))
        forms.append(Step("each row's sum of exp", f"{text}.sum(axis=-1, keepdims=True)", total, weights.place - 1))
    return forms


def _views(step: Step) -> list[Step]:
    """Transposed, per head, without the axis of length 1."""
    words, text, value, place = step
    made = []
    if value.ndim >= 2 and 1 not in value.shape[-2:]:
        made.append(Step(f"{words}, transposed", f"np.swapaxes({text}, -1, -2)", value.swapaxes(-1, -2), place))
    if value.ndim >= 3:
        moved = value.swapaxes(-2, -3)
        made.append(Step(f"{words}, the heads' axis moved", f"np.swapaxes({text}, -2, -3)", moved, place))
    if value.ndim >= 2 and value.shape[-1] == 1:
        made.append(Step(f"{words}, as a vector", f"({text})[..., 0]", value[..., 0], place))
    return made


def _heads(kind: str, probe: Probe) -> list[Step]:
    """The columns of each projection that belong to each head, and where they begin and end."""
    named = dict(zip(names_of(kind), (getattr(a, "weight", a) for a in probe.args)))
    if "num_heads" not in named:
        return []
    made = []
    for name, count in (("Wq", "num_heads"), ("Wk", "num_kv_heads"), ("Wv", "num_kv_heads")):
        W = named[name]
        blocks = W.reshape(len(W), named.get(count, named["num_heads"]), -1).swapaxes(0, 1)
        text = f"{name}[:, head * d_head : (head + 1) * d_head]"
        made.append(Step(f"the columns of {name} that belong to this head", text, blocks, 0))
    heads = named["num_heads"]
    width = named["Wq"].shape[-1] // heads
    first = np.arange(heads) * width
    both = np.stack([first, first + width], 1)
    return [
        *made,
        Step("the first feature of this head", "head * d_head", first, 0),
        Step("where the features of this head end", "(head + 1) * d_head", first + width, 0),
        Step("the number of this head", "head", np.arange(heads), 0),
        Step("the features of this head", "slice(head * d_head, (head + 1) * d_head)", both, 0),
    ]


def numbers(kind: str, probe: Probe) -> dict[str, tuple[str, float]]:
    """The sizes and constants that a formula may need: words to (text, value)."""
    named = dict(zip(names_of(kind), probe.args))
    sizes: dict[str, tuple[str, int]] = {}
    if "Q" in named:
        sizes = {
            "dk, the width of a key": ("K.shape[-1]", named["K"].shape[-1]),
            "m, the number of keys": ("K.shape[-2]", named["K"].shape[-2]),
            "n, the number of queries": ("Q.shape[-2]", named["Q"].shape[-2]),
            "dv, the width of a value": ("V.shape[-1]", named["V"].shape[-1]),
        }
    elif "Wk" in named:
        n, d = named["X"].shape[-2:]
        heads = named.get("num_heads", 1)
        sizes = {"dk, the width of a key": ("Wk.shape[-1]", named["Wk"].shape[-1])}
        if heads > 1:
            sizes = {
                "d_head, the width of one head": ("d_model // num_heads", named["Wq"].shape[-1] // heads),
                "h, the number of heads": ("num_heads", heads),
            }
        sizes |= {"d_model, the width of the input": ("X.shape[-1]", d), "n, the number of queries": ("X.shape[-2]", n)}
        context = named.get("context", named.get("Xk", named["X"]))
        sizes["m, the number of keys"] = ("len(context)", context.shape[-2])
    elif "x" in named:
        sizes = {"n, the length of a row": ("x.shape[-1]", named["x"].shape[-1])}
    elif "n" in named:
        sizes = {"n": ("n", named["n"])}
    found = {words: (text, float(size)) for words, (text, size) in sizes.items()}
    for words, (text, size) in sizes.items():
        short = words.split(",")[0]
        found[f"√{short}"] = (f"np.sqrt({text})", size**0.5)
        found[f"1/√{short}"] = (f"{text} ** -0.5", size**-0.5)
    constants = {"0": 0.0, "1": 1.0, "-1": -1.0, "-2": -2.0, "2": 2.0, "0.5": 0.5, "-0.5": -0.5}
    found |= {text.replace("-", "−"): (text, value) for text, value in constants.items()}
    return found | {"e": ("np.e", float(np.e)), "−∞": ("-np.inf", -np.inf), "−1e9": ("-1e9", -1e9)}


def pretty(text: str) -> str:
    """The reference's Python as a formula."""
    for pattern, new in (
        (r"np\.sqrt\((\w+)\.shape\[-1\]\)", "√dk"),
        (r"np\.sqrt\((\w+)\)", r"√\1"),
        (r"(\w+)\.swapaxes\(-1, -2\)", r"\1ᵀ"),
        (r"\((.+)\)\.sum\(axis=-1, keepdims=True\)", r"rowsum(\1)"),
        (r"(\w+)\.sum\(axis=-1, keepdims=True\)", r"rowsum(\1)"),
        (r"(\w+)\.max\(axis=-1, keepdims=True\)", r"rowmax(\1)"),
        (r" @ ", " "),
        (r" \* ", " ∘ "),
        (r" - ", " − "),
        (r"\s+", " "),
    ):
        text = re.sub(pattern, new, text)
    return text
