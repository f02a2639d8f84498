"""Cases from use, by id: the cache, modules, generation. Each with neighbours of its kind."""

import collections
import copy
import dataclasses
import pickle
import types

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn

RNG = np.random.default_rng
IDS = np.array([[3, 1, 4, 1, 5, 9]])


def model(layers=2, **options):
    return nn.GPT(11, 32, 16, 2, layers, rng=0, **options).eval()


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


# --- GB-04: copies of a cache -------------------------------------------------------------------------

COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "method": nn.KVCache.copy,
    "pickle": lambda cache: pickle.loads(pickle.dumps(cache)),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("recorded", [False, True])
def test_gb_04_a_copied_cache_branches_the_text(way, recorded):
    m, cache = model(), nn.KVCache()
    with ta.no_grad() if not recorded else cache.copy():
        m(IDS[:, :5], cache=cache)
        branch = COPIES[way](cache)
        assert len(branch) == len(cache) == 5
        close(m(IDS[:, 5:], cache=branch).numpy()[0, -1], m(IDS).numpy()[0, -1])
        assert (len(branch), len(cache)) == (6, 5)
        other = np.array([[3, 1, 4, 1, 5, 2, 7]])
        close(m(other[:, 5:], cache=cache).numpy()[0, -1], m(other).numpy()[0, -1])
        close(m(IDS[:, :1], cache=branch).numpy()[0, -1], m(np.append(IDS, IDS[:, :1], 1)).numpy()[0, -1])


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_gb_04_a_cache_goes_on_with_a_copy_of_the_model(way):
    m, cache = model(), nn.KVCache()
    m(IDS[:, :3], cache=cache)
    twin = way(m)
    close(twin(IDS[:, 3:], cache=cache).numpy(), m(IDS).numpy()[:, 3:])
    together, kept = way({"model": m, "cache": cache}).values()
    close(together(IDS[:, :1], cache=kept).numpy(), m(np.append(IDS, IDS[:, :1], 1)).numpy()[:, -1:])


def test_gb_04_one_block_at_several_depths():
    block = nn.TransformerBlock(16, 2, rng=1)
    m, cache = model(3, block=lambda: block), nn.KVCache()
    outs = [m(IDS[:, i : i + 1], cache=cache).numpy() for i in range(6)]
    close(np.concatenate(outs, 1), m(IDS).numpy())


def test_gb_04_layers_of_another_model_are_refused_and_a_block_of_with_makes_them_one():
    a, b = (nn.MultiHeadAttention(6, 2, rng=seed) for seed in (0, 1))
    x = RNG(0).normal(size=(2, 4, 6))
    mask = ta.causal_mask(4)
    right = b(a(x, mask=mask), mask=mask).numpy()
    cache = nn.KVCache()
    a(x[:, :3], cache=cache)
    with pytest.raises(ValueError, match="`with cache:`"):
        b(x[:, 3:], cache=cache)
    assert len(cache) == 3
    cache.clear()
    for piece in x[:, :3], x[:, 3:]:
        with cache:
            out = b(a(piece, cache=cache), cache=cache)
    close(out.numpy(), right[:, 3:])
    assert len(cache) == 4


def test_gb_04_select_orders_the_texts_of_a_batch_anew():
    m, cache = model(), nn.KVCache()
    ids = RNG(1).integers(0, 11, (3, 6))
    m(ids[:, :4], cache=cache)
    rows = [2, 0, 0, 1]
    picked = cache.select(rows)
    close(m(ids[rows, 4:], cache=picked).numpy(), m(ids[rows]).numpy()[:, 4:])
    close(m(ids[:, 4:], cache=cache).numpy(), m(ids).numpy()[:, 4:])
    for rows, error in ([4], IndexError), ([-1], IndexError), ([0.5], TypeError), (0, TypeError), ([True], TypeError):
        with pytest.raises(error, match="rows = "):
            picked.select(rows)
    assert len(nn.KVCache().select([0, 1])) == 0
    single, layer = nn.KVCache(), nn.MultiHeadAttention(6, 2, rng=0)
    layer(np.ones((3, 6)), cache=single)
    with pytest.raises(ValueError, match="no batch axis"):
        single.select([0])


