"""Calibration: operating points of a trained network, fitted on the calibration split.

The thresholds of a point meet a cost budget, an accuracy floor or a statistical guarantee on the accuracy lost. The
test split is refused. Only `calibrate_run` and `measure_run` need torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.calibrate.confidence_scale import fit_scales
    from elfnet.calibrate.family_request import FamilyRequest
    from elfnet.calibrate.fit_points import fit_family
    from elfnet.calibrate.operating_point import OperatingPoint
    from elfnet.calibrate.per_exit_search import geometric_policy, thresholds_for_budget, thresholds_for_floor
    from elfnet.calibrate.point_family import Family
    from elfnet.calibrate.risk.control import control_risk, control_risks
    from elfnet.calibrate.run import calibrate_run, measure_run

_MODULES = {
    "Family": "elfnet.calibrate.point_family",
    "FamilyRequest": "elfnet.calibrate.family_request",
    "OperatingPoint": "elfnet.calibrate.operating_point",
    "calibrate_run": "elfnet.calibrate.run",
    "control_risk": "elfnet.calibrate.risk.control",
    "control_risks": "elfnet.calibrate.risk.control",
    "fit_family": "elfnet.calibrate.fit_points",
    "fit_scales": "elfnet.calibrate.confidence_scale",
    "geometric_policy": "elfnet.calibrate.per_exit_search",
    "measure_run": "elfnet.calibrate.run",
    "thresholds_for_budget": "elfnet.calibrate.per_exit_search",
    "thresholds_for_floor": "elfnet.calibrate.per_exit_search",
}

__all__ = [
    "Family",
    "FamilyRequest",
    "OperatingPoint",
    "calibrate_run",
    "control_risk",
    "control_risks",
    "fit_family",
    "fit_scales",
    "geometric_policy",
    "measure_run",
    "thresholds_for_budget",
    "thresholds_for_floor",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
