"""Methods beyond a loss: mixing of examples (Mixup, CutMix), BBN, and refits of the classifiers of a finished run."""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.methods.bbn import BilateralForward, CumulativeSchedule
    from elfnet.methods.mixing import CutMix, ManifoldMixup, MinorityCutMix, Mixup

_MODULES = {
    "BilateralForward": "elfnet.methods.bbn",
    "CumulativeSchedule": "elfnet.methods.bbn",
    "CutMix": "elfnet.methods.mixing",
    "ManifoldMixup": "elfnet.methods.mixing",
    "MinorityCutMix": "elfnet.methods.mixing",
    "Mixup": "elfnet.methods.mixing",
}

__all__ = [
    "BilateralForward",
    "CumulativeSchedule",
    "CutMix",
    "ManifoldMixup",
    "MinorityCutMix",
    "Mixup",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