@pytest.mark.parametrize("rotary", [False, True])
def test_gb_04_texts_of_several_lengths_padded_on_the_left(rotary):
    def block():
        attention = nn.MultiHeadAttention(16, 4, num_kv_heads=2, rotary=100.0 if rotary else None, rng=RNG(3))
        return nn.TransformerBlock(16, 4, attention=attention, rng=RNG(4))

    m = model(2, block=block, positions=not rotary)
    ids, padding = RNG(1).integers(0, 11, (3, 7)), np.array([0, 4, 2])
    out, cache = m(ids, padding=padding).numpy(), nn.KVCache()
    pieces = [m(ids[:, :5], padding=padding, cache=cache), *(m(ids[:, i : i + 1], cache=cache) for i in (5, 6))]
    for b, p in enumerate(padding):
        alone = m(ids[b : b + 1, p:]).numpy()[0]
        close(out[b, p:], alone)
        close(np.concatenate([t.numpy() for t in pieces], 1)[b, p:], alone)
        text = m.generate(ids[b : b + 1, p:], 6, temperature=0)[0]
        np.testing.assert_array_equal(m.generate(ids, 6, temperature=0, padding=padding)[b, p:], text)
    order = [2, 1, 1]
    fresh = nn.KVCache()
    m(ids[:, :6], padding=padding, cache=fresh)
    close(m(ids[order, 6:], cache=fresh.select(order)).numpy()[:, 0], out[order, 6])
    with pytest.raises(ValueError, match="first piece"):
        m(ids[:, :1], padding=padding, cache=cache)
    for bad in [7, 0, 0], [-1, 0, 0], [0.5, 0, 0], [0, 0], 1:
        with pytest.raises((ValueError, TypeError), match="padding"):
            m(ids, padding=bad)


def test_gb_04_padding_outlives_the_end_of_the_context():
    m = nn.GPT(11, 8, 16, 2, 2, rng=0)
    ids, padding = RNG(1).integers(0, 11, (2, 5)), np.array([3, 0])
    out = m.generate(ids, 9, temperature=0, padding=padding)
    np.testing.assert_array_equal(out[1], m.generate(ids[1:], 9, temperature=0)[0])
    assert out.shape == (2, 14)


# --- GB-05: a call that fails -------------------------------------------------------------------------


def stop(error):
    def activation(x):
        raise error

    return activation


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError("stopped"), MemoryError])
@pytest.mark.parametrize("place", ["feed-forward", "norm", "head", "attention"])
def test_gb_05_a_call_that_fails_leaves_the_whole_cache(error, place):
    m, cache = model(3), nn.KVCache()
    m(IDS[:, :4], cache=cache)
    owner, name = {
        "feed-forward": (m.blocks[1].feed_forward, "activation"),
        "norm": (m, "norm"),
        "head": (m, "head"),
        "attention": (m.blocks[2].attention, "attention"),
    }[place]
    kept = getattr(owner, name)
    setattr(owner, name, stop(error) if place != "attention" else lambda *args, **options: stop(error)(0))
    with pytest.raises(error if isinstance(error, type) else ValueError):
        m(IDS[:, 4:5], cache=cache)
    assert len(cache) == 4
    setattr(owner, name, kept)
    m(IDS[:, 4:5], cache=cache)
    close(m(IDS[:, 5:], cache=cache).numpy()[0, -1], m(IDS).numpy()[0, -1])


