"""Runs of a sweep as tasks of a Ray cluster, whose machines see the sweep's directory under the same path."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from tempfile import TemporaryFile
from typing import Any

from elfnet.deploy.ray_cluster import in_short, ray_cluster
from elfnet.sweep.bound_to_parent import bound_command
from elfnet.sweep.command import last_line, train_command
from elfnet.sweep.directory import SweepDirectory
from elfnet.sweep.grid import Cell
from elfnet.sweep.local import Finished

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_END = 20.0


def _train(command: list[str], threads: int) -> tuple[int, str]:
    """What runs on the cluster: the command, and what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with TemporaryFile() as output:
        process = subprocess.Popen(bound_command(command), stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            code: int | None = None
            while code is None:
                # Not one long wait: a task that is cancelled is interrupted in Python code only.
                try:
                    code = process.wait(timeout=SECONDS_BETWEEN_LOOKS)
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            process.terminate()
            process.wait()
            raise
        output.seek(0)
        return code, output.read().decode(errors="replace")


def run_on_ray(
    sweep: SweepDirectory, cells: Sequence[Cell], *, cpus: int, gpus: float, address: str | None, finished: Finished
) -> None:
    """Run these cells, each on `cpus` cores and `gpus` GPUs, as many at a time as the cluster has room for.

    One that fails does not stop the others.

    Args:
        address: of the cluster; None: the one that $RAY_ADDRESS names, else one of this machine's own.
    """
    # What Ray has to say about its workers is no result: standard output may be read by a program.
    with redirect_stdout(sys.stderr), ray_cluster(address, cpus=cpus, gpus=gpus) as ray:
        # A run that fails says why; repeating it would say the same.
        task: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_train)
        waiting = {task.remote(train_command(sweep, cell), cpus): cell for cell in cells}
        try:
            while waiting:
                (ready,), _ = ray.wait(list(waiting), num_returns=1)
                cell = waiting.pop(ready)
                try:
                    code, output = ray.get(ready)
                except ray.exceptions.RayError as error:
                    finished(cell, f"its process on the cluster was lost: {in_short(error)}")
                    continue
                sweep.output_file(cell).parent.mkdir(parents=True, exist_ok=True)
                sweep.output_file(cell).write_text(output)
                finished(cell, None if code == 0 else last_line(output))
        except BaseException:
            # Interrupted: what runs is ended before the cluster goes, which would leave the commands running.
            for running in waiting:
                ray.cancel(running)
            ray.wait(list(waiting), num_returns=len(waiting), timeout=SECONDS_TO_END)
            raise
