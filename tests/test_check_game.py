"""The game `break`: each bug has a question that tells it from the right program; answers are what running gives."""

import sys

import pytest

from tinyattn.check import game, matrix
from tinyattn.check.known.mutants import BY_ID, MUTANTS

BUGS = [m.id for m in MUTANTS if m.severity == "bug"]


@pytest.mark.parametrize("id", BUGS)
def test_some_question_tells_the_bug_from_the_right_program(id):
    _, _, asked = game.asked_about(id)
    telling = [q for q, a in asked.items() if a.yes != a.right]
    assert telling
    assert set(telling[:3]) <= set(game.chosen(asked))
    assert 2 <= len(game.chosen(asked)) <= 4


@pytest.mark.parametrize("kind", sorted({matrix.home(BY_ID[id])[0] for id in BUGS}))
def test_the_right_program_gives_the_right_answers(kind):
    """No edit: both columns are the same, and it is right wherever it is asked whether it is right."""
    for question, answer in game.questions(kind, {}).items():
        assert answer.yes == answer.right
        assert answer.yes or not question.startswith(("Does it give", "Do finite", "Are its inputs", "Does each row"))


@pytest.mark.parametrize(
    ("id", "question", "yes"),
    [
        ("softmax-over-queries", "Under a causal mask, do earlier answers move", True),  # Q of the last word counts too
        ("key-reshaped", "Under a causal mask, do earlier answers move", True),
        ("softmax-over-queries", "Does each row of the weights sum to 1", False),
        ("no-scale", "At dk = 512 (unit normal), is the largest weight of a typical row above .9?", True),
        ("scale-dk", "At dk = 512 (unit normal), is the largest weight of a typical row below .05?", True),
        ("value-is-key", "If V is doubled, is the answer doubled?", False),
        ("backward-scale-missing", "Do finite differences agree with its dV?", True),
        ("softmax-backward-elementwise", "Do finite differences agree with its dQ?", False),
        ("inputs-modified", "Are its inputs the same after a call?", False),
        (
            "mask-fill-small",
            "Does it give the right numbers where all scores that the mask allows lie at −5",
            False,
        ),
    ],
)
def test_answers_that_can_be_thought_out(id, question, yes):
    _, _, asked = game.asked_about(id)
    (answer,) = [a for q, a in asked.items() if q.startswith(question)]
    assert answer.yes == yes


def test_it_begins_with_one_head_and_ends_with_the_way_back():
    kinds = [matrix.home(m)[0] for m in game.rising(__import__("random").Random(0))]
    levels = [game.LEVELS.get(kind, 3) for kind in kinds]
    assert levels == sorted(levels)
    assert kinds[0] in (game.SDPA, game.TRIANGLE)


def test_a_round_is_scored_and_q_quits(monkeypatch, capsys):
    keys = iter(["y", "n", "", "maybe", "y", "", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(keys))
    monkeypatch.setattr(game, "is_terminal", lambda stream: True)
    assert game.command([]) == 0
    out = capsys.readouterr().out
    assert out.count("One line or two of this program are wrong.") == 2
    assert "predictions were right." in out
    kind, edit = matrix.home(BY_ID["no-scale"])
    keys = iter(["y" if a.yes else "n" for a in game.chosen(game.questions(kind, edit)).values()])
    assert game.command(["no-scale"]) == 0
    assert "4 of 4 predictions were right." in capsys.readouterr().out


def test_without_a_terminal_it_asks_nothing(monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail("it asked"))
    monkeypatch.setattr(sys, "stdin", None)
    assert game.command([]) == 0
    assert "break MUTANT" in capsys.readouterr().out
    assert game.command(["no-scale"]) == 0
    out = capsys.readouterr().out
    assert "Without a terminal it asks nothing" in out
    assert "no-scale" in out
    assert "its output" in out  # it is nobody's
