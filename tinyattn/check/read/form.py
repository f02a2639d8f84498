"""A form: how a program is called with the arguments of a known kind, and where its answer is found.

`Form.call(*arguments)` takes what the right program of that kind takes (known/reference.py), hands it over in the
learner's own way (names, order, rank, carrier, mask convention), and gives back arrays as the right program does.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..known.probes import ARGUMENTS, Limits
from ..known.reference import Affine, Array, attention_weights
from .carry import Path, Weight, Weights, follow, to_carrier
from .names import PARAMETERS, plain, role

Values = dict[str, Any]  # role -> value, as NumPy arrays and numbers


class Unsuited(Exception):
    """The form cannot take these arguments: nothing is said about the program."""


class NoAnswer(Exception):
    """The call came back, but without an answer where it was."""

    def __init__(self, value: Any):
        super().__init__("no answer")
        self.value = value


@dataclass(frozen=True)
class Parameter:
    """One argument of the learner's function, and what it means."""

    name: str
    role: str | None
    required: bool
    keyword: bool = False
    default: Any = None


@dataclass(frozen=True)
class MaskForm:
    """How a program wants its mask."""

    values: str = "bool"  # bool, int, float, additive, additive -1e9
    blocked: bool = False  # True (or 1) marks what may not be seen
    axes: str = "nm"  # nm, 1nm, b1nm (1, 1, n, m), and for keys alone m, bm, b1m, b11m
    offered: bool = True
    given: Any = None  # what the text's own mask function returns, as it is

    def encode(self, allowed: Array, lead: tuple[int, ...]) -> Array:
        """A boolean mask (n, m), True where attending is allowed, in this form."""
        if self.given is not None:
            return self.given  # type: ignore[no-any-return]
        if allowed.dtype != bool:
            return allowed
        if self.values.startswith("additive"):
            mask = np.where(allowed, 0.0, -1e9 if self.values.endswith("9") else -np.inf)
        else:
            mask = (~allowed if self.blocked else allowed).astype(self.values)
        if self.axes in ("m", "bm", "b1m", "b11m"):
            row = mask[..., 0, :]
            if self.axes == "m":
                return row
            whole = np.broadcast_to(row, (*(lead[:1] or (1,)), row.shape[-1])).copy()
            return {"bm": whole, "b1m": whole[:, None], "b11m": whole[:, None, None]}[self.axes]
        if self.axes == "bnm":
            return np.broadcast_to(mask, (*(lead[:1] or (1,)), *mask.shape[-2:])).copy()
        if self.axes == "b1nm":
            return np.broadcast_to(mask, (*(lead[:1] or (1,)), 1, *mask.shape[-2:])).copy()
        return mask[None] if self.axes == "1nm" else mask[None, None] if self.axes == "11nm" else mask


