"""The forms that people write attention in: read off the program, and judged within."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from learners.corpus import programs
from test_check_cli import GOOD, ROOT, command, ids, write

import tinyattn as ta
from tinyattn.check import check, check_file
from tinyattn.check.read.names import role
from tinyattn.check.run import child

TORCH = find_spec("torch") is not None


@cache
def forms():
    found = []
    for title, source in programs("forms"):
        title, verdict, *words = (part.strip() for part in title.split("|"))
        title, _, entry = title.partition(" @")
        needs = [name for name in ("torch", "scipy") if f"import {name}" in source or f"from {name}" in source]
        missing = [name for name in needs if find_spec(name) is None]
        mark = [pytest.mark.skip(reason=f"{missing[0]} is not installed")] if missing else []
        found.append(pytest.param(source, entry or None, verdict, words, id=title, marks=mark))
    return found


@pytest.mark.parametrize(("source", "entry", "verdict", "words"), forms())
def test_a_form_is_read_and_judged(tmp_path, source, entry, verdict, words):
    report = check_file(write(tmp_path, source), entry)
    bugs = [f for f in report.findings if f.severity == "bug"]
    assert report.verdict == {"right": "correct"}.get(verdict, verdict), bugs
    if words:
        said = " ".join(f"{f.id} {f.message} {f.hint}" for f in bugs).lower()
        assert any(word in said for word in words[0].split(",")), said


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_a_session_that_has_used_pytorchs_threads_can_check():
    # the threads are not there in a fork, and a product that is shared out would wait for them for ever
    session = """
import torch, tinyattn as ta
large = torch.ones(600, 600)
assert torch.get_num_threads() == 1 or float((large @ large).softmax(-1).sum()) > 0
def attention(Q, K, V):
    return torch.softmax(Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5, -1) @ V
