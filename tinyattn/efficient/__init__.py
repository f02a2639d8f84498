"""Against the cost n²: the same attention without its n × m matrix, and another attention that needs no such matrix.

Read flash.py first: softmax(Q Kᵀ · scale) V tile by tile, as in its paper. Three forms are exact and share one fast
kernel, tiles.py. They visit different tiles: all, or those under the diagonal (flash); a band (sliding window); a list
of blocks (patterns.py has some). Linear attention replaces the softmax's exponential by a product of features. Then
the sums over the past fit into a matrix of fixed size.
"""

from .forms import block_sparse_attention, flash_attention, sliding_window_attention
from .linear import elu_plus_one, linear_attention, linear_attention_step
from .patterns import bigbird_blocks, global_blocks, local_blocks, longformer_blocks, random_blocks
from .tiles import FAR

__all__ = [
    "FAR",
    "bigbird_blocks",
    "block_sparse_attention",
    "elu_plus_one",
    "flash_attention",
    "global_blocks",
    "linear_attention",
    "linear_attention_step",
    "local_blocks",
    "longformer_blocks",
    "random_blocks",
    "sliding_window_attention",
]