def test_gb_05_the_first_call_may_fail_too_and_so_may_a_module_of_the_users():
    class Two(nn.Module):
        def __init__(self):
            self.first, self.second = nn.MultiHeadAttention(6, 2, rng=0), nn.MultiHeadAttention(6, 2, rng=1)
            self.fail = True

        def forward(self, x, cache):
            x = self.first(x, cache=cache)
            if self.fail:
                raise KeyboardInterrupt
            return self.second(x, cache=cache)

    two, cache, x = Two(), nn.KVCache(), RNG(0).normal(size=(1, 4, 6))
    with pytest.raises(KeyboardInterrupt):
        two(x[:, :2], cache)
    assert len(cache) == 0
    two.fail = False
    outs = [two(x[:, :2], cache).numpy(), two(x[:, 2:], cache).numpy()]
    mask = ta.causal_mask(4)
    close(np.concatenate(outs, 1), two.second(two.first(x, mask=mask), mask=mask).numpy())


def test_gb_05_a_call_that_reaches_other_layers_is_refused():
    m, cache = model(3), nn.KVCache()
    m(IDS[:, :4], cache=cache)
    blocks, m.blocks = m.blocks, m.blocks[:2]
    with pytest.raises(ValueError, match="each layer once"):
        m(IDS[:, 4:5], cache=cache)
    m.blocks = blocks
    close(m(IDS[:, 4:], cache=cache).numpy(), m(IDS).numpy()[:, 4:])


# --- GB-33: a model without attention -----------------------------------------------------------------


def test_gb_33_a_model_without_attention_counts_its_tokens():
    m, ids, cache = nn.GPT(5, 8, 4, 1, 0, rng=0), np.array([[1, 2, 3]]), nn.KVCache()
    outs = [m(ids[:, i : i + 1], cache=cache).numpy() for i in range(3)]
    close(np.concatenate(outs, 1), m(ids).numpy())
    assert len(cache) == len(cache.copy()) == 3
    assert m.generate(ids, 12).shape == (1, 15)
    with pytest.raises(IndexError, match="context of 8"):
        m(np.ones((1, 6), int), cache=cache)
    assert len(cache) == 3


def test_gb_33_a_model_of_ones_own_says_how_many_tokens_it_reads():
    class Bigram(nn.Module):
        def __init__(self):
            self.table = nn.Embedding(5, 5, rng=0)

        def forward(self, ids, cache):
            cache.advance(ids.shape[1])
            return self.table(ids)

    m, cache = Bigram(), nn.KVCache()
    m(np.array([[1, 2]]), cache)
    m(np.array([[3]]), cache)
    assert len(cache) == 3


# --- GB-06: where parameters are found ----------------------------------------------------------------


class Nested(nn.Module):
    def __init__(self):
        self.layers = [(nn.LayerNorm(4), nn.Linear(4, 4, rng=i)) for i in range(2)]
        self.heads = {"a": nn.Linear(4, 2, rng=2)}
        self.out = nn.Linear(4, 1, rng=3)

    def forward(self, x):
        for norm, layer in self.layers:
            x = layer(norm(x))
        return self.out(x) + self.heads["a"](x).sum(-1, keepdims=True)


def test_gb_06_parameters_in_lists_of_tuples_and_dictionaries():
    m = Nested()
    names = [name for name, _ in m.named_parameters()]
    assert names[:4] == ["layers.0.0.weight", "layers.0.0.bias", "layers.0.1.weight", "layers.0.1.bias"]
    assert names[8:] == ["heads.a.weight", "heads.a.bias", "out.weight", "out.bias"]
    assert len(names) == len(m.state_dict()) == 12
    m.eval()
    assert not m.heads["a"].training and not m.layers[1][0].training
    before = m.state_dict()
    m(RNG(0).normal(size=(3, 4))).sum().backward()
    ta.optim.SGD(m.parameters(), 0.1).step()
    moved = [name for name, a in m.state_dict().items() if not np.array_equal(a, before[name])]
    assert len(moved) == 12
    m.load_state_dict(before)
    assert all(np.array_equal(a, before[name]) for name, a in m.state_dict().items())


