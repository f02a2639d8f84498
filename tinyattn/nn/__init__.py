"""Layers, and the transformer built of them. Read cache, module, layers, attention, transformer, recurrent.

Names, shapes and initial values are PyTorch's (weights are (out, in)): what you know of it holds here, and interop.py
translates its state dicts. If a layer draws random numbers, `rng` takes a generator or a seed.
"""

from typing import Any

from .. import habits as _habits
from .attention import *
from .cache import *
from .layers import *
from .module import *
from .recurrent import *
from .transformer import *


def __getattr__(name: str) -> Any:
    raise _habits.no_attribute("ta.nn", name, globals(), _habits.NN)
