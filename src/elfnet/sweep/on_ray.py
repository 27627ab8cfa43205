"""Runs of a sweep as tasks of a Ray cluster, whose machines see the sweep's directory under the same path."""

import subprocess
from collections.abc import Sequence
from typing import Any

from elfnet.errors import RequestError
from elfnet.sweep.command import last_line, train_command
from elfnet.sweep.directory import SweepDirectory
from elfnet.sweep.grid import Cell
from elfnet.sweep.local import Finished


def _train(command: list[str], threads: int) -> tuple[int, str]:
    """What runs on the cluster."""
    import os

    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def run_on_ray(
    sweep: SweepDirectory, cells: Sequence[Cell], *, cpus: int, gpus: float, address: str | None, finished: Finished
) -> None:
    """Run these cells, each on `cpus` cores and `gpus` GPUs, as many at a time as the cluster has room for.

    Args:
        address: of the cluster; None: the one that $RAY_ADDRESS names, else one of this machine's own.
    """
    try:
        import ray  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise RequestError("--backend ray needs Ray: pip install ray; or leave --backend out") from None
    ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    # A run that fails says why; repeating it would say the same.
    task: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_train)
    try:
        waiting = {task.remote(train_command(sweep, cell), cpus): cell for cell in cells}
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            cell = waiting.pop(ready)
            code, output = ray.get(ready)
            sweep.output_file(cell).parent.mkdir(parents=True, exist_ok=True)
            sweep.output_file(cell).write_text(output)
            finished(cell, None if code == 0 else last_line(output))
    finally:
        ray.shutdown()
