"""The lesson's exercises: a file of stubs (template), what each step asks of it (steps), where one stands (guide)."""

from .guide import Stand, guide, is_practice, stand
from .template import write

__all__ = ["Stand", "guide", "is_practice", "stand", "write"]