print(ta.check(attention).verdict)
"""
    run = subprocess.run(
        [sys.executable, "-c", session],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    assert run.stdout.splitlines()[-1:] == ["correct"], run.stdout + run.stderr


@pytest.mark.parametrize("there", [False, pytest.param(True, marks=pytest.mark.skipif(not TORCH, reason="no torch"))])
def test_torch_in_a_comment_is_not_pytorch(tmp_path, there):
    if there:  # this session has imported it
        importlib.import_module("torch")
    assert check_file(write(tmp_path, GOOD + "\n\n# as torch.nn.functional has it\n")).verdict == "correct"


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_pytorch_may_be_imported_in_the_function(tmp_path):
    source = (
        "def attention(Q, K, V):\n    import torch\n    return torch.softmax(Q @ K.mT / Q.shape[-1] ** 0.5, -1) @ V\n"
    )
    assert check_file(write(tmp_path, source)).verdict == "correct"


def test_in_one_process_a_program_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tinyattn.check.run.isolate.sys.platform", "emscripten")  # no fork, no process
    path, finders, modules = sys.path[:], sys.meta_path[:], set(sys.modules)
    file = write(tmp_path, "import seaborn.axisgrid\n" + GOOD)
    assert check_file(file).verdict == "correct"
    assert (sys.path, sys.meta_path) == (path, finders)
    assert not {name for name in set(sys.modules) - modules if name.partition(".")[0] in ("seaborn", "mine")}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Q", "Q"),
        ("query", "Q"),
        ("queries", "Q"),
        ("consultas", "Q"),
        ("keys", "K"),
        ("schluessel", "K"),
        ("werte", "V"),
        ("W_q", "W_q"),
        ("Wq", "W_q"),
        ("w_query", "W_q"),
        ("W_key", "W_k"),
        ("to_v", "W_v"),
        ("v_proj", "W_v"),
        ("out_proj", "W_o"),
        ("Wo", "W_o"),
        ("c_attn", "W_qkv"),
        ("W_qkv", "W_qkv"),
        ("n_heads", "heads"),
        ("num_heads", "heads"),
        ("n_kv_heads", "heads_kv"),
        ("attn_mask", "mask"),
        ("padding_mask", "key_mask"),
        ("d_k", "d_k"),
        ("head_dim", "d_k"),
        ("d_model", "d_model"),
        ("dout", "dO"),
        ("cache", "cache"),
        ("x", "X"),
        ("encoder_states", "context"),
        ("seq_len", "length"),
        ("zebra", None),
    ],
)  # one line each would hide the table
def test_names_tell_roles(name, meant):
    assert role(name) == meant


def notebook(*cells):
    made = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# hello"]}, *made], "nbformat": 4})


def test_gb_22_a_notebook_is_run_cell_by_cell_and_utf_16_is_read(tmp_path):
    head, body = "import numpy as np\n%matplotlib inline\n", GOOD.replace("import numpy as np\n", "")
    file = write(tmp_path, notebook(head, body, "1 / 0", "print('after')"), "nb.ipynb")
    assert check_file(file).verdict == "correct"
    broken = body.replace("s = Q @", "s = missing @")
    report = check_file(write(tmp_path, notebook(head, broken), "nb.ipynb"))
    assert (report.verdict, report.findings[0].cell) == ("error", 2)
    assert report.findings[0].line == 1 + broken[: broken.index("s = missing")].count("\n")
    utf = tmp_path / "utf.py"
    utf.write_bytes(GOOD.encode("utf-16"))
    assert check_file(utf).verdict == "correct"


def test_gb_25_a_child_ends_with_its_parent(tmp_path):
    file = write(
        tmp_path, f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n"
    )
    before = set(Path(os.environ.get("TMPDIR", "/tmp")).glob("tinyattn-check-*"))
    parent = subprocess.Popen([sys.executable, "-m", "tinyattn", "check", str(file)], cwd=ROOT)
    pid = tmp_path / "pid"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (pid.exists() and pid.read_text()):
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and _lives(int(pid.read_text())):
        time.sleep(0.1)
    assert not _lives(int(pid.read_text()))
    assert set(Path(os.environ.get("TMPDIR", "/tmp")).glob("tinyattn-check-*")) == before


def _lives(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def test_gb_26_a_signal_without_a_name(tmp_path):
    done = command("check", write(tmp_path, "import os\ndef causal_mask(n): os.kill(os.getpid(), 40)\n"), "--json")
    finding = json.loads(done.stdout)["findings"][0]
    assert (done.returncode, finding["id"]) == (2, "error-stopped")
    assert "40" in finding["message"]


def test_gb_27_where_fork_is_there_and_fails(monkeypatch):
    def fails():
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "fork", fails)
    assert ta.check(lambda n: np.tri(n, dtype=bool)).verdict == "correct"


KEEPS, BLOCKS = "np.where(mask, scores, -1e9)", "np.where(mask, -1e9, scores)"
PAST, FUTURE = "np.tril(np.ones((n, n), dtype=bool))", "np.triu(np.ones((n, n), dtype=bool), k=1)"
PAIR = """
import numpy as np

def causal_mask(n):
    return {mask}

