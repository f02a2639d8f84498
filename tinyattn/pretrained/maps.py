"""Attention maps of a real model that ship with tinyattn."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..values import Array

__all__ = ["MAPS", "store_maps", "stored_maps"]

Maps: TypeAlias = dict[str, tuple[list[str], dict[tuple[int, int], Array]]]
MAPS = Path(__file__).parent.parent / "data" / "maps.npz"


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
