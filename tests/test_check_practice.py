"""The practice, walked six ways by the command line: every line that it prints is true of what was written."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tinyattn.check import cli
from tinyattn.check.known.reference import scaled_dot_product_attention
from tinyattn.check.practice.hints import HINTS, solution
from tinyattn.check.practice.steps import ACCEPTED, STEPS, recovery, row_sum_cases
from tinyattn.pretrained import stored_heads

SOFTMAX = "e = np.exp(s - s.max(axis=-1, keepdims=True)); w = e / e.sum(axis=-1, keepdims=True)"
SCALED = f"s = Q @ K.T / np.sqrt(Q.shape[1]); {SOFTMAX}; return w @ V"
MASKED = SCALED.replace("; e =", "; s = s if mask is None else np.where(mask, s, -np.inf); e =", 1)
STUB = "    raise NotImplementedError"


class Learner:
    """A file under work."""

    def __init__(self, file, capsys):
        self.file, self.capsys = file, capsys

    def write(self, function, body):
        text = self.file.read_text(encoding="utf-8")
        start = text.index(f"def {function}(")
        stub = text.index(STUB, start)
        self.file.write_text(text[:stub] + f"    {body}" + text[stub + len(STUB) :], encoding="utf-8")

    def replace(self, old, new):
        text = self.file.read_text(encoding="utf-8")
        assert old in text
        self.file.write_text(text.replace(old, new, 1), encoding="utf-8")

    def sees(self, *options, code=None):
        self.capsys.readouterr()
        told = cli.check([str(self.file), *options])
        out = " ".join(self.capsys.readouterr().out.split())  # wherever the lines are broken
        if code is not None:
            assert told == code, out
        assert "✗" not in out or told in (1, 2), out  # no objection without the exit code
        return out

    def stands_at(self, step):
        seen = self.sees()
        assert f"→ Step {step}:" in seen, seen
        assert f": {step - 1} of 9 steps done" in seen
        assert seen.count("✓ Step") == step - 1
        return seen

    def first_three(self):
        self.write("scaled_dot_product_attention", SCALED)
        self.write("rows_sum_to_one", "assert np.allclose(weights.sum(axis=-1), 1)")
        self.write("attention_without_scaling", f"s = Q @ K.T; {SOFTMAX}; return w @ V")
        self.replace('largest_weight = ""', 'largest_weight = "above 0.9"')
        self.replace('typical_gradient = ""', 'typical_gradient = "smaller"')


@pytest.fixture
def learner(tmp_path, capsys):
    file = tmp_path / "my_attention.py"
    assert cli.practice([str(file)]) == 0
    return Learner(file, capsys)


def test_flawless(learner):
    seen = learner.sees(code=2)  # nothing is begun, nothing is blamed
    assert "0 of 9 steps done" in seen
    assert "Not written yet" in seen
    learner.write("scaled_dot_product_attention", SCALED)
    assert "Your weights on the first input sum to 1, 1" in learner.stands_at(2)
    learner.write(
        "rows_sum_to_one", "assert np.allclose(weights.sum(axis=-1), 1)"
    )  # returns None, as the lesson's does
    assert "accepts your own weights" in learner.stands_at(3)
    learner.write("attention_without_scaling", f"s = Q @ K.T; {SOFTMAX}; return w @ V")
    assert "Predict before you look" in learner.stands_at(3)
    learner.replace('largest_weight = ""', 'largest_weight = "about 0.1"')
    learner.replace('typical_gradient = ""', 'typical_gradient = "smaller"')
    seen = learner.stands_at(4)  # a wrong prediction is no mistake: the measured table answers it
    assert 'you predicted "about 0.1"' in seen
    assert "smaller (" in seen
    assert "as you predicted" in seen
    assert "At dk = 4, 16, 64, 256 it is larger without" in seen
    assert "demos/causal_mask.py" in seen
    learner.replace(SCALED, MASKED)
    learner.write("causal_mask", "return np.tril(np.ones((n, n), dtype=bool))")
    seen = learner.stands_at(5)
    assert "exactly 0 above the diagonal" in seen
    assert "animal 0.68" in seen
    learner.replace('it_looks_at = ""', 'it_looks_at = " Animal "')
    assert "it → animal: a pronoun" in learner.stands_at(6)
    learner.write(
        "multi_head_attention",
        """if X.shape[-1] % num_heads: raise ValueError
    split = lambda W: np.split(X @ W, num_heads, axis=-1)
    return np.concatenate([scaled_dot_product_attention(*qkv, mask)
                           for qkv in zip(split(Wq), split(Wk), split(Wv))], axis=-1) @ Wo""",
    )
    learner.stands_at(7)
    learner.write("cross_attention", "return scaled_dot_product_attention(X @ Wq, context @ Wk, context @ Wv)")
    learner.stands_at(8)
    learner.write(
        "scaled_dot_product_attention_backward",
        """P = scaled_dot_product_attention(Q, K, np.eye(len(K)), mask)
    dP = dO @ V.T
    dS = P * (dP - (dP * P).sum(axis=1, keepdims=True)) / np.sqrt(Q.shape[1])
    return dS @ K, dS.T @ Q, P.T @ dO""",
    )
    assert "Predict: set" in learner.stands_at(9)
    learner.replace('why_three_projections = ""', 'why_three_projections = "32"')
    seen = learner.sees(code=0)
    assert "9 of 9 steps done" in seen
    assert "from width 32 on; as you predicted" in seen


def test_the_wrong_axis(learner):
    learner.write("scaled_dot_product_attention", SCALED.replace("axis=-1", "axis=0"))
    seen = learner.sees(code=1)
    assert "softmax-over-queries" in seen
    assert "Step 2" in seen.split("softmax-over-queries")[1]  # and nothing is said of it
    learner.replace(SCALED.replace("axis=-1", "axis=0"), SCALED)
    learner.write("rows_sum_to_one", "assert np.allclose(weights.sum(axis=0), 1), 'columns'")
    seen = learner.sees(code=1)
    assert 'it raises AssertionError ("columns"); their rows do all sum to 1.' in seen
    assert "your own weights, from step 1" in seen


def test_an_inverted_pair(learner):
    learner.first_three()
    learner.write("causal_mask", "return np.triu(np.ones((n, n), dtype=bool), k=1)")
    seen = learner.sees(code=1)
    assert "mask-ignored" in seen  # the attention does not read its mask yet
    learner.replace(SCALED, MASKED)
    seen = learner.sees(code=1)
    assert "mask-pair-opposite" in seen
    assert "sees the future only" in seen
    assert "NaN" in seen
    learner.replace("np.where(mask, s, -np.inf)", "np.where(mask, -np.inf, s)")  # both mean True = blocked
    learner.stands_at(5)


def test_true_may_mean_blocked_up_to_the_end(learner):
    learner.first_three()
    learner.replace(SCALED, MASKED.replace("np.where(mask, s, -np.inf)", "np.where(mask, -np.inf, s)"))
    learner.write("causal_mask", "return np.triu(np.ones((n, n), dtype=bool))")
    seen = learner.sees(code=1)
    assert "lets no position attend to itself" in seen
    assert "sees the future" not in seen
    assert "mask-transposed" not in seen
    learner.replace("np.triu(np.ones((n, n), dtype=bool))", "np.triu(np.ones((n, n), dtype=bool), 1)")
    learner.replace('it_looks_at = ""', 'it_looks_at = "animal"')
    learner.write(
        "multi_head_attention",
        """if X.shape[-1] % num_heads: raise ValueError
    split = lambda W: np.split(X @ W, num_heads, axis=-1)
    return np.concatenate([scaled_dot_product_attention(*qkv, mask)
                           for qkv in zip(split(Wq), split(Wk), split(Wv))], axis=-1) @ Wo""",
    )
    learner.stands_at(7)


def test_two_mistakes_at_once(learner):
    """What is true of a mistake alone is not said of it beside another one."""
    wrong = "s = Q @ K.T; e = np.exp(s); w = e / e.sum(axis=0); return w @ V"
    learner.write("scaled_dot_product_attention", wrong)
    seen = learner.sees(code=1)
    assert "Several things at once" in seen
    assert {"softmax-over-queries", "no-scale", "no-max-subtraction"} <= set(seen.split())
    for untrue in ("right on ordinary input", "columns sum to 1", "too sharp"):
        assert untrue not in seen
    learner.replace(wrong, SCALED.replace(" - s.max(axis=-1, keepdims=True)", ""))
    assert "right on ordinary input, but not stable" in learner.sees(code=1)


def test_without_the_scaling_the_unscaled_is_right(learner):
    learner.first_three()
    learner.replace(f"s = Q @ K.T; {SOFTMAX}", f"s = Q @ K.T; {SOFTMAX.replace('axis=-1', 'axis=0')}")
    seen = learner.sees(code=1)
    assert "softmax-over-queries" in seen
    assert "right output 0.998* 0.018* 0.881* 0.499 0.001 0.499" in seen  # softmax of (4, 0.., without the division)
    learner.replace("s = Q @ K.T; e", "s = Q @ K.T / np.sqrt(Q.shape[1]); e")
    assert "It still scales its scores." in learner.sees(code=1)


@pytest.mark.parametrize("blocked", [False, True])
def test_what_is_masked_gets_no_weight_at_all(learner, blocked):
    """Right on ordinary numbers; whichever way round True is."""
    learner.first_three()
    choice = "np.where(mask, {fill}, s)" if blocked else "np.where(mask, s, {fill})"
    triangle = "triu(np.ones((n, n), dtype=bool), 1)" if blocked else "tril(np.ones((n, n), dtype=bool))"
    learner.write("causal_mask", f"return np.{triangle}")
    text = MASKED.replace("np.where(mask, s, -np.inf)", choice)
    learner.replace(SCALED, text.format(fill="-30.0"))
    assert "mask-fill-small" in learner.sees(code=1)
    learner.replace("-30.0", "-1e4")
    seen = learner.sees(code=1)
    assert "mask-fill-small" in seen
    assert ("1 1 1" in seen) != blocked  # the last row of the mask as the function got it
    learner.replace("-1e4", "-1e9")
    seen = learner.stands_at(5)
    assert "note mask-fill-finite" in seen or blocked
    allowed = "~mask" if blocked else "mask"
    late = f"e = np.exp(s - s.max(axis=-1, keepdims=True)); e = e if mask is None else e * {allowed}; w ="
    learner.replace(text.format(fill="-1e9"), SCALED.replace(SOFTMAX, late + SOFTMAX.split("w =")[1]))
    seen = learner.stands_at(5)  # the same numbers, but for rows that underflow: no mistake, and told
    assert "note mask-after-softmax-renormalised" in seen
    learner.replace(f"e * {allowed}; w", f"e * np.exp(np.where({allowed}, 0, -1e9)); w")
    assert "note mask-after-softmax-renormalised" in learner.stands_at(5)


@pytest.mark.parametrize(
    ("added", "mask"),
    [("mask * -np.inf", "np.triu(np.ones((n, n)), 1)"), ("(1 - mask) * -np.inf", "np.tril(np.ones((n, n)))")],
)
def test_nan_everywhere_is_not_the_future(learner, added, mask):
    learner.first_three()
    learner.write("causal_mask", f"return {mask}")
    learner.replace(SCALED, MASKED.replace("np.where(mask, s, -np.inf)", f"s + {added}"))
    seen = learner.sees(code=1)
    assert "mask-times-inf" in seen
    assert "opposite" not in seen
    assert "the future" not in seen
    assert ("· 1 ·" in seen) == ("triu" in mask)  # where True blocks, the input is turned with it
    learner.replace(mask, mask.replace("), 1)", "))"))  # a mask that is wrong too waits for its turn
    assert "mask-transposed" not in learner.sees(code=1)
    learner.replace(f"s + {added}", "s + np.inf * (mask - mask)")  # no known mistake
    seen = learner.sees("--step", "4", code=1)
    assert "opposite" not in seen
    assert "the future only" not in seen


def test_one_mistake_has_no_other_one(learner):
    """The mask is not read yet, and the third step has none: only what is shown is spoken of."""
    learner.write("scaled_dot_product_attention", SCALED.replace(" / np.sqrt(Q.shape[1])", ""))
    seen = learner.sees(code=1)
    assert "this mistake is gone." in seen
    assert "other one" not in seen


@pytest.mark.parametrize("body", ["w @ K", "w"])
def test_numbers_at_a_place_belong_to_the_input_that_is_shown(learner, body):
    learner.write("scaled_dot_product_attention", SCALED.replace("w @ V", body))
    told = json.loads(learner.sees("--json", code=1))["findings"]
    (bug,) = [f for f in told if f["severity"] == "bug"]
    here, arguments = bug["evidence"]["here"], bug["evidence"]["arguments"]
    assert "with " in here["says"]
    assert here.get("right", arguments["V"]) == arguments["V"]


def test_an_added_mask_is_judged_with_the_number_that_it_adds(learner):
    learner.first_three()
    learner.replace(SCALED, MASKED.replace("np.where(mask, s, -np.inf)", "s + mask"))
    learner.write("causal_mask", "return np.triu(np.full((n, n), -1e9), 1)")
    seen = learner.stands_at(5)
    assert seen.count("note mask-fill-finite") == 1
    assert "empty-row-nan" not in seen
    learner.replace("-1e9", "-1e4")
    seen = learner.sees(code=1)
    assert seen.count("mask-fill-small") == 1  # in causal_mask, where the number is
    learner.replace("-1e4", "-np.inf")
    assert "note empty-row-nan" in learner.stands_at(5)


def test_the_right_one_of_any_and_all(learner):
    learner.write("scaled_dot_product_attention", SCALED)
    learner.write("rows_sum_to_one", "assert np.isclose(weights.sum(axis=-1), 1)")
    seen = learner.sees(code=1)
    assert "a.any() or a.all()" in seen
    assert "np.allclose. With any, one row would do" in seen


def test_no_scale(learner):
    body = f"s = Q @ K.T; print('shapes', Q.shape, K.shape); {SOFTMAX}; return w @ V"
    learner.write("scaled_dot_product_attention", body)
    seen = learner.sees(code=1)
    assert "no-scale" in seen
    assert "It was called with Q (2, 4), K (3, 4), V (3, 3), and printed: shapes (2, 4) (3, 4)" in seen
    learner.replace("s = Q @ K.T", "s = Q @ K.T / np.sqrt(Q.shape[1])")
    learner.write("rows_sum_to_one", "assert np.allclose(weights.sum(axis=-1), 1)")
    learner.write("attention_without_scaling", "return scaled_dot_product_attention(Q, K, V)")
    assert "still scales" in learner.sees(code=1)


def test_an_assert_that_returns_nothing_and_catches_nothing(learner):
    learner.write("scaled_dot_product_attention", SCALED)
    learner.write("rows_sum_to_one", "weights.sum(axis=-1)")
    assert "a softmax over the queries, it raises nothing; their rows do not all sum to 1." in learner.sees(code=1)
    learner.replace("weights.sum(axis=-1)\n", "return weights.sum(axis=-1)\n")
    assert "it returns an array of shape (2,)" in learner.sees(code=1)
    learner.replace("return weights.sum(axis=-1)", "assert weights.sum(axis=-1).mean() == 1")
    assert "its rows" not in learner.sees(code=1)
    learner.replace(
        "assert weights.sum(axis=-1).mean() == 1", "return bool(abs(weights.sum(axis=-1) - 1).max() < 1e-9)"
    )
    learner.stands_at(3)


def test_gives_up_at_step_3(learner):
    learner.write("scaled_dot_product_attention", SCALED)
    learner.write("rows_sum_to_one", "assert np.allclose(weights.sum(axis=-1), 1)")
    seen = learner.sees(code=2)  # unfinished, and nothing is wrong
    assert "→ Step 3" in seen
    assert "causal_mask" not in seen.split("→ Step 3")[0]
    assert "correct" not in seen
    told = json.loads(learner.sees("--json", code=2))
    assert [s["state"] for s in told["steps"]] == ["done"] * 2 + ["not begun"] * 7
    learner.write("attention_without_scaling", "return Q @")
    assert "Python cannot read the file" in learner.sees(code=2)


@pytest.mark.parametrize("step", [5, 9])
def test_gb_29_an_answer_that_is_missing_is_not_correct(learner, step):
    seen = learner.sees("--step", str(step), code=1)
    assert f"✗ Step {step}: not answered yet" in seen
    assert "correct" not in seen


def test_gb_29_neighbours(learner):
    learner.replace('it_looks_at = ""', 'it_looks_at = "street"')
    assert "✗ Step 5: not right yet" in learner.sees("--step", "5", code=1)
    learner.replace('why_three_projections = ""', 'why_three_projections = "any three words"')
    assert "✗ Step 9: not answered yet" in learner.sees("--step", "9", code=1)
    learner.replace('row = "it"', 'row = "dog"')
    assert '"dog" is no word of the sentence' in learner.sees("--step", "5", code=1)
    learner.replace('row = "dog"', 'row = "street"')
    learner.replace('it_looks_at = "street"', 'it_looks_at = "the"')
    assert "but with 0.05 hardly so" in learner.sees("--step", "5", code=1)
    learner.replace('it_looks_at = "the"', 'it_looks_at = "street"')
    learner.replace('row = "street"', 'row = "Cross"')
    assert "✓ Step 5: correct" in learner.sees("--step", "5", code=0)


def test_a_step_alone_has_a_verdict_and_json(learner):
    learner.write("scaled_dot_product_attention", SCALED)
    assert json.loads(learner.sees("--step", "1", "--json", code=0))["verdict"] == "correct"  # no mask is asked for yet
    learner.sees("--step", "4", code=2)
    assert "not written yet" in learner.sees("--step", "2", code=2)


def test_practice_never_overwrites_and_needs_a_folder(learner, capsys):
    before = learner.file.read_text(encoding="utf-8")
    assert cli.practice([str(learner.file)]) == 2
    assert learner.file.read_text(encoding="utf-8") == before
    assert cli.practice([str(learner.file.parent / "missing" / "mine.py")]) == 2
    assert "Is its folder there?" in capsys.readouterr().err


def test_the_accepted_words_are_the_peaks_of_the_head():
    stored = stored_heads()
    weights = scaled_dot_product_attention(*(x[0].astype(float) for x in (stored.Q, stored.K)), np.eye(16))
    words = stored.tokens[1:-1]
    for row, word in ACCEPTED:
        peaks = [words[weights[i, 1:-1].argmax()] for i, token in enumerate(stored.tokens) if token == row]
        assert word in peaks


def test_what_the_steps_rely_on_is_measured():
    assert [all(np.isclose(w.sum(-1), 1)) for w, _ in row_sum_cases().values()] == [
        g for _, g in row_sum_cases().values()
    ]
    table = recovery()
    assert table[16][0] > 0.9 > table[16][1]  # the text of step 9 says so
    assert table[32][1] > 0.9


def test_steps_and_demos_name_each_other():
    demos = Path(__file__).parents[1] / "demos"
    for number, step in enumerate(STEPS, 1):
        text = (demos / f"{step.demo}.py").read_text(encoding="utf-8")
        assert re.search(rf"[Pp]ractice.*\bsteps?\b.*\b{number}\b", text), f"{step.demo}.py does not name step {number}"


def test_a_mistake_stands_at_its_line(learner):
    learner.write("scaled_dot_product_attention", SCALED.replace("e.sum(axis=-1", "e.sum(axis=0"))
    (bug,) = (f for f in json.loads(learner.sees("--json"))["findings"] if f["severity"] == "bug")
    text = learner.file.read_text(encoding="utf-8").splitlines()
    assert bug["id"] == "softmax-over-queries"
    assert "e.sum(axis=0" in text[bug["line"] - 1]
    assert f"line {bug['line']} " in learner.sees()


def test_the_solutions_solve_the_steps(learner):
    assert len(HINTS) == len(STEPS)
    with learner.file.open("a", encoding="utf-8") as file:
        file.write("\n\n\n".join(solution(step) for step in range(1, 10)))
    assert "9 of 9 steps done" in learner.sees(code=0)


def test_the_solution_of_a_step_that_is_not_begun_is_shown_when_asked_for(learner):
    assert " ".join(solution(1).split()) in learner.sees("--solution")
