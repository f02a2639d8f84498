"""Files for what was learned: state dicts as .npz or .safetensors, never pickle."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .arguments import array, told
from .values import Array

__all__ = ["load", "save"]

fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None  # None on Windows


def save(state: Any, path: str | os.PathLike[str]) -> None:
    """Write a state dict, or that of a module or optimiser, to a .npz or .safetensors file (by the path's suffix).

    The file appears complete or not at all, also if several programs write to one path. Raises ValueError for another
    suffix or a name that the format cannot hold, TypeError if a value is no array of numbers. Never pickle.
    """
    suffix = _suffix(path)
    if not isinstance(state, Mapping) and not hasattr(state, "state_dict"):
        raise TypeError(
            f"{told(state)} cannot be saved: it takes a module, an optimiser, or a dictionary of arrays by name"
        )
    arrays = {}
    for name, value in (state if isinstance(state, Mapping) else state.state_dict()).items():
        if not isinstance(name, str):
            raise TypeError(f"the name {told(name)} is no string: a state is a dictionary of names and number arrays")
        a = array(value, repr(name))
        arrays[name] = np.ascontiguousarray(a, a.dtype.newbyteorder("=")).reshape(a.shape)
    write = _write_npz if suffix == ".npz" else _writer(_safetensors())
    with _replacing(Path(os.path.realpath(path))) as file:
        write(arrays, file)


def load(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a state dict, arrays by name, from a .npz or .safetensors file; module.load_state_dict takes it.

    bfloat16 comes as float32. Raises FileNotFoundError, and ValueError for a damaged or foreign file.
    """
    suffix = _suffix(path)
    read = _read_npz if suffix == ".npz" else _reader(_safetensors())
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is not there, or no file: check the path, or save() first")
    with open(path, "rb") as file:
        try:
            return read(file)
        except Exception as error:  # the libraries raise a dozen kinds, from zlib.error to SafetensorError
            raise ValueError(
                f"{path} cannot be read as {suffix}: damaged, cut short, or not such a file ({error})"
            ) from error


def _suffix(path: str | os.PathLike[str]) -> str:
    try:
        suffix = Path(path).suffix
    except TypeError:
        raise TypeError(f"path = {told(path)} is no path: it takes text, or a pathlib.Path") from None
    if suffix not in (".npz", ".safetensors"):
        raise ValueError(f"{path}: the suffix chooses the format, .npz (NumPy) or .safetensors")
    return suffix


# --- formats ----------------------------------------------------------------------------------------------

TAG = b"tinyattn crc32 "  # and 8 digits: the archive's comment


def _write_npz(arrays: dict[str, Array], file: BinaryIO) -> None:
    """As np.savez, but names such as "file" are allowed too. The comment is a checksum of all bytes before it."""
    import zipfile  # here, because it would be a tenth of the time of `import tinyattn`

    with zipfile.ZipFile(file, "w") as archive:
        for name, a in arrays.items():
            if "\0" in name:
                raise ValueError(
                    f"the name {name!r} cannot be kept in a .npz file, which ends names at a null character"
                )
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, a, allow_pickle=False)
    end = file.seek(-2, os.SEEK_END)  # the last two bytes are the length of the comment
    comment = TAG + b"%08x" % _crc32(file, end)
    file.seek(end)
    file.write(len(comment).to_bytes(2, "little") + comment)


def _read_npz(file: BinaryIO) -> dict[str, Array]:
    """Arrays by name. Each member is read to its end, because there zipfile compares its checksum."""
    import zipfile

    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 64, 0))
    tail = file.read()
    _, found, digits = tail.rpartition(TAG)
    if found and digits != b"%08x" % _crc32(file, size - len(TAG) - 10):
        raise ValueError("its checksum differs")
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(file) as archive:
        count = int.from_bytes(tail[-12:-10], "little")  # of members, as an archive without a comment states it
        if not archive.comment and count not in (len(archive.infolist()), 0xFFFF):
            raise ValueError(f"{len(archive.infolist())} of {count} arrays are found")
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in arrays:
                raise ValueError(f"{info.filename!r} is no array, or there twice")
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                if member.read(1):
                    raise ValueError(f"{name!r} continues after its last number")
    return arrays


def _crc32(file: BinaryIO, end: int) -> int:
    """Of the first `end` bytes."""
    file.seek(0)
    crc = 0
    while (left := end - file.tell()) > 0 and (part := file.read(min(left, 1 << 20))):
        crc = zlib.crc32(part, crc)
    return crc


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("for .safetensors files: pip install safetensors. A .npz file needs nothing more") from error
    return safetensors


def _writer(library: Any) -> Callable[[dict[str, Array], BinaryIO], None]:
    def write(arrays: dict[str, Array], file: BinaryIO) -> None:
        for name, a in arrays.items():
            if name == "__metadata__" or a.dtype.itemsize > 8:
                raise ValueError(f"{name!r}, {a.dtype}, cannot be kept in a .safetensors file: use .npz")
        file.write(library.numpy.save(arrays))

    return write


def _reader(library: Any) -> Callable[[BinaryIO], dict[str, Array]]:
    def read(file: BinaryIO) -> dict[str, Array]:
        arrays = {}
        for name, entry in library.deserialize(file.read()):
            if entry["dtype"] not in DTYPES:
                raise ValueError(f"{name!r} is {entry['dtype']}, which NumPy lacks; read are {', '.join(DTYPES)}")
            values = np.frombuffer(entry["data"], DTYPES[entry["dtype"]])
            if entry["dtype"] == "BF16":  # the upper half of a float32
                values = (values.astype("<u4") << 16).view("<f4")
            arrays[str(name)] = values.reshape(entry["shape"])
        return arrays

    return read


DTYPES = {"BOOL": "?", "BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8"} | {
    f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)
}


# --- one file in place of another -------------------------------------------------------------------------


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside path, to write to. If nothing is raised, it replaces path and keeps path's permissions.

    It is locked while it is written. If such a file is not locked, its save was killed: it is removed.
    """
    for old in path.parent.glob(".tinyattn-*.part"):
        with contextlib.suppress(OSError), open(old, "rb") as leftover:
            if _lock(leftover, wait=False):
                old.unlink()
    while True:
        part = path.with_name(f".tinyattn-{os.urandom(8).hex()}.part")
        file = open(part, "x+b")  # noqa: SIM115
        _lock(file)
        if part.exists():  # else another save removed it, in the moment before it was locked
            break
        file.close()
    try:
        yield file
        file.flush()
        if path.exists():
            part.chmod(path.stat().st_mode & 0o7777)
        if fcntl is None:  # an open file cannot be renamed there
            file.close()
        part.replace(path)
    finally:
        file.close()
        part.unlink(missing_ok=True)


def _lock(file: BinaryIO, wait: bool = True) -> bool:
    """Whether the file is ours now. If the system has no locks, a file that is an hour old belongs to nobody."""
    if fcntl is None:
        return time.time() - os.fstat(file.fileno()).st_mtime > 3600
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
