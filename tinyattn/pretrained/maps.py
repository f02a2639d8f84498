"""Attention maps and heads of a real model that ship with tinyattn."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ..values import Array

__all__ = ["MAPS", "StoredHeads", "store_maps", "stored_heads", "stored_maps"]

Maps: TypeAlias = dict[str, tuple[list[str], dict[tuple[int, int], Array]]]
MAPS = Path(__file__).parent.parent / "data" / "maps.npz"
HEADS = MAPS.with_name("heads.npz")


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


class StoredHeads(NamedTuple):
    """Some heads of minilm at work on one sentence of n tokens."""

    tokens: list[str]
    embeddings: Array  # (n, 384), raw: without positions, before the first layer
    heads: list[tuple[int, int]]  # (layer, head)
    Q: Array  # (heads, n, 32)
    K: Array
    V: Array


def stored_heads(path: str | os.PathLike[str] = HEADS) -> StoredHeads:
    """The heads that ship with tinyattn, made by `python demos/microscope.py --store tinyattn/data/heads.npz`."""
    with np.load(path) as file:
        heads = [(int(layer), int(head)) for layer, head in file["heads"]]
        Q, K, V = (np.stack([file[f"{name}{layer}.{head}"] for layer, head in heads]) for name in "QKV")
        return StoredHeads([str(t) for t in file["tokens"]], file["embeddings"].astype(float), heads, Q, K, V)
