"""Einstein's sum: a product of operands, summed over the letters that the result does not have; and two of its cases.

Its derivative is an einsum too, so the rule is the op itself with other letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .calling import op
from .face import NUMPY
from .graph import Tensor, as_tensor
from .habits import explained
from .values import Array, TensorLike

__all__ = ["dot", "einsum", "outer"]

LETTERS = "".join(map(chr, [*range(ord("a"), ord("z") + 1), *range(ord("A"), ord("Z") + 1)]))


def _shares(g: Any, out: Any, *xs: Any, extra: None, needs: list[bool], subscripts: str) -> list[Any]:
    return [_share(i, g, xs, subscripts) if need else None for i, need in enumerate(needs)]


def _share(i: int, g: Any, xs: Sequence[Any], subscripts: str) -> Any:
    """'ij,jk->ik' for i = 0: 'ik,jk->ij'. A letter that only xᵢ has needs ones; one it has twice, a unit matrix."""
    ins, result = subscripts.split("->")
    letters = ins.split(",")
    operands, terms = [g, *xs[:i], *xs[i + 1 :]], [result, *letters[:i], *letters[i + 1 :]]
    spare = iter([c for c in LETTERS if c not in subscripts])
    mine = ""
    for c, n in zip(letters[i], xs[i].shape):
        if c in mine:  # a diagonal was taken: g goes back to the diagonal
            fresh = next(spare)
            operands, terms, mine = [*operands, np.eye(n, dtype=g.dtype)], [*terms, c + fresh], mine + fresh
        elif all(c not in term for term in terms):  # summed over: every element gets g
            operands, terms, mine = [*operands, np.ones(n, g.dtype)], [*terms, c], mine + c
        else:
            mine += c
    share = np.einsum(",".join(terms) + "->" + mine, *operands)
    return np.broadcast_to(share, np.broadcast_shapes(share.shape, xs[i].shape))  # a letter of length 1 was stretched


@op(pull=_shares, wide=True)
def _einsum(*xs: Array, subscripts: str) -> tuple[Any, None]:
    """dxᵢ: the same product, with g in xᵢ's place and the letters of xᵢ and of the result exchanged"""
    return np.einsum(subscripts, *xs, optimize=len(xs) > 1), None


@explained
def einsum(subscripts: str, *operands: TensorLike) -> Tensor:
    """Einstein's sum, e.g. einsum('...nd,...md->...nm', Q, K) = Q Kᵀ.

    Letters missing after -> are summed over; '...' stands for leading axes; without -> the result has the letters
    that occur once, in alphabetical order.
    """
    ins, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = ins.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"einsum '{subscripts}' names {len(terms)} operands, got {len(operands)}")
    for term in (*terms, result):
        if "." in term.replace("...", "", 1):
            raise ValueError(
                f"einsum '{subscripts}': '{term}' has more dots than one '...', which stands for all others"
            )
    ranks = [x.ndim if isinstance(x, Tensor) else np.ndim(x) for x in operands]  # type: ignore[arg-type]
    if not arrow:
        once = sorted(c for c in set(ins) - set(".,") if ins.count(c) == 1)
        result = ("..." if "..." in ins else "") + "".join(once)
    free = [c for c in LETTERS if c not in ins]  # letters for the axes under '...'
    widths = [n - len(t) + 3 if "..." in t else 0 for t, n in zip(terms, ranks)]
    rank = max(widths)
    dots = "".join(free[:rank])
    terms = [t.replace("...", dots[rank - w :]) for t, w in zip(terms, widths)]
    return _einsum(*operands, subscripts=",".join(terms) + "->" + result.replace("...", dots))


@explained
def dot(x: TensorLike, y: TensorLike) -> Tensor:
    """Σ over the last axis of x and the last but one of y, as in NumPy: for vectors and matrices x @ y."""
    x, y = as_tensor(x), as_tensor(y)
    if not (x.ndim and y.ndim):
        return x * y
    rows, columns = LETTERS[: x.ndim - 1], LETTERS[x.ndim - 1 : x.ndim + y.ndim - 2]
    return einsum(f"{rows}Z,{columns[:-1]}Z{columns[-1:]}->{rows}{columns}", x, y)


@explained
def outer(x: TensorLike, y: TensorLike) -> Tensor:
    """xᵢ yⱼ for all pairs of elements: (n,), (m,) -> (n, m)."""
    return einsum("i,j->ij", as_tensor(x).reshape(-1), as_tensor(y).reshape(-1))


NUMPY |= {"einsum": einsum, "dot": dot, "outer": outer}