Pair = collections.namedtuple("Pair", "norm linear")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"a": {"b": [nn.LayerNorm(2, bias=False)]}}, ["held.a.b.0.weight"]),
        (Pair(nn.RMSNorm(2), nn.Linear(2, 2, bias=False)), ["held.0.weight", "held.1.weight"]),
        (collections.deque([nn.RMSNorm(2)]), ["held.0.weight"]),
        (collections.OrderedDict(x=ta.Tensor([1.0], requires_grad=True)), ["held.x"]),
        ({3: (ta.Tensor([1.0], requires_grad=True), "text", None, 5)}, ["held.3.0"]),
    ],
)
def test_gb_06_in_any_container_that_gives_names(value, names):
    m = nn.Module()
    m.held = value
    assert [name for name, _ in m.named_parameters()] == names
    m.load_state_dict({name: a + 1 for name, a in m.state_dict().items()})


def test_gb_06_a_container_without_names_and_two_of_one_name_are_refused():
    for value in {nn.RMSNorm(2)}, np.array([nn.RMSNorm(2), None]), [frozenset([nn.RMSNorm(2)])]:
        m = nn.Module()
        m.held = value
        with pytest.raises(TypeError, match=r"held.* no\s+name"):
            m.parameters()
    m = nn.Module()
    m.held = {"a.b": nn.RMSNorm(2), "a": {"b": nn.RMSNorm(2)}}
    with pytest.raises(ValueError, match="two parameters have the name"):
        m.state_dict()


class Keeps(nn.Module):
    """Stores what it computes and what it is given, in every way."""

    def __init__(self):
        self.weight = ta.Tensor([2.0, 3.0], requires_grad=True)
        self.tables = [ta.Tensor([1.0, 1.0], requires_grad=True)]
        self.seen, self.last = [], None

    def forward(self, x):
        self.given = x
        self.last = x * self.weight
        self.maps = {"out": self.last, "given": x}
        self.seen.append(self.last + self.tables[0])
        return self.seen[-1]


@pytest.mark.parametrize("record", [True, False])
def test_gb_06_what_forward_stores_is_no_parameter(record):
    m, x = Keeps(), ta.Tensor([1.0, 2.0], requires_grad=True)
    with ta.no_grad() if not record else nn.KVCache():
        m(x)
        assert list(m.state_dict()) == ["weight", "tables.0"]
        m(x.detach())
    assert list(m.state_dict()) == ["weight", "tables.0"]
    m.last = ta.Tensor([5.0, 5.0], requires_grad=True)  # outside of a call: the user means it
    assert list(m.state_dict()) == ["weight", "tables.0", "last"]


def test_gb_06_what_is_frozen_stays_a_parameter():
    m = Keeps()
    for p in m.parameters():
        p.requires_grad = False
    assert list(m.state_dict()) == ["weight", "tables.0"]
    assert list(copy.deepcopy(m).state_dict()) == ["weight", "tables.0"]
    assert list(pickle.loads(pickle.dumps(m)).state_dict()) == ["weight", "tables.0"]


def test_gb_06_a_child_may_know_its_parent_and_its_neighbours():
    m = nn.Module()
    m.children = [nn.Linear(2, 2, rng=i) for i in range(9)]
    for i, child in enumerate(m.children):
        child.parent, child.all = m, m.children
        child.next = m.children[(i + 1) % 9]
    assert len(list(m.modules())) == 10
    assert len(m.parameters()) == 18
    m.eval()
    m.load_state_dict(m.state_dict())
    assert "parent: the Module above" in repr(m)


