"""Masks: is the program always causal, and which way round is the mask that it takes?"""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from ..judge.outcome import close, shapes
from ..known.probes import within
from ..known.reference import Array
from .form import Form, MaskForm
from .names import CAUSAL
from .record import quiet
from .trial import LAYER, SDPA, Program, right_of, sample

_SEEN = r"(allow|may|visible|visib|keep|kept|attend|real|see|seen|can|valid|use[ds]?\b|look|permit|sichtbar|ok\b)"
_HIDDEN = (
    r"(block|hid|masked\b|pad|future|forbid|ignor|not|never|must not|cannot|don't|do not|verdeckt|disallow|excl|remov"
    r"|prevent)"
)


def remarks(words: str) -> list[str]:
    """The comments and strings of a text, line by line."""
    lines: list[str] = []
    for match in re.finditer(r"(?s)\"\"\"(.*?)\"\"\"|#([^\n]*)", words):
        lines += (match[1] or match[2] or "").splitlines()
    return lines


def said(words: str) -> str:
    """What a text says of its mask: "seen" if True or 1 marks what may be attended to, "hidden" if what may not."""
    votes = set()
    for line in remarks(words):
        for match in re.finditer(
            r"(?<![\w.=])(true|1(?:\.0)?|ones?)(?![\w.])\s*(=|:|means?|marks?|is|are|where|at|for|in|→|->|-)?([^,;.()=]{0,60})",
            line,
        ):
            if "mask" not in words or not (match[2] or "mask" in line):
                continue
            tail = match[3]
            hidden, seen = re.search(_HIDDEN, tail), re.search(_SEEN, tail)
            if hidden and (not seen or hidden.start() <= seen.start()):
                votes.add("hidden")
            elif seen:
                votes.add("seen")
    return votes.pop() if len(votes) == 1 else ""


_FILL = r"\(?\s*(-|float\(|np\.float\w*\(\s*-|torch\.finfo|np\.finfo|neg|mask_value|big)"


def written(words: str, name: str) -> str:
    """What a text does where its mask is True or 1: "seen" if it keeps the scores, "hidden" if it fills them."""
    mask = rf"\b{re.escape(name.lower())}\b(?:\.\w+\([^()]*\)|\[[^\]]*\])*"
    zero = rf"(?:{mask}\s*(?:==|<=)\s*0|~\s*{mask}|logical_not\(\s*{mask}\s*\)|not\s+{mask})"
    seen = (
        rf"masked_fill_?\(\s*{zero}|where\(\s*{zero}\s*,\s*{_FILL}|\[[^\]\n]*{zero}[^\]\n]*\]\s*="
        rf"|where\(\s*{mask}(?:\s*(?:==|>|!=)\s*[01])?\s*,\s*(?!{_FILL})|\(?1(?:\.0?)?\s*-\s*{mask}\)?\s*\*"
    )
    hidden = (
        rf"masked_fill_?\(\s*{mask}(?:\s*==\s*1)?\s*,|where\(\s*{mask}(?:\s*==\s*1)?\s*,\s*{_FILL}"
        rf"|\[(?:[^\]\n~]*,\s*)?{mask}(?:\s*,[^\]\n]*)?\]\s*=[^=]|(?<!- ){mask}\s*\*\s*{_FILL}"
    )
    found = {word for word, pattern in (("seen", seen), ("hidden", hidden)) if re.search(pattern, words)}
    return found.pop() if len(found) == 1 else ""


def _call(form: Form, args: tuple[Any, ...]) -> Array | None:
    with quiet():
        try:
            answer = form.call(*args)[0]
        except (Exception, SystemExit):
            return None
    return answer.astype(float) if answer.dtype.kind in "biuf" else None


def _moved(kind: str, args: tuple[Any, ...], column: int) -> tuple[Any, ...]:
    """The same input with another key and value (or token) at one place."""
    made = list(args)
    which = (0, 1, 2) if kind == LAYER and args[1] is args[0] else (1, 2)
    if len(which) == 3:
        X = args[0].copy()
        X[..., column, :] = X[..., column, ::-1] + 0.7
        made[:3] = [X] * 3
    else:
        for i in which:
            made[i] = args[i].copy()
            made[i][..., column, :] = args[i][..., column, ::-1] + 0.7
    return tuple(made)


