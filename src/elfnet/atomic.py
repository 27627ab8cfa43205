"""Writing files so that a reader sees the old content or the new, never a part of either.

The new content goes to a temporary file in the same directory, is flushed to the disk, and then takes the old file's
name in one step. A full disk or a kill leaves the old file as it was.
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
    """Yield a temporary path to write to; on success it replaces `path`, on any failure it is removed."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(descriptor)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes files that only their owner reads; give this one what an ordinary new file would have.
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
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write JSON that every reader accepts: NaN and infinity are refused rather than written as bare words."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_with(path: Path, write: Callable[[Path], None]) -> None:
    """For libraries that insist on writing the file themselves."""
    with replacing(path) as temporary:
        write(temporary)
