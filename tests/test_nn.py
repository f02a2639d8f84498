"""Layers: what each claims. Random cotangents and pairwise different sizes throughout."""

import copy
import functools

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn

RNG = np.random.default_rng


def normal(*shape, seed=0):
    return RNG(seed).normal(size=shape)


def randomise(module, seed=0):
    """Biases and norms away from their 0s and 1s, so that a forgotten one shows."""
    rng = RNG(seed)
    for p in module.parameters():
        p.data = p.numpy() + 0.3 * rng.normal(size=p.shape)
    return module


def grads_of(module, *inputs, out):
    """d(Σ c · out)/d(each input) for random c."""
    return ta.grad((out * normal(*out.shape, seed=9)).sum(), inputs)


# --- Module -------------------------------------------------------------------------------------------


class Pair(nn.Module):
    def __init__(self):
        self.first = nn.Linear(3, 4, rng=0)
        self.rest = [nn.Linear(4, 4, bias=False, rng=1), nn.Linear(4, 2, rng=2)]
        self.shift = ta.Tensor(np.zeros(2), requires_grad=True)
        self.table = np.ones(5)  # a constant, not a parameter

    def forward(self, x):
        for layer in (self.first, *self.rest):
            x = layer(x)
        return x + self.shift


def test_parameters_are_found_in_attributes_lists_and_parts():
    names = [name for name, _ in Pair().named_parameters()]
    assert names == ["first.weight", "first.bias", "rest.0.weight", "rest.1.weight", "rest.1.bias", "shift"]


def test_a_shared_parameter_is_listed_once_and_loads_under_either_name():
    model = Pair()
    model.again = model.first
    assert len(model.parameters()) == 6
    state = model.state_dict()
    assert "again.weight" not in state
    new = {("again" + name[5:] if name.startswith("first") else name): a + 1 for name, a in state.items()}
    model.load_state_dict(new)
    np.testing.assert_array_equal(model.first.weight.numpy(), state["first.weight"] + 1)


def test_state_dict_is_a_copy_and_survives_a_round_trip():
    model, other = randomise(Pair()), randomise(Pair(), seed=1)
    state = model.state_dict()
    before = model(normal(2, 3)).numpy()
    other.load_state_dict(state)
    np.testing.assert_array_equal(other(normal(2, 3)).numpy(), before)
    state["shift"] += 1
    np.testing.assert_array_equal(model(normal(2, 3)).numpy(), before)
    np.testing.assert_array_equal(other(normal(2, 3)).numpy(), before)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: s.pop("first.bias"), "missing first.bias; unexpected none"),
        (lambda s: s.update(extra=np.ones(2)), "missing none; unexpected extra"),
        (lambda s: s.update(shift=np.ones(3)), r"shift \(3,\) float64 for \(2,\)"),
        (lambda s: s.update(shift=np.array(["a", "b"])), r"shift \(2,\) <U1"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, message):
    model = Pair()
    before = model.state_dict()
    state = {name: a + 1 for name, a in before.items()}
    spoil(state)
    with pytest.raises(ValueError, match=message):
        model.load_state_dict(state)
    assert all(np.array_equal(a, before[name]) for name, a in model.state_dict().items())


def test_loading_keeps_the_parameters_dtype_and_identity():
    model = Pair().astype(np.float32)
    weight = model.first.weight
    model.load_state_dict(Pair().state_dict())
    assert model.first.weight is weight
    assert weight.dtype == np.float32
    assert weight.requires_grad


def test_train_and_eval_reach_every_part():
    model = nn.TransformerBlock(6, 2, dropout=0.5, rng=0)
    x = normal(3, 6)
    assert not np.array_equal(model(x).numpy(), model(x).numpy())
    model.eval()
    assert np.array_equal(model(x).numpy(), model(x).numpy())
    assert model.train() is model
    assert not np.array_equal(model(x).numpy(), model(x).numpy())