def influence(form: Form, args: tuple[Any, ...]) -> Array | None:
    """How much row i of the answer changes with key j."""
    kind = form.kind.partition("/")[0]
    base = _call(form, args)
    if base is None or base.ndim < 2:
        return None
    m = args[1].shape[-2]
    matrix = np.zeros((base.shape[-2], m))
    for j in range(m):
        other = _call(form, _moved(kind, args, j))
        if other is None or other.shape != base.shape:
            return None
        with np.errstate(all="ignore"):
            change = np.abs(other - base)
        matrix[:, j] = np.where(np.isnan(change), 0, change).max(axis=-1)
    return matrix


def triangle(form: Form, program: Program, exact: bool) -> Form:
    """Whether the program is always causal, where not the mask says so."""
    kind, _, base = form.kind.partition("/")
    made = form.but()
    if kind not in (SDPA, LAYER) and not base:
        return made
    if not base and not exact:
        probe = sample(
            kind,
            replace(form.limits, square=True, mask=False, causal=True),
            "4 tokens, width 4" if kind == LAYER else "as many keys as queries",
        )
        matrix = influence(form, probe.args) if probe else None
        if matrix is not None and matrix.shape[0] == matrix.shape[1] >= 3 and np.isfinite(matrix).all():
            n = len(matrix)
            off = ~np.eye(n, dtype=bool)
            seen = matrix > 1e-9 * max(matrix.max(), 1e-300)
            upper, lower = seen[np.triu_indices(n, 2)], seen[np.tril_indices(n, -1)]
            strictly = seen[np.triu_indices(n, 1)]
            causal = lower.mean() > 0.5 and not strictly[: n - 1].all() and strictly.mean() < 0.7 and upper.mean() < 0.5
            reverse = lower.mean() < 0.35 and strictly.mean() > 0.5
            some = (~seen & off).any()
            if some and (causal or reverse):
                base = "late"
        if (
            not base
            and CAUSAL.search(program.words)
            and re.search(r"tri[ul]|np\.tri\b|<=|>=", program.words)
            and not form.has("mask", "causal")
        ):
            base = "late"
    if not base:
        return made
    made.kind = f"{kind}/late"
    wide = sample(kind, replace(form.limits, mask=False), "" if kind == LAYER else "more keys")
    square = form.limits.square
    if wide is not None and not square:
        answers = {name: right_of(f"{kind}/{name}", wide.args) for name in ("late", "early")}
        answer = _call(form, wide.args)
        if answer is None:
            square = True
        else:
            for name, right in answers.items():
                if right is not None and close((answer,), right):
                    made.kind = f"{kind}/{name}"
    made.limits = replace(made.limits, causal=True, square=square, mask=form.limits.mask)
    return made


def candidates(form: Form, program: Program) -> list[MaskForm]:
    """Ways that a mask may be meant; what the text says comes first."""
    told = said(program.words)
    values = [
        MaskForm("bool"),
        MaskForm("bool", True),
        MaskForm("int"),
        MaskForm("float"),
        MaskForm("int", True),
        MaskForm("float", True),
    ]
    added = [MaskForm("additive"), MaskForm("additive -1e9")]
    if told:
        values = [m for m in values if m.blocked == (told == "hidden")]
        added = []
    taking = [p.name.lower() for p in form.parameters if p.role in ("mask", "key_mask")]
    if any(re.search(rf"\[[^\]\n]*\b{re.escape(n)}\b[^\]\n=.]*\]\s*=[^=]", program.words) for n in taking):
        values = [m for m in values if m.values == "bool"]  # scores[mask] = …: with numbers it would mean places
    listed = values + added
    axes = (
        ("bm", "m", "b1m", "b11m")
        if form.has("key_mask") or form.has("lengths")
        else ("nm", "1nm", "b1nm", "bnm", "bm", "b1m", "b11m")
    )
    return [replace(m, axes=a) for a in axes for m in listed]


