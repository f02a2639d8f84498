"""Each claim of a demo can fail: a mutant breaks the mechanism under it, and the demo ends with code 1.

A mutant is an edit of the demo's source (unscaled made scaled, a mask taken off, training left out …); what makes the
claim is left alone. The quick form is played in this process, without pictures; for what only the full form claims, or
only with the weights of real models, the full form, made small, with random weights in the place of the trained ones.
Every claim in a demo's source has to fail under some mutant; that they hold without one is asserted in test_demos.py
(the quick forms), and is what demos/figures.py asks of the full ones.
"""

import ast
import re
import sys
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import pretrained
from tinyattn.calling import op

FOLDER = Path(__file__).parent.parent / "demos"
sys.path.insert(0, str(FOLDER))

import _demo  # noqa: E402

MUTANTS = {  # demo: [[(what stands there, what the mutant has), …], …]
    "scaled_dot_product": [
        [("P = softmax(S / np.sqrt(DK), axis=-1)", "P = softmax(S / np.sqrt(DK), axis=0)")],
        [("scores = k @ q\n", "scores = np.abs(k @ q) / np.linalg.norm(k, axis=1)\n"), ("WQ = 2 *", "WQ = -2 *")],
        [("[slice(i * DK // h, (i + 1) * DK // h) for", "[slice(i, None, h) for")],
        [  # heads tied
            ("[slice(i * DK // h, (i + 1) * DK // h) for", "[slice(0, DK // h) for"),
            ('weight": w.T for', 'weight": w for'),
        ],
        [("S.max(axis=axis", "S.max(axis=-1"), ("E.sum(axis=axis", "E.sum(axis=-1")],
        [
            ("late = np.where(causal, P, 0)", "late = attention(Q, K, V, allowed=causal)[1]"),
            ('("√d_model", d_model)', '("√d_model", DK)'),
        ],
    ],
    "causal_mask": [
        [  # the mask off
            ('"causal, j ≤ i": ta.causal_mask', '"causal, j ≤ i": lambda n: np.ones((n, n), dtype=bool)'),
            ("(X, X, X, ta.causal_mask(n), return", "(X, X, X, None, return"),
            ("(80, 3)", "(80, 1)"),
        ],
        [("np.tri(n, n, 1, dtype=bool)", "np.tri(n, n, 0, dtype=bool)"), ("(80, 3)", "(20, 1)")],
    ],
    "computation_graph": [
        [("return e / ta.sum(e, axis=-1, keepdims=True)", "return e / ta.sum(e * e, axis=-1, keepdims=True)")],
        [  # gradients × 100
            (
                "gradients = ta.grad(loss, weights, create_graph=True)",
                "gradients = [100 * g for g in ta.grad(loss, weights, create_graph=True)]",
            ),
            ("ta.gradgradcheck(ta.scaled_dot_product_attention,", "ta.gradgradcheck(WRONG,"),
        ],
    ],
    "gradient_check": [
        [("(loss(up).item() - loss(down).item()) / (2 * h)", "(loss(up).item() - loss(Q).item()) / h")],
        [
            ("exact = ta.grad(loss(q), q)[0].numpy()", "exact = 1.001 * ta.grad(loss(q), q)[0].numpy()"),
            (
                "attention = lambda Q, K, V: ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(4))",
                "attention = WRONG",
            ),
            ("op(lambda g, out, x: g * x)(lambda x: x * x)", "op(lambda g, out, x: 2 * g * x)(lambda x: x * x)"),
            (
                "broken = op(lambda g, out, x: 0 * g)(softmax)",
                "broken = op(lambda g, out, x: out * (g - (out * g).sum(-1, keepdims=True)))(softmax)",
            ),
        ],
        [("broken = op(lambda g, out, x: 0 * g)(softmax)", "broken = op(lambda g, out, x: g)(softmax)")],
    ],
    "why_topological_order": [
        [("for node in reversed(inputs_first", "for node in (inputs_first"), ("range(2, 17 if", "range(2, 5 if")],
        [  # each walk the right one; the engine off
            (
                '"1. the sum": pass_on_the_sum, "2. once": never_come_back',
                '"1. the sum": in_order, "2. once": in_order',
            ),
            ("paths = [walk(every_path,", "paths = [walk(in_order,"),
            ("return x.grad.item(), time", "return 1.5 * x.grad.item(), time"),
            ("range(2, 17 if", "range(2, 5 if"),
        ],
    ],
    "online_softmax": [
        [("if rescale else 1.0", "if False else 1.0"), ("top = max(old, s.max())", "top = min(old, 0.0)")],
        [
            ("if rescale else 1.0", "if True else 1.0"),
            ("right = math.exp(a[0] - top), math.exp(b[0] - top)", "right = 1.0, 1.0"),
            ("steps = flash.backward(g, Q", "steps = flash.backward(2 * g, Q"),
        ],
        [("p = np.exp(s - top)", "p = np.exp(s - s.max())")],
    ],
    "vanishing_gradients": [
        [
            ('"not scaled": 1.0}', '"not scaled": None}'),
            ("rng.normal(size=(*leading, n, width)) for", "1.2 * rng.normal(size=(*leading, n, width)) for"),
            ("(200, [64], [3e-3], 3)", "(2, [64], [3e-3], 1)"),
        ],
        [  # the two forms exchanged; scores that start with variance 1 everywhere
            ('{"÷ √dk": None, "not scaled": 1.0}', '{"÷ √dk": 1.0, "not scaled": None}'),
            ('"÷ √dk, from dk": (True, False)', '"÷ √dk, from dk": (True, True)'),
            ('"no ÷, from dk": (False, False)', '"no ÷, from dk": (False, True)'),
            ("(200, [64], [3e-3], 3)", "(200, [64], [3e-3], 1)"),
        ],
    ],
    "three_projections": [
        [("(150 if demo.quick else 400), 3", "(2 if demo.quick else 400), 1")],
        [  # nothing shared after all
            ('V = K if form == "V = K" else memory', "V = memory"),
            ('(p["Wq"] if form == "Wq = Wk" else p["Wk"])', 'p["Wk"]'),
            ("(150 if demo.quick else 400), 3", "(150 if demo.quick else 400), 1"),
        ],
    ],
    "multi_head": [
        [
            ("[2], 120) if", "[2], 2) if"),
            (
                "MultiHeadAttention(D_MODEL, num_heads, rng",
                "MultiHeadAttention(D_MODEL, num_heads, num_kv_heads=1, rng",
            ),
        ],
        [
            ("OneLayer(k, num_heads, rng)", "OneLayer(k, max(num_heads, 2), rng)"),
            ("range(3)]\n    demo.heading", "range(1)]\n    demo.heading"),
        ],
    ],
    "bottleneck": [
        [
            ("steps, most = (150, 150)", "steps, most = (2, 2)"),
            ("2, 0, 500)", "2, 0, 2)"),
            ('{"GRU": State', '{"GRU": Attention'),
            ("[8, 32]) if demo", "[8]) if demo"),
        ],
        [
            ("steps, most = (150, 150)", "steps, most = (2, 2)"),
            ("2, 0, 500)", "2, 0, 2)"),
            ('"attention": Attention}\nCOLORS', '"attention": State}\nCOLORS'),
        ],
    ],
    "captioning": [[("(220, 48, 16, 6e-3)", "(2, 48, 16, 6e-3)")]],
    "self_vs_cross": [
        [
            (
                "own, own_weights = mha(x, return_weights=True)",
                "own, own_weights = mha(x, mask=ta.causal_mask(5), return_weights=True)",
            ),
            ("mha(x, context[order])", "mha(x, context[order] + np.arange(9)[:, None])"),
            ("mha(x[:2], context)", "mha(x[:2], context[:8])"),
            ("(32, 190, 32, 8e-3)", "(32, 2, 32, 8e-3)"),
            ("steps, facts = (120, 16)", "steps, facts = (3, 16)"),
        ],
        [  # the memory not taken away
            ("reader(questions)[0])", "reader(questions, memory)[0])"),
            ("range(demo.seed, demo.seed + 3)", "range(demo.seed, demo.seed + 1)"),
            ("(32, 190, 32, 8e-3)", "(32, 2, 32, 8e-3)"),
        ],
    ],
    "induction": [
        [("{2: 180, 1: 120}", "{2: 2, 1: 2}")],
        [
            ("{2: 180, 1: 120}", "{2: 180, 1: 2}"),
            ("range(3)]\n    steps", "range(1)]\n    steps"),
            ("for layers in (2, 1))", "for layers in (2, 2))"),
            ("k=-places", "k=0"),
        ],
    ],
    "word_order": [
        [
            ("kind, np.zeros((3, D))", "kind, nn.sinusoidal_positions(3, D)"),
            ("ta.rotary(k).numpy()", "ta.rotary(k, base=50.0).numpy()"),
            ("(120, 3) if", "(2, 1) if"),
        ],
        [
            ('{"sinusoidal": nn.sinusoidal_positions(3, D)', '{"sinusoidal": np.zeros((3, D))'),
            ("ta.causal_mask(3) if kind", "None if kind"),
            ('if kind == "learned" else None', 'if kind in ("learned", "nothing") else None'),
            ("(120, 3) if", "(120, 1) if"),
        ],
    ],
    "parallel": [
        [('"GRU": nn.GRU(D, D, rng=rng)', '"GRU": nn.MultiHeadAttention(D, 1, rng=rng)')],
        [("rng.normal(size=(1, T, D)).astype", "rng.normal(size=(1, 64, D)).astype")],
    ],
    "recall_and_state": [
        [("(120 if demo.quick else 300), 3", "(8 if demo.quick else 300), 1"), ("120 if demo.quick else 1000", "8")],
        [
            ("asked[:, :, None] - self.n // 4", "asked[:, :, None] - self.n"),
            ("(120 if demo.quick else 300), 3", "(120 if demo.quick else 300), 1"),
            ("120 if demo.quick else 1000", "8"),
        ],
    ],
    "quadratic_cost": [
        [  # each in another's place; tiles that do not grow with the memory; a softmax that is not sharp
            ('"plain": ta.scaled_dot_product_attention', '"plain": efficient.linear_attention'),
            ('"flash": efficient.flash_attention', '"flash": ta.scaled_dot_product_attention'),
            ("functools.partial(efficient.flash_attention, block_size=128)", "ta.scaled_dot_product_attention"),
            ("efficient.sliding_window_attention(*x, WINDOW)", "ta.scaled_dot_product_attention(*x)"),
            ("efficient.block_sparse_attention(*x, blocks, BLOCK)", "ta.scaled_dot_product_attention(*x)"),
            ("return max(1, int(math.sqrt", "return 6 or max(1, int(math.sqrt"),
            ("scale=30.0", "scale=0.0"),
            ("keys @ (keys.T @ values), linear", "values, linear"),
        ],
    ],
    "microscope": [
        [
            ("P = weights.numpy()", "P = ta.softmax(Q @ K.swapaxes(-1, -2), axis=-2).numpy()"),
            ("ta.scaled_dot_product_attention(Q, K, V", "ta.scaled_dot_product_attention(-Q, K, V"),
            ("size = page", 'page.write_text("see http://elsewhere"); size = page'),
        ],
        [("ta.scaled_dot_product_attention(Q, K, V", "ta.scaled_dot_product_attention(-Q, K, V")],
    ],
    "real_sentence": [
        [  # each head in another's place
            ("A = by_word(tokens, by_head[head])", "A = by_word(tokens, by_head[HEADS[HEADS.index(head) - 1]])"),
            ("[PRONOUN][it]", "[PREVIOUS][it]"),
            ("by_head[TRAP])\n", "by_head[PREVIOUS])\n"),
            ("row = wide[1][PRONOUN][wide", "row = -wide[1][PRONOUN][wide"),
            ("row = turned[1][PRONOUN][turned", "row = -turned[1][PRONOUN][turned"),
        ],
        [("A = by_word(tokens, by_head[head])", "A = by_word(tokens, by_head[head]).T")],
    ],
    "what_matters": [
        [
            ("(1 - small) * tangent", "2 * (1 - small) * tangent"),
            ("on_the_way((k + 0.5) / steps)[1]", "on_the_way(1.0)[1] ** 2"),
            ("guess = -np.concatenate", "guess = np.concatenate"),
        ],
    ],
    "real_gpt": [
        [("continue_text(model, ids, count, ta.nn.KVCache())", "continue_text(model, ids, count, None)")],
        [("piece = ids if cache is None else [token]", "piece = ids if cache is None else [0]")],
    ],
    "tiny_gpt": [
        [
            ('{"steps": 120,', '{"steps": 2,'),
            ("run.model(ids[:, i : i + 1], cache=cache)", "run.model(ids[:, i : i + 1])"),
            ("    other.load(path)\n", "\n"),
            ("self.model(piece))", "self.model(piece.reshape(-1, 1)).reshape(*piece.shape, -1))"),
            ("1 if demo.load else demo.seeds", "1"),
        ],
    ],
}
FULL = {  # the same, of the full forms
    "vanishing_gradients": [
        [  # not trained; two steps of one size; the division there after all
            ("(600, [16, 64, 512], [1e-3, 3e-3], 3)", "(2, [16, 64, 512], [3e-3, 3e-3], 1)"),
            ('"no ÷, from 1": (False, True)', '"no ÷, from 1": (True, True)'),
            ("draws = 5 if demo.quick else 20", "draws = 1"),
        ],
    ],
    "three_projections": [[("(150 if demo.quick else 400), 3", "(2 if demo.quick else 2), 1")]],
    "multi_head": [
        [("[1, 2, 4, 8], 400)", "[1, 2, 4, 8], 2)"), ("3 if demo.quick else 10", "1"), ("range(3)", "range(1)")]
    ],
    "captioning": [
        [("(700, 64, 32, 3e-3)", "(2, 16, 8, 3e-3)"), ("else 500)", "else 20)"), ("seed + 3)", "seed + 1)")]
    ],
    "parallel": [[("rng.normal(size=(1, T, D)).astype", "rng.normal(size=(1, 64, D)).astype")]],
    "recall_and_state": [
        [("(120 if demo.quick else 300), 3", "2, 1"), ("120 if demo.quick else 1000", "2"), ("128, 256, 512]", "128]")]
    ],
    "quadratic_cost": [
        [  # tiles so small that every one of them is overhead
            (
                '"flash": efficient.flash_attention',
                '"flash": functools.partial(efficient.flash_attention, block_size=8)',
            ),
            ("[1024, 2048, 4096, 8192, 16384]", "[128, 256]"),
            ("else [512, 1024, 2048]", "else [64, 128]"),
            ("3 if demo.quick else 20", "1"),
            ("0.01 if demo.quick else 0.1", "0.01"),
        ],
    ],
    "tiny_gpt": [
        [
            ('"steps": 1600, "width": 96', '"steps": 2, "width": 32'),
            ("1 if demo.load else demo.seeds", "1"),
            ("else 600))", "else 60))"),
            ("self.seconds += time", "self.seconds += 1000 + time"),
        ],
    ],
    "real_sentence": [[]],
    "real_gpt": [[("count = 9 if demo.quick else 96", "count = 9")]],
    "what_matters": [
        [
            ("W[tokenizer.token_to_id", "0 * W[tokenizer.token_to_id"),
            ("6 if demo.quick else 32", "2"),
            ("12 if demo.quick else None]\n    truth", "6]\n    truth"),
        ]
    ],
}
square = op(lambda g, out, x: 3 * g * (x.detach() if isinstance(x, ta.Tensor) else x))(lambda x: x * x)


