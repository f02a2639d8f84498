"""tinyattn: attention down to its last derivative, in NumPy. Read tensor.py first, then ops.py."""

from . import nn as nn
from . import optim as optim
from .attention import *
from .draw import *
from .functional import *
from .gradcheck import *
from .nn import load as load
from .nn import save as save
from .ops import *
from .tensor import *
