"""What of a learner's text is to be checked: the attention in it, under whatever name.

Functions that another candidate calls are its helpers. What is named like an attention comes first; a softmax or a
mask is checked where there is nothing else, a backward pass together with its forward pass.
"""

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from ..known.probes import KINDS, Limits
from .carry import imports_torch, to_carrier
from .classes import backward_running, build, by_order, constructor, methods, own_weights, running, sizes_of
from .form import Form, Parameter, Values, called, parameters_of
from .names import ATTENTION, BACKWARD, MASK, PARAMETERS, SOFTMAX, plain
from .record import quiet
from .text import Text
from .trial import Program, sample


def own(text: Text) -> dict[str, Any]:
    """The functions and classes that a text defines."""
    module = text.names.get("__name__")
    return {
        name: value
        for name, value in text.names.items()
        if not name.startswith("__")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and getattr(value, "__module__", None) == module
    }


def _segments(text: Text) -> dict[str, str]:
    """The text of each top-level definition, with the comment lines just above it."""
    found: dict[str, str] = {}
    for part in text.parts:
        try:
            tree = ast.parse(part.code)
        except SyntaxError:
            continue
        lines = part.code.split("\n")
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                first = node.lineno - 1
                while first and lines[first - 1].lstrip().startswith("#"):
                    first -= 1
                found[node.name] = "\n".join(lines[first : node.end_lineno])
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found.setdefault(node.targets[0].id, ast.unparse(node))
    return found


def _uses(segment: str) -> set[str]:
    try:
        tree = ast.parse(segment)
    except SyntaxError:
        return set()
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)
    }


class Found:
    """The definitions of a text, who uses whom, and which programs are to be checked."""

    def __init__(self, text: Text):
        self.text, self.defined, self.segments = text, own(text), _segments(text)
        self.calls = {name: _uses(self.segments.get(name, "")) & self.defined.keys() - {name} for name in self.defined}
        code = text.code
        self.torch = imports_torch(code)
        self.numpy = "numpy" in code or "np." in code

    def words(self, name: str) -> str:
        """A definition's own text with that of the functions it uses."""
        seen, todo = [], [name]
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.append(one)
                todo += sorted(self.calls.get(one, ()))
        return "\n".join(self.segments.get(n, "") for n in seen).lower()

    def roots(self) -> list[str]:
        used = {other for name, calls in self.calls.items() for other in calls if not _helper(name)}
        return [name for name in self.defined if name not in used]

    def choose(self) -> list[str]:
        """The names to check where none is given."""
        contract = [name for name in KINDS if name in self.defined]
        roots = [n for n in self.roots() if not MASK.fullmatch(n)]
        like = [n for n in roots if ATTENTION.search(n) and not _builder(n)]
        like = [n for n in like if not (MASK.search(n) and not _attends(n))]
        if like:
            backward = [n for n in like if BACKWARD.search(n)]
            chosen = like
            if backward:
                chosen = [n for n in like if n in backward or not any(_pairs(n, b) for b in backward)] or like
                chosen = like
        else:
            chosen = [n for n in contract if n != "causal_mask"]
        if not chosen:
            chosen = [n for n in roots if _promising(self.defined[n], self.words(n), n)]
        masks = [n for n in self.defined if _is_mask(n, self.defined[n])]
        if not chosen:
            soft = [n for n in self.defined if SOFTMAX.search(n)]
            chosen = soft[:1] if not masks else []
        return chosen + [m for m in masks if m not in chosen]

    def program(self, name: str) -> list[Program]:
        """The programs behind a name: a function is one, a class may have a forward and a backward pass."""
        owner, _, method = name.partition(".")
        target = self.defined.get(owner, self.text.names.get(owner))
        if target is None:
            return []
        return programs(
            target, owner, method, self.words(owner), self.torch, self.numpy, self.forward_of(owner), self.defined
        )

    def forward_of(self, name: str) -> Callable[..., Any] | None:
        """The forward pass that a backward function belongs to."""
        if not BACKWARD.search(name):
            return None
        stem = BACKWARD.sub("", plain(name)).strip("_")
        others = [
            n for n in self.defined if n != name and not BACKWARD.search(n) and inspect.isfunction(self.defined[n])
        ]

        def fitness(n: str) -> tuple[bool, bool, bool]:
            return bool(stem and stem in plain(n)), "forward" in n or "fwd" in n, bool(ATTENTION.search(n))

        best = max(others, key=fitness, default=None)
        return self.defined[best] if best is not None and any(fitness(best)) else None


