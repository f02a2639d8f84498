"""tinyattn: attention down to its last derivative, in NumPy."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "check":  # a package that can be called: ta.check(function)
        from importlib import import_module

        return import_module("tinyattn.check")
    raise AttributeError(f"module 'tinyattn' has no attribute {name!r}")
