"""Classes: built with the sizes that their signature asks for, and given the weights of the call."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..known.reference import Affine, Array
from .carry import to_carrier, torch
from .form import Form, Parameter, Unsuited, Values, parameters_of
from .names import PARAMETERS, plain, role

FIRST = (
    "forward",
    "__call__",
    "call",
    "attention",
    "attend",
    "compute_attention",
    "apply",
    "compute",
    "run",
    "self_attention",
    "transform",
    "predict",
)
_LAYER = {
    "Q": "q",
    "K": "k",
    "V": "v",
    "W_q": "q",
    "W_k": "k",
    "W_v": "v",
    "W_o": "o",
    "W_qkv": "qkv",
    "W_kv": "kv",
    "out": "o",
}


class Config:
    """A configuration that has whatever it is asked for: sizes by their names."""

    def __init__(self, values: Values):
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return size(Parameter(name, role(name), True), self._values)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name)


def size(parameter: Parameter, values: Values) -> Any:
    """What an argument of a constructor is given."""
    if plain(parameter.name) in ("config", "cfg", "conf", "args", "hparams", "settings", "options", "opt"):
        return Config(values) if parameter.required else parameter.default
    name, found = plain(parameter.name), role(parameter.name)
    if found in ("X", "Q", "K", "V", "params", "context", "weights", "out", "dO"):
        found = {"K": "d_k", "V": "d_v"}.get(found, "d_model")
    if name in ("h",):
        found = "heads"
    if found == "length" and parameter.required:
        return 64
    if found in ("heads", "heads_kv", "d_k", "d_v", "d_model", "d_out", "batch_size", "length_keys"):
        return values[found]
    if found in ("mask", "causal", "key_mask") and not parameter.required:
        return parameter.default
    if found == "dropout":
        return 0.0 if parameter.required else parameter.default
    if parameter.required:
        known = {"bias_flag": False, "seed": 0, "causal": False, "scale": values["d_k"] ** -0.5, "flag": False}
        return known.get(found or "", values["d_model"])
    return parameter.default


def build(cls: type, form: Form, values: Values, transposed: bool = False) -> Any:
    """An instance of the sizes of these values, with their weights where it has weights of its own."""
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    for parameter in constructor(cls):
        if parameter.role in ("heads", "heads_kv") or parameter.required or _sized(parameter, form):
            value = size(parameter, values)
            if parameter.keyword or not parameter.required:
                keywords[parameter.name] = value
            else:
                args.append(value)
    instance = cls(*args, **keywords)
    prepare(instance)
    if callable(fit := getattr(instance, "fit", None)):  # it draws its weights for the data that it is shown
        fit(*(to_carrier(np.array(values["X"]), form.carrier) for p in parameters_of(fit) if p.required))
    give_weights(instance, form, values)
    return instance


def _sized(parameter: Parameter, form: Form) -> bool:
    """An optional size (d_v=None) that would otherwise not follow the call's."""
    return (
        not parameter.required
        and role(parameter.name) in ("d_k", "d_v", "d_out", "d_model")
        and "sizes" in form.offered
    )


def prepare(instance: Any) -> None:
    """A module of PyTorch computes in float64 here, and does not train."""
    torch_ = torch()
    if torch_ is not None and isinstance(instance, torch_.nn.Module):
        instance.double().eval()


def constructor(cls: type) -> list[Parameter]:
    made = getattr(cls, "__init__", None)
    return [] if made is object.__init__ or made is None else parameters_of(made, method=True)


Slot = tuple[tuple[Any, ...], Any, Callable[[Any], None], bool]  # the way to it, its value, how to set it, transposed


