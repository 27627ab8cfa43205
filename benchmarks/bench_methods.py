"""Training speed of every kind of method against the plain network, after allowing for the work it adds.

    ELFNET_DATA=PATH python benchmarks/bench_methods.py

Each method trains CIFAR-10-LT as a long run would (ResNet-32, batch 128, compiled), in a process of its own with one
thread; the median processor time of its steps is compared with that of plain cross-entropy, measured before and after
all others. `relative_work` are the multiply-adds of a step relative to the plain network's (exit heads; BBN's second
batch and branch); `speed` is images a second relative to plain, times relative_work. MSDNet is another network, so its
speed is that of its layers. Methods that differ only in the loss or its weights are represented by one each.
"""

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.train.observer import Silent
from elfnet.train.session import train_recipe
from timing import write_results

METHODS = (
    "focal-drw",
    "ldam-drw",
    "balanced-softmax",
    "logit-adjusted",
    "mixup",
    "manifold-mixup",
    "bbn",
    "elf-ce-drw",
    "elf-ldam-drw",
    "elf-balanced-softmax-mixup",
    "joint-ce-drw",
    "distilled-exits",
    "msdnet",
)
PLAIN = "ce"
# Compiling and, for Manifold Mixup, a graph for each depth that may be drawn come first.
UNCOUNTED, COUNTED = 16, 12
RESNET32 = 68_862_592


class EnoughMeasuredError(Exception):
    """Ends a run in the middle of its first epoch."""


class StepTimes(Silent):
    """Processor time at the end of every step, and the work of one."""

    def __init__(self) -> None:
        self.relative_work = 0.0
        self._at: list[float] = []

    def started(self, recipe: Recipe, info: dict[str, Any], epochs_done: int) -> None:  # noqa: ARG002 (the protocol's)
        adds = info["multiply_adds"]
        batches = 2 if recipe.model.branches == 2 else 1
        self.relative_work = batches * (sum(adds["stages"]) + sum(adds["heads"])) / RESNET32

    def step(self, step: int, steps: int) -> None:  # noqa: ARG002 (the protocol's)
        self._at.append(time.process_time())
        if len(self._at) > UNCOUNTED + COUNTED:
            raise EnoughMeasuredError

    def median(self) -> float:
        counted = self._at[UNCOUNTED:]
        return statistics.median(later - earlier for earlier, later in itertools.pairwise(counted))


def measure(method: str) -> None:
    """Prints seconds a step and the relative work."""
    settings = {"train.epochs": 1, "train.compile": "on", "train.threads": 1, "train.precision": "float32"}
    if load_recipe(f"cifar10-lt/{method}").train.drw_start:
        settings["train.drw_start"] = 0
    times = StepTimes()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EnoughMeasuredError):
        train_recipe(load_recipe(f"cifar10-lt/{method}", settings), Path(folder) / "run", observer=times)
    print(times.median(), times.relative_work)


def measured(method: str) -> tuple[float, float]:
    words = [sys.executable, __file__, method]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    answer = subprocess.run(words, check=True, capture_output=True, text=True, env=alone).stdout.split()
    return float(answer[-2]), float(answer[-1])


def main() -> None:
    if not os.environ.get("ELFNET_DATA"):
        print("left out: ELFNET_DATA=PATH names the directory that holds CIFAR-10; a benchmark does not download")
        return
    before, _ = measured(PLAIN)
    found = {}
    for method in METHODS:
        found[method] = measured(method)
        print(method, found[method], flush=True)
    after, _ = measured(PLAIN)
    plain = (before + after) / 2
    write_results(
        "methods",
        {
            "what": "processor time of a training step, ResNet-32, batch 128, compiled, one thread",
            "plain_seconds": {"before": round(before, 3), "after": round(after, 3)},
            "methods": {
                method: {
                    "images_per_second_to_plain": round(plain / seconds, 3),
                    "relative_work": round(work, 3),
                    "speed": round(plain / seconds * work, 3),
                }
                for method, (seconds, work) in found.items()
            },
            "aim": "speed at least 0.8",
        },
    )


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) == 2 else main()
