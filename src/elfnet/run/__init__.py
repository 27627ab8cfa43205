"""A run on disk: its directory, its checkpoints, and the typed content of run.json, metrics.json and log.jsonl.

Files are versioned plain data with a hash, written atomically and read without executing code. Only the checkpoints and
the network of a run need torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
    from elfnet.run.directory import RunDirectory, open_run
    from elfnet.run.info import RunInfo
    from elfnet.run.log import EpochRecord
    from elfnet.run.results import Results

_MODULES = {
    "Checkpoint": "elfnet.run.checkpoint",
    "EpochRecord": "elfnet.run.log",
    "Results": "elfnet.run.results",
    "RunDirectory": "elfnet.run.directory",
    "RunInfo": "elfnet.run.info",
    "load_checkpoint": "elfnet.run.checkpoint",
    "open_run": "elfnet.run.directory",
    "save_checkpoint": "elfnet.run.checkpoint",
}

__all__ = [
    "Checkpoint",
    "EpochRecord",
    "Results",
    "RunDirectory",
    "RunInfo",
    "load_checkpoint",
    "open_run",
    "save_checkpoint",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