def test_zero_grad_clears_to_none():
    model = Pair()
    model(normal(2, 3)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_astype_makes_everything_float32_and_refuses_integers():
    model = nn.GPT(7, 5, 6, 2, 1, rng=0).astype(np.float32)
    logits = model(np.array([[1, 2, 3]]))
    assert logits.dtype == np.float32
    ta.cross_entropy(logits, np.array([[2, 3, 4]])).backward()
    assert {p.grad.dtype for p in model.parameters()} == {np.dtype(np.float32)}
    assert model.astype(float) is model
    assert {(p.dtype, p.grad) for p in model.parameters()} == {(np.dtype(float), None)}
    with pytest.raises(TypeError, match="floating"):
        model.astype(int)


def test_repr_counts_parameters_and_shows_the_tree():
    text = repr(Pair())
    assert text.splitlines() == [
        "Pair(shift (2,))  44 parameters",
        "  first: Linear(weight (4, 3), bias (4,))  16 parameters",
        "  rest.0: Linear(weight (4, 4))  16 parameters",
        "  rest.1: Linear(weight (2, 4), bias (2,))  10 parameters",
    ]


def test_copies_are_independent():
    model = Pair()
    twin = copy.deepcopy(model)
    twin.shift.data = np.ones(2)
    assert not np.array_equal(model.shift.numpy(), twin.shift.numpy())
    assert twin.shift.requires_grad


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module()(1)


def test_layers_start_as_documented():
    linear = nn.Linear(4, 1000, rng=0)
    for p in linear.weight, linear.bias:
        assert 0.49 < np.abs(p.numpy()).max() <= 0.5  # uniform within ±1/√in_features
        assert p.numpy().std() == pytest.approx(0.5 / np.sqrt(3), rel=0.05)
    assert nn.Embedding(500, 8, rng=0).weight.numpy().std() == pytest.approx(1, rel=0.05)
    assert nn.Embedding(500, 8, std=0.02, rng=0).weight.numpy().std() == pytest.approx(0.02, rel=0.05)


def test_the_same_seed_makes_the_same_model_and_no_two_layers_are_alike():
    one, two = (nn.GPT(11, 6, 8, 2, 2, rng=3).state_dict() for _ in range(2))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not np.array_equal(one["blocks.0.attention.q_proj.weight"], one["blocks.1.attention.q_proj.weight"])
    assert not np.array_equal(one["blocks.0.attention.q_proj.weight"], one["blocks.0.attention.k_proj.weight"])


# --- gradients of every layer --------------------------------------------------------------------------

LAYERS = {
    "linear": (lambda: nn.Linear(5, 3, rng=0), [(2, 4, 5)]),
    "linear, one vector": (lambda: nn.Linear(5, 3, rng=0), [(5,)]),
    "layer norm": (lambda: nn.LayerNorm(5), [(2, 4, 5)]),
    "rms norm": (lambda: nn.RMSNorm(5), [(2, 4, 5)]),
    "feed-forward": (lambda: nn.FeedForward(4, 6, rng=0), [(3, 4)]),
    "swiglu": (lambda: nn.SwiGLU(4, 6, bias=True, rng=0), [(3, 4)]),
    "learned positions": (lambda: nn.LearnedPositions(5, 4, rng=0), [(2, 3, 4)]),
    "self attention": (lambda: nn.MultiHeadAttention(6, 3, rng=0), [(2, 4, 6)]),
    "cross attention": (lambda: nn.MultiHeadAttention(6, 3, rng=0), [(2, 4, 6), (2, 5, 6)]),
    "grouped, rotary": (lambda: nn.MultiHeadAttention(8, 4, num_kv_heads=2, rotary=100.0, rng=0), [(2, 3, 8)]),
    "pre-norm block": (lambda: nn.TransformerBlock(4, 2, rng=0), [(3, 4)]),
    "post-norm block": (lambda: nn.TransformerBlock(4, 2, pre_norm=False, rng=0), [(3, 4)]),
    "decoder block": (lambda: nn.TransformerBlock(4, 2, cross=True, rng=0), [(3, 4), (5, 4)]),
    "rnn": (lambda: nn.RNN(3, 4, rng=0), [(2, 5, 3)]),
    "gru": (lambda: nn.GRU(3, 4, rng=0), [(2, 5, 3)]),
}


@pytest.mark.filterwarnings("ignore:the output does not change")  # with k_proj.bias: a row of scores may shift
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_inputs_and_parameters(name):
    make, shapes = LAYERS[name]
    layer = randomise(make())
    named = list(layer.named_parameters())
    inputs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]

    def f(*args):
        for (_, p), value in zip(named, args[len(inputs) :]):
            replace(layer, p, value)
            slots[p] = value
        return layer(*args[: len(inputs)])

    slots = {p: p for _, p in named}

    def replace(module, p, value):
        for part in module.modules():
            for key, attribute in vars(part).items():
                if attribute is slots[p]:
                    setattr(part, key, value)

    assert ta.gradcheck(f, [*inputs, *(p.numpy() for _, p in named)])


# --- norms, positions, feed-forward -------------------------------------------------------------------


def test_mh07_layer_norm_has_divisor_n_and_epsilon_inside_the_root():
    y = nn.LayerNorm(4)(np.array([1.0, 0.0, 0.0, 0.0])).numpy()
    np.testing.assert_allclose(y, [1.7320046213947808] + [-0.5773348737982603] * 3, rtol=1e-14)


def test_mh08_layer_norm_survives_a_large_mean_in_float32():
    x = (10000 + np.arange(16) * 1e-3).astype(np.float32)
    out = nn.LayerNorm(16).astype(np.float32)(x).numpy()
    np.testing.assert_allclose(out[[0, 15]], [-1.3313333517322157, 1.3313333517322157], rtol=2e-2)
    y = np.float32(40000) + np.arange(4, dtype=np.float32)
    out = nn.LayerNorm(4).astype(np.float32)(y).numpy()
    right = [-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269]
    np.testing.assert_allclose(out, right, atol=1e-4)


