"""Cases from use, by id: optimisers and clipping, and what comes from other libraries."""

import math

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import interop, nn


def leaf(values, grad=None, dtype=float):
    p = ta.Tensor(np.array(values, dtype), requires_grad=True)
    p.grad = None if grad is None else np.array(grad, dtype)
    return p


# --- GB-03, GB-13: clipping -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "x", "norm"),
    [
        (np.float16, 200, 400.0),
        (np.float32, 1e20, 2e20),
        (np.float32, 1e-25, 2e-25),
        (np.float64, 1e200, 2e200),
        (np.float64, 1e-200, 2e-200),
        (np.float16, 6e-8, 1.1920928955078125e-07),
    ],
)
def test_gb_03_norms_whose_squares_are_out_of_range(dtype, x, norm):
    p = leaf([0.0] * 4, [x] * 4, dtype)
    before = p.grad.numpy()
    assert ta.optim.clip_grad_norm([p], norm / 2) == pytest.approx(norm, rel=1e-3 if dtype == np.float16 else 1e-6)
    np.testing.assert_allclose(p.grad.numpy(), before / dtype(2), rtol=1e-6, atol=np.finfo(dtype).smallest_subnormal)
    assert p.grad.dtype == dtype


def test_gb_03_of_several_dtypes_and_none():
    a, b = leaf([0.0, 0.0], [3e20, 0], np.float32), leaf([0.0], [4e20])
    assert ta.optim.clip_grad_norm([a, b, leaf([1.0])], 5e19) == pytest.approx(5e20)
    np.testing.assert_allclose(a.grad.numpy(), [3e19, 0], rtol=1e-6)
    np.testing.assert_allclose(b.grad.numpy(), [4e19], rtol=1e-6)
    assert ta.optim.clip_grad_norm([leaf([1.0]), leaf([1.0], [0.0])], 1.0) == 0


def test_gb_03_listed_twice_counts_once_and_frozen_not_at_all():
    p, frozen = leaf([0.0], [3.0]), leaf([0.0], [4.0])
    frozen.requires_grad = False
    assert ta.optim.clip_grad_norm([p, p, frozen], 10) == 3
    assert ta.optim.clip_grad_norm([p, p, frozen], 1.5) == 3
    assert (p.grad.item(), frozen.grad.item()) == (1.5, 4.0)


def test_gb_13_a_single_tensor():
    p = leaf([0.0] * 3, [3.0, 4.0, 12.0])
    assert ta.optim.clip_grad_norm(p, 1.0) == 13
    np.testing.assert_allclose(p.grad.numpy(), np.array([3, 4, 12]) / 13, rtol=1e-15)
    assert ta.optim.clip_grad_norm(p, math.inf) == pytest.approx(1)


@pytest.mark.parametrize("max_norm", [math.nan, -1.0, "1", None, [1.0], True])
def test_gb_13_a_norm_is_a_number_of_at_least_0(max_norm):
    p = leaf([0.0], [3.0])
    with pytest.raises((TypeError, ValueError), match="max_norm = "):
        ta.optim.clip_grad_norm([p], max_norm)
    assert p.grad.item() == 3


