"""A sweep from grid to table: begun, stopped at any moment, and gone on with by the same command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from elfnet.errors import RequestError, WorkError
from elfnet.sweep.directory import SweepDirectory
from elfnet.sweep.grid import Cell, cells_of, parse_over
from elfnet.sweep.local import Finished, run_locally
from elfnet.sweep.on_ray import run_on_ray
from elfnet.sweep.table import sweep_table


def run_sweep(
    recipe: str,
    over: Sequence[str],
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    backend: Literal["local", "ray"] = "local",
    jobs: int = 1,
    cpus: int = 1,
    gpus: float = 0,
    address: str | None = None,
    finished: Finished | None = None,
) -> dict[str, Any]:
    """Train, calibrate and measure a recipe for every combination of values; runs that are done are skipped.

    Args:
        over: settings and their values, such as `train.seed=0,1,2`.
        out: the sweep's directory.
        settings: overrides of the recipe for all runs.
        jobs: runs at a time on this machine.
        cpus, gpus: what a run needs of a Ray cluster.
        address: of the cluster.
        finished: told of every run that ends, and why if it failed.

    Returns:
        The table, as in table.json.
    """
    if jobs < 1:
        raise RequestError(f"--jobs {jobs} must be positive")
    _refuse_without_effect(backend, jobs=jobs, cpus=cpus, gpus=gpus, address=address)
    grid = parse_over(over)
    cells = cells_of(recipe, settings or {}, grid)
    sweep = SweepDirectory(Path(out))
    sweep.open(grid, cells)
    sweep.write_recipes(cells)
    failed: dict[str, str] = {}

    def told(cell: Cell, failure: str | None) -> None:
        if failure is not None:
            failed[cell.name] = failure
        if finished is not None:
            finished(cell, failure)

    todo = [cell for cell in cells if not sweep.is_done(cell)]
    if backend == "ray" and todo:
        run_on_ray(sweep, todo, cpus=cpus, gpus=gpus, address=address, finished=told)
    elif todo:
        run_locally(sweep, todo, jobs=jobs, finished=told)
    table = sweep_table(sweep, list(grid), cells)
    if failed:
        name, why = next(iter(failed.items()))
        raise WorkError(
            f"{len(failed)} of {len(cells)} runs failed, the first being {name} ({why}); see {sweep.root / 'output'}, "
            "and repeat the command to go on"
        )
    return table


def _refuse_without_effect(backend: str, *, jobs: int, cpus: int, gpus: float, address: str | None) -> None:
    """What belongs to the other backend would silently do nothing."""
    if backend == "ray" and jobs != 1:
        raise RequestError(f"--jobs {jobs} is for --backend local; Ray runs as many at a time as it has room for")
    given = {"cpus": cpus != 1, "gpus": gpus != 0, "address": address is not None}
    if backend == "local" and any(given.values()):
        name = next(name for name in given if given[name])
        raise RequestError(f"--{name} is for --backend ray; give that as well, or leave --{name} out")
