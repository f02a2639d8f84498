"""Somebody's code in a process of its own, under limits, and what it wrote down line by line.

The child is a fork where that can be (a notebook's functions exist nowhere else), else a new Python; where neither
can be had, as in a browser, the calls are made here.
"""

import contextlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..known.probes import BATCHED, KINDS, Probe, probes
from ..read.carry import imports_torch
from ..read.study import study_object
from ..read.text import Nothing, read_text
from . import child

TIME_LIMIT = 20.0  # seconds for all calls together
LOADING = 2  # times as long for what happens before them: some imports are slow
OUTPUT = 64 << 20  # bytes that a child may write
Plan = dict[str, list[Probe]]
Looks = Sequence[dict[str, Any]]


@dataclass
class Run:
    """What happened: per function its kind and, per probe, the record of the call."""

    kinds: dict[str, str] = field(default_factory=dict)
    records: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    forms: dict[str, dict[str, Any]] = field(default_factory=dict)  # per function what was read off it
    places: list[dict[str, Any]] = field(default_factory=list)  # what was found inside
    pairs: list[dict[str, Any]] = field(default_factory=list)  # a mask function and an attention, together
    parts: list[tuple[int | None, str]] = field(default_factory=list)  # the text, a cell at a time
    load: dict[str, Any] | None = None
    broke: dict[str, Any] | None = None  # how the child ended, if not by itself


def full_plan() -> Plan:
    return {kind: probes(kind) for kind in KINDS}


def _job(path: str, function: str | None, plan: Plan | None, kind: str | None) -> dict[str, Any]:
    calls = plan if plan is None else {name: [(p.name, p.args, p.read_only) for p in ps] for name, ps in plan.items()}
    return {"path": path, "function": function, "kind": kind, "plan": calls, "batched": BATCHED}


def _read(lines: list[str], ended: str | None) -> Run:
    run, name, begun, reading = Run(), "", "", ""
    finished = False
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the child was stopped in the middle of a line
        if "kind" in record:
            name = record["function"]
            run.kinds[name], run.records[name] = record["kind"], {}
            run.forms[name] = record
        elif "place" in record:
            run.places.append(record["place"])
        elif "pair" in record:
            run.pairs.append(record)
        elif "reading" in record:
            reading = record["reading"]
        elif "probe" in record:
            run.records[name][record["probe"]] = record
        elif "begin" in record:
            begun = record["begin"]
        elif "load" in record:
            run.load, finished = record["load"], True
        elif "functions" in record:
            run.functions, run.said = record["functions"], record["said"]
            run.parts = [(cell, code) for cell, code in record.get("parts", [])]
        finished = finished or "end" in record
    if not finished:
        run.broke = {"function": name or reading, "probe": begun, "how": ended or "it ended the process"}
        if name and begun not in run.records[name]:
            run.records[name][begun] = {"error": "Stopped", "message": run.broke["how"]}
    return run


def run_file(
    path: str | Path,
    function: str | None = None,
    *,
    plan: Plan | None = None,
    kind: str | None = None,
    limit: float = TIME_LIMIT,
    looks: Looks = (),
) -> Run:
    """Load a learner's file in a child process and make the planned calls; without a plan, those of the form that
    is read off each program; with looks, none: it is looked inside."""
    try:
        path = str(Path(path).resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a folder that is gone
        return Run(load={"error": "FileNotFoundError", "message": str(error)})
    job = _job(path, function, plan, kind) | {"looks": looks}
    return _read(*_apart(lambda write: child.work(job, write), limit, job))


def run_function(
    function: Callable[..., Any], kind: str | None = None, limit: float = TIME_LIMIT, looks: Looks = ()
) -> Run:
    """The same for a function, method, class or instance of a running session."""
    name = getattr(function, "__name__", type(function).__name__)
    return _read(*_apart(lambda write: study_object(function, name, kind, write, looks), limit, None))


def _apart(work: child.Work, limit: float, job: dict[str, Any] | None) -> tuple[list[str], str | None]:
    """Do the work in a child; the lines that it wrote, and how it ended if not by itself."""
    if hasattr(os, "fork") and sys.platform not in ("darwin", "emscripten", "wasi"):
        if job is not None:
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                imports_torch(read_text(job["path"]).code)  # which takes longest: here once, not in each child
        with contextlib.suppress(OSError):  # where it is there and does not work
            return _forked(work, limit)
    if job is not None and sys.platform not in ("emscripten", "wasi"):
        with contextlib.suppress(OSError):
            return _spawned(job, limit)
    lines: list[str] = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), _taken_away():
        work(lambda record: lines.append(json.dumps(record)))
    return lines, None


@contextlib.contextmanager
def _taken_away() -> Iterator[None]:
    """What running a learner's text has put into this process: its folder, its module, plotting that does nothing."""
    path, finders, modules = sys.path[:], sys.meta_path[:], set(sys.modules)
    try:
        yield
    finally:
        sys.path[:], sys.meta_path[:] = path, finders
        for name in set(sys.modules) - modules:
            module = sys.modules[name]
            if isinstance(module, Nothing) or getattr(module, "__spec__", None) is None:
                del sys.modules[name]


def _forked(work: child.Work, limit: float) -> tuple[list[str], str | None]:
    """In a fork that leads a process group of its own and writes into a pipe: nothing is left on the disk."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():  # newer Pythons warn of fork beside threads
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if not pid:  # pragma: no cover
        child.live(work, writing)
    os.close(writing)
    try:
        lines, ended = _collected(reading, limit)
        if ended is None:
            ended = _ending(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            pid = -pid
    finally:
        _kill(abs(pid))
        if pid > 0:
            os.waitpid(pid, 0)
    return lines, ended


def _spawned(job: dict[str, Any], limit: float) -> tuple[list[str], str | None]:
    """In a new Python, which gets the job on its input."""
    root = str(Path(__file__).parents[3])
    python_path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH"), root) if p)
    quiet = {"PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", child.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **quiet},
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(pickle.dumps(job))
        process.stdin.close()
        lines, ended = _collected(process.stdout.fileno(), limit, close=False)
        return lines, ended or _ending(process.wait(timeout=limit))
    finally:
        _kill(process.pid)
        process.kill()
        process.wait()


def _collected(reading: int, limit: float, close: bool = True) -> tuple[list[str], str | None]:
    """The lines that come through a pipe until it is closed, or time or patience is over."""
    pieces: list[bytes] = []

    def drain() -> None:
        while len(pieces) << 16 < OUTPUT and (piece := os.read(reading, 1 << 16)):
            pieces.append(piece)

    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    begun = time.monotonic()
    while not pieces and thread.is_alive() and time.monotonic() < begun + LOADING * limit:
        thread.join(0.02)  # the first line comes when the learner's text is loaded
    thread.join(limit if pieces else 0)
    ended = None
    if thread.is_alive():
        ended = f"it had not finished after {limit if pieces else LOADING * limit:.0f} s"
    elif close:
        os.close(reading)
    return b"".join(pieces).decode("utf-8", errors="replace").split("\n"), ended


def _ending(code: int) -> str | None:
    """How a process ended, if a signal ended it; not every signal has a name."""
    if code >= 0:
        return None
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it used more processor time than {child.SECONDS} s" if name == "SIGXCPU" else f"it crashed Python ({name})"


def _kill(pid: int) -> None:
    """The child and whatever it has started: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(pid, signal.SIGKILL)
