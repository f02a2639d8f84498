"""tinyattn: attention down to its last derivative, in NumPy. Read tensor.py first, then ops.py."""

from .attention import *
from .draw import *
from .functional import *
from .gradcheck import *
from .ops import *
from .tensor import *
