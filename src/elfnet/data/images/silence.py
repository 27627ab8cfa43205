"""Keep the libraries that decode images silent: their messages would fill the log with the damage of single files."""

import ctypes
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from PIL import _imaging

# Warning filters and the handlers of libtiff belong to the whole process: they are set once and restored once.
_LOCK = threading.Lock()
_restore = ExitStack()
_users = 0


@contextmanager
def silent_decoders() -> Iterator[None]:
    """Suppress Pillow's warnings and what libtiff writes to standard error, in the whole process.

    Pillow warns about metadata, which is not used, and about sizes, which have limits of their own. Threads need not
    wait for each other: the first one to enter changes the settings, the last one to leave restores them.
    """
    global _users
    with _LOCK:
        if not _users:
            _restore.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"PIL\b")
            _silence_libtiff(_restore)
        _users += 1
    try:
        yield
    finally:
        with _LOCK:
            _users -= 1
            if not _users:
                _restore.close()


def _silence_libtiff(restore: ExitStack) -> None:
    """Replace the handlers of the library that Pillow has loaded; where it cannot be found, nothing is changed.

    Of the libraries that decode images only this one writes to standard error, and Pillow has no setting for it.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        for set_handler in (library.TIFFSetErrorHandler, library.TIFFSetWarningHandler):
            set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
            restore.callback(set_handler, set_handler(None))
