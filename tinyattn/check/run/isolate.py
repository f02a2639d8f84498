"""Starts the child process (child.py), gives it one time limit, and reads back what it wrote."""

import contextlib
import io
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..known.probes import BATCHED, KINDS, Probe, probes
from . import child

TIME_LIMIT = 10.0  # seconds for all calls together
Plan = dict[str, list[Probe]]


@dataclass
class Run:
    """What happened: per function its kind and, per probe, the record of the call."""

    kinds: dict[str, str] = field(default_factory=dict)
    records: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    functions: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    load: dict[str, Any] | None = None
    broke: dict[str, Any] | None = None  # how the child ended, if not by itself


def full_plan() -> Plan:
    return {kind: probes(kind) for kind in KINDS}


def _job(path: str, function: str | None, plan: Plan, kind: str | None) -> dict[str, Any]:
    calls = {name: [(p.name, p.args, p.read_only) for p in ps] for name, ps in plan.items()}
    return {"path": path, "function": function, "kind": kind, "plan": calls, "batched": BATCHED}


def _read(lines: list[str], ended: str | None) -> Run:
    run, name, begun = Run(), "", ""
    finished = False
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the child was stopped in the middle of a line
        if "kind" in record:
            name = record["function"]
            run.kinds[name], run.records[name] = record["kind"], {}
        elif "probe" in record:
            run.records[name][record["probe"]] = record
        elif "begin" in record:
            begun = record["begin"]
        elif "load" in record:
            run.load, finished = record["load"], True
        elif "functions" in record:
            run.functions, run.said = record["functions"], record["said"]
        finished = finished or "end" in record
    if not finished:
        run.broke = {"function": name, "probe": begun, "how": ended or "it ended the process"}
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
) -> Run:
    """Load a learner's file in a child process and make the planned calls."""
    path = str(Path(path).resolve())
    with tempfile.TemporaryDirectory(prefix="tinyattn-check-") as folder:
        job, out = Path(folder, "job"), Path(folder, "out")
        out.touch()
        job.write_bytes(pickle.dumps(_job(path, function, plan or full_plan(), kind)))
        root = str(Path(__file__).parents[3])
        python_path = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH"), root) if p)
        quiet = {
            "PYTHONPATH": python_path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "MPLBACKEND": "Agg",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-P", child.__file__, str(job), str(out)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **quiet},
            start_new_session=True,
        )
        try:
            ended = _ending(process.wait(timeout=limit))
        except subprocess.TimeoutExpired:
            ended = f"it had not finished after {limit:.0f} s"
        finally:
            _kill(process)
        return _read(out.read_text(encoding="utf-8", errors="replace").splitlines(), ended)


def _ending(code: int) -> str | None:
    return f"it crashed Python ({signal.Signals(-code).name})" if code < 0 else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The child and whatever it has started: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def run_function(function: Callable[..., Any], kind: str | None = None, limit: float = TIME_LIMIT) -> Run:
    """The same for a function of a running session: in a forked child, or here where there is no fork."""
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    job = _job(code.co_filename if code else "", name, full_plan(), kind)
    lines: list[str] = []
    if sys.platform == "darwin" or not hasattr(os, "fork"):  # pragma: no cover
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            child.run({name: function}, job, lambda record: lines.append(json.dumps(record)))
        return _read(lines, None)
    with tempfile.TemporaryDirectory(prefix="tinyattn-check-") as folder:
        out = Path(folder, "out")
        out.touch()
        process = multiprocessing.get_context("fork").Process(
            target=_forked, args=(function, name, job, str(out)), daemon=True
        )
        with warnings.catch_warnings():  # newer Pythons warn of fork beside threads
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        process.join(limit)
        ended = f"it had not finished after {limit:.0f} s" if process.is_alive() else None
        process.kill()
        process.join()
        if process.exitcode and process.exitcode < 0 and not ended:
            ended = _ending(process.exitcode)
        return _read(out.read_text(encoding="utf-8", errors="replace").splitlines(), ended)


def _forked(function: Callable[..., Any], name: str, job: dict[str, Any], out: str) -> None:  # pragma: no cover
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, open(out, "w", encoding="utf-8") as file:
        sys.stdin, sys.stdout, sys.stderr = open(os.devnull, encoding="utf-8"), nowhere, nowhere  # noqa: SIM115

        def write(record: dict[str, Any]) -> None:
            file.write(json.dumps(record) + "\n")
            file.flush()

        child.run({name: function}, job, write)
    os._exit(0)
