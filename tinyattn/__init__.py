"""tinyattn: attention down to its last derivative, in NumPy. Read demos/whole_idea.py, graph.py, ops.py."""

import builtins as _builtins
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

import numpy as _numpy

from . import efficient as efficient
from . import habits as _habits
from . import interop as interop
from . import nn as nn
from . import optim as optim
from .attention import *
from .einsum import *
from .face import explain as _explain
from .files import load as load
from .files import save as save
from .functional import *
from .gradcheck import *
from .graph import *
from .masks import *
from .modes import *
from .ops import *

if TYPE_CHECKING:
    from .draw import *

__version__ = "0.2.0"

# glibc gives free memory back to the system if it is more than twice the largest block freed so far. Each training
# step then waits for its arrays again, up to a third of its time. So one large block is freed here, never touched:
_numpy.empty(2**25 - 2**14, _numpy.uint8)


# Few programs need pictures: they are loaded when they are asked for.
_LATER = dict.fromkeys(("Microscope", "draw_graph", "explain", "heatmap", "microscope"), ".draw")
_ROOMS = {"efficient", "interop", "nn", "optim"}  # of the modules these are public
_modules = {name for name, value in globals().items() if name[0] != "_" and isinstance(value, _ModuleType)}
_public = [n for n in globals() if n[0] != "_" and n not in ("Any", "TYPE_CHECKING", *(_modules - _ROOMS))]
_public += [*_LATER, "check"]
# What `from tinyattn import *` brings: all but the names that Python itself has, such as sum and max.
__all__ = [name for name in _public if not hasattr(_builtins, name)]


_explain(_public)  # t.concatenate: it is ta.concatenate
for _name in _modules:  # ta.attention(Q, K, V): it is ta.scaled_dot_product_attention
    globals()[_name].__class__ = _habits.Room


def __dir__() -> list[str]:
    return _public


def __getattr__(name: str) -> Any:
    if name == "check":  # a package that can be called, ta.check(function)
        return _import_module("tinyattn.check")
    if name in _LATER:
        return globals().setdefault(name, getattr(_import_module(_LATER[name], __name__), name))
    raise _habits.no_attribute("ta", name, _public, _habits.TOP)
