"""Atomic file writes: a reader sees the old content or the new content, never a part.

The new content is written to a temporary file in the same directory, flushed to disk, and renamed to the final path.
After a full disk or a kill the old file is intact.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elfnet.errors import WorkError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to. On success it replaces `path`; on failure it is removed.

    Raises:
        WorkError: the file cannot be written.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(descriptor)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp creates files that only the owner can read; set the permissions of an ordinary new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise WorkError(
            f"cannot write {path}: {error.strerror or error}; the previous file, if any, is intact"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


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
