"""A table of the paper from recipes to numbers: begun, stopped at any moment, and gone on with by the same command."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elfnet.errors import ElfnetError, RequestError
from elfnet.recipe.schema import Recipe
from elfnet.reproduce.cell import Cell, recipe_of
from elfnet.reproduce.directory import TableDirectory
from elfnet.reproduce.paper_table import PaperTable, load_table
from elfnet.reproduce.plan import DONE, Step, make_plan, measured_pace
from elfnet.reproduce.run_cell import run_cell
from elfnet.reproduce.selection import choose_cells
from elfnet.reproduce.summary import summarise
from elfnet.reproduce.tiers import Tier, tier_named
from elfnet.reproduce.watcher import Nobody, Timed, Watcher
from elfnet.reproduce.write import write_table


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        table: as in table.json.
        runs, done: asked for, and done by now.
        stopped: whether it was stopped before the end.
        failed: the reason by run.
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
    watcher: Watcher | None = None,
) -> Outcome:
    """Train, calibrate and measure what is asked for of a table, and write the table with all that is there.

    Args:
        name: `table1`, `table2`, `table3` (the paper's) or `strong` (modern training).
        out: the table's directory. Runs that are done there are skipped, others gone on with.
        rows, columns: names; none: all of them.
        settings: overrides of the recipes of all rows, such as `data.root`.
        max_hours: stop after the epoch in which so much time has passed; 0 only writes the table.
        stop: asked after every epoch; true stops there.
    """
    table, chosen_tier = load_table(name), tier_named(tier)
    directory, watcher = TableDirectory(Path(out)), watcher or Nobody()
    stop = _stop_when(max_hours, stop)
    cells = choose_cells(table, rows=rows, columns=columns, seeds=seeds)
    steps = make_plan(table, chosen_tier, cells, directory, settings or {})
    written = _write(table, chosen_tier, directory)
    failed: dict[str, str] = {}
    done = sum(step.state == DONE for step in steps)
    todo = [step for step in steps if step.state != DONE]
    pace, stopped = measured_pace(table, directory), False
    for number, step in enumerate(todo):
        if stopped := stop():
            break
        cell = step.cell
        watcher.begins(cell, number + 1, len(todo))
        after = [(later.cell, later.epochs_left) for later in todo[number + 1 :]]
        try:
            _refuse_without_its_start(cell, failed)
            finished = run_cell(
                cell,
                step.recipe,
                directory,
                table=table.name,
                tier=chosen_tier.name,
                baseline=step.baseline,
                others=list(directory.found(table)),
                recipes=_trained_recipes(table, chosen_tier, cell, settings or {}),
                observer=Timed(watcher, pace, cell, after),
                stop=stop,
            )
        except ElfnetError as error:
            failed[cell.name] = str(error)
            watcher.ends(cell, str(error))
            continue
        if not finished:
            stopped = True
            break
        done += 1
        written = _write(table, chosen_tier, directory)
        watcher.ends(cell, None)
    return Outcome(written, len(steps), done, stopped, failed)


def planned_steps(
    name: str,
    out: str | Path,
    *,
    tier: str = "smoke",
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    settings: Mapping[str, Any] | None = None,
) -> list[Step]:
    """The runs that `reproduce_table` would look at, and how far they are."""
    table = load_table(name)
    cells = choose_cells(table, rows=rows, columns=columns, seeds=seeds)
    return make_plan(table, tier_named(tier), cells, TableDirectory(Path(out)), settings or {})


def _write(table: PaperTable, tier: Tier, directory: TableDirectory) -> dict[str, Any]:
    records = {(cell.row.name, cell.column.name, cell.seed): directory.record(cell) for cell in directory.found(table)}
    content = summarise(table, tier, {key: record for key, record in records.items() if record is not None})
    write_table(content, directory.root)
    return content


def _trained_recipes(table: PaperTable, tier: Tier, cell: Cell, settings: Mapping[str, Any]) -> list[Recipe]:
    """Of all rows in the column that do not start from another run, asked for or not."""
    recipes = []
    for row in (row for row in table.rows if row.method is not None):
        # Settings that make no sense for a row are refused when it is asked for.
        with suppress(RequestError):
            recipes += [] if row.starts_from else [recipe_of(Cell(row, cell.column, cell.seed), tier, settings)]
    return recipes


def _refuse_without_its_start(cell: Cell, failed: Mapping[str, str]) -> None:
    start = None if cell.row.starts_from is None else f"{cell.column.name}/{cell.row.starts_from}/seed{cell.seed}"
    if start in failed:
        raise RequestError(f"it starts from {start}, which failed")


def _stop_when(max_hours: float | None, stop: Callable[[], bool] | None) -> Callable[[], bool]:
    if max_hours is not None and not max_hours >= 0:
        raise RequestError(f"--max-hours {max_hours:g} must not be negative")
    end = None if max_hours is None else time.monotonic() + 3600 * max_hours

    def over() -> bool:
        return (stop is not None and stop()) or (end is not None and time.monotonic() >= end)

    return over