def _helper(name: str) -> bool:
    """A test or a demonstration, whose calls make no helper of what it calls."""
    return plain(name).startswith(("test", "main", "demo", "example", "check", "plot", "run_", "train"))


def _builder(name: str) -> bool:
    text = plain(name)
    return text.startswith(
        (
            "init",
            "plot",
            "show",
            "test",
            "make_",
            "create_",
            "get_",
            "draw",
            "visual",
            "print",
            "demo",
            "main",
            "split",
            "merge",
            "combine",
            "load",
            "save",
            "count",
            "compare",
            "verify",
            "check",
            "fit",
            "train",
        )
    ) or text.endswith(("_scores", "_weights", "_logits", "_config", "_demo", "_test"))


def _attends(name: str) -> bool:
    return bool(ATTENTION.search(MASK.sub("", name)))


def _pairs(forward: str, backward: str) -> bool:
    return plain(BACKWARD.sub("", backward)).strip("_") in plain(forward)


def _promising(value: Any, words: str, name: str) -> bool:
    """Not named like one, but it takes what an attention takes and has its parts."""
    if _builder(name) or SOFTMAX.search(name) or _is_mask(name, value):
        return False
    parts = ("exp" in words or "softmax" in words) and (
        "@" in words or "matmul" in words or "dot" in words or "einsum" in words or "sum(" in words
    )
    if inspect.isclass(value):
        return parts and bool(methods(value))
    needed = [p for p in parameters_of(value) if p.required]
    return parts and len(needed) >= 1


def _is_mask(name: str, value: Any) -> bool:
    """A function of a length that makes a mask."""
    if not inspect.isfunction(value) or not MASK.search(name) or (_attends(name) and not _builder(name)):
        return False
    needed = [p for p in parameters_of(value) if p.required]
    return len(needed) == 1 and (needed[0].role in ("length", "X", None, "d_model", "length_keys", "batch_size"))


