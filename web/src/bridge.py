"""What the page asks of Python. Each function takes plain values and returns what JSON can carry."""

import contextlib
import difflib
import io
import json
import linecache
import math
import pathlib
import re
import traceback
from collections.abc import Iterator

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
        if x.size > 100_000:
            raise ValueError(f"an array of {x.size:,} numbers is more than the page shows")
        return plain(x.tolist())
    if isinstance(x, np.generic):
        return plain(x.item())
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    return x if isinstance(x, (bool, int, float, str)) or x is None else str(x)


LACKING = ". The page has NumPy and tinyattn, and nothing else"


class Printed(io.StringIO):
    """What a cell prints, up to a length that a page can show."""

    def write(self, text):
        return super().write(text) if self.tell() < 20_000 else len(text)


def run(source, file, values, emit):
    """Run a cell and its figure(**values): {"parts": […], "text": what it printed} or {"error", "line", "text"}.

    A figure that yields shows each of its parts at once: that is how a training run draws its curve.
    """
    printed = Printed()
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            namespace = {"__name__": "cell", "__file__": file}
            exec(compile(source, file, "exec"), namespace)
            if "figure" not in namespace:
                raise NameError("there is no figure(…) here: the page calls it with what the controls say")
            given, parts = namespace["figure"](**values), []
            if isinstance(given, Iterator):
                for parts in map(shown, given):
                    emit(parts)
            else:
                parts = shown(given)
            return {"parts": parts, "text": printed.getvalue()}
    except BaseException as error:
        told = f"{type(error).__name__}: {error}"
        told += LACKING if isinstance(error, ModuleNotFoundError) else ""
        return {"error": told, "line": line_of(error, file), "text": printed.getvalue()}


def shown(parts):
    """What a figure gives, as it goes to the page, if it is a part or a list of parts."""
    if isinstance(parts, dict) or (isinstance(parts, list) and all(isinstance(part, dict) for part in parts)):
        return plain(parts)
    raise TypeError(f"figure(…) gives {type(parts).__name__}: give a part as a dict, or a list of them")


def line_of(error, file):
    """The last line of this file that the error went through, from 1."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def written(source, name="mine.py"):
    path = pathlib.Path(name)
    path.write_text(source, encoding="utf-8")
    return path


def check(source, emit):
    """The checker's verdict on a program: its report as JSON, and as text."""
    from tinyattn.check import check_file

    path = written(source)
    report = check_file(path)
    for finding in report.findings:
        if "ModuleNotFoundError" in finding.message:
            finding.message = finding.message.rstrip(".") + LACKING + "."
            finding.hint = f"Write it with NumPy; or check the file where that is installed: tinyattn check {path.name}"
    return report.to_json() | {"text": repr(report).replace(path.name, "your program")}


def template(emit):
    """The file of exercises."""
    from tinyattn.check.practice import write

    path = pathlib.Path("my_attention.py")
    path.unlink(missing_ok=True)
    write(path)
    return path.read_text(encoding="utf-8")


def practice(source, emit):
    """Where a practice file stands: its report and its steps, what the last step shows, hints, a solution."""
    from tinyattn.check.practice import stand
    from tinyattn.check.practice.hints import HINTS, solution
    from tinyattn.text import plain as text

    now = stand(written(source, "my_attention.py"))
    told = now.to_json() | {
        "text": text(now.shown),
        "done": now.done,
        "begun": bool(now.load) or not now.begun_is_clear,
    }
    for finding in told["findings"]:
        if finding["severity"] == "bug":
            finding["line"] = finding["line"] or heading(source, finding["function"])
    if now.load or now.done == len(HINTS):
        return told
    bugs = [f for f in told["findings"] if f["severity"] == "bug"]
    own = [f[key] for f in bugs[:1] for key in ("hint", "lesson") if f[key]]
    answer = bugs[0]["solution"] if bugs and bugs[0]["solution"] else solution(now.done + 1)
    return told | {"hints": [*own, *(h for h in HINTS[now.done] if h not in own)], "solution": answer}


def heading(source, name):
    """The line on which a function begins, or a step of the practice."""
    begins = re.compile(rf"(def|class) {re.escape(name)}\b|# .*{re.escape(name)}:", re.IGNORECASE)
    return next((k for k, line in enumerate(source.splitlines(), 1) if name and begins.match(line)), None)


def bugs(emit):
    """The bugs that the game has: [name, level], from one head to the way back."""
    from tinyattn.check import matrix
    from tinyattn.check.game import LEVELS
    from tinyattn.check.known.mutants import MUTANTS

    told = [[m.id, LEVELS.get(matrix.home(m)[0], 3)] for m in MUTANTS if m.severity == "bug" and m.id not in CONVENTION]
    return sorted(told, key=lambda bug: bug[1])


CONVENTION = {"property-projections-transposed"}  # the checker reads it off the program, and calls it right


def bug(name, emit):
    """A program with this bug: its source, its places with the right lines, its symptom, what to tell."""
    from tinyattn.check import matrix
    from tinyattn.check.known.mutants import BY_ID
    from tinyattn.check.practice.hints import plain_source

    mutant = BY_ID[name]
    kind, edit = matrix.home(mutant)
    wrong, right = (["import numpy as np", "", "", *plain_source(kind, *e).splitlines()] for e in ((edit,), ()))
    changes = difflib.SequenceMatcher(None, wrong, right, autojunk=False).get_opcodes()
    places = [{"line": i + 1, "wrong": h - i, "right": right[j:k]} for tag, i, h, j, k in changes if tag != "equal"]
    told = {"source": "\n".join(wrong) + "\n", "places": places, "function": kind}
    return told | {key: getattr(mutant, key) for key in ("what", "hint", "lesson")} | symptom(kind, edit)


def symptom(kind, edit):
    """The smallest of the checker's inputs on which it can be seen: {"input", "arguments", "right", "wrong"}."""
    from tinyattn.check.judge.case import shown as named
    from tinyattn.check.judge.outcome import close
    from tinyattn.check.known.mutants import program
    from tinyattn.check.known.probes import probes

    for probe in probes(kind):
        right, wrong = (answer(program(kind, edits), probe.args) for edits in ((), (edit,)))
        if isinstance(right, str) or isinstance(wrong, str) or not close(right, wrong):
            told = {"input": probe.name, "arguments": named(kind, probe.args)}
            return told | {"right": right, "wrong": wrong}


def answer(function, arguments):
    """What a function returns, as a tuple of arrays; or, in words, that it fails, or writes to what it was given."""
    given = [np.copy(x) if isinstance(x, np.ndarray) else x for x in arguments]
    try:
        with np.errstate(all="ignore"):
            value = function(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for before, after in zip(arguments, given):
        if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=True):
            return "The numbers that were given to it are others after the call."
    return tuple(np.asarray(x) for x in (value if isinstance(value, tuple) else (value,)))
