"""Sweeps: train one recipe over a grid of settings, each run in a process or a task of a Ray cluster, with one table.

Runs are commands of their own; this package must not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elfnet.sweep.grid import Cell, SweepDirectory
    from elfnet.sweep.run import run_sweep

_MODULES = {
    "Cell": "elfnet.sweep.grid",
    "SweepDirectory": "elfnet.sweep.grid",
    "run_sweep": "elfnet.sweep.run",
}

__all__ = ["Cell", "SweepDirectory", "run_sweep"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
