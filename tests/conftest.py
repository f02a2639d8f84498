import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: two threads beside another process are slower

from hypothesis import settings

settings.register_profile("tinyattn", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("tinyattn")
