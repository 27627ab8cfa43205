"""Training speed of every kind of method against the plain network, after allowing for the work it adds.

    ELFNET_DATA=PATH python benchmarks/bench_methods.py [METHOD ...]

Each method trains CIFAR-10-LT as a long run would (ResNet-32, batch 128, compiled), in a process of its own with one
thread, step by step in turn with one that trains plain cross-entropy. A step is compared by its processor time with the
plain step before it, so that a machine that gets slower disturbs both alike.

`relative_work` are the multiply-adds of a step's forward pass relative to the plain network's: exit heads, or two
batches for BBN. `speed` is images per second relative to plain, times relative_work; a second batch counts as work, not
as images. MSDNet is another network, so its speed is that of its layers. Methods that differ only in the loss or its
weights are represented by one each, and class weights are in force. Named methods replace their part of the results.
"""

import contextlib
import json
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
from elfnet.run.info import RunInfo
from elfnet.train.logging import Silent
from elfnet.train.run import train_recipe
from timing import RESULTS, write_results

METHODS = (
    "focal-drw",
    "ldam-drw",
    "logit-adjusted",
    "mixup",
    "manifold-mixup",
    "bbn",
    "elf-ce-drw",
    "elf-balanced-softmax-mixup",
    "distilled-exits",
    "msdnet",
)
PLAIN = "ce"
# Compiling comes first; Manifold Mixup, which has a graph for each depth that is drawn, may compile once more later.
UNCOUNTED, COUNTED = 3, 7
RESNET32 = 68_862_592
CHILD = "--steps-of"


class Stepwise(Silent):
    """A training that waits for a line before every step but the first, and answers with the processor time of each."""

    def __init__(self) -> None:
        self._began = 0.0

    def started(self, recipe: Recipe, info: RunInfo, epochs_done: int) -> None:  # noqa: ARG002 (the protocol's)
        adds = info.multiply_adds
        # Each image of BBN's two batches goes through one of the two branches, so through one plain network.
        work = 2.0 if recipe.model.branches == 2 else (sum(adds.stages) + sum(adds.heads)) / RESNET32
        print(work, flush=True)
        self._began = time.process_time()

    def step(self, step: int, steps: int) -> None:  # noqa: ARG002 (the protocol's)
        print(time.process_time() - self._began, flush=True)
        if not sys.stdin.readline():
            raise EOFError
        self._began = time.process_time()


def run_steps(method: str) -> None:
    # Long enough for the plain one to see no end of an epoch's schedule; nothing is evaluated.
    settings = {
        "train.epochs": 100,
        "train.evaluate_every": 100,
        "train.compile": "on",
        "train.threads": 1,
        "train.precision": "float32",
    }
    if load_recipe(f"cifar10-lt/{method}").train.drw_start:
        settings["train.drw_start"] = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EOFError):
        train_recipe(load_recipe(f"cifar10-lt/{method}", settings), Path(folder) / "run", observer=Stepwise())


class Training:
    """A process that takes a step when asked."""

    def __init__(self, method: str) -> None:
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, CHILD, method],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=alone,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._ask, self._answer = self._process.stdin, self._process.stdout
        self.relative_work = self._number()
        self._number()  # the first step, which compiles

    def step(self) -> float:
        """Processor seconds of one step."""
        self._ask.write("\n")
        return self._number()

    def end(self) -> None:
        self._ask.close()
        self._process.wait()

    def _number(self) -> float:
        line = self._answer.readline()
        if not line:
            raise RuntimeError("the training ended by itself; run it with --steps-of METHOD to see why")
        return float(line)


def measured(plain: Training, method: str) -> dict[str, Any]:
    training = Training(method)
    pairs = [(plain.step(), training.step()) for _ in range(UNCOUNTED + COUNTED)][UNCOUNTED:]
    training.end()
    low, middle, high = statistics.quantiles([before / step for before, step in pairs], n=4)
    work = training.relative_work
    return {
        "images_per_second_to_plain": round(middle, 3),
        "relative_work": round(work, 3),
        "speed": round(middle * work, 3),
        "speed_quartiles": [round(low * work, 3), round(high * work, 3)],
        "plain_seconds": round(statistics.median(before for before, _ in pairs), 3),
    }


def main(methods: tuple[str, ...]) -> None:
    if not os.environ.get("ELFNET_DATA"):
        print("left out: ELFNET_DATA=PATH names the directory that holds CIFAR-10; a benchmark does not download")
        return
    kept = RESULTS / "methods.json"
    found = json.loads(kept.read_text())["methods"] if methods != METHODS and kept.is_file() else {}
    plain = Training(PLAIN)
    what = "processor time of a training step, ResNet-32, batch 128, compiled, one thread, in turn with a plain one"
    for method in methods:
        found[method] = measured(plain, method)
        # Kept at once, so that what is measured is not lost when it is stopped.
        write_results("methods", {"what": what, "methods": found, "aim": "speed at least 0.8"})
    plain.end()


if __name__ == "__main__":
    if sys.argv[1:2] == [CHILD]:
        run_steps(sys.argv[2])
    else:
        main(tuple(sys.argv[1:]) or METHODS)
