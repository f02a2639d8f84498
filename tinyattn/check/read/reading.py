"""Reading a form: which choices make the program answer, and answer rightly.

Names propose what each argument means; then small calls decide, from the most general sizes to the narrowest. A
choice under which the answer is right wins over one under which it only has the right shape; but no narrower size
is tried where a wider one gave an answer: what is wrong there is a mistake and not a convention.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..judge.outcome import close, shapes
from ..known.probes import Limits
from ..known.reference import Array
from .carry import Path, leaves
from .form import Form, MaskForm, Parameter
from .masks import read_mask, triangle
from .names import BACKWARD, MASK, OPTIONS, PARAMETERS, SOFTMAX, plain, role
from .record import quiet
from .trial import (
    BACK,
    EXACT,
    LAYER,
    RAISED,
    RAN,
    SDPA,
    SELF_BACK,
    SHAPED,
    SOFT,
    TRIANGLE,
    Program,
    attempt,
    right_of,
    sample,
)


def locate(form: Form, value: Any, rights: list[tuple[Array, ...]]) -> tuple[int, tuple[Path, ...], int]:
    """How good an answer is in a returned value, where it is, and which of the right answers it is."""
    found = [(path, form._dropped(array)) for path, array in leaves(value)]
    found = [(path, array) for path, array in found if array.dtype.kind in "biuf"]
    best: tuple[int, tuple[Path, ...], int] = (RAN, (), 0)
    for number, right in enumerate(rights):
        ways: list[Path] = []
        grade = EXACT
        for i, wanted in enumerate(right):
            fitting = [(p, a) for p, a in found if a.shape == wanted.shape and (p not in ways or len(right) == 1)]
            exact = [p for p, a in fitting if close((a.astype(float),), (wanted,))]
            if not fitting:
                grade = RAN
                break
            named = [p for p, _ in fitting if len(right) > 1 and i < 4 and _named(p, len(right), i)]
            told = [p for p, _ in fitting if len(right) == 1 and p and _is_output(p[-1])]
            grade = min(grade, EXACT if exact else SHAPED)
            ways.append((exact or named or told or [p for p, _ in fitting])[0])
        if grade > best[0]:
            best = grade, tuple(ways), number
    return best


def _is_output(key: Any) -> bool:
    return isinstance(key, str) and plain(key) in (
        "out",
        "output",
        "o",
        "context",
        "result",
        "y",
        "attended",
        "attention_output",
        "z",
    )


def _named(path: Path, count: int, i: int) -> bool:
    """Whether a key says which gradient it is: dQ, grad_q, 'W_k' …"""
    if not path or not isinstance(path[-1], str):
        return False
    wanted = (("q",), ("k",), ("v",)) if count == 3 else (("x",), ("wq", "w_q"), ("wk", "w_k"), ("wv", "w_v"))
    text = plain(path[-1]).removeprefix("grad").removeprefix("d").strip("_")
    return text in wanted[i] or any(text.endswith(w) for w in wanted[i])


# ---- what the arguments may mean -------------------------------------------------------------------------------


def meanings(program: Program, kind: str | None) -> Iterator[tuple[str, list[Parameter]]]:
    """Kinds and the roles of the arguments under them, the likeliest first."""
    ps = list(program.parameters)
    if sum(p.required for p in ps) >= 3 and not {p.role for p in ps} & {"Q", "K", "V", "X", "dO"}:
        ps = [replace(p, role=None) if len(p.name) == 1 else p for p in ps]  # a, b, c say nothing
    ps = [replace(p, role="three") if p.required and _unpacked(p, program.words) else p for p in ps]
    taken = [p.role for p in ps]
    if "X" in taken and any(r in PARAMETERS or r == "params" for r in taken):
        ps = [replace(p, role="heads") if plain(p.name) == "h" and p is not ps[0] else p for p in ps]
    if taken.count("X") == 2 and "context" not in taken:
        second = [p for p in ps if p.role == "X"][1]
        ps = [replace(p, role="context") if p is second and second.required else p for p in ps]
    name = program.label.rpartition(".")[2]
    needed = [p for p in ps if p.required and p.role not in OPTIONS]
    roles = {p.role for p in ps}
    weights = bool(roles & {*PARAMETERS, "params"}) or bool(program.weights)
    if kind in (SOFT, TRIANGLE):
        yield kind, fill(ps, ("length",) if kind == TRIANGLE else ("X",))
        return
    backward = (
        (program.after is not None or "dO" in roles or (BACKWARD.search(name) and kind is None))
        if kind is None
        else "backward" in kind
    )
    if backward:
        if weights or ("X" in roles and not roles & {"Q", "K", "V"}):
            yield SELF_BACK, fill(ps, ("dO", "X", "W_q", "W_k", "W_v"))
        else:
            yield BACK, fill(ps, ("dO", "Q", "K", "V", "mask"))
        return
    if kind is None and len(needed) == 1 and not weights and "heads" not in program.sized:
        if MASK.search(name) or (needed[0].role in ("length",) and not SOFTMAX.search(name)):
            yield TRIANGLE, fill(ps, ("length",))
            return
        if SOFTMAX.search(name):
            yield SOFT, [replace(p, role="X") if p is needed[0] else p for p in ps]
            return
    if kind in ("multi_head_attention", "cross_attention", "self_attention", LAYER):
        order = {"cross_attention": ("X", "context", "W_q", "W_k", "W_v")}.get(
            kind, ("X", "W_q", "W_k", "W_v", "W_o", "heads", "mask")
        )
        yield LAYER, fill(ps, order)
        return
    layered = weights or "heads" in roles or "heads" in program.sized
    if kind is None and (layered or (len(needed) <= 2 and not roles & {"K", "V", "three"})):
        known = roles & {"Q", "K", "V", "three"}
        first = ("Q", "K", "V") if known else ("X",)
        yield (
            LAYER,
            fill(
                ps, (*first, "W_q", "W_k", "W_v", "W_o", "heads", "mask") if not program.weights else (*first, "mask")
            ),
        )
        return
    yield SDPA, fill(ps, ("Q", "K", "V", "mask", "d_k"))
    unknown = [p for p in needed if p.role is None]
    if kind is None and len(needed) in (4, 5, 6) and len(unknown) >= 3:
        yield LAYER, fill(ps, ("X", "W_q", "W_k", "W_v", "W_o", "heads"))
        yield LAYER, fill(ps, ("X", "W_q", "W_k", "W_v", "mask"))


def _unpacked(parameter: Parameter, words: str) -> bool:
    """Whether an argument is queries, keys and values in one: `q, k, v = inputs`."""
    found = re.search(rf"(\w+), *(\w+), *(\w+) *= *{re.escape(parameter.name.lower())} *(?:#|\n|$)", words)
    return bool(found) and [role(name) for name in found.groups()] == ["Q", "K", "V"]  # type: ignore[union-attr]


def fill(parameters: list[Parameter], order: tuple[str, ...]) -> list[Parameter]:
    """The roles that names do not tell, given in order to the required arguments without one."""
    fits = {*order, "context", "heads_kv", "lengths", "key_mask", "params", "cache", "weights", "out", "scale"}
    fits |= {
        "three",
        *PARAMETERS,
        *OPTIONS,
        "d_k",
        "d_v",
        "d_model",
        "d_out",
        "length",
        "length_keys",
        "batch_size",
        "mask",
        "heads",
    }
    if "Q" not in order and "dO" not in order:
        fits |= {"Q", "K", "V"}
    fits -= {"params"} if order[:1] == ("Q",) and "W_q" not in order else set()
    known = [replace(p, role=p.role if p.role in fits else None) for p in parameters]
    if order == ("X",) or order == ("length",):
        first = next((i for i, p in enumerate(known) if p.required), 0)
        return [replace(p, role=order[0]) if i == first else p for i, p in enumerate(known)]
    taken = {p.role for p in known}
    taken |= {"Q", "K", "V"} if "three" in taken else set()
    free = [r for r in order if r not in taken]
    if taken & {"Q", "K", "V"} and "X" in free:
        free.remove("X")
    made = []
    for p in known:
        if p.role is None and p.required and free:
            p = replace(p, role=free.pop(0))
        made.append(p)
    return made


# ---- trying -----------------------------------------------------------------------------------------------------


def rungs(kind: str, program: Program, parameters: list[Parameter]) -> Iterator[Limits]:
    """Limits from the widest to the narrowest."""
    has = {p.role for p in parameters}
    if kind in (SDPA, BACK):
        if program.fixed:
            yield Limits(sizes=program.fixed, square=program.fixed[0] == program.fixed[1])
            return
        for equal, square in ((False, False), (False, True), (True, False), (True, True)):
            yield Limits(square=square, equal=equal)
        return
    if kind == SELF_BACK:
        for width in ("free", "dk = dv", "d = h·dk"):
            yield Limits(width=width)
        return
    if kind != LAYER:
        yield Limits()
        if kind == SOFT:
            yield Limits(vector=True)
        return
    heads = bool({"heads"} & has or "heads" in program.sized)
    shared = bool({"heads_kv"} & has or "heads_kv" in program.sized)
    held = {r for r in (*has, *program.weights) if r}
    weights = bool(held & {*PARAMETERS, "params"})
    sources = 3 if has & {"V", "three"} else 2 if has & {"K", "context"} else 1
    biases = "".join(r[2:] for r in sorted(held) if r.startswith("b_"))
    common: dict[str, Any] = {
        "heads": heads,
        "shared": shared,
        "biases": biases,
        "weights": weights,
        "sources": sources,
    }
    if program.fixed:
        n, m = program.fixed[:2]
        yield Limits(square=n == m, sizes=program.fixed, output="W_o" in held, width="fixed", **common)
        return
    outputs = (True, False) if "params" in has else (bool(held & {"W_o", "b_o"}),)
    widths = ("d = h·dk", "dk = dv", "free") if heads else ("free", "dk = dv", "d = h·dk")
    free = sources > 1 and not any(p.required and p.role in ("K", "V", "context", "three") for p in parameters)
    for count in (sources, 1) if free else (sources,):  # another source, where there may be one, or X alone
        common["sources"] = count
        for square in (True,) if count == 1 else (False, True):
            for width in widths if weights else ("d = h·dk",):
                for out in outputs:
                    yield Limits(square=square, width=width, output=out, **common)
    if heads and weights and not shared:
        yield Limits(square=True, width="d = h·dk", output=outputs[0], single=True, **common)
    if program.own_sizes and (sizes := program.own_sizes()):
        common |= {"heads": sizes[5] > 1, "shared": False, "sources": 1}
        yield Limits(square=True, sizes=sizes, output="W_o" in held, width="fixed", **common)


def ways(form: Form, program: Program) -> Iterator[tuple[str, int]]:
    """How weights may be laid out, and the best grade so far up to which that is worth a try: where another
    layout already gives an answer, one that only happens to fit proves nothing."""
    has = {p.role for p in form.parameters} | program.weights
    yield "plain", EXACT
    if has & {"W_qkv", "W_o", "W_q", "params", "W_kv"}:
        yield "transposed", SHAPED
    if has & {"W_qkv", "params"}:
        yield "fused by head", SHAPED
        yield "stacked", RAN
    if has & {"W_qkv", "W_o", "W_q", "params", "W_kv"}:
        yield "object", RAN
    if "params" in has:
        yield "list", RAN
    if "W_q" in has and form.limits.heads:
        yield "by head", RAN


def choices(form: Form, program: Program) -> Iterator[Form]:
    """Carriers, ranks, scales and (where one is required) masks, the likeliest first."""
    carriers = ("tensor",) if program.torch else ("array", "list") if program.numpy else ("list", "array")
    scales = ("1/√dk", "√dk") if form.has("scale") else ("1/√dk",)
    if any(p.role == "scale" and plain(p.name).startswith(("sqrt", "root", "temp", "tau")) for p in form.parameters):
        scales = scales[::-1]
    masks = [form.mask]
    if any(p.required and p.role in ("mask", "key_mask", "lengths") for p in form.parameters):
        axes = "bm" if form.has("key_mask") else "nm"
        masks = [
            MaskForm(offered=False, axes=axes),
            MaskForm(axes=axes),
            MaskForm("float", axes=axes),
            MaskForm("additive", axes=axes),
            MaskForm(blocked=True, axes=axes),
            MaskForm(axes="b1nm"),
            MaskForm("float", True, axes),
        ]
    lifts = (program.lead,) if program.fixed else (0, 1, 2)
    for carrier, scale, lift, mask in itertools.product(carriers, scales, lifts, masks):
        yield form.but(carrier=carrier, scale=scale, lift=lift, mask=mask)


def grade(form: Form, args: tuple[Any, ...]) -> tuple[int, tuple[Path, ...], str]:
    """How well a form answers one input, where, and by which convention: plain, or always causal."""
    value, error = attempt(form, args)
    if error is not None:
        return RAISED, (), ""
    bases = {SOFT: ("",), TRIANGLE: ("",), SELF_BACK: ("", "/x")}.get(form.kind, ("", "/late", "/early"))
    kinds = [form.kind + base for base in bases]
    rights = [(k, r) for k in kinds if (r := right_of(k, args)) is not None]
    if not rights:
        return RAN, (), ""
    score, ways, which = locate(form, value, [r for _, r in rights])
    return score, ways, rights[which][0] if score == EXACT or form.kind == SELF_BACK else form.kind


def read(program: Program, kind: str | None = None) -> tuple[Form | None, BaseException | None]:
    """The form of a program; None, with what its likeliest call raised, if no call came back."""
    fallback: tuple[int, Form] | None = None
    first_error: BaseException | None = None
    for found, parameters in meanings(program, kind):
        for limits in rungs(found, program, parameters):
            if program.holds is not None:
                held = program.holds(limits, found)
                if held is None:
                    continue
            args = sample(found, limits)
            if args is None:
                continue
            base = Form(found, program.label, parameters, program.run, program.roots, limits=limits)
            more = ("K", "V", "context") if limits.sources > 1 else ()
            base.offered = {
                p.name for p in parameters if p.required or p.role in ("heads", "heads_kv", *PARAMETERS, *more)
            } | {"sizes"}
            best: tuple[int, Form] | None = None
            for way, worth in ways(base, program):
                if best and best[0] > worth:
                    continue
                for form in choices(base.but(weights=way), program):
                    score, paths, convention = grade(form, args.args)
                    if score == RAISED and first_error is None:
                        first_error = attempt(form, args.args)[1]
                    if score > RAISED and (best is None or score > best[0]):
                        best = score, form.but(answer=paths, kind=convention or found)
                    if score == EXACT:
                        break
                if best and best[0] == EXACT:
                    break
            if best and (fallback is None or best[0] > fallback[0]):
                fallback = best
            if best and best[0] >= SHAPED:
                return conventions(best[1], program, best[0] == EXACT), None
    if fallback:
        form = fallback[1]
        if form.kind == TRIANGLE:
            form.answer = ((),)
        return conventions(form, program, False), None
    return None, first_error


# ---- conventions ------------------------------------------------------------------------------------------------


def conventions(form: Form, program: Program, exact: bool) -> Form:
    """What the form follows besides: always causal or not, which way its mask is, how many leading axes."""
    form = form.but()
    if form.kind in (SOFT, TRIANGLE):
        form.limits = replace(form.limits, lead=_leads(form))
        return form
    if not form.kind.startswith(SELF_BACK):
        form = triangle(form, program, exact)
        form = read_mask(form, program)
    form.limits = replace(form.limits, lead=_leads(form), lift=form.lift)
    if form.kind.partition("/")[0] == SDPA:
        form.extra = _weights_way(form)
    return form


def _leads(form: Form) -> tuple[int, ...]:
    """How many leading axes work: those whose answer has the right shape, or that are the only ones."""
    found = {form.lift}
    names = {1: ("batch, square", "batch", "2 × 3 × 5"), 2: ("batch and heads", "two leading axes", "2 × 3 × 4 × 5")}
    for lead, wanted in names.items():
        probe = next(
            (p for w in wanted if (p := sample(form.kind, replace(form.limits, mask=False, lead=(0, 1, 2)), w))), None
        )
        if probe is None or form.limits.sizes:
            continue
        right = right_of(form.kind, probe.args)
        with quiet():
            try:
                answer = form.call(*probe.args)
            except (Exception, SystemExit):
                continue
        if right is not None and shapes(answer[: len(right)]) == shapes(right):
            found.add(lead)
    return tuple(sorted(found))


def _weights_way(form: Form) -> Path | None:
    """Where the attention weights are in what is returned: by value, or as the other half of a pair."""
    probe = sample(form.kind, replace(form.limits, mask=False))
    if probe is None:
        return None
    value, error = attempt(form, probe.args)
    if error is not None:
        return None
    Q, K, *_ = probe.args
    right = right_of(form.kind, (Q, K, np.eye(K.shape[-2])))
    found = [(p, form._dropped(a)) for p, a in leaves(value) if p not in form.answer]
    for path, array in found:
        if right is not None and array.shape == right[0].shape and close((array.astype(float),), right):
            return path
    if isinstance(value, tuple) and len(value) == 2 and len(found) == 1 and right is not None:
        path, array = found[0]
        raw = Q @ np.swapaxes(K, -1, -2)
        scores = any(
            close((array.astype(float),), (s,)) for s in (raw, raw / np.sqrt(Q.shape[-1])) if s.shape == array.shape
        )
        return path if array.shape == right[0].shape and not scores else None
    return None
