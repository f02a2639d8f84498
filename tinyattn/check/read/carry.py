"""Between NumPy and the learner's world: arrays, nested lists or tensors in; anything at all out."""

import ast
import dataclasses
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ..known.reference import Array

Path = tuple[Any, ...]
LARGEST = 1_000_000  # numbers in one array; a learner's bigger one counts by its shape alone


def torch() -> Any:
    """PyTorch, if the learner's program has imported it."""
    return sys.modules.get("torch")


def imports_torch(code: str) -> bool:
    """Whether a text, now that it has run, works with PyTorch: an import in one of its functions is made up for."""
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(code))))
    except SyntaxError:
        return False
    used = [ast.unparse(node) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom, ast.Name))]
    if any(re.match(r"(import|from) torch\b", text) for text in used):
        with suppress(ImportError):
            import_module("torch")
    return torch() is not None and any(re.search(r"\btorch\b", text) for text in used)


def to_carrier(value: Any, carrier: str) -> Any:
    """An array as the program wants it; what is no array stays."""
    if not isinstance(value, np.ndarray):
        return value
    if carrier == "list":
        return value.tolist()
    if carrier == "tensor":
        return torch().from_numpy(np.ascontiguousarray(value))
    return value


def to_array(value: Any) -> Array | None:
    """An array, a tensor or a rectangular nest of numbers as an array; None for anything else."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (type, ModuleType)):
        return None
    if callable(getattr(value, "detach", None)):
        value = value.detach()
    if callable(getattr(value, "numpy", None)):
        try:
            found = value.numpy()
        except Exception:
            return None
        return found if isinstance(found, np.ndarray) else None
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (str, bytes, dict)):
        if all(isinstance(v, np.ndarray) for v in value) and isinstance(value, tuple):
            return None
        try:
            array = np.array(value, dtype=None)
        except (ValueError, TypeError):
            return None
        return array if array.dtype.kind in "biufc" else None
    return None


def leaves(value: Any, path: Path = (), depth: int = 0) -> Iterator[tuple[Path, Array]]:
    """The arrays inside a returned value, each with the way to it. A nest of numbers is one array first."""
    array = to_array(value)
    several = isinstance(value, tuple) and len(value) > 1 and all(to_array(v) is not None for v in value)
    if array is not None and not several:
        yield path, array
    if (array is not None and isinstance(value, np.ndarray)) or depth > 3:
        return
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (tuple, list)) and len(value) <= 16:
        items = list(enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    else:
        return
    for key, item in items:
        yield from leaves(item, (*path, key), depth + 1)


def follow(value: Any, path: Path) -> Array | None:
    """The array at the end of a way that `leaves` gave."""
    for key in path:
        try:
            value = value[key] if isinstance(value, (dict, tuple, list)) else getattr(value, key)
        except (KeyError, IndexError, AttributeError, TypeError):
            return None
    return to_array(value)


class Weight(np.ndarray[Any, Any]):
    """A weight that also answers to ["w"], ["weight"], .b and the like, as a layer in a dict would."""

    bias: Array | None = None

    def __array_finalize__(self, other: Any) -> None:
        self.bias = getattr(other, "bias", None)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            own = self.bias if key.lower().startswith("b") else np.asarray(self)
            if own is None:
                own = np.zeros(self.shape[-1])
            return own
        return np.asarray(self)[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self[key]


class Weights(dict[Any, Any]):
    """A dict of weights that is made while it is asked: the key says which weight is meant."""

    def __init__(self, find: Any):
        super().__init__()
        self._find = find

    def __missing__(self, key: Any) -> Any:
        value = self._find(key)
        if value is None:
            raise KeyError(key)
        self[key] = value
        return value

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(key) or self._find(key) is not None

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None
