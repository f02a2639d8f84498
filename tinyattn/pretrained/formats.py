"""The files that models come in: JSON, safetensors, GGUF. Only numbers and names are read, never code."""

from __future__ import annotations

import functools
import importlib
import json
import math
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..values import Array


class Stored(NamedTuple):
    """A tensor in a file: what is known before it is read, and how to read it, as float32."""

    shape: tuple[int, ...]
    read: Callable[[], Array]


def json_file(path: Path) -> dict[str, Any]:
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


def package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is missing. To read this file: pip install safetensors tokenizers gguf") from error


def read_safetensors(path: Path) -> dict[str, Stored]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there (models in several files, or in pickles, are not read)")
    safetensors = package("safetensors")
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
    """The front of a GGUF file, read piece by piece. A length beyond the end of the file is an error."""

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


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Stored]]:
    """The settings and the tensors of a GGUF file. (The package gguf knows the formats of numbers, but its own reader
    takes seconds for the 100,000 texts of a vocabulary.)"""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    data, gguf = _mapped(path), package("gguf")
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
    return np.array(package("gguf.quants").dequantize(rows, kind), np.float32).reshape(shape)


def _mapped(path: Path) -> mmap.mmap:
    """The bytes of a file, which are read only when they are used."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 24:
            raise ValueError(f"{path} is cut short: {os.fstat(file.fileno()).st_size} bytes hold no model")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