def read_mask(form: Form, program: Program) -> Form:
    """Which way round the mask is: by the right answer if there is one, else by what a forbidden key does."""
    made = form.but()
    taking = [p for p in form.parameters if p.role in ("mask", "key_mask", "lengths")]
    kind = form.kind.partition("/")[0]
    if not taking or kind not in (SDPA, LAYER, "scaled_dot_product_attention_backward"):
        made.limits = replace(made.limits, mask=False)
        return made
    made.offered = {*made.offered, taking[0].name}
    keys = any(p.role in ("key_mask", "lengths") for p in taking[:1])
    made.limits = replace(made.limits, mask=True, key_mask=keys, lengths=taking[0].role == "lengths")
    tried: list[tuple[MaskForm, float, bool]] = []  # how well each obeys, and whether the answer is right
    for mask in candidates(form, program):
        if tried and mask.axes != tried[-1][0].axes and any(right or obeys > 8 for _, obeys, right in tried):
            break
        one = _tried(made, mask)
        if one is not None:
            tried.append((mask, *one))
        if one is not None and one[1] and not mask.values.startswith("additive"):
            break
    numbers = [(mask, obeys, right) for mask, obeys, right in tried if not mask.values.startswith("additive")]
    does = written(program.words, taking[0].name)
    alike = [one for one in numbers if does and one[0].blocked == (does == "hidden")]
    for fitting in (
        [one for one in numbers if one[2]],
        alike,
        [one for one in numbers if one[1] > 8],
        [one for one in tried if one[2]],
        [one for one in tried if one[1] > 2],
        tried[:1],
    ):
        if fitting:
            mask = max(fitting, key=lambda one: (round(min(one[1], 1e6), 3), -fitting.index(one)))[0]
            return _told(made.but(mask=mask, limits=replace(made.limits, key_mask=_by_key(mask))), program)
    return made


def _by_key(mask: MaskForm) -> bool:
    return mask.axes in ("m", "bm", "b1m", "b11m")


def _tried(form: Form, mask: MaskForm) -> tuple[float, bool] | None:
    """How well a program obeys a mask in this form, and whether its answer is right; None where it raises."""
    kind = form.kind.partition("/")[0]
    limits = replace(form.limits, key_mask=_by_key(mask))
    made = form.but(mask=mask, limits=limits)
    for square in {limits.square: 0, True: 0}:  # one that raises where n ≠ m may still be read
        args = _masked(kind, replace(limits, square=square))
        if args is None:
            continue
        answer, right = _call(made, args), right_of(form.kind, args)
        if answer is None or right is None or shapes((answer,)) != shapes(right[:1]):
            continue
        return (1e9, True) if close((answer,), right[:1]) else (_obeys(made, args), False)
    return None


def _masked(kind: str, limits: Any) -> tuple[Any, ...] | None:
    made = [p for p in within(kind, limits) if p.group == "masked"]
    wanted = ("mask, n ≠ m", "mask, not causal", "mask, square, not causal", "mask by key, 5 × 7", "mask by key, 5 × 5")
    best = next((p for w in wanted for p in made if p.name == w), made[0] if made else None)
    if best is not None or kind == LAYER:
        return best.args if best else None
    plain = sample(kind, limits)  # for a mask by key none of the usual ones serves
    if plain is None:
        return None
    n, m = plain.args[-3].shape[-2], plain.args[-1].shape[-2]
    return (*plain.args, np.broadcast_to(np.arange(m) % 3 != 1, (n, m)).copy())


def _obeys(form: Form, args: tuple[Any, ...]) -> float:
    """By how much more a row depends on keys that it may see than on those it may not."""
    *plain, allowed = args
    if form.kind.partition("/")[0] not in (SDPA, LAYER):
        return 0.0
    # one key is forbidden to all, the others are free
    n, m = allowed.shape[-2:]
    mask = np.ones((n, m), dtype=bool)
    mask[:, m // 2] = False
    matrix = influence(form, (*plain, mask))
    if matrix is None:
        return 0.0
    rows = np.arange(len(matrix)) != m // 2 if args[1] is args[0] else np.ones(len(matrix), dtype=bool)
    hidden = matrix[rows, m // 2].mean()
    seen = np.delete(matrix, m // 2, axis=1)[rows].mean()
    return float(seen / max(hidden, 1e-12)) if seen > 0 else 0.0


def _told(form: Form, program: Program) -> Form:
    """The mask's convention as a note, where it is not tinyattn's own."""
    mask = form.mask
    one = "True" if mask.values == "bool" else "1"
    if mask.values.startswith("additive"):
        form.notes.append(("property-mask-convention/added", {}))
    elif mask.blocked:
        form.notes.append(("property-mask-convention/blocked", {"one": one}))
    elif mask.values != "bool":
        form.notes.append(("property-mask-convention/numbers", {}))
    return form
