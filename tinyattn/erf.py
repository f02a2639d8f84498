"""The error function, which NumPy does not have: the exact GELU needs it."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .calling import op
from .values import Array

__all__ = ["erf"]


@op(lambda g, out, x: g * (2 / math.sqrt(math.pi)) * np.exp(-x * x), wide=True)
def erf(x: Array) -> Any:
    """2/√π ∫₀ˣ e^(-t²) dt, to the last digit but one: by the Taylor series around the nearest of 769 points.

    dx = g · 2/√π · e^(-x²)
    """
    x = np.asarray(x)
    dtype = np.result_type(x.dtype, np.float16)
    values, series = _erf_table(np.float32 if dtype.itemsize <= 4 else np.float64)
    x = x.astype(values.dtype, copy=False)
    size = np.minimum(np.abs(x), 6)  # erf(6) is 1 to the last digit; NaN stays NaN
    nearest = np.rint(size * 128)
    d = size - nearest / 128
    i = np.fmin(nearest, 768).astype(np.intp)
    total = series[-1].take(i)
    for coefficients in (*series[-2::-1], values):  # Horner's rule
        total = total * d + coefficients.take(i)
    return np.copysign(total, x).astype(dtype, copy=False)


@functools.cache
def _erf_table(dtype: Any) -> tuple[Array, list[Array]]:
    """erf at the points, and its series around them, Σ bₖ/(k+1) dᵏ⁺¹: erf′ = y is Σ bₖ dᵏ, and y′ = -2 x y gives bₖ₊₁.

    |d| ≤ 1/256: three terms are enough for the digits of a float32, seven for those of a float64.
    """
    x = np.arange(769) / 128
    b = [2 / math.sqrt(math.pi) * np.exp(-x * x)]
    b.append(-2 * x * b[0])
    for k in range(1, 2 if dtype == np.float32 else 6):
        b.append(-2 * (x * b[k] + b[k - 1]) / (k + 1))
    return np.array([math.erf(v) for v in x], dtype), [(c / (k + 1)).astype(dtype) for k, c in enumerate(b)]
