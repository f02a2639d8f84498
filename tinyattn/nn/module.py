"""A module: it holds parameters, and other modules, by name."""

from __future__ import annotations

import functools
from collections import UserList, deque
from collections.abc import Iterable, Iterator, Mapping, Set, ValuesView
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import habits
from ..arguments import told
from ..graph import Tensor, wrap
from ..modes import current_region
from ..values import Array
from .cache import KVCache

__all__ = ["Module"]

CONTAINERS = (list, tuple, deque, UserList, Mapping, SimpleNamespace)
SEARCHED = (*CONTAINERS, Set, ValuesView, np.ndarray)
OWN = ("training", "_set_by_calls", "_listed")  # what Module itself keeps in a module


class Module:
    """A part of a model: its parameters are Tensors, its parts Modules. A subclass computes in `forward`.

    Both are found in attributes, and in lists, tuples, dictionaries and dataclasses, however deep. Each counts once, so
    a part may refer to the whole. A parameter is a leaf (no op made it): an attribute that was set before the module
    was called, or a tensor in such a container that requires gradients. What `forward` sets is no parameter.
    """

    training = True
    _set_by_calls: frozenset[str] = frozenset()  # the attributes that forward() has set
    _listed: frozenset[Tensor] = frozenset()  # parameters found in such containers: they stay parameters when frozen

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = habits.explained(cls.__init__)  # type: ignore[method-assign]

    if not TYPE_CHECKING:  # a type checker sees only the names that exist

        def __getattr__(self, name: str) -> Any:
            raise habits.no_attribute(f"a {type(self).__name__}", name, dir(self), habits.MODULE)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward(): write what it computes there")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """forward(*args, **kwargs), drawn as one box. A cache among the arguments is kept if the call ends well."""
        token = current_region.set((type(self).__name__, self, current_region.get()))
        try:
            for x in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(x, KVCache):
                    with x:
                        return self.forward(*args, **kwargs)
            return self.forward(*args, **kwargs)
        except TypeError as error:
            habits.explain(error, self.forward, kwargs, habits.CALLS.get(type(self).__name__, ""))
            raise
        finally:
            current_region.reset(token)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, (Tensor, *CONTAINERS)):
            call = current_region.get()
            while call and call[1] is not self:
                call = call[2]
            vars(self)["_set_by_calls"] = self._set_by_calls | {name} if call else self._set_by_calls - {name}

    def _parts(self) -> Iterator[tuple[str, Tensor | Module]]:
        """The parameters and modules that this module itself holds, by name."""
        for name, value in list(vars(self).items()):
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, Tensor):
                if value._node is None and name not in self._set_by_calls:
                    yield name, value
            elif _searched(value.__class__) and name not in OWN:
                for path, part in _inside(name, value):
                    if isinstance(part, Module):
                        yield path, part
                    elif part._node is None and name not in self._set_by_calls:
                        if part.requires_grad:
                            vars(self)["_listed"] = self._listed | {part}
                        if part in self._listed:
                            yield path, part

    def _walk(self) -> Iterator[tuple[str, Tensor | Module]]:
        """Every parameter and module below, once, with its dotted name."""
        seen: set[Tensor | Module] = {self}
        todo = [("", self._parts())]
        while todo:
            prefix, parts = todo[-1]
            for name, part in parts:
                if part not in seen:
                    seen.add(part)
                    yield prefix + name, part
                    if isinstance(part, Module):
                        todo.append((f"{prefix}{name}.", part._parts()))
                        break
            else:
                todo.pop()

    def _find(self, name: str) -> Tensor | None:
        """The parameter of that name; a shared parameter has several names."""
        found = None
        for path, part in self._parts():
            if isinstance(part, Tensor):
                found = part if path == name else None
            elif name.startswith(f"{path}."):
                found = part._find(name[len(path) + 1 :])
            if found is not None:
                break
        return found

    def modules(self) -> Iterator[Module]:
        """This module and all below, each once."""
        yield self
        yield from (part for _, part in self._walk() if isinstance(part, Module))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, parameter), each parameter once, as in 'blocks.0.attention.q_proj.weight'.

        Raises ValueError if two have the same name, as in {"a.b": …} and {"a": {"b": …}}.
        """
        names = set()
        for name, part in self._walk():
            if isinstance(part, Tensor):
                if name in names:
                    raise ValueError(f"two parameters have the name {name}: use keys without dots, and of one type")
                names.add(name)
                yield name, part

    def parameters(self) -> list[Tensor]:
        return [p for _, p in self.named_parameters()]

    def state_dict(self) -> dict[str, Array]:
        """Copies of the parameters' values by name."""
        return {name: p.numpy() for name, p in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the parameters from arrays by name; each keeps its own dtype.

        Raises ValueError for missing or unexpected names, wrong shapes, and what is no number; it then changes nothing.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"a state is a dictionary of arrays by name, as state_dict() gives, not {told(state)}")
        own, given = dict(self.named_parameters()), {}
        for name, value in state.items():
            p = own[name] if name in own else self._find(str(name))
            if p is not None:
                given[name] = p, _array(name, value)
        new = dict(given.values())
        missing = [name for name, p in own.items() if p not in new]
        unexpected = [str(name) for name in state if name not in given]
        if missing or unexpected:
            raise ValueError(
                f"this state does not fit {type(self).__name__}: missing {few(missing)}; unexpected "
                f"{few(unexpected)}. Was it saved from a model with the same options?"
            )
        wrong = [
            f"{name} {a.shape} {a.dtype} for {p.shape}"
            for name, (p, a) in given.items()
            if a.shape != p.shape or a.dtype.kind not in "fiub"
        ]
        if wrong:
            raise ValueError(
                f"this state does not fit {type(self).__name__}: {few(wrong)}. Was it saved from a model "
                "of another size?"
            )
        with np.errstate(over="ignore"):
            new = {p: array.astype(p.dtype) for p, array in new.items()}
        wrong = [name for name, (p, a) in given.items() if np.isfinite(a).sum() != np.isfinite(new[p]).sum()]
        if wrong:
            raise ValueError(f"too large for the parameters' dtype, they would become infinite: {few(wrong)}")

        for p, array in new.items():
            p.data = array

    def train(self, mode: bool = True) -> Module:
        """Switch dropout on (or off), here and in all parts."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def zero_grad(self) -> None:
        for p in self.parameters():
            p.grad = None

    def astype(self, dtype: Any) -> Module:
        """Turn all parameters into another floating dtype, in place (float32 trains fastest); clears gradients."""
        try:
            kind = np.dtype(dtype).kind
        except (TypeError, ValueError):
            raise TypeError(f"dtype = {told(dtype)} is no dtype: use np.float32, np.float64 or np.float16") from None
        if kind != "f":
            raise TypeError(f"parameters cannot become {np.dtype(dtype)}: gradients need a floating dtype")
        for p in self.parameters():
            p.grad = None
            p.data = p._data.astype(dtype)
        return self

    def __repr__(self) -> str:
        return _text(self._tree(set()))

    def _repr_html_(self) -> str:
        """What a notebook shows: the same tree, whose parts can be opened."""
        return _html(self._tree(set()))

    def _tree(self, seen: set[Module]) -> tuple[str, list[Any]]:
        """(a line on this module, the (name, tree) of each part); a module is shown in full once."""
        seen.add(self)
        trees = []
        for name, part in self._parts():
            if isinstance(part, Module):
                trees.append((name, (f"the {type(part).__name__} above", []) if part in seen else part._tree(seen)))
        return self._line(), trees

    def _line(self) -> str:
        """This module without its parts: Linear(weight (3, 2), bias (3,))  9 parameters."""
        shown = [f"{name} {part.shape}" for name, part in self._parts() if isinstance(part, Tensor)]
        shown += [f"{name}={v}" for name, v in vars(self).items() if isinstance(v, (int, float)) and name not in OWN]
        size = sum(p.size for p in self.parameters())
        return f"{type(self).__name__}({', '.join(shown)})" + f"  {size:,} parameters" * (size > 0)


def _text(tree: tuple[str, list[Any]]) -> str:
    line, trees = tree
    return "\n  ".join([line, *(f"{name}: {_text(part)}".replace("\n", "\n  ") for name, part in trees)])


def _html(tree: tuple[str, list[Any]]) -> str:
    import html

    line, inside = f"<code>{html.escape(tree[0])}</code>", tree[1]
    items = "".join(f"<li>{html.escape(name)}: {_html(part)}</li>" for name, part in inside)
    return f"<details open><summary>{line}</summary><ul>{items}</ul></details>" if inside else line


def _inside(name: str, value: Any) -> Iterator[tuple[str, Tensor | Module]]:
    """(path, part) for the tensors and modules in a value: the value itself, or what it holds, however deep."""
    todo, seen = [(name, value)], set()
    while todo:
        path, value = todo.pop()
        if isinstance(value, (Tensor, Module)):
            yield path, value
        elif (items := _named(value)) is not None:
            if id(value) not in seen:
                seen.add(id(value))
                todo += [(f"{path}.{key}", item) for key, item in reversed(items)]
        elif any(isinstance(x, (Tensor, Module)) for x in _nameless(value)):
            raise TypeError(
                f"{path} holds parameters or modules in a {type(value).__name__}, in which they have no order or no "
                "name: use a list, a tuple or a dictionary"
            )


def _named(value: Any) -> list[tuple[Any, Any]] | None:
    """The items of a container in which each has a name; None for other values."""
    if isinstance(value, (list, tuple, deque, UserList)):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, SimpleNamespace):
        return list(vars(value).items())
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    return None


def _nameless(value: Any) -> Iterable[Any]:
    """The items of a container in which they have no name."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.flat
    return value if isinstance(value, (Set, ValuesView)) else ()


@functools.cache
def _searched(kind: type) -> bool:
    return issubclass(kind, SEARCHED) or is_dataclass(kind)


def _array(name: Any, value: Any) -> Array:
    try:
        return np.asarray(value._data if isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} holds {told(value)}, which makes no array: {error}") from error


@contextmanager
def resting(modules: list[Module]) -> Iterator[None]:
    """Inside, these modules are in eval mode. Afterwards each has the mode that it had."""
    trained = [module for module in modules if module.training]
    for module in trained:
        module.training = False
    try:
        yield
    finally:
        for module in trained:
            module.training = True


def few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "none"


def parameter(values: Any, name: str) -> Tensor:
    p = wrap(values, name)
    p.requires_grad = True
    return p