def slots(owner: Any, path: tuple[Any, ...] = (), depth: int = 0) -> Iterator[Slot]:
    """Every array that an object holds as its own."""
    torch_ = torch()
    if depth > 4 or isinstance(owner, Config):
        return
    if torch_ is not None and isinstance(owner, torch_.nn.Module):
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                linear = isinstance(owner, torch_.nn.Linear) and name == "weight"

                def put(value: Any, parameter: Any = parameter) -> None:
                    with torch_.no_grad():
                        parameter.copy_(torch_.from_numpy(np.ascontiguousarray(value)))

                yield (*path, name), parameter, put, linear
        for name, module in owner._modules.items():
            yield from slots(module, (*path, int(name) if name.isdigit() else name), depth + 1)
        items: list[tuple[Any, Any]] = [
            (k, v) for k, v in vars(owner).items() if not k.startswith("_") and not isinstance(v, torch_.nn.Module)
        ]
    elif isinstance(owner, dict):
        items = list(owner.items())
    elif isinstance(owner, list):
        items = list(enumerate(owner))
    elif hasattr(owner, "__dict__") and not isinstance(owner, type) and not callable(getattr(owner, "dtype", None)):
        items = list(vars(owner).items())
    else:
        return
    for key, value in items:

        def set_(new: Any, key: Any = key) -> None:
            if isinstance(owner, (dict, list)):
                owner[key] = new
            else:
                setattr(owner, key, new)

        def set_nest(new: Any, set_: Callable[[Any], None] = set_) -> None:
            set_(new.tolist())

        def set_tensor(new: Any, set_: Callable[[Any], None] = set_) -> None:
            set_(torch_.from_numpy(np.ascontiguousarray(new)))

        tensor = torch_ is not None and isinstance(value, torch_.Tensor)
        first = value[0] if isinstance(value, list) and value else None
        object_ = type(value).__module__ not in ("builtins", "numpy") and not tensor and not inspect.ismodule(value)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim in (1, 2, 3):
            yield (*path, key), value, set_, False
        elif isinstance(first, list) and first and isinstance(first[0], float):
            yield (*path, key), np.array(value), set_nest, False
        elif tensor and value.is_floating_point() and value.ndim in (2, 3):
            yield (*path, key), value, set_tensor, False
        elif object_ or isinstance(value, (dict, list)):
            yield from slots(value, (*path, key), depth + 1)


def meaning(path: tuple[Any, ...]) -> tuple[str | None, int | None]:
    """Which weight a way leads to, and of which head: ("heads", 1, "Wq") is W_q of head 1."""
    head = next((key for key in path if isinstance(key, int)), None)
    words = [key for key in path if isinstance(key, str)]
    for i in range(len(words) - 1, -1, -1):
        found = role(words[i])
        last = plain(words[-1])
        own = i == len(words) - 1
        if own and last in ("weight", "w", "kernel", "weights", "data", "bias", "b"):
            continue
        layer = _LAYER.get(found or "")
        if found in PARAMETERS and own:
            return found, head
        if layer and not own:
            return ("b_" if last.startswith("b") else "W_") + layer, head
        if own and layer and found in ("Q", "K", "V"):
            return "W_" + layer, head
    return None, head


def own_weights(instance: Any) -> dict[tuple[Any, ...], tuple[str | None, int | None, tuple[int, ...]]]:
    return {path: (*meaning(path), tuple(value.shape)) for path, value, _, _ in slots(instance)}


