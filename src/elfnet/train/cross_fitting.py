"""The networks of cross-fitting (`data.cross_fitting`): one per fold, trained before the final one.

Each is trained without the examples of its fold, into a run directory of its own inside that of the run. A run that is
resumed trains only those that are not finished.
"""

import copy
from collections.abc import Callable

from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import recipes_of_folds
from elfnet.run.checkpoint import is_finished, load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.logging import Observer
from elfnet.train.prepare import Prepared, prepare


def train_folds(
    prepared: Prepared,
    run: RunDirectory,
    train: Callable[[Prepared, RunDirectory], bool],
    observer: Observer,
    *,
    given: StagedNetwork | None,
) -> bool:
    """Train the networks of all folds that are not finished; returns whether all are.

    Args:
        prepared: the final run, which is created but not trained yet.
        train: trains one network into its directory, and returns whether it was stopped.
        given: the network that the caller passed; every fold trains a copy.
    """
    processes = prepared.processes
    for number, recipe in recipes_of_folds(prepared.recipe).items():
        fold = run.fold(number)
        if processes.any(processes.is_rank0 and _has_finished(fold, recipe)):
            continue
        part = prepare(recipe, fold, processes, overwrite=False, given=copy.deepcopy(given))
        observer.note(
            f"cross-fitting: network {number} of {recipe.data.cross_fitting} before the final one, without the "
            f"{len(part.splits.calibration):,} examples of its fold"
        )
        if train(part, fold):
            return False
    return True


def _has_finished(run: RunDirectory, recipe: Recipe) -> bool:
    last = run.checkpoint("last")
    return run.exists() and last.is_file() and is_finished(recipe, load_checkpoint(last))
