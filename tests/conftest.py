"""Of all tests: the signals they begin with, and how many there are under sanitizers."""

import collections
import os
import signal
import threading
import zlib

# As a terminal leaves them, whoever starts the tests: a program inherits what its parent ignores
# (nohup, a job in the background), and some tests send signals.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Files that take longest are begun first, for none of them to run alone at the end (--dist loadfile).
LONGEST = ["test_templates", "test_tools", "test_schemas", "test_structured", "test_golden", "test_batches", "test_gpu",
           "test_clients", "test_cache", "test_api", "test_model_files"]


def pytest_collection_modifyitems(config, items):
    """With WEIR_FEW_SHAPES (few.h), a fifth of a test that has a hundred inputs and more, but for
    hostile files; by hash, for inputs come in turns of kinds."""
    items.sort(key=lambda item: (LONGEST + [item.path.stem]).index(item.path.stem))
    if not os.environ.get("WEIR_FEW_SHAPES"):
        return
    n_inputs = collections.Counter(item.function for item in items)
    left_out = {item for item in items
                if n_inputs[item.function] >= 100 and "/hostile/" not in str(item.path)
                and zlib.crc32(item.nodeid.encode()) % 5}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