def sizes_of(instance: Any, values: Values, names: dict[str, Any], sized: bool) -> tuple[int, ...] | None:
    """(n, m, d, dk, dv, heads, width of the output) by an instance's own weights, where a text has fixed them."""
    shapes: dict[str, tuple[int, int]] = {}
    ones = set()
    found = list(slots(instance)) if instance is not None else []
    told = by_order({path: (meaning(path)[0], tuple(value.shape)) for path, value, *_ in found})
    for path, value, _, linear in found:
        name, head = told.get(path, meaning(path))
        if name and name.startswith("W_") and value.ndim == 2:
            shapes[name] = tuple(value.shape[::-1] if linear else value.shape)
            ones.add(head)
    if "W_qkv" in shapes:
        d, wide = shapes["W_qkv"]
        shapes |= {"W_q": (d, wide // 3), "W_v": (d, wide // 3)}
    if not {"W_q", "W_v"} <= shapes.keys():
        return None
    heads = len(ones - {None})
    if not heads:
        own = [*vars(instance).items(), *names.items()]
        heads = next((v for n, v in own if role(n) == "heads" and type(v) is int), 1)
        heads = values["heads"] if sized else heads
        if any(shapes[name][1] % heads for name in ("W_q", "W_v")):
            return None
        shapes |= {name: (shapes[name][0], shapes[name][1] // heads) for name in ("W_q", "W_v")}
    return 5, 5, shapes["W_q"][0], shapes["W_q"][1], shapes["W_v"][1], heads, shapes.get("W_o", (0, 0))[1]


def by_order(found: dict[tuple[Any, ...], tuple[str | None, Any]]) -> dict[tuple[Any, ...], tuple[str, int | None]]:
    """The roles (and heads) of weights whose names tell nothing: their order tells, in all or within each head."""
    named: dict[tuple[Any, ...], tuple[str, int | None]] = {}
    known = {r for r, _ in found.values() if r}
    for rank, letter in ((2, "W_"), (1, "b_")):
        left = [path for path, (r, shape) in found.items() if r is None and len(shape) == rank]
        heads: dict[int | None, list[tuple[Any, ...]]] = {}
        for path in left:
            heads.setdefault(meaning(path)[1], []).append(path)
        if known & {"W_q", "W_qkv"}:
            if letter + "o" not in known and len(left) == 1:
                named[left[0]] = letter + "o", None  # the one that is left
        elif len(left) in (3, 4):
            named |= {path: (letter + which, None) for path, which in zip(left, "qkvo")}
        elif all(len(paths) == 3 for paths in heads.values()):
            named |= {p: (letter + w, head) for head, paths in heads.items() for p, w in zip(paths, "qkv")}
    return named


def give_weights(instance: Any, form: Form, values: Values) -> None:
    """Set an object's own weights to those of the call; Unsuited where they do not fit."""
    found = list(slots(instance))
    told: dict[tuple[Any, ...], tuple[str | None, int | None]] = {path: meaning(path) for path, *_ in found}
    shapes = {path: (told[path][0], tuple(value.shape)) for path, value, *_ in found}
    told |= by_order(shapes)
    for path, value, put, linear in found:
        name, head = told[path]
        if name is None or "W_q" not in values:  # it is asked what it has
            continue
        weight = values.get("W_" + name[2:])
        if name in ("W_qkv", "b_qkv"):
            new = form._fused(values) if name == "W_qkv" else form._parameter("b_qkv", values)
        elif name in ("W_kv", "b_kv"):
            both = [form._parameter(name[:2] + letter, values) for letter in "kv"]
            new = np.concatenate([w.weight if isinstance(w, Affine) else w for w in both], axis=-1)
        elif weight is None:
            continue
        elif name.startswith("b_"):
            new = weight.bias if isinstance(weight, Affine) else np.zeros(weight.shape[-1])
        else:
            new = weight.weight if isinstance(weight, Affine) else weight
        new = np.asarray(new)
        if head is not None and name[2:] in ("q", "k", "v"):
            count = values["heads"] if name[2:] == "q" else values["heads_kv"]
            if head >= count:
                raise Unsuited(name)
            new = np.split(new, count, axis=-1)[head]
        if value.ndim == 3 and new.ndim == 2 and name.startswith("W_"):
            new = np.stack(np.split(new, values["heads"], axis=-1)) if name != "W_o" else new.reshape(value.shape)
        if name.startswith("W_") and new.ndim == 2 and (linear != (form.weights == "transposed")):
            new = new.T
        if new.shape != tuple(value.shape):
            if new.size == value.size and 1 in value.shape:
                new = new.reshape(tuple(value.shape))
            else:
                raise Unsuited(f"{name}: {new.shape} for {tuple(value.shape)}")
        put(np.array(new))


def methods(cls: type) -> list[str]:
    """The public methods that a class defines (or inherits from one of the same file), in order of fitness."""
    listed: list[str] = []
    for base in cls.__mro__[:-1]:
        if base.__module__ == cls.__module__:
            listed += [
                n
                for n, f in vars(base).items()
                if n not in listed and (inspect.isfunction(f) or isinstance(f, (staticmethod, classmethod)))
            ]
    return sorted(listed, key=lambda n: FIRST.index(n) if n in FIRST else len(FIRST))


def running(cls: type, method: str) -> Callable[[Form, Values, list[Any], dict[str, Any]], Any]:
    """Running a method of a new instance, or of the one that is kept for two calls in a row."""

    sized = any(p.role in ("length_keys", "batch_size") for p in constructor(cls))

    def run(form: Form, values: Values, args: list[Any], keywords: dict[str, Any]) -> Any:
        if form.kept is None or sized:
            return getattr(build(cls, form, values), method)(*args, **keywords)
        if not form.kept:
            form.kept.append(build(cls, form, values))
        return getattr(form.kept[0], method)(*args, **keywords)

    return run


def backward_running(
    cls: type, forward: str, backward: str
) -> Callable[[Form, Values, list[Any], dict[str, Any]], Any]:
    """Running backward after forward on a new instance; the form's arguments are those of forward, dO comes last."""

    def run(form: Form, values: Values, args: list[Any], keywords: dict[str, Any]) -> Any:
        instance = build(cls, form, values)
        getattr(instance, forward)(*args, **keywords)
        found = getattr(instance, backward)(to_carrier(np.array(values["dO"]), form.carrier))
        kept = {str(path[-1]): v for path, v, *_ in slots(instance) if str(path[-1]).lower().startswith(("d", "grad"))}
        return (found, kept) if kept else found

    return run


def arrays_in(values: Values) -> list[Array]:
    return [v for v in values.values() if isinstance(v, np.ndarray)]