MODEL = nn.Linear(2, 2, rng=0)
MISTAKES = {
    "a tensor": leaf([1.0, 2.0]),
    "a module": MODEL,
    "the method": MODEL.parameters,
    "nothing": None,
    "a number": 3,
    "names": dict(MODEL.named_parameters()),
    "pairs": list(MODEL.named_parameters()),
    "arrays": [np.ones(2)],
    "integers": [ta.Tensor([1, 2])],
    "computed": [leaf([1.0]) * 2],
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("make", [ta.optim.SGD, ta.optim.Adam, ta.optim.AdamW, ta.optim.clip_grad_norm])
def test_gb_13_what_can_only_be_a_mistake_is_refused(mistake, make):
    if make is ta.optim.clip_grad_norm and mistake == "a tensor":
        return
    with pytest.raises(TypeError, match=r"parameter"):
        make(MISTAKES[mistake], 0.1)


SETTINGS = [
    (ta.optim.SGD, "lr", {}),
    (ta.optim.SGD, "momentum", {"lr": 0.1}),
    (ta.optim.SGD, "weight_decay", {"lr": 0.1}),
    (ta.optim.Adam, "lr", {}),
    (ta.optim.Adam, "eps", {}),
    (ta.optim.AdamW, "weight_decay", {}),
]


@pytest.mark.parametrize(("make", "name", "rest"), SETTINGS)
@pytest.mark.parametrize("value", [math.nan, -0.1, math.inf, "fast", None, 1j, True, [0.1, 0.2]])
def test_gb_13_settings_are_finite_numbers_of_at_least_0(make, name, rest, value):
    with pytest.raises((TypeError, ValueError), match=f"{name} = "):
        make([leaf([1.0])], **rest, **{name: value})


@pytest.mark.parametrize("betas", [0.9, (0.9,), (0.9, 1.0), (-0.1, 0.9), (math.nan, 0.9), ("a", "b"), None])
def test_gb_13_betas(betas):
    with pytest.raises((TypeError, ValueError), match="betas"):
        ta.optim.Adam([leaf([1.0])], betas=betas)


def test_gb_13_a_rate_that_becomes_nan_moves_nothing():
    p = leaf([1.0], [1.0])
    optimizer = ta.optim.Adam([p])
    optimizer.lr = math.nan
    with pytest.raises(ValueError, match="lr = "):
        optimizer.step()
    assert p.item() == 1
    assert optimizer.state_dict()["steps"].tolist() == [0]


def test_gb_13_what_is_frozen_stays():
    p, q = leaf([1.0], [1.0]), leaf([1.0], [1.0])
    for optimizer in ta.optim.SGD([p, q], 0.1, momentum=0.9), ta.optim.AdamW([p, q], 0.1):
        p.requires_grad = False
        before = p.item(), q.item()
        optimizer.step()
        assert p.item() == before[0] and q.item() != before[1]
        p.requires_grad = True
        optimizer.step()
        assert p.item() != before[0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s.update(lr=math.nan),
        lambda s: s.update(lr=[1.0, 2.0]),
        lambda s: s.update(lr="x"),
        lambda s: s.update(steps=[-1, 1]),
        lambda s: s.update(steps=[1.5, 1.0]),
        lambda s: s.update(steps=[1]),
        lambda s: s.update({"m.0": np.ones(3)}),
        lambda s: s.update({"m.0": np.array(["a", "b"])}),
        lambda s: s.update({"m.1": [[1], [2, 3]]}),
        lambda s: s.update({"x": np.ones(2)}),
        lambda s: s.pop("v.1"),
        lambda s: s.pop("lr"),
    ],
)
def test_gb_13_a_state_that_does_not_load_changes_nothing(spoil):
    def run():
        params = [leaf([1.0, 2.0], [0.5, 0.25]), leaf([3.0], [1.0])]
        optimizer = ta.optim.Adam(params, 0.1)
        optimizer.step()
        return optimizer

    optimizer, other = run(), run()
    other.step()
    state, before = other.state_dict(), optimizer.state_dict()
    spoil(state)
    with pytest.raises((ValueError, TypeError)):
        optimizer.load_state_dict(state)
    after = optimizer.state_dict()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize("make", [lambda p: ta.optim.Adam(p, 1e-2), lambda p: ta.optim.SGD(p, 1e-2, momentum=0.9)])
