"""Patterns of blocks for `block_sparse_attention`: booleans (blocks of queries, blocks of keys), True = may attend."""

from __future__ import annotations

import numpy as np

from ..arguments import generator, whole
from ..values import Array, Rng


def local_blocks(n: int, reach: int = 1) -> Array:
    """(n, n) booleans: each block and its `reach` neighbours on either side."""
    I = np.arange(whole(n, "n", 0))
    mask: Array = abs(I[:, None] - I) <= whole(reach, "reach", 0)
    return mask


def global_blocks(n: int, count: int = 1) -> Array:
    """(n, n) booleans: the first `count` blocks attend to all, and all to them."""
    I, count = np.arange(whole(n, "n", 0)), whole(count, "count", 0)
    mask: Array = (I[:, None] < count) | (count > I)
    return mask


def random_blocks(n: int, count: int, rng: Rng) -> Array:
    """(n, n) booleans: `count` random blocks in each row."""
    row = np.arange(whole(n, "n", 0)) < whole(count, "count", 0)
    mask: Array = generator(rng).permuted(np.broadcast_to(row, (n, n)), axis=1)
    return mask


def longformer_blocks(n: int, reach: int = 1, count: int = 1) -> Array:
    """Local and global blocks (Beltagy et al. 2020): any two positions are two steps apart, by way of a global one."""
    return local_blocks(n, reach) | global_blocks(n, count)


def bigbird_blocks(n: int, rng: Rng, reach: int = 1, count: int = 1, random: int = 3) -> Array:
    """Local, global and random blocks (BigBird, Zaheer et al. 2020): random links keep paths short."""
    return longformer_blocks(n, reach, count) | random_blocks(n, random, rng)