def test_rms_norm_is_its_formula():
    norm, x = randomise(nn.RMSNorm(5, eps=0.1)), normal(3, 5)
    right = x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1) * norm.weight.numpy()
    np.testing.assert_allclose(norm(x).numpy(), right, rtol=1e-14)


@pytest.mark.parametrize("layer", [nn.Linear(1, 3, rng=0), nn.LayerNorm(1), nn.RMSNorm(1)])
def test_a_wrong_width_is_refused_even_where_it_would_broadcast(layer):
    with pytest.raises(ValueError, match=r"x of shape \(2, 5\)"):
        layer(normal(2, 5))


def test_swiglu_is_its_formula():
    layer, x = randomise(nn.SwiGLU(4, 6, rng=0)), normal(3, 4)
    gate, up, down = (p.numpy() for p in layer.parameters())
    s = x @ gate.T
    np.testing.assert_allclose(layer(x).numpy(), (s / (1 + np.exp(-s)) * (x @ up.T)) @ down.T, rtol=1e-13)


def test_feed_forward_takes_any_activation():
    layer, x = randomise(nn.FeedForward(4, 6, activation=ta.relu, rng=0)), normal(3, 4)
    W1, b1, W2, b2 = (p.numpy() for p in layer.parameters())
    np.testing.assert_allclose(layer(x).numpy(), np.maximum(x @ W1.T + b1, 0) @ W2.T + b2, rtol=1e-13)
    assert nn.FeedForward(3).up.weight.shape == (12, 3)