def test_states_of_half_precision_are_kept_in_float32(make):
    half, double = leaf([1.0, -2.0], dtype=np.float16), leaf([1.0, -2.0])
    optimizers = make([half]), make([double])
    for i in range(20):
        for p, optimizer in zip((half, double), optimizers):
            p.grad = np.array([1e-4 * (i % 3 - 1), 1e-4], p.dtype)
            optimizer.step()
    assert half.dtype == np.float16
    kept = [a for name, a in optimizers[0].state_dict().items() if "." in name]
    assert {a.dtype for a in kept} == {np.dtype(np.float32)}
    np.testing.assert_allclose(half.numpy(), double.numpy(), rtol=2e-2)


@pytest.mark.parametrize("options", [{"step": -1}, {"step": 0.5}, {"total": 0}, {"warmup": -1}, {"final": math.nan}])
def test_the_schedule_counts_in_whole_steps(options):
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        ta.optim.warmup_cosine(**{"step": 1, "total": 10, **options})


# --- GB-16: masks and states of other libraries -------------------------------------------------------------


CAUSAL = np.triu(np.ones((3, 3), bool), 1)


def test_gb_16_booleans_say_what_they_say():
    x = np.ones((1, 1, 3, 2))
    mask = interop.mask_from_mha(CAUSAL, np.array([[False, False, True]]))
    weights = ta.scaled_dot_product_attention(x, x, x, mask, return_weights=True)[1].numpy()
    np.testing.assert_allclose(weights[0, 0, -1], [0.5, 0.5, 0])
    np.testing.assert_array_equal(interop.mask_from_mha(CAUSAL), ~CAUSAL)
    np.testing.assert_array_equal(interop.mask_from_mha(None, [[False, True]]), [[[[True, False]]]])
    assert interop.mask_from_mha() is None
    bias = np.where(CAUSAL, -np.inf, 0.5)
    both = interop.mask_from_mha(bias, np.array([[False, False, True]]))
    np.testing.assert_array_equal(both[0, 0, 2], [0.5, 0.5, -np.inf])
    heads = np.zeros((4, 3, 3), bool)
    heads[2, :, 0] = True  # of text 1, head 0
    np.testing.assert_array_equal(interop.mask_from_mha(heads, num_heads=2), ~heads.reshape(2, 2, 3, 3))


@pytest.mark.parametrize("pad", [[[0, 0, 1]], np.array([[0, 0, 1]], np.uint8), [[0.0, 0.0, 1.0]], [[0.0, np.nan, 0.0]]])
@pytest.mark.parametrize("where", ["padding", "both", "attention"])
def test_gb_16_what_could_mean_either_is_refused(pad, where):
    masks = {"padding": (None, pad), "both": (CAUSAL, pad), "attention": (np.repeat(pad, 3, 0),)}[where]
    with pytest.raises((TypeError, ValueError), match=r"booleans|NaN"):
        interop.mask_from_mha(*masks)


@pytest.mark.parametrize(
    ("attention", "padding", "heads"),
    [
        (np.zeros((5, 3, 3), bool), None, 2),
        (np.zeros(3, bool), None, 1),
        (None, np.zeros((1, 1, 3), bool), 1),
        (CAUSAL, np.zeros((1, 4), bool), 1),
        (np.zeros((4, 3, 3), bool), np.zeros((3, 3), bool), 2),
        (CAUSAL, None, 0),
    ],
)
def test_gb_16_shapes_that_do_not_fit(attention, padding, heads):
    with pytest.raises(ValueError, match=r"mask of shape|do not fit|num_heads = 0"):
        interop.mask_from_mha(attention, padding, num_heads=heads)


def test_gb_16_hugging_face():
    ones = np.array([[1, 1, 0], [0, 1, 1]])
    for mask in ones, ones.astype(bool), ones.astype(float):
        np.testing.assert_array_equal(interop.mask_from_huggingface(mask), ones.astype(bool)[:, None, None])
    np.testing.assert_array_equal(interop.mask_from_huggingface(ones[None]), ones.astype(bool)[None, None])
    four = np.where(CAUSAL, np.finfo(np.float32).min, 0).astype(np.float32)[None, None]
    np.testing.assert_array_equal(interop.mask_from_huggingface(four) == -np.inf, CAUSAL[None, None])


