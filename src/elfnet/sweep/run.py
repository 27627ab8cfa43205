"""A sweep from grid to table. It can be interrupted at any moment; the same command resumes it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from elfnet.errors import RequestError, WorkError
from elfnet.sweep.grid import Cell, SweepDirectory, expand_grid, parse_over, resolve_automatic
from elfnet.sweep.local import OnFinished, run_locally
from elfnet.sweep.ray import run_on_ray
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
    on_finished: OnFinished | None = None,
) -> dict[str, Any]:
    """Train, calibrate and measure a recipe for every combination of values; finished runs are skipped.

    Args:
        recipe: name or file of the recipe.
        over: settings and their values, such as `train.seed=0,1,2`.
        out: the sweep's directory.
        settings: overrides of the recipe for all runs.
        backend: where runs are executed.
        jobs: runs at a time on this machine; only for `local`.
        cpus, gpus: resources of each run; only for `ray`.
        address: of the cluster; only for `ray`.
        on_finished: called for every run that ends, with the reason if it failed.

    Returns:
        The content of table.json.

    Raises:
        RequestError: the grid, the directory or an option of the backend is wrong.
        WorkError: runs failed; the others are finished and in the table.
    """
    if jobs < 1:
        raise RequestError(f"--jobs {jobs} must be positive")
    _check_backend_options(backend, jobs=jobs, cpus=cpus, gpus=gpus, address=address)
    grid = parse_over(over)
    sweep = SweepDirectory(Path(out))
    cells = resolve_automatic(expand_grid(recipe, settings or {}, grid), sweep)
    sweep.open(grid, cells)
    sweep.write_recipes(cells)
    failures: dict[str, str] = {}

    def record(cell: Cell, failure: str | None) -> None:
        if failure is not None:
            failures[cell.name] = failure
        if on_finished is not None:
            on_finished(cell, failure)

    todo = [cell for cell in cells if not sweep.is_done(cell)]
    if backend == "ray" and todo:
        run_on_ray(sweep, todo, cpus=cpus, gpus=gpus, address=address, on_finished=record)
    elif todo:
        run_locally(sweep, todo, jobs=jobs, on_finished=record)
    table = sweep_table(sweep, list(grid), cells)
    if failures:
        name, reason = next(iter(failures.items()))
        raise WorkError(
            f"{len(failures)} of {len(cells)} runs failed, the first being {name} ({reason}); see "
            f"{sweep.output_directory}; progress is saved; run the same command to resume"
        )
    return table


def _check_backend_options(backend: str, *, jobs: int, cpus: int, gpus: float, address: str | None) -> None:
    """Refuse options of the other backend, which would have no effect."""
    if backend == "ray" and jobs != 1:
        raise RequestError(f"--jobs {jobs} is for --backend local; Ray runs as many at a time as it has room for")
    given = {"cpus": cpus != 1, "gpus": gpus != 0, "address": address is not None}
    if backend == "local" and any(given.values()):
        name = next(name for name in given if given[name])
        raise RequestError(f"--{name} is for --backend ray; add --backend ray, or remove --{name}")