# --- GB-07: modes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["well", "exception", "abandoned"])
def test_gb_07_generation_leaves_each_modules_mode(end):
    m = nn.GPT(11, 32, 16, 2, 2, dropout=0.5, rng=0)
    m.blocks[0].eval()
    flags = [part.training for part in m.modules()]
    assert True in flags and False in flags
    if end == "well":
        m.generate(np.array([[1, 2]]), 1)
    elif end == "exception":
        m.blocks[1].feed_forward.activation = stop(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            m.generate(np.array([[1, 2]]), 1)
    else:
        next(m.stream(np.array([[1, 2]]), 3))
    assert [part.training for part in m.modules()] == flags
    m.eval()
    m.blocks[1].train()
    m.blocks[1].feed_forward.activation = ta.gelu
    m.generate(np.array([[1, 2]]), 2)
    assert not m.training and m.blocks[1].dropout.training


# --- GB-12: what cannot be drawn from ------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_gb_12_logits_that_are_not_finite_are_refused(bad, temperature):
    m = model(1)
    m.norm.weight.data = np.full(16, bad)
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="logits"):
        m.generate(np.array([[3, 4]]), 5, temperature=temperature)


def test_gb_12_minus_infinity_forbids_a_token_but_not_all_of_them():
    m = model(1)
    head = m.head.forward
    m.head.forward = lambda x: head(x) + np.where(np.arange(11) == 4, 0.0, -np.inf)
    assert m.generate(np.array([[3]]), 3).tolist() == [[3, 4, 4, 4]]
    m.head.forward = lambda x: head(x) + np.full(11, -np.inf)
    with pytest.raises(ValueError, match="nothing but -inf"):
        m.generate(np.array([[3]]), 1, temperature=0)


@pytest.mark.parametrize("temperature", [np.nan, np.inf, -1, "hot", None, [1.0], True, 1j])
def test_gb_12_senseless_temperatures_are_refused_at_once(temperature):
    with pytest.raises((ValueError, TypeError), match="temperature = "):
        model(1).stream(np.array([[3]]), 1, temperature=temperature)


def test_gb_12_a_temperature_near_zero_is_the_likeliest_token():
    m = model(2)
    cold = m.generate(IDS, 8, temperature=0)
    for temperature in 1e-300, 5e-324, 1e-12:
        np.testing.assert_array_equal(m.generate(IDS, 8, temperature=temperature), cold)


@pytest.mark.parametrize("options", [{"top_k": 0}, {"top_k": 1.5}, {"max_new_tokens": -1}, {"max_new_tokens": 2.0}])
def test_gb_12_counts_of_generation_are_whole(options):
    with pytest.raises((ValueError, TypeError), match=next(iter(options))):
        model(1).generate(IDS, **{"max_new_tokens": 1, **options})


# --- GB-30: sizes, GB-11: seeds ------------------------------------------------------------------------

