"""The command line: verdicts, exit codes, JSON, and a learner's file that does its worst."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn.check import check, check_file
from tinyattn.check.run.isolate import run_file

ROOT = Path(ta.__file__).parents[1]
GOOD = """
import numpy as np

def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ V
"""
BAD = GOOD.replace(" / np.sqrt(Q.shape[-1])", "")


def command(*arguments, cwd=None, **options):
    return subprocess.run(
        [sys.executable, "-m", "tinyattn", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        cwd=cwd or ROOT,
        **options,
    )


def write(folder, text, name="mine.py"):
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def ids(report, severity="bug"):
    return [finding.id for finding in report.findings if finding.severity == severity]


@pytest.mark.parametrize(
    ("text", "verdict", "code"),
    [
        (GOOD, "correct", 0),
        (BAD, "wrong", 1),
        ("def f(:\n", "error", 2),
    ],
)
def test_verdicts_exit_codes_and_json(tmp_path, text, verdict, code):
    done = command("check", write(tmp_path, "print('x' * 10)\n" + text), "--json")
    report = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (report["verdict"], done.returncode, done.stderr) == (verdict, code, "")
    for finding in report["findings"]:
        assert {"id", "severity", "message", "function"} <= finding.keys()
        assert finding["severity"] in ("bug", "note")


def test_the_text_is_for_a_reader(tmp_path):
    done = command("check", write(tmp_path, BAD), "--solution")
    assert "no-scale" in done.stdout
    assert "Hint:" in done.stdout
    assert "The lesson: Without ÷ √dk" in done.stdout
    assert "scores = scores / np.sqrt(dk)" in done.stdout
    assert "*" in done.stdout.split("your output")[1]
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110


def test_the_solution_is_shown_only_when_asked_for(tmp_path):
    assert "np.sqrt(dk)" not in command("check", write(tmp_path, BAD)).stdout.replace("(np.sqrt(dk), for one", "")


def test_text_without_rich(tmp_path):
    write(tmp_path, "raise ImportError\n", "rich.py")
    file = write(tmp_path, BAD)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, sys.argv.pop(1)); "
            "from tinyattn.__main__ import main; sys.exit(main(sys.argv[1:]))",
            str(tmp_path),
            "check",
            str(file),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
    )
    assert done.returncode == 1
    assert "no-scale" in done.stdout


def test_file_and_function(tmp_path):
    file = write(tmp_path, BAD + GOOD.replace("scaled_dot_product_attention", "attention"))
    assert command("check", f"{file}:attention").returncode == 0
    assert command("check", f"{file}:scaled_dot_product_attention").returncode == 1
    missing = command("check", f"{file}:attentoin", "--json")
    assert missing.returncode == 2
    assert "attention" in json.loads(missing.stdout)["findings"][0]["message"]


def test_one_wrong_function_makes_the_file_wrong(tmp_path):
    text = GOOD + "\ndef causal_mask(n):\n    return np.tril(np.ones((n, n)), 1)\n"
    report = check_file(write(tmp_path, text))
    assert report.verdict == "wrong"
    assert (report.findings[0].id, report.findings[0].function) == ("causal-sees-next", "causal_mask")


def test_a_stub_beside_a_right_function_is_a_note(tmp_path):
    text = GOOD + "\ndef causal_mask(n):\n    raise NotImplementedError\n"
    report = check_file(write(tmp_path, text))
    assert report.verdict == "correct"
    assert "error-not-written" in ids(report, "note")


@pytest.mark.parametrize(
    ("text", "id", "words"),
    [
        ("def f(:\n", "error-syntax", "line 1"),
        ("import nosuchmodule\n", "error-import", "nosuchmodule"),
        ("x = 1 / 0\n", "error-load", "ZeroDivisionError"),
        ("n = int(input('size? '))\n", "error-load", "EOFError"),
        ("import sys\nsys.exit(3)\n", "error-load", "SystemExit"),
        ("import os\nos._exit(0)\n", "error-stopped", "ended the process"),
        ("import os\nos.abort()\n", "error-stopped", "SIGABRT"),
        ("def average(x):\n    return x\n", "error-missing-function", "average"),
        ("", "error-missing-function", "no function"),
        (
            "def scaled_dot_product_attention(Q, K, V, mask=None):\n    raise NotImplementedError\n",
            "error-not-written",
            "Not written",
        ),
        (
            "def scaled_dot_product_attention(Q, K, V, mask=None):\n    return Q @ W\n",
            "error-exception",
            "line 2: `return Q @ W`",
        ),
        (
            "import ctypes\ndef scaled_dot_product_attention(Q, K, V, mask=None):\n    ctypes.string_at(0)\n",
            "error-stopped",
            "SIGSEGV",
        ),
    ],
)
def test_what_cannot_run_is_an_error_in_a_sentence(tmp_path, text, id, words):
    report = check_file(write(tmp_path, text))
    assert report.verdict == "error"
    assert report.findings[0].id == id
    assert words in report.findings[0].message


def test_a_file_that_is_not_there(tmp_path):
    done = command("check", tmp_path / "no.py", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["findings"][0]["id"] == "error-no-file"


def test_an_endless_loop_ends(tmp_path):
    file = write(tmp_path, "while True: pass\n")
    begin = time.monotonic()
    run = run_file(file, limit=1.0)
    assert run.broke["how"].startswith("it had not finished")
    assert time.monotonic() - begin < 8


def test_a_hang_on_one_input_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tinyattn.check.run.isolate.run_file.__kwdefaults__",
        {**run_file.__kwdefaults__, "limit": 2.0},
        raising=False,
    )
    text = GOOD.replace("    s = Q", "    while len(Q) == 1: pass\n    s = Q")
    report = check_file(write(tmp_path, text))
    assert report.verdict == "wrong"
    assert "one query" in next(f.message for f in report.findings if f.id == "property-stopped")


@pytest.mark.parametrize(
    "rude",
    [
        "print('x' * 1_000_000)",
        "import sys; sys.stderr.write('y' * 1_000_000)",
        "np.seterr(all='raise')",
        "np.set_printoptions(precision=1)",
        "import warnings; warnings.simplefilter('error'); warnings.warn",
        "import os; os.chdir('/')",
        "np.random.seed(0)",
        "import threading; threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=False).start()",
        "import atexit; atexit.register(lambda: 1 / 0)",
        "import sys; sys.stdout = None; sys.stderr = None",
    ],
)
def test_manners_do_not_matter(tmp_path, rude):
    """At the top level, and in the function."""
    body = "" if "threading" in rude else GOOD.replace("    s = Q", f"    {rude}\n    s = Q")
    done = command("check", write(tmp_path, GOOD + rude + "\n" + body), "--json")
    assert json.loads(done.stdout)["verdict"] == "correct"
    assert done.stderr == ""


def test_sys_exit_in_the_function_is_contained(tmp_path):
    text = GOOD.replace("    s = Q", "    if mask is not None: raise SystemExit(0)\n    s = Q")
    report = check_file(write(tmp_path, text))
    assert report.verdict == "wrong"
    assert ids(report) == ["property-mask-crash"]


def test_os_exit_in_the_function_is_survived(tmp_path):
    text = GOOD.replace("    s = Q", "    if mask is not None: __import__('os')._exit(0)\n    s = Q")
    report = check_file(write(tmp_path, text))
    assert report.verdict == "wrong"
    assert "property-stopped" in ids(report)


def test_the_file_and_its_folder_are_left_alone(tmp_path):
    write(
        tmp_path,
        "def softmax(s):\n    import numpy as np\n    e = np.exp(s - s.max(axis=-1, keepdims=True))\n"
        "    return e / e.sum(axis=-1, keepdims=True)\n",
        "helpers.py",
    )
    text = """
