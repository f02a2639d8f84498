"""What a call gave, as JSON can hold it: arrays, other values by their type, exceptions with the learner's line."""

import contextlib
import io
import linecache
import os
import re
import signal
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

PRINTED = 1000  # characters
LARGEST = 1_000_000  # numbers in one array; a learner's bigger one is recorded by its shape alone


def describe(error: BaseException, files: tuple[str, ...]) -> dict[str, Any]:
    """The exception in words, with the last line of the learner's own text that it passed through."""
    said = re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", "·", str(error))
    told: dict[str, Any] = {"error": type(error).__name__, "message": said[:500]}
    if isinstance(error, SyntaxError) and error.lineno:
        return {**told, "message": error.msg, "line": error.lineno, "code": (error.text or "").strip()}
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if own and own[-1].lineno:
        file, line = own[-1].filename, own[-1].lineno
        told |= {"line": line, "code": linecache.getline(file, line).strip()}
        cell = file.rpartition(", cell ")[2]
        told |= {"cell": int(cell)} if cell.isdigit() and ", cell " in file else {}
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


class Stopped(SystemExit):
    """A call that had to be ended, or that wanted to end the process."""


class Own:
    """Whether this process is there for the check alone, and how long one call may take then."""

    process = False
    seconds: float | None = None


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """NumPy's and Python's warnings out of the way, an end to endless loops, and what was printed."""
    printed = io.StringIO()
    with np.errstate(all="ignore"), warnings.catch_warnings(), _limited(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        yield printed


def printed_in(stream: io.StringIO) -> dict[str, str]:
    """What a call printed, cut to a length that one reads."""
    text = stream.getvalue()
    return {"printed": text[:PRINTED] + "…" * (len(text) > PRINTED)} if text else {}


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    if Own.seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: Any) -> None:
        seconds, Own.seconds = Own.seconds, 0.5
        raise Stopped(f"it had not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, Own.seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def contain() -> None:
    """In a process of its own, calls end after a while, and none of them ends the process."""
    if not Own.process:
        return
    Own.seconds = 3.0

    def leave(*_: Any) -> None:
        raise Stopped("it ended the process")

    os._exit = leave  # type: ignore[assignment]
