"""Early-exit networks for long-tailed classification.

The names below are imported when they are first used, so that `import elfnet` is cheap and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elfnet.version import __version__

if TYPE_CHECKING:
    from elfnet.calibrate.family import Family
    from elfnet.calibrate.run_family import calibrate_run, measure_run
    from elfnet.checkpoint.run_directory import RunDirectory, open_run
    from elfnet.evaluate.exit_table import ExitTable
    from elfnet.evaluate.replay import replay
    from elfnet.evaluate.run_table import evaluate_run
    from elfnet.models.build import build_network
    from elfnet.models.staged import StagedNetwork
    from elfnet.recipe.load import load_recipe, recipe_names
    from elfnet.recipe.schema import Recipe
    from elfnet.report.write import write_report
    from elfnet.train.session import train_recipe

_HOME = {
    "ExitTable": "elfnet.evaluate.exit_table",
    "Family": "elfnet.calibrate.family",
    "Recipe": "elfnet.recipe.schema",
    "RunDirectory": "elfnet.checkpoint.run_directory",
    "StagedNetwork": "elfnet.models.staged",
    "build_network": "elfnet.models.build",
    "calibrate_run": "elfnet.calibrate.run_family",
    "evaluate_run": "elfnet.evaluate.run_table",
    "load_recipe": "elfnet.recipe.load",
    "measure_run": "elfnet.calibrate.run_family",
    "open_run": "elfnet.checkpoint.run_directory",
    "recipe_names": "elfnet.recipe.load",
    "replay": "elfnet.evaluate.replay",
    "train_recipe": "elfnet.train.session",
    "write_report": "elfnet.report.write",
}

__all__ = [
    "ExitTable",
    "Family",
    "Recipe",
    "RunDirectory",
    "StagedNetwork",
    "__version__",
    "build_network",
    "calibrate_run",
    "evaluate_run",
    "load_recipe",
    "measure_run",
    "open_run",
    "recipe_names",
    "replay",
    "train_recipe",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'elfnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