SIZES = {
    "in_features": lambda n: nn.Linear(n, 3),
    "out_features": lambda n: nn.Linear(3, n),
    "num_embeddings": lambda n: nn.Embedding(n, 3),
    "embedding_dim": lambda n: nn.Embedding(3, n),
    "d_model": lambda n: nn.LayerNorm(n),
    "d_model ": lambda n: nn.RMSNorm(n),
    "d_model  ": lambda n: nn.FeedForward(n),
    "out_features ": lambda n: nn.FeedForward(4, n),
    "out_features  ": lambda n: nn.SwiGLU(4, n),
    "d_model   ": lambda n: nn.MultiHeadAttention(n, 1),
    "num_heads": lambda n: nn.MultiHeadAttention(4, n),
    "num_kv_heads": lambda n: nn.MultiHeadAttention(4, 2, num_kv_heads=n),
    "context": lambda n: nn.GPT(5, n, 4, 1, 1),
    "num_embeddings ": lambda n: nn.GPT(n, 5, 4, 1, 1),
    "d_hidden": lambda n: nn.RNN(3, n),
    "d_in": lambda n: nn.GRU(n, 3),
    "window": lambda n: ta.sliding_window_mask(4, n),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("size", [0, -1, 8 / 2, "4", None, True, [4], np.float32(4), 10**30])
def test_gb_30_sizes_are_whole_numbers_of_at_least_one(name, size):
    if size is None and name in ("num_kv_heads", "out_features "):
        return  # the default
    with pytest.raises((ValueError, TypeError), match=rf"{name.strip()} (= )?.*") as error:
        SIZES[name](size)
    assert str(size)[:10] in str(error.value)


@pytest.mark.parametrize("name", SIZES)
def test_gb_30_numpys_whole_numbers_are_whole(name):
    SIZES[name](np.int64(4 if "head" not in name else 2))


@pytest.mark.parametrize("n", [-1, 2.0, "3", None])
def test_gb_30_masks_have_whole_sizes(n):
    for make in (
        ta.causal_mask,
        lambda n: ta.sliding_window_mask(n, 2),
        lambda n: ta.padding_mask([1], n),
        lambda n: ta.interop.mask_from_flash(n, 4),
    ):
        with pytest.raises((ValueError, TypeError), match=r"[nm] = "):
            make(n)
    assert ta.causal_mask(0).shape == (0, 0)


def test_gb_11_a_seed_is_default_rngs():
    x = np.ones(4)
    assert ta.dropout(x, 0.5, rng=0).numpy().tolist() == ta.dropout(x, 0.5, rng=0).numpy().tolist() == [2, 0, 0, 0]
    assert ta.dropout(x, 0.5, rng=1).numpy().tolist() == [2, 2, 0, 2]
    np.testing.assert_array_equal(
        ta.dropout(x, 0.5, rng=np.random.SeedSequence(1)).numpy(), ta.dropout(x, 0.5, rng=1).numpy()
    )
    Q = RNG(0).normal(size=(5, 3))
    one, two = (ta.scaled_dot_product_attention(Q, Q, Q, dropout=0.5, rng=7).numpy() for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("rng", [np.random.Generator, "seed", 1.5, -1, object()])
def test_gb_11_what_is_no_seed_is_refused_everywhere(rng):
    Q = np.ones((3, 2))
    for use in (
        lambda: ta.dropout(np.ones(4), 0.5, rng=rng),
        lambda: nn.Linear(2, 2, rng=rng),
        lambda: nn.Dropout(0.5, rng=rng),
        lambda: nn.GPT(5, 4, 4, 1, 1, rng=rng),
        lambda: ta.scaled_dot_product_attention(Q, Q, Q, dropout=0.5, rng=rng),
        lambda: model(1).generate(IDS, 1, rng=rng),
    ):
        with pytest.raises((TypeError, ValueError), match="default_rng"):
            use()


# --- GB-02: half precision -----------------------------------------------------------------------------


@pytest.mark.parametrize("f", [ta.scaled_dot_product_attention, ta.fused_attention])
@pytest.mark.parametrize("mask", [None, np.ones((1, 2), bool), np.zeros((1, 2))])
def test_gb_02_scores_that_are_in_range_after_the_division(f, mask):
    Q = np.full((1, 64), 40, np.float16)
    K, V = np.stack([Q[0], Q[0] - np.float16(1)]), np.array([[1], [2]], np.float16)
    tensors = [ta.Tensor(x, requires_grad=True) for x in (Q, K, V)]
    out = f(*tensors, mask)
    assert (out.dtype, out.numpy().tolist()) == (np.float16, [[1.0]])
    assert all(np.isfinite(g.numpy()).all() for g in ta.grad(out.sum(), tensors))


def test_gb_02_many_keys_and_a_learned_scale():
    Q, K, V = np.zeros((1, 1), np.float16), np.zeros((5000, 1), np.float16), np.full((5000, 1), 60, np.float16)
    assert ta.fused_attention(Q, K, V).item() == 60
    scale = ta.Tensor(np.float16(0.125), requires_grad=True)
    Q = np.full((1, 64), 40, np.float16)
    K, V = np.stack([Q[0], Q[0] - np.float16(0.5)]), np.array([[1], [2]], np.float16)
    assert np.isfinite(ta.grad(ta.scaled_dot_product_attention(Q, K, V, scale=scale).sum(), scale)[0].item())


# --- GB-34: idle queries -------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [ta.scaled_dot_product_attention, ta.fused_attention])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_gb_34_an_idle_query_cannot_matter_to_a_learned_scale(f, bad):
    scale = ta.Tensor(0.5, requires_grad=True)
    Q, K, V = [[1.0], [bad]], [[1.0], [2.0]], [[1.0], [3.0]]
    for mask in np.array([[True, True], [False, False]]), np.array([[0.0, 0.0], [-np.inf, -np.inf]]):
        (g,) = ta.grad(f(Q, K, V, mask, scale=scale).sum(), scale)
        assert g.item() == pytest.approx(0.470, abs=5e-4)


# --- GB-10: integers -----------------------------------------------------------------------------------


def test_gb_10_rotary_positions_of_integers():
    row = [-0.30116867893975674, 0.9899501670824986, 1.3817732906760363, 1.009949833750832]
    np.testing.assert_allclose(ta.rotary(np.ones((2, 4), int)).numpy()[1], row, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool])
@pytest.mark.parametrize(
    "f",
    [
        ta.rotary,
        ta.gelu,
        ta.layer_norm,
        ta.rms_norm,
        lambda x: ta.dropout(x, 0.3, rng=0),
        lambda x: ta.gelu(x, "none"),
        lambda x: ta.layer_norm(x, np.ones(4, int), np.ones(4, int)),
        lambda x: ta.cross_entropy(x, [1, 0, 3]),
        nn.LayerNorm(4),
        nn.MultiHeadAttention(4, 2, rng=0),
        nn.Linear(4, 3, rng=0),
        lambda x: ta.scaled_dot_product_attention(x, x, x),
        lambda x: ta.fused_attention(x, x, x),
    ],
)
def test_gb_10_integers_count_as_floats(f, dtype):
    x = np.array([[100, 20, 0, 120], [1, 2, 3, 100], [7, 90, 5, 1]]).astype(dtype)
    out = f(x).numpy()
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, f(x.astype(float)).numpy(), rtol=1e-12, atol=1e-12)


