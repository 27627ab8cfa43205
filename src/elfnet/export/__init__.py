"""Export a calibrated run to a bundle that runs without torch, and check it against torch.

This package imports torch; `elfnet.inference` runs what it writes.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.export.run import Exported, export_run

_MODULES = {
    "Exported": "elfnet.export.run",
    "export_run": "elfnet.export.run",
}

__all__ = [
    "Exported",
    "export_run",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
