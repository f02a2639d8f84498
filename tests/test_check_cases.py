"""Field cases: what was seen to go wrong in learners' attention, and in checks of it."""

import numpy as np
import pytest
from learners.corpus import bugs, check, findings_on

from tinyattn.check import check as check_function
from tinyattn.check.known.reference import scaled_dot_product_attention as right

HEAD = "def scaled_dot_product_attention(Q, K, V, mask=None):\n"
BODY = (
    HEAD
    + """    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    w = e / e.sum(axis=-1, keepdims=True)
"""
)


def test_ck01_softmax_over_the_queries_is_rejected_with_the_reason():
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=(4, 8)) for _ in range(3))
    np.testing.assert_allclose(right(q, k, v)[0, :3], [-0.0499715242544008, -0.7834815634870688, 0.36012584484597376])
    for axis in (0, -2):
        found = check(
            BODY.replace("axis=-1", f"axis={axis}").replace("K.swapaxes(-1, -2)", "K.T") + "    return w @ V\n"
        )
        assert bugs(found) == ["softmax-over-queries"]
        assert "rows" in found[0].message


def test_ck02_scrambled_heads_are_told_apart():
    x = np.arange(24.0).reshape(2, 3, 4)
    assert x.reshape(2, 2, 3, 2)[0, 1].tolist() == [[6, 7], [8, 9], [10, 11]]  # the wrong split
    body = """
def multi_head_attention(X, Wq, Wk, Wv, Wo, num_heads, mask=None):
    *b, n, d = X.shape
    h, size = num_heads, d // num_heads
    assert size * h == d
    q, k, v = ((X @ W).SPLIT for W in (Wq, Wk, Wv))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(size)
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True) @ v)JOIN.reshape(*b, n, d) @ Wo
"""
    moved, flat = "reshape(*b, n, h, size).swapaxes(-2, -3)", "reshape(*b, h, n, size)"
    for split, join, names in (
        (moved, ".swapaxes(-2, -3)", []),
        (flat, "", ["heads-split-and-merge"]),
        (flat, ".swapaxes(-2, -3)", ["heads-split-without-transpose"]),
        (moved, "", ["heads-merge-without-transpose"]),
    ):
        assert bugs(check(body.replace("SPLIT", split).replace("JOIN", join))) == names


@pytest.mark.parametrize(
    ("last", "id", "words"),
    [
        ("return w @ V, w", None, ""),
        ("return [w @ V, w]", None, ""),
        ("return (w @ V).astype(np.float32)", None, ""),
        ("return w, w @ V", "property-return-order", "(weights, out)"),
        ("return (w @ V).tolist()", "property-returns-type", "list"),
        ("return (w @ V).T", "property-shape", "shape (3, 2), where (2, 3) is due"),
        ("w @ V", "property-returns-nothing", "returned nothing"),
        ("return {'out': w @ V}", "property-returns-type", "a dict"),
        ("return w @ V, w, s", "property-returns-type", "tuple of 3"),
        ("return 'V'", "property-returns-type", "a str"),
        ("return (w @ V)[..., None]", "property-shape", "(2, 3, 1)"),
    ],
)
def test_ck03_what_came_back_is_said_and_what_was_due(last, id, words):
    found = check(BODY + f"    {last}\n")
    assert bugs(found) == ([id] if id else [])
    if id:
        assert words in found[0].message


def test_ck04_no_maximum_is_right_but_not_stable():
    found = check(BODY.replace("s - s.max(axis=-1, keepdims=True)", "s") + "    return w @ V\n")
    assert bugs(found) == ["no-max-subtraction"]
    assert "right on ordinary input, but not stable" in found[0].message
    Q, K, V = found[0].evidence["arguments"].values()
    assert Q.tolist() == [[2000, 0]]
    assert K.tolist() == [[1, 0], [0, 1]]
    assert found[0].evidence["right"]["output"].tolist() == [[1.0]]
    assert V.tolist() == [[1], [2]]
    assert np.isnan(found[0].evidence["yours"]["output"]).all()


def test_ck05_stages_are_told_apart():
    rng = np.random.default_rng(6)
    q, k, v = rng.normal(size=(2, 3, 5, 4)), rng.normal(size=(2, 3, 7, 4)), rng.normal(size=(2, 3, 7, 6))
    np.testing.assert_allclose(right(q, k, v)[0, 0, 0, :2], [0.5844019073134727, -0.1477264508804771])
    flat = check(BODY.replace("K.swapaxes(-1, -2)", "K.T") + "    return w @ V\n")
    assert bugs(flat) == []
    note = next(f for f in flat if f.id == "property-leading-axes")
    assert note.severity == "note"
    assert note.message.startswith("Works in 2-D; with a batch axis: ValueError")
    square = check(
        BODY.replace("s.max(axis=-1, keepdims=True)", "s.max(axis=-1).reshape(len(K), 1)") + "    return w @ V\n"
    )
    assert bugs(square) == ["property-crash"]
    assert "n ≠ m" in square[0].message
    heads = check(BODY.replace("    s = Q", "    assert Q.ndim < 4\n    s = Q") + "    return w @ V\n")
    assert bugs(heads) == []
    assert "Not with every leading axis" in next(f for f in heads if f.id == "property-leading-axes").message


def test_a_float_mask_misread_and_masks_per_entry_are_notes():
    found = check(BODY + "    return w @ V\n")
    assert bugs(found) == []
    assert "property-float-mask" in [f.id for f in found]
    squeezed = check(
        BODY.replace("np.where(mask", "np.where(mask if mask.ndim < 3 else mask[:, 0]") + "    return w @ V\n"
    )
    assert bugs(squeezed) == []
    assert squeezed[0].id == "mask-rank"


def test_an_empty_row_may_be_anything_unless_others_change():
    whole = BODY.replace("    e =", "    if mask is not None and not mask.any(-1).all(): s = s * 0\n    e =")
    assert bugs(check(whole + "    return w @ V\n")) == ["property-empty-row"]


def test_a_library_function_that_returns_tensors_is_taken():
    class Tensor:
        def __init__(self, data):
            self.data = data

        def numpy(self):
            return self.data

    def wrapped(Q, K, V, mask=None):
        return Tensor(right(Q, K, V, mask))

    assert bugs(findings_on(wrapped, "scaled_dot_product_attention")) == []


def test_the_solution_of_a_mask_is_all_the_lines_that_apply_it():
    def scaled_dot_product_attention(Q, K, V, mask=None):
        e = np.exp(Q @ K.T / np.sqrt(Q.shape[-1]))
        return e / e.sum(-1, keepdims=True) @ V

    told = {f.id: f.solution for f in check_function(scaled_dot_product_attention).findings}
    assert told["mask-ignored"].splitlines()[0].startswith("if mask is not None")
    assert "\n    scores = np.where(allowed" in told["mask-ignored"]
