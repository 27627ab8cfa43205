"""Runs of a sweep on this machine: one process per run, a few at a time."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Lock

from elfnet.errors import WorkError
from elfnet.sweep.die_with_parent import die_with_parent
from elfnet.sweep.grid import Cell, SweepDirectory

OnFinished = Callable[[Cell, str | None], None]
"""Called for every run that ends, with the reason if it failed."""


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