def WRONG(Q, K, V):
    """An "attention" with a wrong derivative, and without a second one."""
    return square(Q)


class Silent(_demo.Demo):
    """A demo that shows nothing, and notes which claims failed, by their lines."""

    seen: ClassVar[dict[int, bool]] = {}

    def claim(self, text, holds):
        super().claim(text, holds)
        line = sys._getframe(1).f_lineno
        Silent.seen[line] = Silent.seen.get(line, True) and bool(holds)

    def say(self, *_, **__):
        pass

    table = heading = plot = graph = heatmap = say


class Words:
    """Stands in for a tokenizer: a number for each word; of the sentences that ship with tinyattn, MiniLM's tokens."""

    def __init__(self):
        self.known = {sentence: list(tokens) for sentence, (tokens, _) in pretrained.stored_maps().items()}
        self.words = []

    def token_to_id(self, token):
        self.words += [token] * (token not in self.words)
        return self.words.index(token)

    def encode(self, text):
        tokens = self.known.get(text) or re.findall(r"<\|\w+\|>|\w+|[^\w\s]", text)
        return types.SimpleNamespace(tokens=tokens, ids=[self.token_to_id(token) for token in tokens])

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    def decode(self, ids):
        return " ".join(map(str, ids))


def untrained(name):
    """What pretrained.load gives, small and with random weights."""
    if name == "minilm":
        return pretrained.BERT(400, 64, 48, 12, 6, rng=4).astype(np.float32), Words()
    return ta.nn.GPT(1100, 256, 24, 3, 3, norm=ta.nn.RMSNorm, rng=0).astype(np.float32).eval(), Words()


