"""Runs of a sweep as tasks of a Ray cluster; its machines see the sweep's directory under the same path."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from tempfile import TemporaryFile
from typing import Any

from elfnet.cluster import in_short, ray_cluster
from elfnet.sweep.die_with_parent import die_with_parent
from elfnet.sweep.grid import Cell, SweepDirectory
from elfnet.sweep.local import OnFinished, failure_line, train_command

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
