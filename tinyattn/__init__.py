"""tinyattn: attention down to its last derivative, in NumPy."""
