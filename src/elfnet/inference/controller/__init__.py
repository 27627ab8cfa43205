"""Controllers that choose operating points at run time, to hold a mean cost, a latency or a battery budget."""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.inference.controller.controllers import (
        BatteryController,
        ControlledEngine,
        CostController,
        LatencyController,
    )

_MODULES = {
    "BatteryController": "elfnet.inference.controller.controllers",
    "ControlledEngine": "elfnet.inference.controller.controllers",
    "CostController": "elfnet.inference.controller.controllers",
    "LatencyController": "elfnet.inference.controller.controllers",
}

__all__ = [
    "BatteryController",
    "ControlledEngine",
    "CostController",
    "LatencyController",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