def test_dropout_repeats_with_its_rng_and_rests_in_eval():
    x = np.ones((50, 40))
    one, two = (nn.Dropout(0.25, rng=7)(x).numpy() for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert set(np.unique(one)) == {0.0, 1 / 0.75}
    assert abs((one == 0).mean() - 0.25) < 0.03
    assert np.array_equal(nn.Dropout(0.25).eval()(x).numpy(), x)


def test_mh05_sinusoidal_positions_of_odd_and_tiny_sizes():
    table = nn.sinusoidal_positions(3, 5)
    row1 = [0.8414709848078965, 0.5403023058681398, 0.025116222909773774, 0.9996845379152098, 0.0006309573026154199]
    row2 = [0.9092974268256817, -0.4161468365471424, 0.050216599387465206, 0.9987383506934931, 0.0012619143540422218]
    np.testing.assert_allclose(table[1:], [row1, row2], rtol=1e-14)
    np.testing.assert_allclose(nn.sinusoidal_positions(3, 1)[:, 0], np.sin(np.arange(3)), rtol=1e-15)
    assert nn.sinusoidal_positions(0, 5).shape == (0, 5)
    assert nn.sinusoidal_positions(1, 5).tolist() == [[0, 1, 0, 1, 0]]


@pytest.mark.parametrize("batch", [2, 3])
def test_mh06_positions_go_along_the_tokens(batch):
    positions = nn.LearnedPositions(3, 4)
    positions.weight.data = np.arange(12.0).reshape(3, 4)
    out = positions(np.zeros((batch, 3, 4))).numpy()
    for b in range(batch):
        np.testing.assert_array_equal(out[b], np.arange(12.0).reshape(3, 4))


def test_mh04_cached_decoding_counts_positions_on_and_says_when_they_end():
    model = nn.GPT(9, 5, 4, 2, 1, rng=0)
    model.positions.weight.data = np.arange(5.0)[:, None] * np.ones((1, 4))
    added = []
    forward = model.positions.forward

    def spy(x, start):
        out = forward(x, start)
        added.append((out - x).numpy()[0, :, 0].round(9).tolist())
        return out

    model.positions.forward = spy
    cache = nn.KVCache()
    first = model(np.array([[1, 2, 3]]), cache=cache)
    first.data[:] = 7.0  # the cache does not see this
    for token in 4, 5:
        last = model(np.array([[token]]), cache=cache)
    assert added == [[0, 1, 2], [3], [4]]
    np.testing.assert_allclose(last.numpy()[:, -1], model(np.array([[1, 2, 3, 4, 5]])).numpy()[:, -1], atol=1e-12)
    with pytest.raises(IndexError, match="context of 5"):
        model(np.array([[6]]), cache=cache)
    with pytest.raises(IndexError, match="only 5 positions"):
        nn.LearnedPositions(5, 2)(np.zeros((1, 2)), start=5)
    cache.clear()
    added.clear()
    model(np.array([[1]]), cache=cache)
    assert added == [[0]]


def test_rotary_turns_pairs_by_position():
    x = normal(2, 3, 6)
    out = ta.rotary(x, start=4, base=50.0).numpy()
    for t in range(3):
        for i in range(3):
            a = (4 + t) * 50.0 ** (-2 * i / 6)
            turned = [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] @ x[:, t, [i, i + 3]].T
            np.testing.assert_allclose(out[:, t, [i, i + 3]].T, turned, atol=1e-14)


def test_rotary_scores_depend_on_distance_alone():
    q, k = normal(1, 8), normal(1, 8, seed=1)
    score = lambda i, j: (ta.rotary(q, i) * ta.rotary(k, j)).sum().item()
    assert score(2, 5) == pytest.approx(score(12, 15), abs=1e-13)
    assert score(2, 5) != pytest.approx(score(5, 2), abs=1e-3)


def test_rotary_differentiates_twice_and_refuses_odd_widths():
    assert ta.gradgradcheck(lambda x: ta.rotary(x * x, 1), normal(3, 4))
    for shape in (2, 3), (4,):
        with pytest.raises(ValueError, match="pairs"):
            ta.rotary(np.ones(shape))


# --- MultiHeadAttention -------------------------------------------------------------------------------


def plain(layer, x, context=None, mask=None):
    """The same attention, head by head, in NumPy and the plain function."""
    source = x if context is None else context
    Wq, bq, Wk, bk, Wv, bv, Wo, bo = (p.numpy() for p in layer.parameters())
    Q, K, V = x @ Wq.T + bq, source @ Wk.T + bk, source @ Wv.T + bv
    dk = x.shape[-1] // layer.num_heads
    heads = []
    for h in range(layer.num_heads):
        q, kv = slice(h * dk, (h + 1) * dk), h * layer.num_kv_heads // layer.num_heads
        kv = slice(kv * dk, (kv + 1) * dk)
        heads.append(ta.scaled_dot_product_attention(Q[..., q], K[..., kv], V[..., kv], mask).numpy())
    return np.concatenate(heads, -1) @ Wo.T + bo


def test_mh01_heads_are_cut_from_features_not_from_tokens():
    x = ta.Tensor(np.arange(8.0).reshape(1, 2, 4))
    heads = nn.attention._split_heads(x, 2).numpy()
    assert heads.tolist() == [[[[0.0, 1.0], [4.0, 5.0]], [[2.0, 3.0], [6.0, 7.0]]]]


@pytest.mark.parametrize("heads", [3, 0, -2, 20])
def test_mh02_a_width_that_heads_cannot_share_is_refused(heads):
    with pytest.raises(ValueError, match=rf"d_model = 10 .*num_heads = {heads}.*1, 2, 5, 10"):
        nn.MultiHeadAttention(10, heads)


@pytest.mark.parametrize("kv", [0, 3, 8])
def test_key_value_heads_that_do_not_divide_the_heads_are_refused(kv):
    with pytest.raises(ValueError, match=rf"num_heads = 4 .*num_kv_heads = {kv}"):
        nn.MultiHeadAttention(8, 4, num_kv_heads=kv)


def test_mh03_one_head_is_the_plain_function():
    E, L = 4, 3
    layer = nn.MultiHeadAttention(E, 1)
    Win = np.sin(np.arange(3 * E * E)).reshape(3 * E, E) * 0.3
    bias = np.cos(np.arange(3 * E)) * 0.1
    for i, part in enumerate((layer.q_proj, layer.k_proj, layer.v_proj)):
        part.weight.data, part.bias.data = Win[i * E : (i + 1) * E], bias[i * E : (i + 1) * E]
    layer.out_proj.weight.data = np.cos(np.arange(E * E)).reshape(E, E) * 0.3
    layer.out_proj.bias.data = np.sin(np.arange(E)) * 0.1
    xq, xk = np.sin(np.arange(L * E)).reshape(L, E), np.cos(np.arange(L * E)).reshape(L, E)
    right = [
        [-0.014804635620177888, 0.06915843413619317, 0.1253288679709688, -0.01586887246551922],
        [-0.0280568515927308, 0.06683675106166231, 0.14161619060618993, -0.03483939847390798],
        [0.0026132364322447657, 0.046595195631596656, 0.1374076297476536, -0.009096045127445235],
    ]
    np.testing.assert_allclose(layer(xq, xk).numpy(), right, atol=1e-15)
    np.testing.assert_allclose(plain(layer, xq, xk), right, atol=1e-15)


@pytest.mark.parametrize(("heads", "kv"), [(1, 1), (3, 3), (6, 2), (6, 1)])
def test_each_head_is_the_plain_function_on_its_own_features(heads, kv):
    layer = randomise(nn.MultiHeadAttention(12, heads, num_kv_heads=kv, rng=0))
    x, context = normal(2, 4, 12), normal(2, 5, 12, seed=1)
    np.testing.assert_allclose(layer(x).numpy(), plain(layer, x), atol=1e-13)
    np.testing.assert_allclose(layer(x, context).numpy(), plain(layer, x, context), atol=1e-13)
    mask = ta.causal_mask(4)
    np.testing.assert_allclose(layer(x, mask=mask).numpy(), plain(layer, x, mask=mask), atol=1e-13)
    per_head = RNG(2).random((2, heads, 4, 5)) < 0.6
    per_head[..., 0] = True
    out, weights = layer(x, context, mask=per_head, return_weights=True)
    assert weights.shape == (2, heads, 4, 5)
    np.testing.assert_array_equal(weights.numpy() > 0, per_head)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, atol=1e-14)
    np.testing.assert_allclose(layer(x, context, mask=per_head).numpy(), out.numpy(), atol=1e-13)


