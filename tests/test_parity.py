"""PyTorch beside tinyattn, in float64 to 1e-10: layers, gradients, state dicts both ways, optimisers, masks."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import interop

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs it: pip install torch==2.13.0")
F = torch.nn.functional
close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def randomised(module, seed=0):
    rng = np.random.default_rng(seed)
    module.double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(0.5 * rng.normal(size=tuple(p.shape))))
    return module


def to_torch(state):
    return {name: torch.from_numpy(a) for name, a in interop.state_to_torch(state).items()}


def check(theirs, ours, inputs, call_theirs=None, call_ours=None):
    """Load their state into ours and ours back into theirs; then compare output and every gradient."""
    state = theirs.state_dict()
    ours.load_state_dict(interop.state_from_torch(state))
    back = to_torch(ours.state_dict())
    assert set(back) == set(state)
    assert all(torch.equal(back[name], state[name]) for name in state)
    with torch.no_grad():
        for p in theirs.parameters():
            p.zero_()
    theirs.load_state_dict(back)

    xs = [ta.Tensor(x, requires_grad=True) for x in inputs]
    ts = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    out, right = (call_ours or ours)(*xs), (call_theirs or theirs)(*ts)
    close(out.numpy(), right.detach().numpy())
    c = normal(*out.shape, seed=9)
    (out * c).sum().backward()
    (right * torch.from_numpy(c)).sum().backward()
    for x, t in zip(xs, ts):
        close(x.grad.numpy(), t.grad.numpy())
    gradients = interop.state_to_torch({name: p.grad.numpy() for name, p in ours.named_parameters()})
    for name, p in theirs.named_parameters():
        close(gradients[name], p.grad.numpy(), err_msg=name)


# --- layers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
def test_linear_and_layer_norm(bias):
    check(randomised(torch.nn.Linear(5, 3, bias=bias)), ta.nn.Linear(5, 3, bias), [normal(2, 4, 5)])
    theirs = randomised(torch.nn.LayerNorm(5, eps=0.01, bias=bias))
    check(theirs, ta.nn.LayerNorm(5, eps=0.01, bias=bias), [normal(2, 4, 5)])


def test_rms_norm():
    check(randomised(torch.nn.RMSNorm(5, eps=0.01)), ta.nn.RMSNorm(5, eps=0.01), [normal(2, 4, 5)])


def test_embedding():
    ids = np.array([[1, 6, 1], [0, 1, 4]])
    theirs, ours = randomised(torch.nn.Embedding(7, 4)), ta.nn.Embedding(7, 4)
    check(theirs, ours, [], lambda: theirs(torch.from_numpy(ids)), lambda: ours(ids))


BLOCKED = np.triu(np.ones((4, 4), bool), 1)
PADDING = np.array([[False] * 4, [False, False, True, True], [False, False, False, True]])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masks", [{}, {"attn_mask": BLOCKED}, {"attn_mask": BLOCKED, "key_padding_mask": PADDING}])
def test_multi_head_attention_over_itself(bias, masks):
    theirs = randomised(torch.nn.MultiheadAttention(6, 2, bias=bias, batch_first=True))
    ours = ta.nn.MultiHeadAttention(6, 2, bias=bias)
    tensors = {name: torch.from_numpy(mask) for name, mask in masks.items()}
    mask = interop.mask_from_mha(**masks)
    check(theirs, ours, [normal(3, 4, 6)], lambda x: theirs(x, x, x, **tensors)[0], lambda x: ours(x, mask=mask))


def test_multi_head_attention_over_a_context_and_its_weights():
    theirs, ours = randomised(torch.nn.MultiheadAttention(6, 3, batch_first=True)), ta.nn.MultiHeadAttention(6, 3)
    x, context = normal(2, 4, 6), normal(2, 5, 6, seed=1)
    check(theirs, ours, [x, context], lambda x, c: theirs(x, c, c)[0], ours)
    tx, tc = torch.from_numpy(x), torch.from_numpy(context)
    right = theirs(tx, tc, tc, average_attn_weights=False)[1]
    close(ours(x, context, return_weights=True)[1].numpy(), right.detach().numpy())


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformer_encoder_layer(pre_norm, activation):
    theirs = randomised(
        torch.nn.TransformerEncoderLayer(
            6, 2, 10, dropout=0.0, activation=activation, norm_first=pre_norm, batch_first=True
        )
    )
    f = ta.relu if activation == "relu" else functools.partial(ta.gelu, approximate="none")
    ours = ta.nn.TransformerBlock(6, 2, pre_norm=pre_norm, feed_forward=ta.nn.FeedForward(6, 10, activation=f))
    mask = interop.mask_from_mha(BLOCKED, PADDING)
    check(
        theirs,
        ours,
        [normal(3, 4, 6)],
        lambda x: theirs(x, src_mask=torch.from_numpy(BLOCKED), src_key_padding_mask=torch.from_numpy(PADDING)),
        lambda x: ours(x, mask=mask),
    )


@pytest.mark.parametrize("pre_norm", [True, False])
def test_transformer_decoder_layer(pre_norm):
    theirs = randomised(torch.nn.TransformerDecoderLayer(6, 2, 10, 0.0, norm_first=pre_norm, batch_first=True))
    feed_forward = ta.nn.FeedForward(6, 10, activation=ta.relu)
    ours = ta.nn.TransformerBlock(6, 2, pre_norm=pre_norm, cross=True, feed_forward=feed_forward)
    check(
        theirs,
        ours,
        [normal(2, 4, 6), normal(2, 5, 6, seed=1)],
        lambda x, c: theirs(x, c, tgt_mask=torch.from_numpy(BLOCKED)),
        lambda x, c: ours(x, c, mask=ta.causal_mask(4)),
    )


def test_a_stack_of_encoder_layers_keeps_its_names():
    layer = torch.nn.TransformerEncoderLayer(6, 2, 10, dropout=0.0, batch_first=True)
    theirs = randomised(torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))

    class Encoder(ta.nn.Module):
        def __init__(self):
            self.layers = [
                ta.nn.TransformerBlock(6, 2, pre_norm=False, feed_forward=ta.nn.FeedForward(6, 10, activation=ta.relu))
                for _ in range(3)
            ]

        def forward(self, x):
            for block in self.layers:
                x = block(x)
            return x

    check(theirs, Encoder(), [normal(2, 4, 6)])


@pytest.mark.parametrize("kind", ["RNN", "GRU"])
def test_recurrent_networks(kind):
    theirs = randomised(getattr(torch.nn, kind)(3, 4, batch_first=True))
    ours = getattr(ta.nn, kind)(3, 4)
    names = {
        "input.weight": "weight_ih_l0",
        "input.bias": "bias_ih_l0",
        "state.weight": "weight_hh_l0",
        "state.bias": "bias_hh_l0",
    }
    ours.load_state_dict({name: theirs.state_dict()[other] for name, other in names.items()})
    x, t = ta.Tensor(normal(2, 5, 3), requires_grad=True), torch.from_numpy(normal(2, 5, 3)).requires_grad_()
    out, right = ours(x), theirs(t)[0]
    close(out.numpy(), right.detach().numpy())
    c = normal(2, 5, 4, seed=9)
    (out * c).sum().backward()
    (right * torch.from_numpy(c)).sum().backward()
    close(x.grad.numpy(), t.grad.numpy())
    for name, p in ours.named_parameters():
        close(p.grad.numpy(), getattr(theirs, names[name]).grad.numpy(), err_msg=name)


def test_state_dicts_from_files_in_any_order_and_grouped_heads():
    state = ta.nn.MultiHeadAttention(6, 2, rng=0).state_dict()
    right = interop.state_to_torch(state)
    for name, a in interop.state_to_torch(dict(sorted(state.items()))).items():
        np.testing.assert_array_equal(a, right[name])
    with pytest.raises(ValueError, match="equal shape"):
        interop.state_to_torch(ta.nn.MultiHeadAttention(6, 2, num_kv_heads=1).state_dict())


# --- functions ----------------------------------------------------------------------------------------


def compare(ours, theirs, *inputs):
    xs = [ta.Tensor(x, requires_grad=True) for x in inputs]
    ts = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    out, right = ours(*xs), theirs(*ts)
    close(out.numpy(), right.detach().numpy())
    c = normal(*out.shape, seed=9)
    (out * c).sum().backward()
    (right * torch.from_numpy(np.asarray(c))).sum().backward()
    for x, t in zip(xs, ts):
        close(x.grad.numpy(), t.grad.numpy())


def test_activations_and_losses():
    x = 3 * normal(4, 5)
    for approximate in "tanh", "none":
        compare(lambda x: ta.gelu(x, approximate), lambda x: F.gelu(x, approximate=approximate), x)  # noqa: B023
    t = np.array([2, -100, 0, 4])
    compare(lambda z: ta.cross_entropy(z, t), lambda z: F.cross_entropy(z, torch.from_numpy(t)), x)
    for f in "softmax", "log_softmax":
        compare(lambda x: getattr(ta, f)(x, axis=0), lambda x: getattr(F, f)(x, dim=0), x)  # noqa: B023


@pytest.mark.parametrize("function", [ta.scaled_dot_product_attention, ta.fused_attention])
def test_scaled_dot_product_attention(function):
    Q, K, V = normal(2, 3, 4, 6), normal(2, 3, 5, 6, seed=1), normal(2, 3, 5, 7, seed=2)
    allowed = np.random.default_rng(3).random((2, 3, 4, 5)) < 0.6
    allowed[0, 0, 1] = False  # a query that may attend to nothing
    for mask in None, allowed, np.where(allowed, normal(4, 5), -np.inf), normal(4, 5):
        tensor = None if mask is None else torch.from_numpy(mask)
        compare(
            lambda Q, K, V, mask=mask: function(Q, K, V, mask),
            lambda Q, K, V, mask=tensor: F.scaled_dot_product_attention(Q, K, V, mask),
            Q,
            K,
            V,
        )


# --- optimisers ---------------------------------------------------------------------------------------

OPTIMISERS = {
    "SGD": (lambda p: ta.optim.SGD(p, 0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "SGD, momentum and decay": (
        lambda p: ta.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.1),
    ),
    "Adam": (
        lambda p: ta.optim.Adam(p, 0.05, betas=(0.8, 0.95), eps=1e-6),
        lambda p: torch.optim.Adam(p, 0.05, betas=(0.8, 0.95), eps=1e-6),
    ),
    "AdamW": (
        lambda p: ta.optim.AdamW(p, 0.05, weight_decay=0.2),
        lambda p: torch.optim.AdamW(p, 0.05, weight_decay=0.2),
    ),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_twenty_steps_of_an_optimiser(name):
    make, make_theirs = OPTIMISERS[name]
    start, other = normal(3, 4), normal(5, seed=1)
    ps = [ta.Tensor(x, requires_grad=True) for x in (start, other)]
    ts = [torch.from_numpy(x.copy()).requires_grad_() for x in (start, other)]
    ours, theirs = make(ps), make_theirs(ts)
    schedule = torch.optim.lr_scheduler.LambdaLR(theirs, lambda t: ta.optim.warmup_cosine(t, 20, warmup=5))
    for t in range(20):
        ours.lr = 0.05 * ta.optim.warmup_cosine(t, 20, warmup=5)
        for optimizer, (a, b), tanh in (ours, ps, ta.tanh), (theirs, ts, torch.tanh):
            optimizer.zero_grad()
            loss = (tanh(a) ** 3).sum() + ((b - 2) ** 2).sum() if t % 3 else (a**2).sum()  # b sits some steps out
            loss.backward()
        norm = ta.optim.clip_grad_norm(ps, 1.5)
        assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(ts, 1.5).item(), rel=1e-6)
        for p, q in zip(ps, ts):  # PyTorch adds 1e-6 to the norm it divides by; go on from equal gradients
            p.grad = None if q.grad is None else q.grad.numpy().copy()
        ours.step()
        theirs.step()
        schedule.step()
        for p, q in zip(ps, ts):
            close(p.numpy(), q.detach().numpy())


def test_the_schedule_comes_down_as_pytorchs_cosine():
    p = torch.zeros(1, requires_grad=True)
    theirs = torch.optim.SGD([p], 1.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, T_max=9, eta_min=0.2)
    for t in range(10):
        assert ta.optim.warmup_cosine(t, 10, final=0.2) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        theirs.step()
        schedule.step()


# --- masks --------------------------------------------------------------------------------------------


def attend_theirs(Q, K, V, mask):
    return F.scaled_dot_product_attention(*(torch.from_numpy(x) for x in (Q, K, V)), mask).numpy()


def test_boolean_masks_mean_the_same_as_in_scaled_dot_product_attention():
    Q, K, V = normal(3, 2, 4, 6), normal(3, 2, 5, 6, seed=1), normal(3, 2, 5, 6, seed=2)
    for mask in ta.causal_mask(4, 5), ta.padding_mask(np.array([3, 5, 1]), 5), ta.sliding_window_mask(4, 2, 5):
        right = attend_theirs(Q, K, V, torch.from_numpy(mask))
        close(ta.scaled_dot_product_attention(Q, K, V, mask).numpy(), right)


def test_is_causal_is_top_left_in_pytorch():
    Q, K, V = normal(4, 6), normal(5, 6, seed=1), normal(5, 6, seed=2)
    theirs = F.scaled_dot_product_attention(*(torch.from_numpy(x[None]) for x in (Q, K, V)), is_causal=True)[0].numpy()
    close(ta.scaled_dot_product_attention(Q, K, V, np.tri(4, 5, dtype=bool)).numpy(), theirs)
    assert not np.allclose(ta.scaled_dot_product_attention(Q, K, V, ta.causal_mask(4, 5)).numpy(), theirs)


KINDS = [("bool", "bool"), ("float", "bool"), ("bool", "float"), (None, "bool"), (None, None)]


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("kinds", KINDS)
def test_masks_of_multi_head_attention(kinds):
    x = normal(3, 4, 6)
    per_head = np.random.default_rng(1).random((3 * 2, 4, 4)) < 0.4
    per_head[:, :, 0] = False
    for first in BLOCKED, per_head:
        masks = {"attn_mask": first, "key_padding_mask": PADDING}
        masks = {
            name: np.where(mask, -np.inf, 0.0) if kind == "float" else mask
            for (name, mask), kind in zip(masks.items(), kinds)
            if kind
        }
        theirs, ours = randomised(torch.nn.MultiheadAttention(6, 2, batch_first=True)), ta.nn.MultiHeadAttention(6, 2)
        ours.load_state_dict(interop.state_from_torch(theirs.state_dict()))
        t = torch.from_numpy(x)
        right = theirs(t, t, t, **{name: torch.from_numpy(m) for name, m in masks.items()})[0].detach().numpy()
        close(ours(x, mask=interop.mask_from_mha(**masks, num_heads=2)).numpy(), right)


def test_masks_of_hugging_face():
    Q, K, V = normal(2, 3, 4, 6), normal(2, 3, 5, 6, seed=1), normal(2, 3, 5, 6, seed=2)
    two = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 1, 1]])
    right = attend_theirs(Q, K, V, torch.from_numpy(two)[:, None, None].bool())
    close(ta.scaled_dot_product_attention(Q, K, V, interop.mask_from_huggingface(two)).numpy(), right)
    four = np.where(ta.causal_mask(4, 5) & two.astype(bool)[:, None, None], 0.0, np.finfo(np.float32).min)
    four = four.astype(np.float32)
    right = attend_theirs(Q, K, V, torch.from_numpy(four).double())
    close(ta.scaled_dot_product_attention(Q, K, V, interop.mask_from_huggingface(four)).numpy(), right)
    allowed = four == 0
    assert interop.mask_from_huggingface(allowed) is allowed


def test_flags_of_flash_attention():
    n, m = 3, 5
    for causal in True, False:
        for left, right in (-1, -1), (1, 0), (0, 2), (2, -1):
            mask = interop.mask_from_flash(n, m, causal=causal, window_size=(left, right))
            for i in range(n):
                own = i + m - n
                for j in range(m):
                    seen = (left < 0 or j >= own - left) and (right < 0 or j <= own + right)
                    assert mask[i, j] == (seen and (not causal or j <= own))
    np.testing.assert_array_equal(interop.mask_from_flash(n, m, causal=True), ta.causal_mask(n, m))
    window = interop.mask_from_flash(n, m, window_size=(1, 0))
    np.testing.assert_array_equal(window, ta.sliding_window_mask(n, 2, m))


# --- the page -----------------------------------------------------------------------------------------


def test_the_code_of_the_page_runs():
    page = (Path(__file__).parents[1] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    assert len(blocks) == 4
    names = {}
    exec("".join(blocks), names)
    assert all(np.isfinite(p.numpy()).all() for p in names["model"].parameters())
