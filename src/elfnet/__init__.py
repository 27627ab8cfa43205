"""Early-exit networks for long-tailed classification.

The names below are imported when they are first used, so that `import elfnet` is cheap and needs no torch.
"""

from typing import TYPE_CHECKING

from elfnet.cpu_features import hide_unusable_amx
from elfnet.lazy import lazy_names
from elfnet.version import __version__

if TYPE_CHECKING:
    from elfnet.calibrate.confidence_scale import fit_scales
    from elfnet.calibrate.family_request import FamilyRequest
    from elfnet.calibrate.fit_points import fit_family
    from elfnet.calibrate.per_exit_search import geometric_policy, thresholds_for_budget, thresholds_for_floor
    from elfnet.calibrate.point_family import Family
    from elfnet.calibrate.risk.control import control_risk, control_risks
    from elfnet.calibrate.run import calibrate_run, measure_run
    from elfnet.estimator.classifier import ELFClassifier
    from elfnet.evaluate.exit_table import ExitTable
    from elfnet.evaluate.metrics import measure
    from elfnet.evaluate.policy_replay import compute_confidences, replay
    from elfnet.evaluate.run import evaluate_run
    from elfnet.export.network import export_network
    from elfnet.export.run import export_run
    from elfnet.inference.controller.controllers import (
        BatteryController,
        ControlledEngine,
        CostController,
        LatencyController,
    )
    from elfnet.inference.model import Model, Prediction, load
    from elfnet.models.attach.attach import attach_exits, from_blocks
    from elfnet.models.attach.cuts import legal_cuts
    from elfnet.models.build import build_network
    from elfnet.models.staged import StagedNetwork
    from elfnet.recipe.load import load_recipe, recipe_names
    from elfnet.recipe.schema import Recipe
    from elfnet.report import write_report
    from elfnet.run.directory import RunDirectory, open_run
    from elfnet.train.run import train_recipe

_HOME = {
    "BatteryController": "elfnet.inference.controller.controllers",
    "ControlledEngine": "elfnet.inference.controller.controllers",
    "CostController": "elfnet.inference.controller.controllers",
    "ELFClassifier": "elfnet.estimator.classifier",
    "ExitTable": "elfnet.evaluate.exit_table",
    "Family": "elfnet.calibrate.point_family",
    "FamilyRequest": "elfnet.calibrate.family_request",
    "LatencyController": "elfnet.inference.controller.controllers",
    "Model": "elfnet.inference.model",
    "Prediction": "elfnet.inference.model",
    "Recipe": "elfnet.recipe.schema",
    "RunDirectory": "elfnet.run.directory",
    "StagedNetwork": "elfnet.models.staged",
    "attach_exits": "elfnet.models.attach.attach",
    "build_network": "elfnet.models.build",
    "calibrate_run": "elfnet.calibrate.run",
    "control_risk": "elfnet.calibrate.risk.control",
    "control_risks": "elfnet.calibrate.risk.control",
    "compute_confidences": "elfnet.evaluate.policy_replay",
    "evaluate_run": "elfnet.evaluate.run",
    "export_network": "elfnet.export.network",
    "export_run": "elfnet.export.run",
    "fit_family": "elfnet.calibrate.fit_points",
    "fit_scales": "elfnet.calibrate.confidence_scale",
    "from_blocks": "elfnet.models.attach.attach",
    "geometric_policy": "elfnet.calibrate.per_exit_search",
    "legal_cuts": "elfnet.models.attach.cuts",
    "load": "elfnet.inference.model",
    "load_recipe": "elfnet.recipe.load",
    "measure": "elfnet.evaluate.metrics",
    "measure_run": "elfnet.calibrate.run",
    "open_run": "elfnet.run.directory",
    "recipe_names": "elfnet.recipe.load",
    "replay": "elfnet.evaluate.policy_replay",
    "thresholds_for_budget": "elfnet.calibrate.per_exit_search",
    "thresholds_for_floor": "elfnet.calibrate.per_exit_search",
    "train_recipe": "elfnet.train.run",
    "write_report": "elfnet.report",
}

__all__ = [
    "BatteryController",
    "ControlledEngine",
    "CostController",
    "ELFClassifier",
    "ExitTable",
    "Family",
    "FamilyRequest",
    "LatencyController",
    "Model",
    "Prediction",
    "Recipe",
    "RunDirectory",
    "StagedNetwork",
    "__version__",
    "attach_exits",
    "build_network",
    "calibrate_run",
    "compute_confidences",
    "control_risk",
    "control_risks",
    "evaluate_run",
    "export_network",
    "export_run",
    "fit_family",
    "fit_scales",
    "from_blocks",
    "geometric_policy",
    "legal_cuts",
    "load",
    "load_recipe",
    "measure",
    "measure_run",
    "open_run",
    "recipe_names",
    "replay",
    "thresholds_for_budget",
    "thresholds_for_floor",
    "train_recipe",
    "write_report",
]


# Before torch computes anything.
hide_unusable_amx()


__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