def test_grouped_query_heads_share_what_repeated_heads_hold():
    grouped = randomise(nn.MultiHeadAttention(12, 6, num_kv_heads=2, rng=0))
    full = nn.MultiHeadAttention(12, 6)
    state = grouped.state_dict()
    for name in "k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias":
        a = state[name]
        state[name] = np.repeat(a.reshape(2, 2, *a.shape[1:]), 3, axis=0).reshape(12, *a.shape[1:])
    full.load_state_dict(state)
    x = normal(3, 5, 12)
    padding = ta.padding_mask(np.array([5, 2, 4]), 5)
    np.testing.assert_allclose(grouped(x, mask=padding).numpy(), full(x, mask=padding).numpy(), atol=1e-13)
    np.testing.assert_allclose(*(m(x, return_weights=True)[1].numpy() for m in (grouped, full)), atol=1e-14)


def test_permuting_tokens_permutes_outputs():
    layer, x = randomise(nn.MultiHeadAttention(6, 2, rng=0)), normal(2, 5, 6)
    order = np.array([3, 0, 4, 1, 2])
    np.testing.assert_allclose(layer(x[:, order]).numpy(), layer(x).numpy()[:, order], atol=1e-13)
    context = normal(2, 7, 6, seed=1)
    np.testing.assert_allclose(layer(x, context[:, ::-1].copy()).numpy(), layer(x, context).numpy(), atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2}, {"rotary": 10000.0}, {"bias": False}])
def test_a_causal_layer_has_exactly_zero_gradient_from_the_future(options):
    layer = randomise(nn.MultiHeadAttention(8, 4, rng=0, **options))
    x = ta.Tensor(normal(2, 5, 8), requires_grad=True)
    for t in range(5):
        (g,) = ta.grad((layer(x, mask=ta.causal_mask(5))[:, t] * normal(8)).sum(), x)
        assert np.all(g.numpy()[:, t + 1 :] == 0)
        assert np.all(np.abs(g.numpy()[:, : t + 1]).max(-1) > 1e-6)


@pytest.mark.parametrize("garbage", [1e6, np.nan, np.inf])
def test_padding_cannot_change_the_other_tokens(garbage):
    layer = randomise(nn.MultiHeadAttention(6, 2, rng=0))
    lengths = np.array([3, 5, 1])
    mask = ta.padding_mask(lengths, 5)
    x = normal(3, 5, 6)
    spoiled = x.copy()
    for b, n in enumerate(lengths):
        spoiled[b, n:] = garbage
    with np.errstate(invalid="ignore"):
        a, b = layer(x, mask=mask).numpy(), layer(spoiled, mask=mask).numpy()
    for i, n in enumerate(lengths):
        np.testing.assert_array_equal(a[i, :n], b[i, :n])


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2, "rotary": 100.0}])
@pytest.mark.parametrize("pieces", [[1] * 7, [7], [3, 1, 1, 2], [1, 6], [5, 2]])
def test_cached_decoding_in_any_pieces_is_the_full_pass(pieces, options):
    layer = randomise(nn.MultiHeadAttention(8, 4, rng=0, **options))
    x = normal(2, 7, 8)
    full = layer(x, mask=ta.causal_mask(7)).numpy()
    cache, outs, start = nn.KVCache(), [], 0
    for n in pieces:
        outs.append(layer(x[:, start : start + n], cache=cache).numpy())
        start += n
        assert len(cache) == start
    np.testing.assert_allclose(np.concatenate(outs, 1), full, atol=1e-12)


def test_gradients_flow_through_the_cache():
    layer, x = randomise(nn.MultiHeadAttention(6, 2, rng=0)), ta.Tensor(normal(1, 4, 6), requires_grad=True)
    cache = nn.KVCache()
    pieces = [layer(x[:, :3], cache=cache), layer(x[:, 3:], cache=cache)]
    (g,) = grads_of(layer, x, out=ta.concatenate(pieces, 1))
    (right,) = grads_of(layer, x, out=layer(x, mask=ta.causal_mask(4)))
    np.testing.assert_allclose(g.numpy(), right.numpy(), atol=1e-12)


