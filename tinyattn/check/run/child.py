"""Runs inside the child process: calls a learner's functions and writes down what came back.

One line of JSON per call; whatever the learner's code does (prints, exits, crashes, hangs), the lines already
written remain. A job with a plan makes exactly those calls; without one, read/ finds out what there is and how it
is called.
"""

import contextlib
import faulthandler
import inspect
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..read.record import Own, describe, encode, printed_in, quiet
from ..read.study import study_file
from ..read.text import Text, read_text
from ..read.text import run as run_text

Write = Callable[[dict[str, Any]], None]
Work = Callable[[Write], None]
MEMORY = 8 << 30  # bytes of address space that the child may ask for
HELD = 3 << 30  # bytes that it may hold
SECONDS = 20  # of processor time
FILES = 100 << 20  # bytes in any file that it writes


def call(
    function: Callable[..., Any], args: tuple[Any, ...], read_only: bool, path: str, lifted: int = 0
) -> dict[str, Any]:
    """One call on fresh copies; the first `lifted`
    arguments get a batch axis."""
    given = [np.copy(a, order="K") if isinstance(a, np.ndarray) else a for a in args]
    given[:lifted] = [a[None] for a in given[:lifted]]
    for array in given:
        if isinstance(array, np.ndarray):
            array.flags.writeable = not read_only
    with quiet() as printed:
        try:
            told = {"value": encode(function(*given))}
        except (Exception, SystemExit) as error:
            told = describe(error, (path,))
    changed = [
        i for i, (a, b) in enumerate(zip(args, given)) if isinstance(a, np.ndarray) and a.tobytes() != b.tobytes()
    ]
    return (
        told
        | printed_in(printed)
        | {key: value for key, value in (("changed", changed), ("lifted", bool(lifted))) if value}
    )


def run(functions: dict[str, Callable[..., Any]], job: dict[str, Any], write: Write) -> None:
    """Make every call of the plan on each function. One that fails on the first, and only works with a
    batch axis, gets one throughout."""
    for name, function in functions.items():
        kind = job["kind"] or name
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


def work(job: dict[str, Any], write: Write) -> None:
    """What a job asks for."""
    if Own.process:
        np.seterr = lambda *_, **__: np.geterr()  # not even from within a function
    if job["plan"] is None:
        study_file(job["path"], job["function"], job["kind"], write, job.get("looks", ()))
        return
    try:
        text = read_text(job["path"])
        run_text(text)
    except (Exception, SystemExit) as error:
        write({"load": describe(error, (job["path"],))})
        return
    write({"functions": _own(text), "said": said(text)})
    run({name: f for name in job["plan"] if callable(f := text.names.get(name))}, job, write)


def _own(text: Text) -> list[str]:
    return [n for n, f in text.names.items() if inspect.isfunction(f) and f.__module__ == text.names["__name__"]]


def said(text: Text) -> dict[str, str]:
    """The words that a text assigns to names: answers to questions in words."""
    return {n: v[:200] for n, v in text.names.items() if isinstance(v, str) and not n.startswith("__")}


def live(task: Work, out: int) -> NoReturn:  # pragma: no cover
    """The whole life of a child: under limits, with nobody to talk to, it does its task and ends."""
    leave = os._exit
    try:
        with contextlib.suppress(AttributeError, OSError):
            os.setsid()
        faulthandler.disable()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        sys.stdin, sys.stdout, sys.stderr = (open(os.devnull, mode, encoding="utf-8") for mode in ("r", "w", "w"))  # noqa: SIM115
        os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        _limit()
        if torch := sys.modules.get("torch"):  # a fork has none of the threads that PyTorch would wait for
            torch.set_num_threads(1)
        Own.process = True
        sys.settrace(None)  # a measure of coverage would end with this process, and makes it several times slower
        with open(out, "w", encoding="utf-8") as file:

            def write(record: dict[str, Any]) -> None:
                file.write(json.dumps(record) + "\n")
                file.flush()

            try:
                task(write)
            except BaseException as error:
                write({"load": {"error": "Check", "message": f"{type(error).__name__}: {error}"}})
    finally:
        leave(0)  # threads and exit handlers of the learner's code have no say any more


def _limit() -> None:  # pragma: no cover
    """Limits that hold even if nobody waits for this process any more."""
    with contextlib.suppress(ImportError):
        import resource  # not on Windows

        for name, value in (("AS", MEMORY), ("DATA", HELD), ("CPU", SECONDS), ("FSIZE", FILES), ("CORE", 0)):
            with contextlib.suppress(AttributeError, ValueError, OSError):
                kind = getattr(resource, f"RLIMIT_{name}")
                hard = resource.getrlimit(kind)[1]
                resource.setrlimit(kind, (value if hard < 0 else min(value, hard), hard))
    parent, leave = os.getppid(), os._exit

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        leave(0)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":  # pragma: no cover
    the_job = pickle.load(sys.stdin.buffer)
    live(lambda write: work(the_job, write), os.dup(1))
