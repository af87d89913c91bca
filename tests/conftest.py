"""Of all tests: the signals they begin with, and how many there are under sanitizers."""

import collections
import os
import signal
import threading

# As a terminal leaves them, whoever starts the tests: a program inherits what its parent ignores
# (nohup, a job in the background), and some tests send signals.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    """With WEIR_FEW_SHAPES (few.h), of a test that has a hundred inputs and more every third."""
    if "WEIR_FEW_SHAPES" not in os.environ:
        return
    n_inputs = collections.Counter(item.function for item in items)
    n_seen = collections.Counter()
    left_out = []
    for item in items:
        n_seen[item.function] += 1
        if n_inputs[item.function] >= 100 and n_seen[item.function] % 3:
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    left_out = set(left_out)
    items[:] = [item for item in items if item not in left_out]
