"""Runs of a sweep on this machine: one process each, a few at a time."""

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Lock

from elfnet.errors import WorkError
from elfnet.sweep.bound_to_parent import bound_command
from elfnet.sweep.command import last_line, train_command
from elfnet.sweep.directory import SweepDirectory
from elfnet.sweep.grid import Cell

Finished = Callable[[Cell, str | None], None]
"""Told of every run that ends: the run, and why it failed if it did."""


def run_locally(sweep: SweepDirectory, cells: Sequence[Cell], *, jobs: int, finished: Finished) -> None:
    """Run these cells, `jobs` at a time; one that fails does not stop the others."""
    running = _Running()
    environment = {**os.environ}
    if jobs > 1:
        # Else each would take all cores for itself.
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = {pool.submit(_run, sweep, cell, environment, running): cell for cell in cells}
        for future in as_completed(waiting):
            finished(waiting[future], future.result())
    except BaseException:
        # Interrupted: what runs is ended, what waits is not begun, and all of it can be gone on with.
        pool.shutdown(wait=False, cancel_futures=True)
        running.end()
        raise
    pool.shutdown()


class _Running:
    """The processes that this sweep started and that have not ended."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock, self._ended = Lock(), False

    def begin(self, command: list[str], **settings: object) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._ended:
                raise WorkError("the sweep was interrupted")
            process: subprocess.Popen[bytes] = subprocess.Popen(command, **settings)  # type: ignore[call-overload]
            self._processes.add(process)
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.discard(process)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._processes:
                process.terminate()


def _run(sweep: SweepDirectory, cell: Cell, environment: dict[str, str], running: _Running) -> str | None:
    output = sweep.output_file(cell)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        # A sweep that is killed must not leave a run behind: the same command, given again, would run it a second time.
        command = bound_command(train_command(sweep, cell))
        process = running.begin(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait()
        finally:
            running.forget(process)
    return None if code == 0 else last_line(output.read_text(errors="replace"))
