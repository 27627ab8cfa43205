"""Risk control: policies whose loss of accuracy is bounded with a given probability."""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.calibrate.risk.control import control_risk, control_risks

_MODULES = {
    "control_risk": "elfnet.calibrate.risk.control",
    "control_risks": "elfnet.calibrate.risk.control",
}

__all__ = [
    "control_risk",
    "control_risks",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