def claims(name):
    """The lines of a demo's source where it claims something."""
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    return {node.lineno for node in ast.walk(tree) if getattr(getattr(node, "func", None), "attr", "") == "claim"}


def play(name, edits, monkeypatch, folder, form=("--quick",)):
    """The exit code of the mutant; Silent.seen has its claims."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in source, f"{name}.py has changed: {old!r} is gone, so the mutant needs another place"
        source = source.replace(old, new)
    monkeypatch.setattr(_demo, "Demo", Silent)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *form, "--out", str(folder)])
    module = types.ModuleType("__main__")
    vars(module).update(WRONG=WRONG, __file__=str(FOLDER / f"{name}.py"))
    monkeypatch.setitem(sys.modules, "__main__", module)
    Silent.seen = {}
    with pytest.raises(SystemExit) as end:
        exec(compile(source, f"{name}.py", "exec"), vars(module))
    return end.value.code


@pytest.mark.parametrize("name", MUTANTS)
def test_each_claim_has_a_mutant_that_it_fails_under(name, monkeypatch, tmp_path, capsys):
    def missing(*_):
        raise FileNotFoundError("no weights here")

    failed = set()
    for load, form, mutants in ((missing, ("--quick",), MUTANTS[name]), (untrained, (), FULL.get(name, ()))):
        monkeypatch.setattr(pretrained, "load", load)
        for edits in mutants:
            code = play(name, edits, monkeypatch, tmp_path, form)
            assert code not in (None, 0), f"no claim fails under {edits}"
            failed |= {line for line, holds in Silent.seen.items() if not holds}
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()
    never = [f"line {line}: {' '.join(source[line - 1 : line + 2])}" for line in sorted(claims(name) - failed)]
    assert not never, "\n".join(never)


def test_every_demo_has_mutants():
    assert {p.stem for p in FOLDER.glob("[a-z]*.py") if claims(p.stem)} == set(MUTANTS)