def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        scores = {where}
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ V
"""


@pytest.mark.parametrize(
    ("mask", "where", "fits"),
    [(PAST, KEEPS, True), (FUTURE, BLOCKS, True), (FUTURE, KEEPS, False), (PAST, BLOCKS, False)],
)
def test_gb_28_a_mask_and_an_attention_that_mean_opposite_things(tmp_path, mask, where, fits):
    report = check_file(write(tmp_path, PAIR.format(mask=mask, where=where)))
    assert report.verdict == ("correct" if fits else "wrong")
    assert ids(report) == ([] if fits else ["mask-pair-opposite"])
    for name in ("causal_mask", "scaled_dot_product_attention"):
        assert check_file(tmp_path / "mine.py", name).verdict == "correct"


@pytest.mark.parametrize(
    "mask", [KEEPS, BLOCKS, "scores + np.where(mask, -np.inf, 0)", "np.where(mask == 0, -1e9, scores)"]
)
def test_a_mask_may_be_either_way_round(tmp_path, mask):
    report = check_file(write(tmp_path, PAIR.format(mask=PAST, where=mask)), "scaled_dot_product_attention")
    assert ids(report) == []
    blocked = [f for f in report.findings if f.id == "property-mask-convention"]
    assert bool(blocked) == (mask not in (KEEPS, "np.where(mask == 0, -1e9, scores)"))


def test_what_the_text_says_of_its_mask_is_what_it_is_judged_by(tmp_path):
    text = PAIR.format(mask=PAST, where=BLOCKS).replace(
        "    scores = Q", '    """mask: True where attending is allowed"""\n    scores = Q'
    )
    report = check_file(write(tmp_path, text), "scaled_dot_product_attention")
    assert ids(report) == ["mask-inverted"]


def test_live_functions_classes_and_instances():
    class Attention:
        def __init__(self, d_k):
            self.d_k = d_k

        def forward(self, q, k, v):
            s = q @ k.swapaxes(-1, -2) / np.sqrt(self.d_k)
            e = np.exp(s - s.max(-1, keepdims=True))
            return e / e.sum(-1, keepdims=True) @ v

        __call__ = forward

    def attn(a, b, c):
        s = np.exp(a @ b.swapaxes(-1, -2) / np.sqrt(a.shape[-1]))
        return s / s.sum(-1, keepdims=True) @ c

    assert check(Attention).verdict == "correct"
    assert ids(check(attn)) == ["no-max-subtraction"]
    assert ids(check(lambda x: x / x.sum(), kind="softmax")) != []


def test_kind_says_what_cannot_be_read(tmp_path):
    file = write(
        tmp_path,
        "import numpy as np\ndef f(a):\n    e = np.exp(a - a.max(-1)[..., None])\n"
        "    return e / e.sum(-1)[..., None]\n",
    )
    assert command("check", f"{file}:f", "--kind", "softmax").returncode == 0


def test_its_own_attention_proves_nothing(tmp_path):
    text = "import tinyattn as ta\ndef attention(q, k, v):\n    return ta.scaled_dot_product_attention(q, k, v)\n"
    assert "property-own-attention" in ids(check_file(write(tmp_path, text)), "note")


@pytest.mark.parametrize(
    ("change", "id"),
    [
        ("if Q.dtype == np.float32: V = -V", "property-elsewhere"),
        ("if not Q.flags.writeable: V = -V", "property-elsewhere"),
        ("if Q.dtype == np.float32: raise TypeError('doubles only')", "property-elsewhere"),
    ],
)
def test_mistakes_for_one_kind_of_array_only(tmp_path, change, id):
    assert ids(check_file(write(tmp_path, GOOD.replace("    s = Q", f"    {change}\n    s = Q")))) == [id]


def test_the_keys_as_payload_are_not_told_to_swap():
    def scaled_dot_product_attention(Q, K, V, mask=None):
        s = Q @ K.T / np.sqrt(Q.shape[-1])
        s = s if mask is None else np.where(mask, s, -np.inf)
        e = np.exp(s - s.max(-1, keepdims=True))
        W = e / e.sum(-1, keepdims=True)
        return W @ K, W

    assert ids(check(scaled_dot_product_attention)) == ["value-is-key"]


@pytest.mark.parametrize(
    "rude",
    [
        "np.zeros((60_000, 60_000)) + 1",
        "open('big.bin', 'wb').write(b'x' * (200 << 20))",
        "[x for x in iter(int, 1)]",
        "__import__('os').kill(__import__('os').getpid(), 11)",
        "exec('def f(): f()\\nf()')",
    ],
)
def test_a_rude_function_gets_a_verdict(tmp_path, rude, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child, "SECONDS", 3)
    text = f"import numpy as np\ndef scaled_dot_product_attention(Q, K, V, mask=None):\n    {rude}\n    return V\n"
    report = check_file(write(tmp_path, text))
    assert report.verdict in ("error", "wrong")
    assert repr(report)


def test_a_large_result_and_control_characters(tmp_path):
    text = GOOD.replace("    s = Q", "    if len(Q) == 1: raise ValueError('\\x1b[31m\\x00 red')\n    s = Q")
    assert "\x1b" not in repr(check_file(write(tmp_path, text)))
    text = GOOD.replace("@ V", "@ V, np.zeros(4_000_000)")
    assert check_file(write(tmp_path, text)).verdict == "correct"


def test_folders_that_are_gone_and_links_in_a_circle(tmp_path, monkeypatch):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert check_file(tmp_path / "a").verdict == "error"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert check_file("mine.py").verdict == "error"
