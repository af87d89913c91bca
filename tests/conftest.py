"""Signals as a terminal leaves them, whoever starts the tests: a program inherits what its parent
ignores (nohup, a job in the background), and some tests send signals."""

import signal
import threading

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