def test_a_mask_with_a_cache_counts_all_keys_and_a_failed_call_leaves_the_cache():
    layer, x = randomise(nn.MultiHeadAttention(6, 2, rng=0)), normal(1, 5, 6)
    cache = nn.KVCache()
    layer(x[:, :3], cache=cache)
    with pytest.raises(ValueError, match="mask"):
        layer(x[:, 3:], mask=np.ones((2, 2), bool), cache=cache)
    assert len(cache) == 3
    window = ta.sliding_window_mask(5, 2)
    out = layer(x[:, 3:], mask=window[3:], cache=cache)
    np.testing.assert_allclose(out.numpy(), layer(x, mask=window).numpy()[:, 3:], atol=1e-13)
    with pytest.raises(ValueError, match="another batch"):
        layer(normal(2, 1, 6), cache=cache)
    assert len(cache) == 5


def test_wrong_ranks_and_widths_are_refused():
    layer = nn.MultiHeadAttention(6, 2, rng=0)
    for bad in normal(6), normal(3, 5), normal(2, 3, 12):
        with pytest.raises(ValueError, match=r"x has shape .*\(\.\.\., length, 6\)"):
            layer(bad)
    with pytest.raises(ValueError, match="context has shape"):
        layer(normal(3, 6), normal(6))
    for x, context in (normal(2, 3, 6), normal(4, 6)), (normal(2, 3, 6), normal(5, 3, 6)):
        with pytest.raises(ValueError, match="leading axes"):
            layer(x, context)
    with pytest.raises(ValueError, match=r"\(2, 1, 4, 4\)"):
        layer(normal(2, 4, 6), mask=np.ones((2, 4, 4), bool))


def test_cross_attention_refuses_what_belongs_to_one_stream():
    with pytest.raises(ValueError, match="no use for"):
        nn.MultiHeadAttention(6, 2)(normal(3, 6), normal(4, 6), cache=nn.KVCache())
    with pytest.raises(ValueError, match="no use for"):
        nn.MultiHeadAttention(8, 2, rotary=100.0)(normal(3, 8), normal(4, 8))


def test_attention_dropout_hits_weights_and_returns_them_before():
    layer = nn.MultiHeadAttention(6, 2, dropout=0.5, rng=0)
    x = normal(2, 5, 6)
    out, weights = layer(x, return_weights=True)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, atol=1e-14)
    layer.eval()
    rested, same = layer(x, return_weights=True)
    np.testing.assert_array_equal(weights.numpy(), same.numpy())
    assert not np.allclose(out.numpy(), rested.numpy())


def test_any_attention_function_can_compute_the_heads():
    calls = []

    def attention(Q, K, V, mask=None, **options):
        calls.append((Q.shape, mask, options))
        return ta.scaled_dot_product_attention(Q, K, V, mask, **options)

    layer = nn.MultiHeadAttention(6, 2, attention=attention, rng=0)
    x = normal(3, 4, 6)
    np.testing.assert_allclose(layer(x).numpy(), nn.MultiHeadAttention(6, 2, rng=0)(x).numpy(), atol=1e-14)
    assert calls == [((3, 2, 4, 3), None, {})]


@pytest.mark.parametrize("kv", [4, 2])
@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8)])
def test_no_batch_and_no_tokens_are_no_error(shape, kv):
    layer, x = nn.MultiHeadAttention(8, 4, num_kv_heads=kv, rng=0), ta.Tensor(np.zeros(shape), requires_grad=True)
    out, weights = layer(x, return_weights=True)
    assert layer(x).shape == out.shape == shape
    assert weights.shape == (shape[0], 4, shape[1], shape[1])
    assert ta.grad(layer(x).sum(), x)[0].shape == shape


@pytest.mark.parametrize("kv", [6, 3, 1])
def test_the_efficient_forms_can_compute_the_heads(kv):
    x, mask = normal(2, 5, 12), ta.padding_mask(np.array([5, 3]), 5) & ta.causal_mask(5)
    window = functools.partial(ta.efficient.sliding_window_attention, window=2)
    plain, flash, local = (
        nn.MultiHeadAttention(12, 6, num_kv_heads=kv, rng=0, **options)
        for options in ({}, {"attention": ta.efficient.flash_attention}, {"attention": window})
    )
    np.testing.assert_allclose(flash(x, mask=mask).numpy(), plain(x, mask=mask).numpy(), atol=1e-14)
    right = plain(x, mask=ta.sliding_window_mask(5, 2)).numpy()
    np.testing.assert_allclose(local(x).numpy(), right, atol=1e-14)


def test_it_works_without_a_batch_axis_and_with_several():
    layer, x = randomise(nn.MultiHeadAttention(6, 2, rng=0)), normal(2, 3, 5, 6)
    out = layer(x).numpy()
    assert out.shape == x.shape
    np.testing.assert_allclose(layer(x[1, 2]).numpy(), out[1, 2], atol=1e-14)


# --- transformers -------------------------------------------------------------------------------------


def test_pre_and_post_norm_are_their_formulas():
    x = normal(2, 3, 4)
    for pre_norm in True, False:
        block = randomise(nn.TransformerBlock(4, 2, pre_norm=pre_norm, rng=0))
        y = ta.Tensor(x)
        for norm, layer in (block.norm1, block.attention), (block.norm2, block.feed_forward):
            y = y + layer(norm(y)) if pre_norm else norm(y + layer(y))
        np.testing.assert_allclose(block(x).numpy(), y.numpy(), atol=1e-14)


