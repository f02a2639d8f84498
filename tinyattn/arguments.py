"""Checks of what a caller gives: sizes, numbers, seeds. An error says what came, and what is meant."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

LARGEST = min(int(np.iinfo(np.intp).max), 1 << 44)  # more numbers than any memory that a program can address


def whole(value: Any, name: str, least: int = 1, most: float = LARGEST) -> int:
    """value as an int. TypeError unless it is a whole number, Python's or NumPy's; ValueError if out of bounds."""
    try:
        n = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        n = None
    if n is None:
        hint = f": use {int(value)}" if isinstance(value, (float, np.floating)) and value.is_integer() else ""
        raise TypeError(f"{name} = {told(value)} is not a whole number, as a count must be{hint}")
    if not least <= n <= most:
        raise ValueError(f"{name} = {n}: it counts something, so it is at least {least}, and at most {most}")
    return n


def number(value: Any, name: str, low: float = -math.inf, high: float = math.inf, *, below: bool = False) -> float:
    """value as a float. TypeError unless it is one real number; ValueError unless finite and low ≤ value ≤ high.

    below: high itself is not allowed.
    """
    if value.__class__ is float and low <= value < high and abs(value) < math.inf:  # as nearly always
        return value + 0.0  # not -0.0
    none = isinstance(value, (bool, np.bool_, str, bytes)) or (isinstance(value, np.ndarray) and value.ndim)
    try:
        x = math.nan if none else float(value)
    except (TypeError, ValueError, OverflowError):
        x = math.nan
    if math.isnan(x) and not isinstance(value, (float, np.floating)):
        raise TypeError(f"{name} = {told(value)} is not a number")
    if not (math.isfinite(x) and low <= x <= high) or (below and x == high):
        bounds = [f"at least {low:g}"] if low > -math.inf else []
        bounds += [f"{'below' if below else 'at most'} {high:g}"] if high < math.inf else []
        raise ValueError(f"{name} = {x!r}: it must be {' and '.join(bounds) or 'finite'}")
    return x


def flag(value: Any, name: str) -> bool:
    """bool(value). TypeError if it is neither true nor false, such as an array of several numbers."""
    try:
        return bool(value)
    except ValueError:
        raise TypeError(f"{name} = {told(value)} is neither True nor False") from None


def generator(rng: Any) -> np.random.Generator:
    """np.random.default_rng(rng): rng itself if it is a generator, one made from a seed, or for None a random one."""
    random = np.random
    known = (int, np.integer, random.Generator, random.BitGenerator, random.SeedSequence, random.RandomState)
    try:
        if rng is not None and not isinstance(rng, known):
            rng = integers(rng, "rng").tolist()  # NumPy may crash on other things: classes, matrices
        return random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"rng = {told(rng)}: it must be what np.random.default_rng takes, None, a seed (a whole number of at "
            "least 0) or a generator"
        ) from error


def array(x: Any, name: str) -> np.ndarray[Any, Any]:
    """x (it may be a Tensor) as an array of booleans, integers or floats. TypeError or ValueError if it makes none."""
    if not isinstance(x, np.ndarray):
        x = getattr(x, "_data", x)
    elif x.__class__ is not np.ndarray and hasattr(x, "filled"):
        raise TypeError(f"{name} is a masked array, whose mask would be lost: use {name}.filled(…)")
    try:
        values = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} = {told(x)} makes no array: {error}") from error
    if values.dtype.kind not in "biuf":
        raise TypeError(f"{name} holds {values.dtype}, not real numbers or booleans: got {told(x)}")
    return values


def integers(x: Any, name: str) -> np.ndarray[Any, Any]:
    """x (it may be a Tensor) as an array of integers; so is an empty list. TypeError for other numbers: no rounding."""
    values = array(x, name)
    if values.size == 0 and values.dtype.kind == "f":
        values = values.astype(np.intp)
    if values.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {values.dtype}: use .astype(int) if they are whole")
    return values


def told(value: Any) -> str:
    """A value in an error message: itself if it is short, else its kind."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"a {type(value).__name__}"
