"""Run exported models with early exit: engine, backends, controllers and prediction of image files.

Only the torch backend of this package may import torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.inference.controller.controllers import (
        BatteryController,
        ControlledEngine,
        CostController,
        LatencyController,
    )
    from elfnet.inference.engine import Answers, Engine
    from elfnet.inference.model import Model, Prediction, load

_MODULES = {
    "Answers": "elfnet.inference.engine",
    "BatteryController": "elfnet.inference.controller.controllers",
    "ControlledEngine": "elfnet.inference.controller.controllers",
    "CostController": "elfnet.inference.controller.controllers",
    "Engine": "elfnet.inference.engine",
    "LatencyController": "elfnet.inference.controller.controllers",
    "Model": "elfnet.inference.model",
    "Prediction": "elfnet.inference.model",
    "load": "elfnet.inference.model",
}

__all__ = [
    "Answers",
    "BatteryController",
    "ControlledEngine",
    "CostController",
    "Engine",
    "LatencyController",
    "Model",
    "Prediction",
    "load",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
