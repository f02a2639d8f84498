"""Every known mistake is named, no right program is accused, no wrong one is called right."""

import re

import numpy as np
import pytest
from learners.corpus import bugs, check, findings_on, programs

from tinyattn.check import MUTANTS, matrix
from tinyattn.check.known import mutants, reference
from tinyattn.check.known.probes import ARGUMENTS, KINDS, Probe, probes

NOTES = {m.id for m in MUTANTS if m.severity == "note"}


def titled(name):
    return [pytest.param(title, source, id=title) for title, source in programs(name)]


@pytest.mark.parametrize(("title", "source"), titled("correct"))
def test_right_programs_are_not_accused(title, source):
    assert bugs(check(source)) == []


@pytest.mark.parametrize(("title", "source"), titled("mutants"))
def test_listed_mistakes_are_named_first(title, source):
    mutant = title.split(":")[0]
    found = check(source)
    assert found[0].id == mutant
    if mutant not in NOTES:
        assert bugs(found) == [mutant]  # and nothing else is made up
    elif "mean instead" not in title:
        assert bugs(found) == []


def test_every_listed_mistake_has_at_least_two_hands():
    written = [title.split(":")[0] for title, _ in programs("mutants")]
    listed = [m.id for m in MUTANTS if not m.id.startswith("property-") and matrix.home(m)[0] in KINDS]
    assert {id for id in listed if written.count(id) < 2} == set()


@pytest.mark.parametrize(("title", "source"), titled("pairs"))
def test_two_mistakes_are_both_named(title, source):
    assert set(bugs(check(source))) == set(title.split(" + "))


def test_two_mistakes_are_listed_in_the_order_of_the_data():
    found = check(dict(programs("pairs"))["no-scale + softmax-over-queries"])
    assert bugs(found) == ["no-scale", "softmax-over-queries"]


@pytest.mark.parametrize(("title", "source"), titled("unlisted"))
def test_unlisted_mistakes_are_never_called_correct(title, source):
    found = check(source)
    assert bugs(found) != []
    assert all(f.message and (f.hint or f.id.startswith("error")) for f in found if f.severity == "bug")


@pytest.mark.parametrize(
    ("title", "property"),
    [
        ("softmax to base 2", "property-scale-factor"),
        ("divided by the root of n", "scale-n"),
        ("dk = 8 for all", "property-scale-exponent"),
        ("values shifted by a row", "property-permuted-keys"),
        ("absolute scores", "property-shift-invariance"),
        ("sigmoid instead of softmax", "property-row-sums"),
        ("the mask shifted by a column", "property-future-leaks"),
        ("uniform attention", "property-ignores-Q"),
        ("state between calls: the mask is kept by shape", "property-stale-mask"),
        ("noise of 1e-3", "property-same-answer-twice"),
        ("float16 inside", "property-precision"),
        ("the maximum of the whole matrix is subtracted", "property-finite-on-large-logits"),
        ("scores clipped to ±50", "property-large-scores"),
        ("squeezed", "property-shape"),
        ("other weights returned than used", "property-weights"),
        ("returns the weights first", "property-return-order"),
        ("returns nothing", "property-returns-nothing"),
        ("multi-head: interleaved heads", "property-heads-interleaved"),
        ("multi-head: a head count that does not divide is accepted", "property-heads-must-divide"),
        ("backward: dQ with the wrong sign", "property-gradient-dQ"),
    ],
)
def test_unknown_mistakes_are_told_by_the_property_that_fails(title, property):
    assert bugs(check(dict(programs("unlisted"))[title]))[0] == property


