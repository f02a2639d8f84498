import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: two threads beside another process are slower

import gc

import pytest
from hypothesis import settings

settings.register_profile("tinyattn", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("tinyattn")


@pytest.fixture
def no_collector():
    """Without the cyclic garbage collector: nothing may need it, and it slows graphs of 400,000 nodes down."""
    gc.disable()
    yield
    gc.enable()


SLOW = {"test_demos", "test_benchmarks", "test_check_diagnosis", "test_check_practice", "test_pyodide", "test_page"}


def pytest_collection_modifyitems(items):
    """The slowest files first: a process that got one of them last would end alone."""
    items.sort(key=lambda item: item.path.stem not in SLOW)
