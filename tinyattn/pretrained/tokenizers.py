"""Tokenizers, as the package tokenizers builds them from a model's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .formats import package


def folder_tokenizer(folder: Path) -> Any:
    tokenizers = package("tokenizers")
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


# How each kind of vocabulary cuts a text into words, before merges join the bytes of a word.
CUTS = {"gpt-2": (), "default": (), "smollm": ("Digits",)}


def gguf_tokenizer(fields: Mapping[str, Any], path: Path) -> Any:
    tokenizers = package("tokenizers")
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
