"""Atomic file writes: a reader sees the old content or the new content, never a part.

The new content is written to a temporary file in the same directory, flushed to disk, and renamed to the final path;
then the directory is flushed, so that the rename survives a loss of power. After a full disk or a kill the old file is
intact. A kill leaves the temporary file behind; the next write of the same path removes it.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from elfnet.errors import WorkError

PART = ".part"
"""Suffix of temporary files and directories: `.NAME.random.part` becomes NAME."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to. On success it replaces `path`; on failure it is removed.

    Raises:
        WorkError: the file cannot be written.
    """
    temporary: Path | None = None
    descriptor = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
        temporary = Path(name)
        _lock(descriptor)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp creates files that only the owner can read; set the permissions of an ordinary new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise WorkError(
            f"cannot write {path}: {error.strerror or error}; the previous file, if any, is intact"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if descriptor >= 0:
            os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files and directories that killed writes of `path` left behind.

    A temporary file that another process is writing is locked, and is kept.
    """
    with os.scandir(path.parent) as entries:
        found = [entry for entry in entries if is_leftover(entry.name, path.name)]
    for entry in found:
        leftover = Path(entry.path)
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(leftover)
            elif not _is_locked(leftover):
                leftover.unlink()


def is_leftover(name: str, of: str) -> bool:
    """Whether a file name is that of a temporary file for the file named `of`."""
    middle = name.removeprefix(f".{of}.").removesuffix(PART)
    return name == f".{of}.{middle}{PART}" and "." not in middle


def sync_directory(directory: Path) -> None:
    """Flush a directory to disk, after a rename in it; without effect where directories cannot be opened."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Mark a temporary file as in use, where the system and the file system have locks."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(path: Path) -> bool:
    """Whether a process that writes this file is alive; True where that cannot be known."""
    try:
        import fcntl

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return True
    return False


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes to a file."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write text to a file, as UTF-8."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write standard JSON to a file; NaN and infinity are a `ValueError`."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file by a function that takes a path, such as the `save_file` of a library."""
    with replacing(path) as temporary:
        write(temporary)
