"""The child's work on a file or a function: find what is to be checked, read its form, make every call."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..inside.repair import look_inside
from ..known.probes import Limits, Probe, within
from .entries import Found, programs
from .form import Form, MaskForm, NoAnswer
from .masks import said
from .reading import read
from .record import contain, describe, encode, printed_in, quiet
from .scripts import script
from .text import Text, read_text, run
from .trial import LAYER, SDPA, TRIANGLE, Program

Write = Callable[[dict[str, Any]], None]
Looks = Sequence[dict[str, Any]]


def study_file(path: str, wanted: str | None, kind: str | None, write: Write, looks: Looks = ()) -> None:
    """Check what a file defines."""
    try:
        text = read_text(path)
        run(text)
    except (Exception, SystemExit) as error:
        write({"load": describe(error, (path,))})
        return
    found = Found(text)
    write({"functions": list(found.defined), "said": {}, "parts": [[part.cell, part.code] for part in text.parts]})
    names = [wanted] if wanted else found.choose()
    chosen = [program for name in names for program in found.program(name)]
    if not chosen and not wanted:
        chosen = script(text)
    if not chosen and text.problems and not wanted:
        write({"load": describe(text.problems[0], tuple(p.filename for p in text.parts))})
        return
    study(chosen, kind, tuple(part.filename for part in text.parts), write, text, looks)


def study_object(target: Any, name: str, kind: str | None, write: Write, looks: Looks = ()) -> None:
    """Check a function, a method, a class or an instance of a running session."""
    study(programs_of(target, name), kind, _files(target), write, looks=looks)


def programs_of(target: Any, name: str) -> list[Program]:
    try:
        words = inspect.getsource(target)
    except (OSError, TypeError):
        words = ""
    names = getattr(target, "__globals__", {})
    if (
        not inspect.isclass(target)
        and not inspect.isroutine(target)
        and callable(target)
        and not hasattr(target, "__code__")
    ):
        target = target.__call__  # an instance: its own weights stay, it is called as it is
    torch = "torch" in sys.modules and (
        "torch" in words or any(getattr(v, "__name__", "") == "torch" for v in names.values())
    )
    return programs(target, name, "", words.lower(), torch, True, None, {})


def _files(target: Any) -> tuple[str, ...]:
    code = getattr(inspect.unwrap(target) if callable(target) else target, "__code__", None)
    if code is None:
        code = getattr(getattr(target, "forward", None), "__code__", None)
    return (code.co_filename,) if code else ()


def study(
    chosen: list[Program],
    kind: str | None,
    files: tuple[str, ...],
    write: Write,
    text: Text | None = None,
    looks: Looks = (),
) -> None:
    """Read each program's form and make the calls; or look inside one."""
    contain()
    forms: list[Form] = []
    for program in chosen:
        if looks and program.label != looks[0]["label"]:
            continue
        write({"reading": program.label})
        form, error = read(program, kind)
        if form is None:
            problem = (
                describe(error, files)
                if error is not None
                else {"error": "Unsuited", "message": "no way to call it was found"}
            )
            write({"function": program.label, "kind": "", "arguments": [p.name for p in program.parameters]})
            write({"begin": "the first call"})
            write({"probe": "the first call", **problem})
            continue
        if looks:
            for number, look in enumerate(looks):
                found = look_inside(form.call, form.roots, look)
                write({"place": {"number": number, **found}} if found else {"begin": "the next look"})
            break
        forms.append(form)
        if _borrowed(program, text):
            form.notes.append(("property-own-attention", {}))
        write(
            {
                "function": form.label,
                "kind": form.kind,
                "limits": asdict(form.limits),
                "blocked": _blocked(form, forms, program),
                "notes": form.notes,
            }
        )
        for probe, told in calls(form, files):
            write({"begin": probe.name})
            write({"probe": probe.name, **told()})
    for pair in pairs(forms):
        write(pair)
    write({"end": True})


def _borrowed(program: Program, text: Text | None) -> bool:
    """Whether the program calls tinyattn's attention, or is it."""
    own = any(str(getattr(root, "__module__", "")).startswith("tinyattn") for root in program.roots)
    code = text.code.lower() if text else program.words
    called = re.search(r"scaled_dot_product_attention|multiheadattention|flash_attention|efficient|reference", code)
    return own or bool("tinyattn" in code and called and _IMPORTED.search(code))


_IMPORTED = re.compile(
    r"from tinyattn[\w.]* import [^\n]*(attention|reference|efficient|nn)"
    r"|\b(ta|tinyattn)\.(nn|efficient|scaled_dot|check)"
)


def _blocked(form: Form, forms: list[Form], program: Program) -> bool | None:
    """Whether True (or 1) marks in a mask what may not be seen: as the attention beside it takes it, or its text
    says; None if nothing tells."""
    if form.kind != TRIANGLE:
        return form.mask.blocked
    taking = [f for f in forms if f.kind.partition("/")[0] in (SDPA, LAYER) and f.limits.mask]
    if taking and not taking[0].mask.values.startswith("additive"):
        return taking[0].mask.blocked
    return {"hidden": True, "seen": False}.get(said(program.words))


def pairs(forms: list[Form]) -> Iterator[dict[str, Any]]:
    """A mask function and the attention that takes its mask, together: three tokens, V = I."""
    makers = [f for f in forms if f.kind == TRIANGLE]
    for form in forms:
        if form.kind.partition("/")[0] not in (SDPA, LAYER) or not form.limits.mask or form.limits.key_mask:
            continue
        names = ("3 × 3, V = I, so the output is the weights", "3 tokens")
        probe = next(
            (p for p in within(form.kind, replace(form.limits, mask=False, square=True)) if p.name in names), None
        )
        for maker in makers if probe else ():
            assert probe is not None
            n = probe.args[0].shape[-2]
            with quiet():
                try:
                    mask = maker.raw(n)
                    array = form.but(mask=MaskForm(given=mask)).call(*probe.args, np.tri(n, dtype=bool))[0]
                except (Exception, SystemExit):
                    continue
            yield {"pair": [form.label, maker.label], "value": encode(array), "input": probe.name}


def calls(form: Form, files: tuple[str, ...]) -> Iterator[tuple[Probe, Callable[[], dict[str, Any]]]]:
    """Every call that the form allows, to be made one by one."""
    for probe in planned(form.kind, form.limits, form.mask):

        def told(probe: Probe = probe) -> dict[str, Any]:
            return call(form, probe, files)

        yield probe, told


def planned(kind: str, limits: Limits, mask: MaskForm) -> list[Probe]:
    """The probes of a form; float masks are for those that take boolean ones."""
    own = mask.values == "bool" and not mask.blocked
    return [p for p in within(kind, limits) if p.group != "float-mask" or own]


def call(form: Form, probe: Probe, files: tuple[str, ...]) -> dict[str, Any]:
    """One call, as a record."""
    told: dict[str, Any]
    with quiet() as printed:
        try:
            if probe.before:
                form.kept = []
                form.call(*probe.before)
            arrays = form.call(*probe.args, read_only=probe.read_only)
            items = [encode(array) for array in arrays]
            told = {"value": items[0] if len(items) == 1 else {"type": "tuple", "items": items}}
        except NoAnswer as missing:
            told = {"value": encode(missing.value)}
        except (Exception, SystemExit) as error:
            told = describe(error, files)
        finally:
            form.kept = None
    return told | ({"changed": form.changed} if form.changed else {}) | printed_in(printed)


__all__ = ["np", "study_file", "study_object"]