def test_a_decoder_block_attends_to_itself_then_to_the_context():
    block = randomise(nn.TransformerBlock(6, 2, cross=True, rng=0))
    x, context = ta.Tensor(normal(2, 3, 6), requires_grad=True), normal(2, 4, 6, seed=1)
    causal, padding = ta.causal_mask(3), ta.padding_mask(np.array([4, 2]), 4)
    out, own, cross = block(x, context, mask=causal, context_mask=padding, return_weights=True)
    assert (own.shape, cross.shape) == ((2, 2, 3, 3), (2, 2, 3, 4))
    assert np.all(cross.numpy()[1, ..., 2:] == 0)
    (g,) = ta.grad((out[:, 1] * normal(6)).sum(), x, retain_graph=True)
    assert np.all(g.numpy()[:, 2] == 0)
    spoiled = context.copy()
    spoiled[1, 2:] = np.nan
    clean, same = (block(x, c, mask=causal, context_mask=padding).numpy() for c in (context, spoiled))
    np.testing.assert_array_equal(same, clean)
    np.testing.assert_allclose(out.numpy(), clean, atol=1e-13)


def test_a_block_says_whether_it_wants_a_context():
    with pytest.raises(ValueError, match="without a context"):
        nn.TransformerBlock(4, 2)(normal(3, 4), normal(3, 4))
    with pytest.raises(ValueError, match="with a context"):
        nn.TransformerBlock(4, 2, cross=True)(normal(3, 4))


def llama(layers=2):
    """A Llama-type model, put together from parts."""
    rng = RNG(0)

    def block():
        attention = nn.MultiHeadAttention(8, 4, num_kv_heads=2, bias=False, rotary=1000.0, rng=rng)
        return nn.TransformerBlock(8, 4, norm=nn.RMSNorm, attention=attention, feed_forward=nn.SwiGLU(8, 12, rng=rng))

    return nn.GPT(13, 9, 8, 4, layers, tied=True, positions=False, norm=nn.RMSNorm, block=block, rng=rng)


MODELS = {"gpt": lambda: nn.GPT(13, 9, 8, 2, 2, rng=0), "llama": llama}


@pytest.mark.parametrize("name", MODELS)
def test_a_language_model_cannot_see_the_future(name):
    model = randomise(MODELS[name]())
    ids = RNG(0).integers(0, 13, (2, 9))
    changed = ids.copy()
    changed[:, 6] = (changed[:, 6] + 1) % 13
    a, b = model(ids).numpy(), model(changed).numpy()
    np.testing.assert_array_equal(a[:, :6], b[:, :6])
    assert not np.allclose(a[:, 6:], b[:, 6:])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pieces", [[1] * 9, [4, 1, 4], [9]])
def test_a_language_model_decodes_with_a_cache_as_in_one_pass(name, pieces):
    model = randomise(MODELS[name]())
    ids = RNG(0).integers(0, 13, (2, 9))
    cache, outs, start = nn.KVCache(), [], 0
    for n in pieces:
        outs.append(model(ids[:, start : start + n], cache=cache).numpy())
        start += n
    np.testing.assert_allclose(np.concatenate(outs, 1), model(ids).numpy(), atol=1e-12)


def test_tied_models_have_one_table():
    model = llama()
    assert "head.weight" not in model.state_dict()
    ids = np.array([[1, 2, 3]])
    ta.cross_entropy(model(ids), ids).backward()
    rows = np.abs(model.embedding.weight.grad.numpy()).max(-1)
    assert np.all(rows > 0)  # every row is an output, too


