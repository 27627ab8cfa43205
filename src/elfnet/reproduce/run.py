"""Running a table: train, calibrate and measure its cells, and write the table after each of them.

A table can be stopped after any epoch. The same call resumes it and skips the runs that are done.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from elfnet import atomic
from elfnet.calibrate.family_request import request_from_recipe
from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.errors import ElfnetError, RequestError
from elfnet.recipe.load import save_recipe, validate_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell, cell_recipe, select_cells
from elfnet.reproduce.directory import TableDirectory, branch_epochs, save_prefix, start_from_shared
from elfnet.reproduce.paper_table import PaperTable, Tier, get_tier, load_table
from elfnet.reproduce.plan import DONE, EpochTimes, PlannedRun, make_plan, measured_epoch_times, training_epochs
from elfnet.reproduce.recipe_diff import recipe_dict, relocate
from elfnet.reproduce.record import make_record
from elfnet.reproduce.render import write_table
from elfnet.reproduce.summary import summarize
from elfnet.run.directory import RunDirectory
from elfnet.run.info import RunInfo
from elfnet.run.log import EpochRecord
from elfnet.train.logging import Observer, Silent
from elfnet.train.run import train_recipe


class TableObserver(Observer, Protocol):
    """Receives the progress of a table: of its runs, and of the epochs of each run."""

    def run_started(self, cell: Cell, number: int, runs: int) -> None:
        """Called when run `number` of `runs` starts."""

    def remaining(self, seconds: float | None) -> None:
        """Called before `started` and `epoch` with the estimated time of all remaining runs; None: not known yet."""

    def run_finished(self, cell: Cell, failure: str | None) -> None:
        """Called when a run has ended, with the error message if it failed."""


class SilentTableObserver(Silent):
    """Ignores all progress."""

    def run_started(self, cell: Cell, number: int, runs: int) -> None:
        pass

    def remaining(self, seconds: float | None) -> None:
        pass

    def run_finished(self, cell: Cell, failure: str | None) -> None:
        pass


@dataclass(frozen=True)
class Outcome:
    """Result of `reproduce_table`.

    Attributes:
        table: the content of table.json.
        runs: number of requested runs.
        done: number of requested runs that are done, in this call or before.
        stopped: whether it was stopped before all runs were done.
        failed: error message by cell name.
    """

    table: dict[str, Any]
    runs: int
    done: int
    stopped: bool
    failed: dict[str, str] = field(default_factory=dict)


def reproduce_table(
    name: str,
    out: str | Path,
    *,
    tier: str = "smoke",
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    settings: Mapping[str, Any] | None = None,
    max_hours: float | None = None,
    stop: Callable[[], bool] | None = None,
    observer: TableObserver | None = None,
) -> Outcome:
    """Train, calibrate and measure cells of a table, and write the table with all runs in its directory.

    A run that fails does not stop the others, except those that start from it.

    Args:
        name: `table1`, `table2`, `table3` (the paper's) or `strong` (modern training).
        out: the table's directory. Runs that are done there are skipped, and unfinished ones are resumed.
        tier: `smoke`, `short`, `medium` or `paper`.
        rows, columns: names; empty: all.
        settings: recipe settings for all rows by dotted name, such as `data.root`.
        max_hours: stop after the epoch in which this time is reached; 0 only writes the table.
        stop: called after every epoch; returns whether to stop there.

    Raises:
        RequestError: the request is not valid, or `out` holds runs of another recipe; nothing is run then.
    """
    table, chosen_tier = load_table(name), get_tier(tier)
    directory, observer, settings = TableDirectory(Path(out)), observer or SilentTableObserver(), settings or {}
    should_stop = _stop_condition(max_hours, stop)
    cells = select_cells(table, rows=rows, columns=columns, seeds=seeds)
    plan = make_plan(table, chosen_tier, cells, directory, settings)
    content = _write(table, chosen_tier, directory)
    todo = [planned for planned in plan if planned.state != DONE]
    done, stopped = len(plan) - len(todo), False
    failed: dict[str, str] = {}
    times = measured_epoch_times(table, directory)
    for number, planned in enumerate(todo, start=1):
        if stopped := should_stop():
            break
        cell = planned.cell
        observer.run_started(cell, number, len(todo))
        later = [(following.cell, following.epochs_left) for following in todo[number:]]
        try:
            _check_source_succeeded(cell, failed)
            finished = run_cell(
                planned,
                directory,
                table=table.name,
                tier=chosen_tier.name,
                others=list(directory.existing_cells(table)),
                recipes=_column_recipes(table, chosen_tier, cell, settings),
                observer=_TimedObserver(observer, times, cell, later),
                stop=should_stop,
            )
        except ElfnetError as error:
            failed[cell.name] = str(error)
            observer.run_finished(cell, str(error))
            continue
        if not finished:
            stopped = True
            break
        done += 1
        content = _write(table, chosen_tier, directory)
        observer.run_finished(cell, None)
    return Outcome(content, len(plan), done, stopped, failed)


def run_cell(
    planned: PlannedRun,
    directory: TableDirectory,
    *,
    table: str,
    tier: str,
    others: Iterable[Cell],
    recipes: Iterable[Recipe],
    observer: Observer,
    stop: Callable[[], bool],
) -> bool:
    """Train or resume one run, calibrate it, measure it on the test split, and write its record.

    The weights of the last epoch are measured. Thresholds are chosen on the calibration split.

    Args:
        others: cells of the table that have a run; this run may share the training of one of them.
        recipes: recipes of the other rows, whose trainings may share epochs with this one.
        stop: called after every epoch.

    Returns:
        Whether the run is done; if not, it was stopped and the same call resumes it.
    """
    run = directory.run(planned.cell)
    with run.lock():
        start_from_shared(planned.cell, planned.recipe, directory, others)
        recipe = recipe_to_resume(run, planned.recipe)
        branches = branch_epochs(recipe, recipes)
        stopped = False

        def stop_after(epochs_done: int) -> bool:
            nonlocal stopped
            if epochs_done in branches:
                save_prefix(run, epochs_done)
            stopped = epochs_done < total_epochs(recipe) and stop()
            return stopped

        train_recipe(recipe, run.root, resume=run.exists(), observer=observer, stop_after=stop_after)
        if stopped:
            return False
        device = run.info().machine.device
        # As the paper chooses its threshold.
        request = replace(request_from_recipe(run.recipe()), accurate="highest")
        measure_run(run, calibrate_run(run, request, device=device), device=device)
        record = make_record(run, planned.cell, table=table, tier=tier, baseline=planned.baseline)
        atomic.write_json(directory.record_file(planned.cell), record)
    return True


def recipe_to_resume(run: RunDirectory, requested: Recipe) -> Recipe:
    """Return the recipe to train: the requested one for a new run, else the run's own with the requested paths.

    The recipes of a run that exists are the same experiment; the machine's settings stay those that it began with. The
    run's recipe.toml is updated.
    """
    if not run.exists():
        return requested
    stored = run.recipe()
    relocated = validate_recipe(str(run.recipe_file), relocate(recipe_dict(stored), recipe_dict(requested)))
    if relocated != stored:
        save_recipe(relocated, run.recipe_file)
    return relocated


class _TimedObserver:
    """Observer of one run that measures epoch times and passes everything on.

    Args:
        later: the runs after this one, with their epochs.
    """

    def __init__(self, observer: TableObserver, times: EpochTimes, cell: Cell, later: list[tuple[Cell, int]]) -> None:
        self._observer, self._times, self._cell, self._later = observer, times, cell, later
        self._epochs = 0

    def note(self, line: str) -> None:
        self._observer.note(line)

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:
        self._epochs = training_epochs(recipe)
        self._report_remaining(max(0, self._epochs - epochs_done))
        self._observer.started(recipe, info, epochs_done)

    def step(self, step: int, steps: int) -> None:
        self._observer.step(step, steps)

    def epoch(self, record: EpochRecord) -> None:
        self._times.add(self._cell, record.seconds)
        self._report_remaining(self._epochs - record.epoch - 1)
        self._observer.epoch(record)

    def _report_remaining(self, epochs: int) -> None:
        self._observer.remaining(self._times.remaining([(self._cell, epochs), *self._later]))


def _write(table: PaperTable, tier: Tier, directory: TableDirectory) -> dict[str, Any]:
    records = {
        (cell.row.name, cell.column.name, cell.seed): directory.record(cell) for cell in directory.existing_cells(table)
    }
    content = summarize(table, tier, {key: record for key, record in records.items() if record is not None})
    write_table(content, directory.root)
    return content


def _column_recipes(table: PaperTable, tier: Tier, cell: Cell, settings: Mapping[str, Any]) -> list[Recipe]:
    """Return the recipes of all rows in the cell's column that do not start from another run, requested or not."""
    recipes = []
    for row in table.rows:
        if row.method is None or row.starts_from is not None:
            continue
        # Settings that are not valid for a row are refused when that row is requested.
        with suppress(RequestError):
            recipes.append(cell_recipe(Cell(row, cell.column, cell.seed), tier, settings))
    return recipes


def _check_source_succeeded(cell: Cell, failed: Mapping[str, str]) -> None:
    if cell.row.starts_from is None:
        return
    source = f"{cell.column.name}/{cell.row.starts_from}/seed{cell.seed}"
    if source in failed:
        raise RequestError(f"it starts from {source}, which failed")


def _stop_condition(max_hours: float | None, stop: Callable[[], bool] | None) -> Callable[[], bool]:
    if max_hours is not None and not max_hours >= 0:
        raise RequestError(f"--max-hours {max_hours:g} must not be negative")
    end = None if max_hours is None else time.monotonic() + 3600 * max_hours

    def should_stop() -> bool:
        return (stop is not None and stop()) or (end is not None and time.monotonic() >= end)

    return should_stop
