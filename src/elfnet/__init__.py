"""Early-exit networks for long-tailed classification.

The names below are imported when they are first used, so that `import elfnet` is cheap and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elfnet.version import __version__

if TYPE_CHECKING:
    from elfnet.calibrate.confidence_scale import fit_scales
    from elfnet.calibrate.family import Family
    from elfnet.calibrate.family_request import FamilyRequest
    from elfnet.calibrate.fit_family import fit_family
    from elfnet.calibrate.geometric import geometric_policy
    from elfnet.calibrate.per_exit import thresholds_for_budget, thresholds_for_floor
    from elfnet.calibrate.risk.control import control_risk, control_risks
    from elfnet.calibrate.run_family import calibrate_run, measure_run
    from elfnet.checkpoint.run_directory import RunDirectory, open_run
    from elfnet.deploy.controller.battery import BatteryController
    from elfnet.deploy.controller.controlled_engine import ControlledEngine
    from elfnet.deploy.controller.cost import CostController
    from elfnet.deploy.controller.latency import LatencyController
    from elfnet.deploy.export_run import export_run
    from elfnet.deploy.load import load
    from elfnet.deploy.model import Model, Prediction
    from elfnet.evaluate.accuracy import measure
    from elfnet.evaluate.derived import derive
    from elfnet.evaluate.exit_table import ExitTable
    from elfnet.evaluate.replay import replay
    from elfnet.evaluate.run_table import evaluate_run
    from elfnet.models.attach.attach_exits import attach_exits
    from elfnet.models.attach.by_hand import from_blocks
    from elfnet.models.attach.cuts import legal_cuts
    from elfnet.models.build import build_network
    from elfnet.models.staged import StagedNetwork
    from elfnet.recipe.load import load_recipe, recipe_names
    from elfnet.recipe.schema import Recipe
    from elfnet.report import write_report
    from elfnet.train.session import train_recipe

_HOME = {
    "BatteryController": "elfnet.deploy.controller.battery",
    "ControlledEngine": "elfnet.deploy.controller.controlled_engine",
    "CostController": "elfnet.deploy.controller.cost",
    "ExitTable": "elfnet.evaluate.exit_table",
    "Family": "elfnet.calibrate.family",
    "FamilyRequest": "elfnet.calibrate.family_request",
    "LatencyController": "elfnet.deploy.controller.latency",
    "Model": "elfnet.deploy.model",
    "Prediction": "elfnet.deploy.model",
    "Recipe": "elfnet.recipe.schema",
    "RunDirectory": "elfnet.checkpoint.run_directory",
    "StagedNetwork": "elfnet.models.staged",
    "attach_exits": "elfnet.models.attach.attach_exits",
    "build_network": "elfnet.models.build",
    "calibrate_run": "elfnet.calibrate.run_family",
    "control_risk": "elfnet.calibrate.risk.control",
    "control_risks": "elfnet.calibrate.risk.control",
    "derive": "elfnet.evaluate.derived",
    "evaluate_run": "elfnet.evaluate.run_table",
    "export_run": "elfnet.deploy.export_run",
    "fit_family": "elfnet.calibrate.fit_family",
    "fit_scales": "elfnet.calibrate.confidence_scale",
    "from_blocks": "elfnet.models.attach.by_hand",
    "geometric_policy": "elfnet.calibrate.geometric",
    "legal_cuts": "elfnet.models.attach.cuts",
    "load": "elfnet.deploy.load",
    "load_recipe": "elfnet.recipe.load",
    "measure": "elfnet.evaluate.accuracy",
    "measure_run": "elfnet.calibrate.run_family",
    "open_run": "elfnet.checkpoint.run_directory",
    "recipe_names": "elfnet.recipe.load",
    "replay": "elfnet.evaluate.replay",
    "thresholds_for_budget": "elfnet.calibrate.per_exit",
    "thresholds_for_floor": "elfnet.calibrate.per_exit",
    "train_recipe": "elfnet.train.session",
    "write_report": "elfnet.report",
}

__all__ = [
    "BatteryController",
    "ControlledEngine",
    "CostController",
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
    "control_risk",
    "control_risks",
    "derive",
    "evaluate_run",
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


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'elfnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