@dataclass
class Form:
    """Everything that was read off a program, as choices that can be tried one by one."""

    kind: str
    label: str
    parameters: list[Parameter]
    run: Callable[["Form", Values, list[Any], dict[str, Any]], Any]  # the learner's code on its own arguments
    roots: list[Any] = field(default_factory=list)  # live objects that its code starts from
    carrier: str = "array"
    lift: int = 0
    weights: str = "plain"  # plain, object (arrays that answer to ["w"]), transposed, and ways to fuse three
    scale: str = "1/√dk"
    mask: MaskForm = MaskForm()
    answer: tuple[Path, ...] = ()
    extra: Path | None = None  # where the attention weights are, if they are returned
    limits: Limits = field(default_factory=Limits)
    notes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    offered: set[str] = field(default_factory=set)  # optional arguments that are handed over
    changed: list[int] = field(default_factory=list)  # arguments that the last call changed in place
    script: bool = False
    kept: list[Any] | None = None  # during two calls in a row: the instance that both are made of

    def has(self, *roles: str) -> bool:
        return any(p.role in roles for p in self.parameters)

    def raw(self, *arguments: Any, read_only: bool = False) -> Any:
        """What the learner's code returns for these arguments."""
        values = self.values(*arguments)
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        handed: dict[str, Array] = {}
        for parameter in self.parameters:
            if not self.wanted(parameter, values):
                continue
            value = self.value(parameter, values)
            if isinstance(value, np.ndarray) and type(value) is np.ndarray:
                value = np.array(value, order="K", copy=True)
                handed[parameter.role or parameter.name] = value
                value.flags.writeable = not read_only
            kept = to_carrier(value, self.carrier)
            if parameter.required and not parameter.keyword:
                args.append(kept)
            else:
                keywords[parameter.name] = kept
        before = {name: array.tobytes() for name, array in handed.items()}
        self.changed = []
        try:
            return self.run(self, values, args, keywords)
        finally:
            names = ARGUMENTS[self.kind.partition("/")[0]]
            for name, array in handed.items():
                if array.tobytes() != before[name]:
                    mine = {"W_q": "Wq", "W_k": "Wk", "W_v": "Wv", "W_o": "Wo"}.get(name, name)
                    mine = mine if mine in names else {"Q": "X", "K": "Xk", "V": "Xv", "context": "Xk"}.get(mine, mine)
                    self.changed += [names.index(mine)] if mine in names else []

    def wanted(self, parameter: Parameter, values: Values) -> bool:
        """Whether an argument is handed over: all that are required, and the optional ones that mean something."""
        if parameter.required:
            return True
        if parameter.role in ("mask", "key_mask", "lengths"):
            return values.get("allowed") is not None and parameter.name in self.offered
        if parameter.role in ("heads", "heads_kv") or parameter.role in PARAMETERS:
            return parameter.role in values and values[parameter.role] is not None and parameter.name in self.offered
        return parameter.name in self.offered and parameter.role in values

    def values(self, *arguments: Any) -> Values:
        """The arguments of the kind by role, with the leading axes that the form wants."""
        kind = self.kind.partition("/")[0]
        given = dict(zip(ARGUMENTS[kind], arguments))
        values: Values = {"allowed": given.get("mask")}
        if kind == "softmax":
            return {"X": given["x"], "d_k": given["x"].shape[-1]}
        if kind == "causal_mask":
            return {"length": given["n"], "X": given["n"], "d_model": given["n"], "length_keys": given["n"]}
        if kind in ("scaled_dot_product_attention", "scaled_dot_product_attention_backward"):
            Q, K, V = (self._lifted(given[name]) for name in "QKV")
            values |= {"Q": Q, "K": K, "V": V, "X": Q, "context": K}
            if "dO" in given:
                values["dO"] = self._lifted(given["dO"])
            dk, dv = Q.shape[-1], V.shape[-1]
            values |= {"d_k": dk, "d_model": dk, "d_v": dv, "d_out": dv, "heads": 1, "heads_kv": 1}
        else:
            X, Wq, Wk, Wv = self._lifted(given["X"]), given["Wq"], given["Wk"], given["Wv"]
            Xk, Xv = (
                X if given.get(n) is None or given[n] is given["X"] else self._lifted(given[n]) for n in ("Xk", "Xv")
            )
            heads, shared = given.get("num_heads", 1), given.get("num_kv_heads", 1)
            values |= {"X": X, "Q": X, "K": Xk, "V": Xv, "context": Xk, "heads": heads, "heads_kv": shared}
            values |= {"W_q": Wq, "W_k": Wk, "W_v": Wv, "W_o": given.get("Wo")}
            if "dO" in given:
                values["dO"] = self._lifted(given["dO"])
            dk, dv = Wq.shape[-1] // heads, Wv.shape[-1] // shared
            values |= {"d_k": dk, "d_v": dv, "d_model": X.shape[-1], "d_out": heads * dv}
        values |= {"length": values["Q"].shape[-2], "length_keys": values["K"].shape[-2]}
        lead = values["Q"].shape[:-2]
        values |= {"lead": lead, "batch_size": lead[0] if lead else 1}
        return values

    def _lifted(self, array: Array) -> Array:
        return array[(None,) * self.lift] if array.ndim == 2 and self.lift else array

    def value(self, parameter: Parameter, values: Values) -> Any:
        """What is handed over for one argument."""
        found, mean = parameter.role, values
        if found == "mask":
            if mean["allowed"] is None:
                return self._all_allowed(values)
            return self.mask.encode(mean["allowed"], mean["lead"])
        if found == "key_mask":
            allowed = mean["allowed"] if mean["allowed"] is not None else np.ones((1, mean["length_keys"]), dtype=bool)
            return self.mask.encode(allowed, mean["lead"])
        if found == "lengths":
            allowed = mean["allowed"] if mean["allowed"] is not None else np.ones((1, mean["length_keys"]), dtype=bool)
            return np.full(mean["batch_size"], int(allowed[..., 0, :].sum()))
        if found == "three":
            return [to_carrier(np.array(mean[name]), self.carrier) for name in "QKV"]
        if found == "scale":
            root = float(np.sqrt(mean["d_k"]))
            return root if self.scale == "√dk" else 1 / root
        if found == "params" and self.weights == "list":
            names = ("W_q", "W_k", "W_v", "W_o")[: 4 if self.limits.output else 3]
            return [to_carrier(self._weight(mean[n]), self.carrier) for n in names]
        if found == "params":
            return Weights(lambda key: self._by_key(key, values))
        if found == "W_qkv":
            return self._fused(values)
        if found == "W_kv":
            return self._weight(np.concatenate([mean["W_k"], mean["W_v"]], axis=-1))
        if found in PARAMETERS:
            return self._parameter(found, values)
        if found == "weights":
            return attention_weights(mean["Q"], mean["K"], mean["allowed"])
        if found == "out":
            return attention_weights(mean["Q"], mean["K"], mean["allowed"]) @ mean["V"]
        fixed = {"dropout": 0.0, "training": False, "axis": -1, "seed": 0, "bias_flag": False, "block": 2}
        fixed |= {"flag": False, "causal": False}
        if found in mean:
            return mean[found]
        if found in fixed:
            return fixed[found]
        if parameter.required:
            raise Unsuited(parameter.name)
        return parameter.default

    def _all_allowed(self, values: Values) -> Any:
        """Where a mask is required and none is meant: one that allows everything."""
        if self.mask.axes in ("m", "bm", "b1m", "b11m") or self.mask.offered:
            everything = np.ones((values["length"], values["length_keys"]), dtype=bool)
            return self.mask.encode(everything, values["lead"])
        return None

    def _weight(self, array: Any, bias: Any = None) -> Any:
        if isinstance(array, Affine):
            array, bias = array.weight, array.bias
        if self.weights == "transposed":
            array = array.T
        if self.weights.startswith("object"):
            made = np.array(array).view(Weight)
            made.bias = bias
            return made
        return array

    def _parameter(self, found: str, values: Values) -> Any:
        if found == "b_kv":
            return np.concatenate([self._parameter(b, values) for b in ("b_k", "b_v")])
        weight = values["W_" + found[-1]]
        if found.startswith("b_") and found != "b_qkv":
            return weight.bias if isinstance(weight, Affine) else np.zeros(weight.shape[-1])
        if found == "b_qkv":
            return np.concatenate([self._parameter(b, values) for b in ("b_q", "b_k", "b_v")])
        if self.weights == "by head" and found in ("W_q", "W_k", "W_v"):
            count = values["heads"] if found == "W_q" else values["heads_kv"]
            return np.stack(np.split(weight, count, axis=-1))
        return self._weight(weight)

    def _fused(self, values: Values) -> Any:
        """Wq, Wk and Wv in one: side by side, head by head, or stacked."""
        three = [values[name] for name in ("W_q", "W_k", "W_v")]
        bias = None
        if isinstance(three[0], Affine):
            bias = np.concatenate([w.bias for w in three])
            three = [w.weight for w in three]
        if self.weights == "stacked":
            return np.stack(three)
        if self.weights == "fused by head":
            split = [np.split(w, values["heads"], axis=-1) for w in three]
            return np.concatenate([part for head in zip(*split) for part in head], axis=-1)
        return self._weight(np.concatenate(three, axis=-1), bias)

    def _by_key(self, key: Any, values: Values) -> Any:
        """The weight that a key of a dict of weights asks for."""
        found = role(key) if isinstance(key, str) else {0: "W_q", 1: "W_k", 2: "W_v", 3: "W_o"}.get(key)
        found = {"Q": "W_q", "K": "W_k", "V": "W_v", "out": "W_o", "params": None, "X": None}.get(found or "", found)
        if isinstance(key, str) and plain(key) in ("o", "out", "output", "proj", "wo", "w_o", "attn_out"):
            found = "W_o"
        if found == "W_qkv":
            return self._fused(values)
        if found == "heads" or found in ("d_k", "d_model", "heads_kv"):
            return values[found]
        if found in PARAMETERS:
            if found.startswith("W_") and values.get(found) is None:
                return None
            made = self._parameter(found, values)
            return to_carrier(made, self.carrier)
        return Weights(lambda inner: self._by_key(inner, values)) if isinstance(key, str) else None

    def call(self, *arguments: Any, read_only: bool = False) -> tuple[Array, ...]:
        """The program's answer as the right program of this kind would give it."""
        value = self.raw(*arguments, read_only=read_only)
        found = self.find(value)
        if found is None:
            raise NoAnswer(value)
        return found

    def find(self, value: Any) -> tuple[Array, ...] | None:
        """The answer in what was returned, and behind it the attention weights, if they came along."""
        paths = self.answer or ((),)
        arrays = [follow(value, path) for path in paths]
        if any(a is None for a in arrays):
            return None
        answer = [self._dropped(a) for a in arrays if a is not None]
        if self.extra is not None:
            more = follow(value, self.extra)
            answer += [self._dropped(more)] if more is not None else []
        return tuple(answer)

    def _dropped(self, array: Array) -> Array:
        return array[(0,) * self.lift] if self.lift and array.shape[: self.lift] == (1,) * self.lift else array

    def but(self, **changes: Any) -> "Form":
        """The same form with other choices."""
        made = replace(self, **changes)
        made.notes, made.offered = list(made.notes), set(made.offered)
        return made


def parameters_of(function: Callable[..., Any], *, method: bool = False) -> list[Parameter]:
    """A function's arguments with the roles that their names tell."""
    try:
        listed = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    found = []
    for p in listed:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        required = p.default is p.empty
        found.append(
            Parameter(p.name, role(p.name), required, p.kind is p.KEYWORD_ONLY, None if required else p.default)
        )
    return found[1:] if method and found and found[0].name in ("self", "cls") else found


def called(function: Callable[..., Any]) -> Callable[[Form, Values, list[Any], dict[str, Any]], Any]:
    """Running a plain function."""
    return lambda form, values, args, keywords: function(*args, **keywords)
