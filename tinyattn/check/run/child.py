"""Runs inside the child process: calls a learner's functions and writes down what came back.

A script of its own that imports nothing of tinyattn, so that a learner's file finds the same world as under
`python file.py`. It reads a pickled job and appends one line of JSON per call to a file; whatever the
learner's code does (prints, exits, crashes, hangs), the lines already written remain.
"""

import contextlib
import importlib.util
import inspect
import json
import linecache
import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Write = Callable[[dict[str, Any]], None]
MEMORY = 8 << 30  # bytes of address space that the child may ask for
LARGEST = 1_000_000  # numbers in one array; a learner's bigger one is recorded by its shape alone


def load(path: str) -> ModuleType:
    """The learner's file as a module, with its folder on the path, as `python file.py` would have it."""
    sys.path.insert(0, str(Path(path).parent))
    name = Path(path).stem
    name = name if name.isidentifier() and name not in sys.modules else f"learner_{name}"
    loader = SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def describe(error: BaseException, path: str) -> dict[str, Any]:
    """The exception in words, with the last line of the learner's own file that it passed through."""
    told: dict[str, Any] = {"error": type(error).__name__, "message": str(error)[:500]}
    if isinstance(error, SyntaxError) and error.lineno:
        return {**told, "message": error.msg, "line": error.lineno, "code": (error.text or "").strip()}
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if own and own[-1].lineno:
        told |= {"line": own[-1].lineno, "code": linecache.getline(path, own[-1].lineno).strip()}
    return told


def encode(value: Any, depth: int = 0) -> dict[str, Any]:
    """A returned value as JSON: arrays with dtype and shape, pairs as lists, anything else by its type."""
    if not isinstance(value, np.ndarray) and callable(getattr(value, "numpy", None)):
        value = value.numpy()  # a Tensor, this project's or another's
    if isinstance(value, np.ndarray):
        told = {"type": "array", "dtype": str(value.dtype), "shape": list(value.shape)}
        if value.dtype.kind in "biuf" and value.size <= LARGEST:
            told["data"] = value.astype(float).ravel().tolist()
        return told
    if isinstance(value, (tuple, list)) and depth < 2 and len(value) <= 4:
        return {"type": type(value).__name__, "items": [encode(item, depth + 1) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str, np.bool_, np.number)):
        plain = value.item() if isinstance(value, (np.bool_, np.number)) else value
        return {"type": type(value).__name__, "value": plain if type(plain) in (bool, str) else str(plain)}
    return {"type": type(value).__name__}


def call(
    function: Callable[..., Any], args: tuple[Any, ...], read_only: bool, path: str, lifted: int = 0
) -> dict[str, Any]:
    """One call on fresh copies, with NumPy's and Python's warnings out of the way; the first `lifted`
    arguments get a batch axis."""
    given = [np.copy(a, order="K") if isinstance(a, np.ndarray) else a for a in args]
    given[:lifted] = [a[None] for a in given[:lifted]]
    for array in given:
        if isinstance(array, np.ndarray):
            array.flags.writeable = not read_only
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            told = {"value": encode(function(*given))}
        except (Exception, SystemExit) as error:
            told = describe(error, path)
    changed = [
        i for i, (a, b) in enumerate(zip(args, given)) if isinstance(a, np.ndarray) and a.tobytes() != b.tobytes()
    ]
    return told | {key: value for key, value in (("changed", changed), ("lifted", bool(lifted))) if value}


def infer(name: str, function: Callable[..., Any], kinds: dict[str, Any]) -> str:
    """Which of the known functions this is: by its name, else by its arguments."""
    if name in kinds:
        return name
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    needed = [p.name.lower() for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if len(needed) == 1:
        return "causal_mask"
    if len(needed) >= 6:
        return "multi_head_attention"
    if len(needed) == 5 and "context" in "".join(needed[:2]) + name:
        return "cross_attention"
    return "scaled_dot_product_attention" + "_backward" * (len(needed) >= 4 and needed[0].startswith("d"))


def run(functions: dict[str, Callable[..., Any]], job: dict[str, Any], write: Write) -> None:
    """Make every call of the plan on each function. One that fails on the first, and only works with a
    batch axis, gets one throughout."""
    for name, function in functions.items():
        kind = job["kind"] or infer(name, function, job["plan"])
        write({"function": name, "kind": kind})
        batched, calls = job["batched"].get(kind, 0), job["plan"][kind]
        if calls and batched:
            write({"begin": calls[0][0]})
            _, args, read_only = calls[0]
            fails = ["error" in call(function, args, read_only, job["path"])]
            fails += ["error" in call(function, args, read_only, job["path"], batched)] if fails[0] else [True]
            batched = batched if fails == [True, False] else 0
        for probe, args, read_only in calls:
            write({"begin": probe})
            lifted = batched if np.ndim(args[0]) == 2 else 0
            write({"probe": probe, **call(function, args, read_only, job["path"], lifted)})
    write({"end": True})


def find(module: ModuleType, job: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """The functions to check: the one asked for, else all that have a known name."""
    wanted = [job["function"]] if job["function"] else list(job["plan"])
    return {name: getattr(module, name) for name in wanted if callable(getattr(module, name, None))}


def main(job: dict[str, Any], write: Write) -> None:
    path = job["path"]
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    np.seterr = lambda *_, **__: np.geterr()  # not even from within a function
    try:
        module = load(path)
    except (Exception, SystemExit) as error:
        write({"load": describe(error, path)})
        return
    own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
    said = {name: value for name, value in vars(module).items() if isinstance(value, str)}
    write({"functions": own, "said": {k: v[:200] for k, v in said.items() if not k.startswith("__")}})
    run(find(module, job), job, write)


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        the_job = pickle.load(file)
    with open(sys.argv[2], "w", encoding="utf-8") as out:

        def write_line(record: dict[str, Any]) -> None:
            out.write(json.dumps(record) + "\n")
            out.flush()

        main(the_job, write_line)
    os._exit(0)  # threads and exit handlers of the learner's file have no say any more