import numpy as np
from helpers import softmax
from dataclasses import dataclass

@dataclass
class Box:
    x: int = 0

def scaled_dot_product_attention(Q, K, V, mask=None):
    s = Q @ K.T / np.sqrt(Q.shape[-1])
    return softmax(s if mask is None else np.where(mask, s, -np.inf)) @ V

if __name__ == "__main__":
    raise SystemExit("not under check")
"""
    file = write(tmp_path, text)
    assert check_file(file).verdict == "correct"
    assert file.read_text(encoding="utf-8") == text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["helpers.py", "mine.py"]


def test_names_that_shadow_modules(tmp_path):
    """A file called json.py, a folder with a space, a relative path."""
    folder = tmp_path / "my files"
    folder.mkdir()
    write(folder, GOOD, "json.py")
    assert check_file(folder / "json.py").verdict == "correct"


def test_a_huge_result_is_contained(tmp_path):
    text = GOOD.replace("return e", "return np.zeros((3000, 3000)) if mask is None else e")
    assert check_file(write(tmp_path, text)).verdict == "wrong"


def test_ta_check_takes_a_function(capfd):
    def scaled_dot_product_attention(Q, K, V, mask=None):
        print("noise")
        return V

    report = ta.check(scaled_dot_product_attention)
    assert report.verdict == "wrong"
    assert capfd.readouterr().out == ""
    assert "scaled_dot_product_attention: not right yet" in repr(report)
    assert json.dumps(report.to_json(), allow_nan=False)


def test_ta_check_without_fork(monkeypatch, capfd):
    monkeypatch.setattr(sys, "platform", "darwin")
    report = ta.check(lambda n: print("noise") or np.tri(n, k=1, dtype=bool))
    assert ids(report) == ["causal-sees-next"]
    assert capfd.readouterr().out == ""


def test_ta_check_guesses_what_a_function_is_from_its_arguments():
    assert ta.check(lambda n: np.tri(n, dtype=bool)).verdict == "correct"
    assert ids(ta.check(lambda n: np.tri(n, k=1, dtype=bool))) == ["causal-sees-next"]
    assert ids(check(lambda X, context, a, b, c: X @ a, kind="cross_attention")) != []
    with pytest.raises(TypeError, match="got ndarray"):
        ta.check(np.ones(3))
    with pytest.raises(ValueError, match="none of"):
        ta.check(print, kind="attention")


def test_ta_check_survives_a_function_that_kills_its_process():
    report = ta.check(lambda Q, K, V, mask=None: __import__("os")._exit(3))
    assert report.verdict == "error"


def test_the_commands_help(tmp_path):
    assert "practice" in command("--help").stdout
    assert command("nonsense").returncode == 2
    assert command("check").returncode == 2
    assert "softmax-over-queries" in command("break", "--list").stdout


def test_break_shows_a_bug_and_its_symptoms():
    out = command("break", "softmax-over-queries").stdout
    program, answers = out.split("Does each row")[0], out.split("Are its inputs")[-1]
    assert "axis=-2" in program
    assert "softmax-over-queries" not in program
    assert "with a causal mask too? No (the right program: yes)" in " ".join(out.split())
    assert "softmax-over-queries" in answers


def test_watch_checks_again_when_the_file_changes(tmp_path):
    file = write(tmp_path, BAD)
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "tinyattn", "check", "--watch", str(file)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        seen = ""
        for line in process.stdout:
            seen += line
            if "Watching" in line:
                if "no-scale" in seen and "correct" not in seen:
                    file.write_text(GOOD, encoding="utf-8")
                else:
                    break
        assert seen.index("no-scale") < seen.index("scaled_dot_product_attention: correct")
    finally:
        process.kill()
        process.wait()
