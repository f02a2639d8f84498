"""The practice, walked through as a newcomer would: only with what the file and the check say."""

import json

import numpy as np
import pytest

from tinyattn.check import cli
from tinyattn.check.known.reference import scaled_dot_product_attention
from tinyattn.check.practice import SENTENCE, SENTENCE_PROBE, STEPS, plan
from tinyattn.check.report import heatmap
from tinyattn.check.run.isolate import run_file
from tinyattn.text import plain

SOFTMAX = "e = np.exp(s - s.max(axis=-1, keepdims=True)); w = e / e.sum(axis=-1, keepdims=True)"
STUB = "    raise NotImplementedError"


class Learner:
    """A file under work."""

    def __init__(self, file):
        self.file = file

    def write(self, function, body):
        text = self.file.read_text(encoding="utf-8")
        start = text.index(f"def {function}(")
        stub = text.index(STUB, start)
        self.file.write_text(text[:stub] + f"    {body}" + text[stub + len(STUB) :], encoding="utf-8")

    def replace(self, old, new):
        text = self.file.read_text(encoding="utf-8")
        assert old in text
        self.file.write_text(text.replace(old, new, 1), encoding="utf-8")

    def sees(self):
        return plain(cli.guide(run_file(self.file, plan=plan()), str(self.file)))


@pytest.fixture
def learner(tmp_path):
    file = tmp_path / "my_attention.py"
    assert cli.practice([str(file)]) == 0
    return Learner(file)


def test_from_stubs_to_the_last_question(learner):
    assert "→ Step 1: the function\n\n     Not written yet" in learner.sees()
    learner.write("scaled_dot_product_attention", f"s = Q @ K.T; {SOFTMAX}; return w @ V")
    assert "no-scale" in learner.sees()
    learner.replace("s = Q @ K.T", "s = Q @ K.T / np.sqrt(Q.shape[1])")
    learner.write("rows_sum_to_one", "return weights.sum(axis=1).mean() == 1")
    assert "It says False to these weights (right, up to rounding)" in learner.sees()
    learner.replace("weights.sum(axis=1).mean() == 1", "np.allclose(weights.sum(axis=0), 1)")
    assert "property-row-sum-test" in learner.sees()
    learner.replace("axis=0", "axis=1")
    learner.write("attention_without_scaling", "return scaled_dot_product_attention(Q, K, V)")
    assert "still scales" in learner.sees()
    learner.replace("return scaled_dot_product_attention(Q, K, V)", f"s = Q @ K.T; {SOFTMAX}; return w @ V")
    learner.replace('largest_weight = ""', 'largest_weight = "about 0.1"')
    learner.replace('typical_gradient = ""', 'typical_gradient = "smaller"')
    assert "not scaled" in learner.sees()  # the experiment
    learner.replace("about 0.1", "above 0.9")
    learner.write("causal_mask", "return np.tril(np.ones((n, n)))")
    seen = learner.sees()
    assert "mask-as-bias" in seen
    assert "mask-ignored" in seen
    learner.replace("np.ones((n, n))", "np.ones((n, n), dtype=bool)")
    learner.replace("np.sqrt(Q.shape[1]);", "np.sqrt(Q.shape[1]); s = s if mask is None else np.where(mask, s, -1e4);")
    assert "mask-fill-small" in learner.sees()
    learner.replace("-1e4", "-np.inf")
    seen = learner.sees()
    assert "✓ Step 4" in seen
    assert "slept" in seen
    learner.replace('it_looks_at = ""', 'it_looks_at = "dog"')
    assert "→ Step 6" in learner.sees()
    learner.write(
        "multi_head_attention",
        """if X.shape[-1] % num_heads: raise ValueError
    split = lambda W: np.split(X @ W, num_heads, axis=-1)
    return np.concatenate([scaled_dot_product_attention(*qkv, mask)
                           for qkv in zip(split(Wq), split(Wk), split(Wv))], axis=-1) @ Wo""",
    )
    learner.write("cross_attention", "return scaled_dot_product_attention(X @ Wq, X @ Wk, X @ Wv)")
    assert "cross-sources-swapped" in learner.sees()
    learner.replace("(X @ Wq, X @ Wk, X @ Wv)", "(X @ Wq, context @ Wk, context @ Wv)")
    learner.write(
        "scaled_dot_product_attention_backward",
        """P = scaled_dot_product_attention(Q, K, np.eye(len(K)), mask)
    c = 1 / np.sqrt(Q.shape[1])
    dS = c * P * (dO @ V.T)
    return dS @ K, dS.T @ Q, P.T @ dO""",
    )
    assert "softmax-backward-no-row-sum" in learner.sees()
    learner.replace("(dO @ V.T)", "(dO @ V.T - (dO @ V.T * P).sum(axis=1, keepdims=True))")
    assert "→ Step 9" in learner.sees()
    learner.replace('why_three_projections = ""', 'why_three_projections = "an address is not a content"')
    seen = learner.sees()
    assert "✓ Step 9" in seen
    assert "V = K" in seen


def test_a_step_alone_has_a_verdict_and_json(learner, capsys):
    learner.write("scaled_dot_product_attention", f"s = Q @ K.T / np.sqrt(Q.shape[1]); {SOFTMAX}; return w @ V")
    assert cli.check([str(learner.file), "--step", "1", "--json"]) == 0  # masks are not asked for yet
    assert json.loads(capsys.readouterr().out)["verdict"] == "correct"
    assert cli.check([str(learner.file), "--step", "4", "--json"]) == 1
    assert cli.check([str(learner.file), "--step", "2"]) == 2
    assert "not written yet" in capsys.readouterr().out


def test_practice_never_overwrites(learner, capsys):
    before = learner.file.read_text(encoding="utf-8")
    assert cli.practice([str(learner.file)]) == 2
    assert learner.file.read_text(encoding="utf-8") == before


def test_the_sentences_heatmap():
    """ "it" looks at "dog", and no word sees the future."""
    weights = scaled_dot_product_attention(*SENTENCE_PROBE.args)
    assert weights[5].argmax() == 1
    assert 0.5 < weights[5, 1] < 0.9
    assert np.triu(weights, 1).max() == 0
    assert "0.70" in plain(heatmap(weights, SENTENCE)).splitlines()[6]


def test_steps_are_the_lessons_five_and_four_more():
    assert len(STEPS) == 9
