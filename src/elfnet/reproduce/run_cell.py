"""One run of a table: trained or gone on with, calibrated, measured once on the test split, and written down."""

from collections.abc import Callable, Iterable

from elfnet import atomic
from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.recipe.load import save_recipe, validate_recipe
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.record import record_of
from elfnet.reproduce.same_recipe import content_of, moved
from elfnet.reproduce.shared_training import branch_epochs, keep_beginning, take_over_training
from elfnet.run.directory import RunDirectory
from elfnet.train.logging import Observer
from elfnet.train.run import train_recipe


def run_cell(
    cell: Cell,
    recipe: Recipe,
    directory: TableDirectory,
    *,
    table: str,
    tier: str,
    baseline: ModelRecipe,
    others: Iterable[Cell],
    recipes: Iterable[Recipe],
    observer: Observer,
    stop: Callable[[], bool],
) -> bool:
    """Whether it is done; else it was stopped, and goes on when it is asked for again.

    The last epoch is what is measured. Thresholds come from the calibration split: by the paper's rule, one for all
    exits, and per exit.

    Args:
        baseline: the network that costs are compared with.
        others: runs of the table, begun or finished; the training of one may do for this one, too.
        recipes: those of the other rows, whose trainings may begin as this one does.
        stop: asked after every epoch.
    """
    run = directory.run(cell)
    with run.lock():
        take_over_training(cell, recipe, directory, others)
        recipe = recipe_to_go_on_with(run, recipe)
        branches = branch_epochs(recipe, recipes)
        stopped = False

        def stop_after(epochs_done: int) -> bool:
            nonlocal stopped
            if epochs_done in branches:
                keep_beginning(run, epochs_done)
            stopped = epochs_done < total_epochs(recipe) and stop()
            return stopped

        train_recipe(recipe, run.root, resume=run.exists(), observer=observer, stop_after=stop_after)
        if stopped:
            return False
        device = run.info()["machine"]["device"]
        measure_run(run, calibrate_run(run, device=device), device=device)
        record = record_of(run, cell, table=table, tier=tier, baseline=baseline)
        atomic.write_json(directory.record_file(cell), record)
    return True


def recipe_to_go_on_with(run: RunDirectory, asked: Recipe) -> Recipe:
    """The recipe of the run that is there, which is the one asked for but for the machine; files may have moved."""
    if not run.exists():
        return asked
    there = run.recipe()
    now = validate_recipe(str(run.recipe_file), moved(content_of(there), content_of(asked)))
    if now != there:
        save_recipe(now, run.recipe_file)
    return now
