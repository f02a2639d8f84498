"""Files that keep what was learned: state dicts as .npz or .safetensors, never pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .graph import Tensor
from .values import Array

__all__ = ["load", "save"]


def save(state: Any, path: str | os.PathLike[str]) -> None:
    """Write a state dict, or that of a module or optimiser, to a .npz or .safetensors file (by the path's suffix).

    The file appears complete or not at all. Raises ValueError for another suffix, TypeError for what is no array of
    numbers. Never pickle.
    """
    path = Path(path)
    arrays = {}
    for name, value in (state if isinstance(state, Mapping) else state.state_dict()).items():
        arrays[name] = np.array(value._data if isinstance(value, Tensor) else value, order="C")
        if not isinstance(name, str) or arrays[name].dtype.kind not in "fiub":
            raise TypeError(f"{name!r} holds {arrays[name].dtype}: a state is a dictionary of names and number arrays")
    _check_suffix(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if path.suffix == ".npz":
            _write_npz(arrays, part)
        else:
            _safetensors().save_file(arrays, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_npz(arrays: dict[str, Array], path: Path) -> None:
    """As np.savez, which would take the names 'file' and 'allow_pickle' for its own arguments."""
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def load(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a state dict, arrays by name, from a .npz or .safetensors file; module.load_state_dict takes it.

    Raises FileNotFoundError, and ValueError for a damaged or foreign file.
    """
    path = Path(path)
    _check_suffix(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: check the path, or save() first")
    reader = np.load if path.suffix == ".npz" else _safetensors().load_file
    try:
        return {str(name): array for name, array in reader(path).items()}
    except Exception as error:  # the libraries raise a dozen kinds, from zlib.error to SafetensorError
        raise ValueError(
            f"{path} cannot be read as {path.suffix}: damaged, cut short, or not such a file ({error})"
        ) from error


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"{path}: the suffix chooses the format, .npz (NumPy) or .safetensors")


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("for .safetensors files: pip install safetensors. A .npz file needs nothing more") from error
    return safetensors.numpy
