"""tinyattn: attention down to its last derivative, in NumPy. Read graph.py first, then ops.py."""

from typing import Any

import numpy as _numpy

from . import efficient as efficient
from . import interop as interop
from . import nn as nn
from . import optim as optim
from .attention import *
from .draw import *
from .einsum import *
from .files import load as load
from .files import save as save
from .functional import *
from .gradcheck import *
from .graph import *
from .masks import *
from .modes import *
from .ops import *

__version__ = "0.2.0"

# glibc hands freed memory back to the system beyond twice the largest block that it has seen freed, and then the
# arrays of each training step are faulted in anew, for up to a third of its time. One such block, never touched:
_numpy.empty(2**25 - 2**14, _numpy.uint8)


def __getattr__(name: str) -> Any:
    if name == "check":  # a package that can be called, ta.check(function), and that few programs need
        from importlib import import_module

        return import_module("tinyattn.check")
    raise AttributeError(f"module 'tinyattn' has no attribute {name!r}")
