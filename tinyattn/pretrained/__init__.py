"""Real models in these layers: BERT-type encoders and Llama-type language models, read from the files they come in.

    model, tokenizer = pretrained.load("minilm")  # or a folder in Hugging Face's layout, or a .gguf file
    text = tokenizer.encode("The animal didn't cross the street because it was too tired.")
    hidden, maps = model([text.ids], return_weights=True)

`python -m tinyattn fetch minilm` (or smollm2) downloads one of the two models that the demos use. Only numbers and
names are read, never code: no pickle. Files are compared with their config before anything large is allocated.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .formats import Stored, json_file, read_gguf, read_safetensors
from .known import MODELS, command, fetch, find, recognise
from .maps import MAPS, StoredHeads, store_maps, stored_heads, stored_maps
from .models import (
    BERT,
    BERT_NAMES,
    GGUF_CONFIG,
    GGUF_NAMES,
    LLAMA_NAMES,
    bert,
    fill,
    halves,
    llama,
    refuse,
    sentence_vectors,
    tied,
)
from .tokenizers import folder_tokenizer, gguf_tokenizer

__all__ = [
    "BERT",
    "MAPS",
    "MODELS",
    "StoredHeads",
    "command",
    "fetch",
    "find",
    "load",
    "recognise",
    "sentence_vectors",
    "store_maps",
    "stored_heads",
    "stored_maps",
]


def load(source: str | os.PathLike[str]) -> tuple[Any, Any]:
    """(model, tokenizer): a BERT, or a Llama-type nn.GPT, in float32, and the tokenizer for its texts.

    source: "minilm" or "smollm2" (see `fetch`), whose files must have the known sha256; or a folder with config.json,
        model.safetensors and tokenizer.json or vocab.txt; or a .gguf file. The tokenizer is one of the package
        tokenizers: tokenizer.encode(text) has .ids and .tokens.
    Raises FileNotFoundError for missing files, ValueError for damaged files and for models of another kind.
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


def _load_folder(folder: Path) -> tuple[Any, Any]:
    config = json_file(folder / "config.json")
    stored = read_safetensors(folder / "model.safetensors")
    kind = config.get("model_type")
    if kind == "bert":
        refuse(folder / "config.json", config, hidden_act=("gelu",), position_embedding_type=("absolute",))
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in stored else ""
        stored = {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
        build: Callable[..., Any] = bert
        names, ignored = BERT_NAMES, r"embeddings\.position_ids|pooler\..*|cls\..*"
    elif kind == "llama":
        refuse(
            folder / "config.json",
            config,
            hidden_act=("silu",),
            rope_scaling=(None,),
            attention_bias=(False,),
            mlp_bias=(False,),
        )
        names, ignored = LLAMA_NAMES, r".*rotary_emb\.inv_freq" + r"|lm_head\.weight" * tied(config)
        build = llama
    else:
        raise ValueError(
            f"{folder / 'config.json'} describes a model of type {kind!r}: only BERT-type encoders and "
            "Llama-type language models ('bert', 'llama') can be built of these layers"
        )
    tokenizer = folder_tokenizer(folder)
    model = build(config, stored, folder / "config.json")
    fill(model, names, stored, ignored, folder / "model.safetensors")
    return model, tokenizer


def _load_gguf(path: Path) -> tuple[Any, Any]:
    fields, stored = read_gguf(path)
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
                stored[name] = Stored(tensor.shape, functools.partial(halves, tensor.read, h))
    tokenizer = gguf_tokenizer(fields, path)
    model = llama(config, stored, path)
    fill(model, GGUF_NAMES, stored, "", path)
    return model, tokenizer
