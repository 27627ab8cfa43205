"""A sweep from grid to table: its runs are processes of this machine, a few at a time, or tasks of a Ray cluster.

A sweep can be interrupted at any moment; the same command resumes it. The machines of a cluster see the directory of
the sweep under the same path.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Literal

from elfnet.errors import RequestError, WorkError
from elfnet.ray_cluster import in_short, ray_cluster
from elfnet.sweep.die_with_parent import die_with_parent
from elfnet.sweep.grid import Cell, SweepDirectory, expand_grid, parse_over, resolve_automatic
from elfnet.sweep.table import sweep_table

OnFinished = Callable[[Cell, str | None], None]
"""Called for every run that ends, with the reason if it failed."""


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
    on_note: Callable[[str], None] | None = None,
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
        on_note: called with each line about the automatic settings, before the first run starts.

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
    cells = resolve_automatic(expand_grid(recipe, settings or {}, grid), sweep, on_note=on_note)
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


def train_command(sweep: SweepDirectory, cell: Cell) -> list[str]:
    """Return the `elfnet train` command of a cell; it resumes a run that was started before."""
    run = sweep.run(cell)
    arguments = ["train", str(sweep.recipe_file(cell).resolve()), "--out", str(run.root.resolve())]
    return [sys.executable, "-m", "elfnet", *arguments, *(["--resume"] if run.exists() else [])]


def failure_line(output: str) -> str:
    """Return the last line of a command's output, which says why it failed."""
    lines = output.strip().splitlines()
    return lines[-1].removeprefix("elfnet: ") if lines else "it printed nothing"


def run_locally(sweep: SweepDirectory, cells: Sequence[Cell], *, jobs: int, on_finished: OnFinished) -> None:
    """Run these cells, `jobs` at a time; a run that fails does not stop the others."""
    processes = _Processes()
    environment = {**os.environ}
    if jobs > 1:
        # Otherwise each run would use all cores.
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = {pool.submit(_run, sweep, cell, environment, processes): cell for cell in cells}
        for future in as_completed(waiting):
            on_finished(waiting[future], future.result())
    except BaseException:
        # Interrupted: end the running processes and start no others. Each run can be resumed.
        pool.shutdown(wait=False, cancel_futures=True)
        processes.terminate()
        raise
    pool.shutdown()


class _Processes:
    """The running processes of this sweep."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock, self._terminated = Lock(), False

    def start(self, command: list[str], **settings: object) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._terminated:
                raise WorkError("the sweep was interrupted")
            process: subprocess.Popen[bytes] = subprocess.Popen(command, **settings)  # type: ignore[call-overload]
            self._processes.add(process)
        return process

    def remove(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.discard(process)

    def terminate(self) -> None:
        """End all processes; later calls of `start` raise."""
        with self._lock:
            self._terminated = True
            for process in self._processes:
                process.terminate()


def _run(sweep: SweepDirectory, cell: Cell, environment: dict[str, str], processes: _Processes) -> str | None:
    """Run one cell; return why it failed, or None."""
    output = sweep.output_file(cell)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        # If the sweep is killed, its runs must end too: the same command, repeated, would start them a second time.
        command = die_with_parent(train_command(sweep, cell))
        process = processes.start(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait()
        finally:
            processes.remove(process)
    return None if code == 0 else failure_line(output.read_text(errors="replace"))


POLL_SECONDS = 0.5
CANCEL_SECONDS = 20.0
ATTEMPTS = 3


def run_on_ray(
    sweep: SweepDirectory,
    cells: Sequence[Cell],
    *,
    cpus: int,
    gpus: float,
    address: str | None,
    on_finished: OnFinished,
) -> None:
    """Run these cells as tasks, as many at a time as the cluster has room for.

    A run that fails does not stop the others. A run whose process or host is lost is resumed elsewhere.

    Args:
        cpus, gpus: resources of each run.
        address: of the cluster; None for the one that $RAY_ADDRESS names, or a new one on this machine.
    """
    # Ray prints messages about its workers; standard output contains results only, for programs that read it.
    with redirect_stdout(sys.stderr), ray_cluster(address, cpus=cpus, gpus=gpus) as ray:
        # Ray itself does not retry: it would repeat the first command, which does not resume the run.
        task: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_train)
        waiting = {task.remote(train_command(sweep, cell), cpus): cell for cell in cells}
        lost: Counter[str] = Counter()
        try:
            while waiting:
                (ready,), _ = ray.wait(list(waiting), num_returns=1)
                cell = waiting.pop(ready)
                try:
                    code, output = ray.get(ready)
                except ray.exceptions.RayTaskError as error:
                    on_finished(cell, f"its command could not be run on the cluster: {in_short(error)}")
                    continue
                except ray.exceptions.RayError as error:
                    lost[cell.name] += 1
                    if lost[cell.name] < ATTEMPTS:
                        # The process or its host is gone, and another process resumes the run.
                        waiting[task.remote(train_command(sweep, cell), cpus)] = cell
                    else:
                        on_finished(cell, f"its process on the cluster was lost {ATTEMPTS} times: {in_short(error)}")
                    continue
                sweep.output_file(cell).parent.mkdir(parents=True, exist_ok=True)
                sweep.output_file(cell).write_text(output)
                on_finished(cell, None if code == 0 else failure_line(output))
        except BaseException:
            # Interrupted: cancel the tasks before the cluster stops, which would leave their commands running.
            for running in waiting:
                ray.cancel(running)
            ray.wait(list(waiting), num_returns=len(waiting), timeout=CANCEL_SECONDS)
            raise


def _train(command: list[str], threads: int) -> tuple[int, str]:
    """Run a command on the cluster; return its exit code and its output."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with TemporaryFile() as output:
        process = subprocess.Popen(die_with_parent(command), stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            code: int | None = None
            while code is None:
                # Short waits, because Ray interrupts a cancelled task only between Python instructions.
                try:
                    code = process.wait(timeout=POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            process.terminate()
            process.wait()
            raise
        output.seek(0)
        return code, output.read().decode(errors="replace")
