"""The functions of a running program, with their code exchanged for the rewritten one, and put back after."""

import ast
import builtins
import copy
import functools
import linecache
import os
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .rewrite import HOOK, Site, rewritten

Hook = Callable[[int, Any], Any]
FAR = 400  # objects looked at, at most, on the way from a function to those that it uses


def text_of(file: str) -> str:
    return "".join(linecache.getlines(file))


@dataclass
class Script:
    """Texts that run from top to bottom: their trees, and the codes that are run."""

    trees: list[ast.Module]
    texts: list[str]
    files: list[str]
    codes: list[types.CodeType]


class Program:
    """All functions that can be reached from `roots` and whose text is the learner's own: the same file's, or
    another cell's. `with Program(...) as program: program.hook = …` lets their expressions call the hook."""

    def __init__(self, roots: Iterable[Any]):
        self.sites: list[Site] = []
        self._codes: dict[tuple[str, str, int], list[types.CodeType]] = {}
        self._files: set[str] = set()
        self._kept: list[tuple[types.FunctionType, types.CodeType]] = []
        self._scripts = [root for root in roots if isinstance(root, Script)]
        self._plain = [[*script.codes] for script in self._scripts]
        self._inside = [[self._run(*parts) for parts in zip(s.texts, s.files, s.trees)] for s in self._scripts]
        self._functions = [f for f in _reachable(roots) if self._learn(f.__code__.co_filename)]

    def _learn(self, file: str) -> bool:
        """Rewrite a file, once."""
        if file not in self._files:
            self._files.add(file)
            try:
                code, sites = rewritten(text_of(file), file, len(self.sites))
            except (SyntaxError, ValueError, RecursionError):
                return False
            self.sites += sites
            self.add(code)
        return True

    def _run(self, text: str, file: str, tree: ast.Module) -> types.CodeType:
        code, sites = rewritten(text, file, len(self.sites), copy.deepcopy(tree))
        self.sites += sites
        return code

    def add(self, code: types.CodeType) -> None:
        for part in _nested(code):
            self._codes.setdefault((part.co_filename, part.co_qualname, part.co_firstlineno), []).append(part)

    def __enter__(self) -> "Program":
        for function in self._functions:
            old = function.__code__
            found = self._codes.get((old.co_filename, old.co_qualname, old.co_firstlineno), [])
            new = [c for c in found if (c.co_freevars, c.co_varnames) == (old.co_freevars, old.co_varnames)]
            if new:
                self._kept.append((function, old))
                function.__code__ = new[0]
        for script, codes in zip(self._scripts, self._inside):
            script.codes[:] = codes
        self.hook = _untouched
        return self

    def __exit__(self, *_: object) -> None:
        for function, code in self._kept:
            function.__code__ = code
        for script, codes in zip(self._scripts, self._plain):
            script.codes[:] = codes
        self._kept = []
        vars(builtins).pop(HOOK, None)

    @property
    def hook(self) -> Hook:
        """What all sites call: a built-in name while the program is open, since every module sees those."""
        return vars(builtins)[HOOK]  # type: ignore[no-any-return]

    @hook.setter
    def hook(self, hook: Hook) -> None:
        vars(builtins)[HOOK] = hook


def _untouched(_: int, value: Any) -> Any:
    return value


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _reachable(roots: Iterable[Any]) -> list[types.FunctionType]:
    """Functions, from the roots on: those named in their code, in their closures, in classes and instances."""
    todo, seen = [*roots], set[int]()
    found: list[types.FunctionType] = []
    files: set[str] = set()
    while todo and len(seen) < FAR:
        thing = todo.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, types.FunctionType):
            todo.append(getattr(thing, "__wrapped__", None))
            todo += [cell.cell_contents for cell in thing.__closure__ or () if _filled(cell)]
            file = thing.__code__.co_filename
            if files and file not in files and os.path.exists(file):
                continue  # a library's
            if not text_of(file):
                continue
            files.add(file)
            found.append(thing)
            names = {name for code in _nested(thing.__code__) for name in code.co_names}
            todo += [thing.__globals__[name] for name in sorted(names) if name in thing.__globals__]
        elif isinstance(thing, type):
            todo += [v for base in thing.__mro__ if base is not object for v in vars(base).values()]
        elif isinstance(thing, (types.MethodType, staticmethod, classmethod)):
            todo += [thing.__func__, getattr(thing, "__self__", None)]
        elif isinstance(thing, property):
            todo += [thing.fget, thing.fset]
        elif isinstance(thing, functools.partial):
            todo += [thing.func, *thing.args, *thing.keywords.values()]
        elif isinstance(thing, (list, tuple, dict)):
            todo += [*(thing.values() if isinstance(thing, dict) else thing)][:50]
        elif not isinstance(thing, types.ModuleType):
            todo += [getattr(thing, "__wrapped__", None), *getattr(thing, "__dict__", {}).values()]
            todo.append(type(thing) if type(thing).__module__ not in ("builtins", "numpy") else None)
    return found


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