def programs(
    target: Any,
    label: str,
    method: str,
    words: str,
    torch: bool,
    numpy: bool,
    forward: Callable[..., Any] | None = None,
    around: dict[str, Any] | None = None,
) -> list[Program]:
    """What a function, class or instance offers to be checked."""
    common: dict[str, Any] = {"words": words, "torch": torch, "numpy": numpy}
    if not inspect.isclass(target):
        parameters = parameters_of(target)
        if (
            forward is not None
            and any(p.role in ("cache", "params", "weights") or p.role is None for p in parameters if p.required)
            and not {"Q", "X"} & {p.role for p in parameters}
        ):
            return [
                Program(
                    label,
                    parameters_of(forward),
                    _after(target, forward, parameters),
                    [target, forward],
                    after=target,
                    **common,
                )
            ]
        return [Program(label, parameters, called(target), [target], **common)]
    listed = [method] if method else methods(target)
    public = [m for m in listed if not m.startswith("_") or m == "__call__"]
    static = [m for m in public if isinstance(inspect.getattr_static(target, m), (staticmethod, classmethod))]
    main = [
        m
        for m in public
        if not BACKWARD.search(m)
        and not SOFTMAX.search(m)
        and not _builder(m)
        and not MASK.fullmatch(m)
        and (m not in ("split", "merge"))
    ]
    main = sorted(main, key=lambda m: not (m in ("forward", "__call__", "call") or ATTENTION.search(m)))
    if static and len(static) == len(listed):
        best = [m for m in main if ATTENTION.search(m)][:1] or main[:1] or public[:1]
        return [
            Program(f"{label}.{m}", parameters_of(getattr(target, m)), called(getattr(target, m)), [target], **common)
            for m in best
        ]
    if not main:
        main = public
    if not main:
        return []
    chosen = main[0]
    sized = tuple(p.role for p in constructor(target) if p.role in ("heads", "heads_kv"))
    sized += tuple("heads" for p in constructor(target) if plain(p.name) == "h")
    if re.search(r"(config|cfg|args|conf|hparams)\.\w*heads?\b", words):
        sized += ("heads",)

    def bare(limits: Limits, kind: str) -> tuple[Any, Values]:
        """An instance of these sizes with the weights that it makes itself; None where it cannot be built."""
        probe = sample(kind, limits)
        if probe is None:
            return None, {}
        form = Form(kind, label, [], running(target, chosen), limits=limits)
        with quiet():
            try:
                values = form.values(*probe.args)
                given = {k: v for k, v in values.items() if not k.startswith("W_")}
                return build(target, form.but(offered={"sizes"}), given), values
            except Exception:
                return None, {}

    def holds(limits: Limits, kind: str) -> set[str] | None:
        instance, _ = bare(limits, kind)
        return None if instance is None else _roles(instance)

    def own_sizes() -> tuple[int, ...] | None:
        limits = Limits(square=True, width="d = h·dk", heads="heads" in sized, output=True)
        around = getattr(target.__init__, "__globals__", {})
        named = {n: v for n, v in around.items() if re.search(rf"\b{re.escape(n.lower())}\b", words)}
        return sizes_of(*bare(limits, "attention_layer"), named, "heads" in sized)

    made = Program(
        f"{label}.{chosen}" if chosen != "forward" else label,
        parameters_of(
            getattr(target, chosen), method=not isinstance(inspect.getattr_static(target, chosen), staticmethod)
        ),
        running(target, chosen),
        [target],
        sized=sized,
        **common,
    )
    made.weights = _held(target, made, holds)
    made.own_sizes = own_sizes if made.weights else None
    found = [made]
    backward = [m for m in public if BACKWARD.search(m)]
    if (backward and not method) or method in backward:
        back = Program(
            f"{label}.{(backward or [method])[0]}",
            made.parameters,
            backward_running(target, chosen, (backward or [method])[0]),
            [target],
            sized=sized,
            weights=made.weights,
            after=target,
            **common,
        )
        found = [back] if method in backward else [made, back]
    return found


def _roles(instance: Any) -> set[str]:
    found = own_weights(instance)
    named = by_order({path: (r, shape) for path, (r, _, shape) in found.items()})
    return ({r for r, _, _ in found.values() if r} | {r for r, _ in named.values()}) & set(PARAMETERS)


def _held(target: type, program: Program, holds: Callable[[Limits, str], set[str] | None]) -> set[str]:
    """The weights that instances hold, read off one of ordinary sizes."""
    for kind in ("attention_layer", "scaled_dot_product_attention"):
        for limits in (
            Limits(square=True, width="d = h·dk", heads="heads" in program.sized, output=True),
            Limits(square=True, heads="heads" in program.sized),
        ):
            found = holds(limits, kind)
            if found is not None:
                return found
    return set()


def _after(
    backward: Callable[..., Any], forward: Callable[..., Any], parameters: list[Parameter]
) -> Callable[..., Any]:
    """Running forward, then backward with what it kept."""

    def run(form: Form, values: Values, args: list[Any], keywords: dict[str, Any]) -> Any:
        value = forward(*args, **keywords)
        kept = (
            [v for v in value if not (hasattr(v, "shape") and tuple(v.shape) == tuple(values["dO"].shape))]
            if isinstance(value, tuple)
            else [value]
        )
        whole = kept[0] if len(kept) == 1 else tuple(kept)
        given: list[Any] = []
        for parameter in (p for p in parameters if p.required):
            if parameter.role == "dO" or (not given and parameter.role is None):
                given.append(to_carrier(values["dO"].copy(), form.carrier))
            else:
                given.append(whole)
        return backward(*given)

    return run
