"""A lock per directory, so that only one process at a time writes to it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import IO

from elfnet.errors import WorkError

_HELD: dict[Path, int] = {}
"""Lock files that this process holds, with the thread that holds each. That thread may enter the lock again."""

NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def file_lock(directory: Path) -> Iterator[None]:
    """Lock a directory, which need not exist yet.

    The lock is a hidden file next to the directory, so that the directory itself can be replaced under the lock. The
    operating system releases it when the process ends. A thread that holds the lock may enter it again.

    Raises:
        WorkError: another process or thread holds the lock, or the lock file cannot be written.
    """
    try:
        import fcntl  # noqa: F401
    except ImportError:  # no fcntl on this system, hence no lock
        yield
        return
    file = directory.resolve().with_name(f".{directory.resolve().name}.lock")
    if _HELD.get(file) == get_ident():
        yield
        return
    try:
        handle = _acquire(file, directory)
    except OSError as error:
        if error.errno in NO_PERMISSION and not os.access(directory, os.W_OK):
            yield  # a read-only directory needs no lock
            return
        raise WorkError(f"cannot write {file}: {error.strerror or error}") from error
    _HELD[file] = get_ident()
    try:
        yield
    finally:
        del _HELD[file]
        # Removed before it is released: a process that has opened it notices (`_is_current`) and opens a new file.
        file.unlink(missing_ok=True)
        handle.close()


def _acquire(file: Path, directory: Path) -> IO[str]:
    """Open and lock the lock file without waiting."""
    import fcntl

    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = file.open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise WorkError(
                f"another process is working on {directory}; wait until it has ended, or name another directory"
            ) from None
        if _is_current(file, handle):
            return handle
        handle.close()


def _is_current(file: Path, handle: IO[str]) -> bool:
    """Whether the opened file is still the one at this path; the previous holder may have removed it."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle.fileno()))
    except FileNotFoundError:
        return False
