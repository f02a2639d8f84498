"""What the page asks of Python. Each function takes plain values and returns what JSON can carry."""

import contextlib
import io
import json
import linecache
import math
import os
import pathlib
import sys
import traceback

import numpy as np

import tinyattn as ta


def call(name, job, emit):
    return json.dumps(plain(globals()[name](**json.loads(job), emit=lambda part: emit(json.dumps(plain(part))))))


def plain(x):
    """Arrays and tensors as lists; what is no number in JSON as a word."""
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, ta.Tensor):
        return plain(x.numpy())
    if isinstance(x, np.ndarray):
        return plain(x.tolist())
    if isinstance(x, np.generic):
        return plain(x.item())
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    return x if isinstance(x, (bool, int, float, str)) or x is None else str(x)


def run(source, file, values, emit):
    """Run a cell and its figure(**values): {"parts": […], "text": what it printed} or {"error", "line", "text"}.

    A figure that yields shows each of its parts at once: that is how a training run draws its curve.
    """
    printed = io.StringIO()
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            namespace = {"__name__": "cell", "__file__": file}
            exec(compile(source, file, "exec"), namespace)
            parts = namespace["figure"](**values) if "figure" in namespace else []
            if not isinstance(parts, (list, dict)):
                for part in parts:
                    emit(part)
                parts = part
            return {"parts": [parts] if isinstance(parts, dict) else parts, "text": printed.getvalue()}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}", "line": line_of(error, file), "text": printed.getvalue()}


def line_of(error, file):
    """The last line of this file that the error went through, from 1."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def check(source, kind, emit):
    """The checker's verdict on a program: its report as JSON, and as text."""
    path = written(source)
    from tinyattn.check import check_file

    report = check_file(path, **({"kind": kind} if kind else {}))
    return report.to_json() | {"text": repr(report).replace(path, "your program")}


def written(source, name="mine.py"):
    os.makedirs("/home/page", exist_ok=True)
    path = pathlib.Path("/home/page", name)
    path.write_text(source, encoding="utf-8")
    return str(path)


def command(arguments, files, emit):
    """`tinyattn …` with these files in its folder: {"text", "code", "files"}."""
    from tinyattn.__main__ import main

    os.makedirs("/home/page", exist_ok=True)
    os.chdir("/home/page")
    for name, text in files.items():
        written(text, name)
    printed, before = io.StringIO(), sys.argv
    sys.argv = ["tinyattn", *arguments]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = before
    found = {path.name: path.read_text(encoding="utf-8") for path in pathlib.Path().glob("*.py")}
    return {"text": printed.getvalue(), "code": code, "files": found}


def bugs(emit):
    """The names of the bugs that the game has, by the function that they are in."""
    from tinyattn.check import matrix
    from tinyattn.check.known.mutants import MUTANTS

    return [[m.id, matrix.home(m)[0]] for m in MUTANTS if m.severity == "bug"]


def bug(name, emit):
    """A program with this bug: {"source", "what", "hint", "lesson", "symptom"}: what it answers on a small input."""
    from tinyattn.check import matrix
    from tinyattn.check.known.mutants import BY_ID, program, source
    from tinyattn.check.known.probes import probes

    mutant = BY_ID[name]
    kind, edit = matrix.home(mutant)
    told = {"source": "import numpy as np\n\n\n" + source(kind, (edit,)) + "\n", "what": mutant.what}
    told |= {"hint": mutant.hint, "lesson": mutant.lesson, "symptom": None}
    right, wrong = program(kind), program(kind, (edit,))
    for probe in probes(kind):
        answers = []
        for function in right, wrong:
            try:
                with np.errstate(all="ignore"):
                    answer = function(*[np.copy(x) if isinstance(x, np.ndarray) else x for x in probe.args])
                answers.append(answer[0] if isinstance(answer, tuple) else answer)
            except Exception as error:
                answers.append(f"{type(error).__name__}: {error}")
        if str(answers[0]) != str(answers[1]):
            told["symptom"] = [show(x) for x in answers]
            break
    return told


def show(answer):
    return np.array2string(answer, precision=3, threshold=60) if isinstance(answer, np.ndarray) else str(answer)
