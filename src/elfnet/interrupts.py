"""Interrupts at safe places: a signal that arrives while a library reads a file waits until the file is read.

A library in C that calls back into Python may swallow the KeyboardInterrupt of a signal handler and report an error
about the file instead: an interrupted run would be told that its checkpoint is damaged.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Run the handlers of SIGINT and SIGTERM at the end of the block instead of inside it.

    Only the main thread runs signal handlers, so in other threads there is nothing to do. A signal without a Python
    handler, which ends the process or is ignored, is left as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    replaced = {number: handler for number, handler in previous.items() if callable(handler)}
    for number in replaced:
        signal.signal(number, lambda number, frame: arrived.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        # Inside `finally`: an interrupt comes before an error of the block, which it may have caused.
        for arrived_number, frame in arrived[:1]:
            replaced[signal.Signals(arrived_number)](arrived_number, frame)