@pytest.mark.parametrize(
    "mask",
    [
        np.where(CAUSAL, -np.inf, 0.0),  # to be added: read as 1 and 0 it would be turned round
        np.where(CAUSAL, np.finfo(np.float32).min, 0.0),
        np.zeros((2, 3)),
        np.array([[2, 1, 0]]),
        np.array([[-1, 0, 1]]),
        np.ones((1, 1, 3, 3)),
        np.ones(3, int),
        np.ones((1, 1, 1, 1, 1), int),
    ],
)
def test_gb_16_hugging_faces_other_masks_are_never_turned_round(mask):
    with pytest.raises(ValueError, match="attention_mask"):
        interop.mask_from_huggingface(mask)


@pytest.mark.parametrize("window", [3, (1,), (1, 2, 3), (1.5, 0), (-2, 0), None])
def test_gb_16_flash_windows(window):
    with pytest.raises((TypeError, ValueError), match="window_size"):
        interop.mask_from_flash(3, 4, window_size=window)
    np.testing.assert_array_equal(interop.mask_from_flash(3, 5, causal=True), ta.causal_mask(3, 5))
    np.testing.assert_array_equal(
        interop.mask_from_flash(4, 6, causal=True, window_size=(1, 0)), ta.sliding_window_mask(4, 2, 6)
    )
    right = np.array([[0, 1, 1, 1], [0, 0, 1, 1]], bool)
    np.testing.assert_array_equal(interop.mask_from_flash(2, 4, window_size=(1, 1))[:, :], [[0, 1, 1, 1], [0, 0, 1, 1]])
    assert right.dtype == bool


def test_states_go_over_and_come_back():
    block = nn.TransformerBlock(4, 2, cross=True, rng=0)
    state = block.state_dict()
    theirs = interop.state_to_torch(state)
    assert theirs["self_attn.in_proj_weight"].shape == (12, 4)
    assert {"multihead_attn.out_proj.bias", "linear1.weight", "linear2.bias"} <= theirs.keys()
    np.testing.assert_array_equal(theirs["self_attn.in_proj_bias"][4:8], state["attention.k_proj.bias"])
    back = interop.state_from_torch(theirs)
    assert back.keys() == state.keys()
    assert all(np.array_equal(back[name], state[name]) for name in state)
    back["norm1.weight"] += 1  # a copy
    assert theirs["norm1.weight"].max() == 1


@pytest.mark.parametrize(
    "state",
    [
        {"in_proj_weight": np.ones((4, 2))},
        {"in_proj_weight": np.float64(1)},
        {"linear1.weight": np.ones(2), "feed_forward.up.weight": np.ones(2)},
        {"w": np.array(["a"])},
        {1: np.ones(2)},
        [np.ones(2)],
        None,
    ],
)
def test_states_that_would_lose_something_are_refused(state):
    with pytest.raises((TypeError, ValueError)):
        interop.state_from_torch(state)
    with pytest.raises((TypeError, ValueError), match="projections"):
        interop.state_to_torch({"q_proj.weight": np.ones((2, 2)), "k_proj.weight": np.ones((1, 2))})


@pytest.mark.parametrize(("name", "value"), [("m.0", np.nan), ("v.0", np.inf), ("v.0", -np.inf)])
def test_a_state_that_would_spoil_every_later_step_does_not_load(name, value):
    p = leaf([1.0, 2.0], [0.5, 0.25])
    optimizer = ta.optim.Adam([p], 0.1)
    optimizer.step()
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match=f"NaN or inf.*{name}"):
        optimizer.load_state_dict(before | {name: np.array([1.0, value])})
    after = optimizer.state_dict()
    assert before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)


# --- what mutmut found unwatched ---------------------------------------------------------------------------