@dataclasses.dataclass
class Pair:
    a: object
    b: object = None


@pytest.mark.parametrize(
    "hold",
    [
        lambda part: Pair(part),
        lambda part: [Pair(None, {"x": part})],
        lambda part: types.SimpleNamespace(part=part),
        lambda part: collections.UserList([part]),
        lambda part: collections.UserDict(part=part),
        lambda part: collections.ChainMap({"part": part}),
    ],
)
def test_gb_06_other_containers_are_searched(hold):
    class Model(nn.Module):
        def __init__(self):
            self.held = hold(nn.Linear(2, 2, rng=0))

    m = Model()
    assert len(m.parameters()) == 2 and all(name.startswith("held.") for name in m.state_dict())
    m.load_state_dict(Model().state_dict())
    assert not any(part.training for part in m.eval().modules())


def test_gb_06_a_container_without_names_is_refused():
    class Model(nn.Module):
        def __init__(self):
            self.layers = {"a": nn.Linear(2, 2, rng=0)}.values()

    with pytest.raises(TypeError, match="layers holds parameters or modules in a dict_values"):
        Model().parameters()


@pytest.mark.parametrize("padding", [[-1], [6], [0.5], [True], [[1]], 1])
def test_padding_that_makes_no_sense_is_refused(padding):
    for call in (lambda: model().generate(IDS, 1, padding=padding), lambda: model().stream(IDS, 1, padding=padding)):
        with pytest.raises((ValueError, TypeError), match="padding"):
            call()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, bool])
def test_gb_10_no_function_cuts_integers_off_or_lets_them_wrap_around(dtype):
    x = np.array([[0, 1], [1, 0]], dtype)
    for f in (ta.sigmoid, ta.tanh, ta.exp, ta.gelu, ta.softmax, ta.erf, ta.var, ta.std, ta.rotary, ta.layer_norm):
        np.testing.assert_allclose(f(x).numpy(), f(x.astype(float)).numpy(), rtol=1e-3, err_msg=str(f))
