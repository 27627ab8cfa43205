"""The command of one run of a sweep, the same on this machine and on a cluster."""

import sys

from elfnet.sweep.directory import SweepDirectory
from elfnet.sweep.grid import Cell


def train_command(sweep: SweepDirectory, cell: Cell) -> list[str]:
    """`elfnet train` of the cell's recipe; it goes on where a run was stopped before."""
    run = sweep.run(cell)
    words = ["train", str(sweep.recipe_file(cell).resolve()), "--out", str(run.root.resolve())]
    return [sys.executable, "-m", "elfnet.cli.main", *words, *(["--resume"] if run.exists() else [])]


def last_line(output: str) -> str:
    """The line that says why a command failed."""
    lines = output.strip().splitlines()
    return lines[-1].removeprefix("elfnet: ") if lines else "it printed nothing"