def test_gradients_are_told_apart():
    found = bugs(check(dict(programs("unlisted"))["backward: dQ with the wrong sign"]))
    assert found == ["property-gradient-dQ"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_edit_of_the_table_is_named(kind):
    """The table's own edits, each as a program: the name, or one that means the same here."""
    same = {
        ("multi_head_attention", "value-is-key"): "value-from-key-projection",
        ("cross_attention", "value-is-key"): "value-from-key-projection",
        ("multi_head_attention", "property-projections-swapped"): "weights-transposed",
    }
    silent = {"inputs-modified", "mask-fill-finite", "mask-after-softmax-renormalised", "property-stale-mask"}
    wrong = {}
    for mutant in MUTANTS:
        if not matrix.applies(mutant, kind):
            continue
        if mutant.id in silent and kind != "scaled_dot_product_attention":
            continue  # copies are modified there, and extremes of masks are not tried backward
        edits = mutant.edits[:6] if matrix.home(mutant)[0] == kind else mutant.edits[:1]
        for number, edit in enumerate(edits):
            edit = {name: text.replace(mutants.FILL, "-10.0") for name, text in edit.items()}
            unchanged = mutants.source(kind, (edit,)) == mutants.source(kind)
            if unchanged and mutant.id != "empty-row-nan":
                continue
            if kind == "cross_attention" and mutants.touches_mask(edit):
                continue
            function = mutants.program(kind, (edit,))
            found = [f.id for f in findings_on(function, kind)]
            if not {mutant.id, same.get((kind, mutant.id))} & set(found[:1]):
                wrong[mutant.id, number] = found
    assert wrong == {}


def test_the_reference_is_right_by_definition():
    """Attention, written again from the formula, one number at a time."""
    rng = np.random.default_rng(0)
    Q, K, V = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    mask = rng.random((3, 5)) < 0.6
    mask[:, 0] = True
    for i in range(3):
        exps = [np.exp(Q[i] @ K[j] / 2) * mask[i, j] for j in range(5)]
        row = sum(e * V[j] for j, e in enumerate(exps)) / sum(exps)
        np.testing.assert_allclose(reference.scaled_dot_product_attention(Q, K, V, mask)[i], row)


def test_the_backward_reference_agrees_with_finite_differences():
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=s) for s in ((3, 4), (5, 4), (5, 2))]
    dO, mask = rng.normal(size=(3, 2)), np.tri(3, 5, 2, dtype=bool)
    loss = lambda *a: float((dO * reference.scaled_dot_product_attention(*a, mask)).sum())
    for i, gradient in enumerate(reference.scaled_dot_product_attention_backward(dO, *inputs, mask)):
        for index in np.ndindex(gradient.shape):
            up, down = ([a.copy() for a in inputs] for _ in range(2))
            up[i][index] += 1e-6
            down[i][index] -= 1e-6
            assert abs((loss(*up) - loss(*down)) / 2e-6 - gradient[index]) < 1e-7


def test_probes_tell_all_mutants_from_the_right_program():
    """Each bug of the table is caught by a probe that compares with the right numbers."""
    for mutant in MUTANTS:
        if mutant.severity == "bug" and mutant.id not in (
            "inputs-modified",
            "property-stale-mask",
        ):  # two calls show it
            kind, edit = matrix.home(mutant)
            assert any(matrix.killed(kind, edit, p) for p in probes(kind)), mutant.id


def test_the_kill_matrix_in_the_docs_is_the_one_the_code_makes(request):
    page = request.config.rootpath / "docs" / "kill_matrix.md"
    told = re.findall(r"^\| (\w+) \| \d+ of \d+ \| (.*) \|$", page.read_text(encoding="utf-8"), re.M)
    missed = {(kind, id) for kind, ids in told for id in ids.split(", ")}
    table = [(k, m.id) for k in ARGUMENTS for m in MUTANTS if m.severity == "bug" and matrix.applies(m, k)]
    where = {
        (k, id): (k, id) not in missed for k, id in table if k in (matrix.home(mutants.BY_ID[id])[0], "causal_mask")
    }
    assert page.read_text(encoding="utf-8") == matrix.markdown(where)
    rows = re.findall(r"^\| ([a-z-]+) \|.*\| ([a-z-]+)(?: \(note\))? \|$", page.read_text(encoding="utf-8"), re.M)
    assert len(rows) > 45
    assert [row for row in rows if row[0] != row[1] and row != ("mistake", "named")] == []


@pytest.mark.parametrize("id", ["scale-n", "mask-inverted", "causal-sees-next", "value-is-key", "heads-same-slice"])
def test_the_line_of_a_mistake_is_found(id):
    assert matrix.pointed(*matrix.home(mutants.BY_ID[id]))


def test_a_disguise_is_one_mistake():
    """÷ √dk twice is ÷ dk; −1e-9 is 0; V = X Wk is w K."""
    for title in ("scale-dk: twice by the root", "mask-fill-zero: −1e-9", "value-from-key-projection: cross"):
        assert bugs(check(dict(programs("mutants"))[title])) == [title.split(":")[0]]


def test_evidence_is_the_smallest_input_with_both_numbers():
    finding = check(dict(programs("mutants"))["no-scale: textbook"])[0]
    evidence = finding.evidence
    assert [np.shape(a) for a in evidence["arguments"].values()] == [(2, 4), (3, 4), (3, 3)]
    assert not np.allclose(evidence["yours"]["output"], evidence["right"]["output"])
    right = reference.scaled_dot_product_attention(*evidence["arguments"].values())
    np.testing.assert_array_equal(evidence["right"]["output"], right)


def test_fills_of_any_size_are_fitted():
    edit = mutants.BY_ID["mask-fill-small"].edits[0]
    for value in ("-3.7", "-0.9", "-12.25", "-300.0", "-9e4"):
        function = mutants.program("scaled_dot_product_attention", ({"mask": edit["mask"].replace("FILL", value)},))
        assert bugs(findings_on(function, "scaled_dot_product_attention")) == ["mask-fill-small"], value


def test_edits_that_want_the_same_line_exclude_each_other():
    scale = [mutants.BY_ID[id].edits[0] for id in ("no-scale", "scale-dk")]
    assert mutants.program("scaled_dot_product_attention", tuple(scale)) is None
    probe = Probe("", "", (np.ones((1, 1)),) * 3)
    assert probe.size == 3