def test_a_share_too_small_for_float32_still_shrinks():
    p = leaf([0.0], [1e20], np.float32)
    assert ta.optim.clip_grad_norm([p], 1e-25) == pytest.approx(1e20)
    np.testing.assert_allclose(p.grad.numpy(), [1e-25], rtol=1e-6)
    p = leaf([0.0] * 4, [200.0] * 4, np.float16)
    ta.optim.clip_grad_norm([p], 0.3)
    np.testing.assert_array_equal(p.grad.numpy(), np.float16(200 * 0.3 / 400))  # the share is not rounded to float16


def test_nothing_to_clip():
    assert ta.optim.clip_grad_norm([leaf([1.0])], 1.0) == 0.0
    empty = leaf([], [], np.float16)
    assert ta.optim.clip_grad_norm([empty, leaf([1.0], [3.0], np.float16)], 9.0) == 3.0
    with np.errstate(over="raise", invalid="raise"):
        assert ta.optim.clip_grad_norm([leaf([1.0], [3e-200]), leaf([1.0], [4e200])], 1e300) == pytest.approx(4e200)


def test_the_schedule_at_its_ends():
    assert ta.optim.warmup_cosine(0, 5) == 1.0 and ta.optim.warmup_cosine(1, 2, final=0.25) == 0.25
    for name, call in {
        "step": lambda: ta.optim.warmup_cosine(-1, 5),
        "total": lambda: ta.optim.warmup_cosine(0, 0),
        "warmup": lambda: ta.optim.warmup_cosine(0, 5, warmup=-1),
        "final": lambda: ta.optim.warmup_cosine(0, 5, final=-0.1),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} = "):
            call()


def test_a_state_that_is_none_is_told():
    optimizer = ta.optim.Adam([leaf([1.0])])
    with pytest.raises(TypeError, match=r"a state is a dictionary .* not \[1\]"):
        optimizer.load_state_dict([1])
    with pytest.raises(TypeError, match=r"'m\.0' holds"):
        optimizer.load_state_dict({"m.0": np.array(["a"])})


def test_the_defaults_are_pytorchs():
    for kind, options in {
        "Adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8},
        "AdamW": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01},
    }.items():
        plain, told = leaf([1.0, -2.0], [1e-8, 3.0]), leaf([1.0, -2.0], [1e-8, 3.0])
        for p, optimizer in (
            (plain, getattr(ta.optim, kind)([plain])),
            (told, getattr(ta.optim, kind)([told], **options)),
        ):
            optimizer.step()
            assert not np.array_equal(p.numpy(), [1.0, -2.0])
        np.testing.assert_array_equal(plain.numpy(), told.numpy())


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"lr": 0.1, "steps": [0, 0]}, "does not fit SGD with 1 parameters: it is for 2"),
        ({"lr": 0.1, "steps": [1, 1]}, "does not fit SGD with 1 parameters: it is for 2"),
        ({"lr": [0.1, 0.2], "steps": [0]}, "does not fit SGD"),
        ({"lr": 0.1, "steps": [-1]}, "counts -1 steps"),
        ({"lr": -0.1, "steps": [0]}, "^lr = -0.1"),
    ],
)
def test_a_state_for_others_is_refused_in_words(state, told):
    with pytest.raises(ValueError, match=told):
        ta.optim.SGD([leaf([1.0])], 0.1).load_state_dict(state)


def test_a_rate_below_0_is_refused_at_the_step():
    p = leaf([1.0], [0.5])
    optimizer = ta.optim.SGD([p], 0.1)
    optimizer.lr = -0.1
    with pytest.raises(ValueError, match=r"lr = -0\.1"):
        optimizer.step()
    assert p.item() == 1
    with pytest.raises(ValueError, match=r"^no parameters"):
        ta.optim.SGD([], 0.1)
    with pytest.raises(ValueError, match=r"^a parameter is listed twice"):
        ta.optim.SGD([p, p], 0.1)
