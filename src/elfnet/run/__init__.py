"""A run on disk: its directory and its checkpoints.

Files are versioned plain data, written atomically and read without executing code.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
    from elfnet.run.directory import RunDirectory, open_run

_MODULES = {
    "Checkpoint": "elfnet.run.checkpoint",
    "RunDirectory": "elfnet.run.directory",
    "load_checkpoint": "elfnet.run.checkpoint",
    "open_run": "elfnet.run.directory",
    "save_checkpoint": "elfnet.run.checkpoint",
}

__all__ = [
    "Checkpoint",
    "RunDirectory",
    "load_checkpoint",
    "open_run",
    "save_checkpoint",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