def test_every_parameter_of_a_gpt_gets_a_gradient_and_it_learns_one_text():
    model = nn.GPT(13, 9, 8, 2, 2, rng=0)
    ids = RNG(0).integers(0, 13, (1, 9))
    optimizer = ta.optim.AdamW(model.parameters(), 0.02)
    for _ in range(60):
        loss = ta.cross_entropy(model(ids[:, :-1]), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
    assert loss.item() < 0.1
    np.testing.assert_array_equal(model.generate(ids[:, :1], 8, temperature=0), ids)


def test_generate_follows_the_full_pass_also_beyond_the_context():
    model = randomise(nn.GPT(13, 6, 8, 2, 2, rng=0))
    ids = RNG(1).integers(0, 13, (3, 2))
    out = model.generate(ids, 12, temperature=0)
    assert out.shape == (3, 14)
    np.testing.assert_array_equal(out[:, :2], ids)
    read = 2  # how many tokens the model has before it when it predicts the next
    for t in range(2, 14):
        np.testing.assert_array_equal(model(out[:, t - read : t]).numpy()[:, -1].argmax(-1), out[:, t])
        read = read + 1 if read < 6 else 3  # full: the newer half is read again


def test_generate_repeats_with_its_seed_and_draws_from_the_softmax():
    model = nn.GPT(5, 4, 8, 2, 1, rng=0)
    ids = np.zeros((4000, 1), int)
    one, two = (model.generate(ids, 1, temperature=0.5, rng=3) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    logits = model(ids[:1]).numpy()[0, -1] / 0.5
    p = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(np.bincount(one[:, 1], minlength=5) / 4000 - p).max() < 0.03
    allowed = np.argsort(logits)[-2:]
    assert set(model.generate(ids, 1, top_k=2, rng=3)[:, 1]) == set(allowed)


def test_dropout_of_everything_leaves_the_residual_stream():
    x = normal(3, 4)
    block = randomise(nn.TransformerBlock(4, 2, dropout=1.0, rng=0))
    np.testing.assert_array_equal(block(x).numpy(), x)
    block = randomise(nn.TransformerBlock(4, 2, dropout=1.0, pre_norm=False, rng=0))
    np.testing.assert_array_equal(block(x).numpy(), block.norm2(block.norm1(x)).numpy())


def test_generate_records_nothing_and_rests_dropout_and_restores_training():
    model = nn.GPT(5, 8, 8, 2, 1, dropout=0.5, rng=0)
    forward, recorded = model.forward, []

    def spy(*args, **options):
        out = forward(*args, **options)
        recorded.append(out.requires_grad)
        return out

    model.forward = spy
    ids = np.zeros((2, 1), int)
    np.testing.assert_array_equal(model.generate(ids, 5, temperature=0), model.generate(ids, 5, temperature=0))
    assert all(m.training for m in model.modules())
    assert not any(recorded)


def test_stream_yields_what_generate_returns():
    model, ids = nn.GPT(5, 8, 8, 2, 1, rng=0), np.zeros((2, 1), int)
    tokens = list(model.stream(ids, 4, rng=1))
    np.testing.assert_array_equal(np.stack(tokens, 1), model.generate(ids, 4, rng=1)[:, 1:])


def test_gpt_refuses_what_it_cannot_read():
    model = nn.GPT(5, 4, 8, 2, 1, rng=0)
    with pytest.raises(ValueError, match="ids\\[None\\]"):
        model(np.array([1, 2]))
    with pytest.raises(IndexError, match="5 tokens are more than this model's context of 4"):
        model(np.zeros((1, 5), int))
    with pytest.raises(ValueError, match="start from"):
        model.generate(np.zeros((1, 0), int), 3)
    with pytest.raises(ValueError, match="temperature"):
        model.generate(np.zeros((1, 1), int), 3, temperature=-1)


def test_gpt_returns_the_weights_of_each_layer():
    model = nn.GPT(5, 6, 8, 2, 3, rng=0)
    logits, maps = model(np.zeros((2, 4), int), return_weights=True)
    assert logits.shape == (2, 4, 5)
    assert [m.shape for m in maps] == [(2, 2, 4, 4)] * 3
    assert all(np.all(np.triu(m.numpy(), 1) == 0) for m in maps)


def test_norms_take_their_options_from_a_factory():
    block = nn.TransformerBlock(4, 2, norm=functools.partial(nn.LayerNorm, eps=1e-12))
    assert block.norm1.eps == block.norm2.eps == 1e-12


# --- recurrent networks -------------------------------------------------------------------------------


def test_rnn_and_gru_are_their_formulas():
    sigmoid = lambda z: 1 / (1 + np.exp(-z))
    x = normal(2, 5, 3)
    rnn, gru = randomise(nn.RNN(3, 4, rng=0)), randomise(nn.GRU(3, 4, rng=0))
    Wx, bx, Wh, bh = (p.numpy() for p in rnn.parameters())
    h, states = np.zeros((2, 4)), rnn(x).numpy()
    for t in range(5):
        h = np.tanh(x[:, t] @ Wx.T + bx + h @ Wh.T + bh)
        np.testing.assert_allclose(states[:, t], h, atol=1e-14)
    Wx, bx, Wh, bh = (p.numpy() for p in gru.parameters())
    h, states = np.zeros((2, 4)), gru(x).numpy()
    for t in range(5):
        a, s = x[:, t] @ Wx.T + bx, h @ Wh.T + bh
        r, z = sigmoid(a[:, :4] + s[:, :4]), sigmoid(a[:, 4:8] + s[:, 4:8])
        h = (1 - z) * np.tanh(a[:, 8:] + r * s[:, 8:]) + z * h
        np.testing.assert_allclose(states[:, t], h, atol=1e-14)


def test_a_recurrent_network_continues_from_a_state():
    gru, x = randomise(nn.GRU(3, 4, rng=0)), normal(2, 5, 3)
    states = gru(x)
    np.testing.assert_allclose(gru(x[:, 2:], states[:, 1]).numpy(), states.numpy()[:, 2:], atol=1e-14)
