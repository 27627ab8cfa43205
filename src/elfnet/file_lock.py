"""One process at a time on a directory that commands write to."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import IO

from elfnet.errors import WorkError

_HELD: dict[Path, int] = {}
"""Lock files that this process holds, and the thread that does. That thread may take a lock again."""

NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def file_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, which need not exist yet.

    The lock is a hidden file beside the directory, so that the directory can be replaced while it is held. The system
    releases it however the process ends. A thread that holds the lock may enter again.

    Raises:
        WorkError: another process or thread holds it.
    """
    try:
        import fcntl  # noqa: F401
    except ImportError:  # not on this system; there the user looks after commands that run at the same time
        yield
        return
    file = directory.resolve().with_name(f".{directory.resolve().name}.lock")
    if _HELD.get(file) == get_ident():
        yield
        return
    try:
        handle = _acquire(file, directory)
    except OSError as error:
        if error.errno in NOT_WRITABLE and not os.access(directory, os.W_OK):
            yield  # nothing can be written there, so nobody can be disturbed
            return
        raise WorkError(f"cannot write {file}: {error.strerror or error}") from error
    _HELD[file] = get_ident()
    try:
        yield
    finally:
        del _HELD[file]
        # Removed while it is held: whoever opened it before finds that it is gone, and opens the next one.
        file.unlink(missing_ok=True)
        handle.close()


def _acquire(file: Path, directory: Path) -> IO[str]:
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
        if _is_still(file, handle):
            return handle
        handle.close()


def _is_still(file: Path, handle: IO[str]) -> bool:
    """Whether the file that was opened still has its name: its last holder may have removed it."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle.fileno()))
    except FileNotFoundError:
        return False
