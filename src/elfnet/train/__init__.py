"""Training: from a recipe to the last checkpoint, in one process or several, resumable after every epoch.

It must not import `report`, `sweep`, `reproduce`, `serve` or `cli`.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.train.launch import Launch
    from elfnet.train.logging import Observer, Silent
    from elfnet.train.loop import Trainer
    from elfnet.train.machine import tune_malloc
    from elfnet.train.optimizer import WeightAverage, build_optimizer
    from elfnet.train.run import train_recipe
    from elfnet.train.schedule import Schedule, scale_schedule

_MODULES = {
    "Launch": "elfnet.train.launch",
    "Observer": "elfnet.train.logging",
    "Schedule": "elfnet.train.schedule",
    "Silent": "elfnet.train.logging",
    "Trainer": "elfnet.train.loop",
    "WeightAverage": "elfnet.train.optimizer",
    "build_optimizer": "elfnet.train.optimizer",
    "scale_schedule": "elfnet.train.schedule",
    "train_recipe": "elfnet.train.run",
    "tune_malloc": "elfnet.train.machine",
}

__all__ = [
    "Launch",
    "Observer",
    "Schedule",
    "Silent",
    "Trainer",
    "WeightAverage",
    "build_optimizer",
    "scale_schedule",
    "train_recipe",
    "tune_malloc",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
