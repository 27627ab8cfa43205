"""Sweeps: train one recipe over a grid of settings, each run in a process or a task of a Ray cluster, with one table.

Runs are commands of their own; this package must not import torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.sweep.grid import Cell, SweepDirectory
    from elfnet.sweep.run import run_sweep

_MODULES = {
    "Cell": "elfnet.sweep.grid",
    "SweepDirectory": "elfnet.sweep.grid",
    "run_sweep": "elfnet.sweep.run",
}

__all__ = ["Cell", "SweepDirectory", "run_sweep"]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
