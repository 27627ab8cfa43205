"""One process at a time on a run: two commands may fill one table together, and do not meet in one directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elfnet.errors import WorkError


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a lock file; refused while another process holds it. The system lets go of it however a process ends."""
    try:
        import fcntl
    except ImportError:  # not on this system: whoever starts two commands there looks after them
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkError(
                f"another process works on {file.parent / file.stem}; repeat this when it has ended"
            ) from None
        yield
