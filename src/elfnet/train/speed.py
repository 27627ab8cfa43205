"""The speed of this machine: a few training steps that are timed, and the time of epochs and runs that follows.

The timed steps are those of the run itself: its own images are read and augmented, and its trainer does all the rest.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.single_device import SingleDeviceStrategy

from elfnet.data.images.transforms import workers_of
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.models.build import network_of
from elfnet.models.flops import NetworkCost, count_cost
from elfnet.recipe.automatic import LARGE_SIDES, DataFacts
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import Stage, stages_of, total_epochs
from elfnet.run.info import Machine
from elfnet.train.build import assemble
from elfnet.train.distributed import DistributedContext
from elfnet.train.logging import Silent
from elfnet.train.machine import fabric_precision, tune_malloc
from elfnet.train.prepare import Origin, Prepared, build_objective

TIMED_STEPS, TIMED_BATCH = 4, 64
"""Steps that are timed after the first, and their images at most. With fewer images than the run has per step, the time
of the optimizer would count more per image: a third more at 16 instead of 64 photos."""
SAVED_PER_SECOND = 200e6
"""Bytes of a checkpoint that are hashed and written per second."""
FINISH_SECONDS = 15.0
"""Time of calibration, of measuring times per image and of the report, for a small network."""


class Timed(NamedTuple):
    """Seconds per image of a training step.

    Attributes:
        step: forward, backward, statistics and optimizer.
        read: reading, decoding and augmenting, in one process.
    """

    step: float
    read: float


def cost_of(model: ModelRecipe, classes: int, side: int) -> NetworkCost:
    """Multiply-adds of the network of a recipe on square colour images."""
    return count_cost(network_of(model, classes=classes, image_channels=3), (3, side, side))


class Speed:
    """The speed of this machine, from a few timed steps; other image sizes are estimated by their multiply-adds.

    The steps are not compiled. A run that compiles takes about a minute for it, and less time afterwards.
    """

    def __init__(self, recipe: Recipe, splits: Splits, machine: Machine, classes: int) -> None:
        # Timing large images takes as long as training on them, and the smallest candidate predicts the others.
        side = min(recipe.data.image_size, LARGE_SIDES[-1])
        self._classes = classes
        small = recipe.model_copy(update={"data": recipe.data.model_copy(update={"image_size": side, "resize": 0})})
        self._timed = time_steps(small, splits, machine)
        self._work = cost_of(recipe.model, classes, side).to_exit[-1]
        self._cpu = machine.device == "cpu"

    def epoch_seconds(self, recipe: Recipe, facts: DataFacts) -> float:
        """Estimated time of an epoch, with its evaluation and its checkpoint; of all networks with cross-fitting."""
        own = self._seconds(recipe, trained=facts.images, scored=facts.calibration)
        folds = recipe.data.cross_fitting
        if not folds:
            return own
        part = facts.images / folds
        return own + folds * self._seconds(recipe, trained=facts.images - part, scored=part)

    def _seconds(self, recipe: Recipe, *, trained: float, scored: float) -> float:
        """Estimated time of an epoch of one network, with its checkpoint."""
        train = recipe.train
        scored = scored / train.evaluate_every
        parameters = network_of(recipe.model, classes=self._classes, image_channels=3).parameters()
        state = 3 if train.optimizer == "adamw" else 2
        saved = 4 * state * sum(parameter.numel() for parameter in parameters) / SAVED_PER_SECOND
        return self._pass_seconds(recipe, trained, 1.0) + self._pass_seconds(recipe, scored, 1 / 3) + saved

    def _pass_seconds(self, recipe: Recipe, images: float, part: float) -> float:
        """Time to show images once; `part` is the share of a training step, a third for its forward pass alone."""
        work = cost_of(recipe.model, self._classes, recipe.data.image_size).to_exit[-1]
        step = self._timed.step * part * work / self._work
        workers = workers_of(recipe.data)
        read = self._timed.read / max(1, workers)
        # On a CPU, loading takes time from computing.
        return images * (step + read if self._cpu or not workers else max(step, read))

    def run_seconds(self, recipe: Recipe, facts: DataFacts) -> float:
        """Estimated time of the whole run, with its calibration and its report."""
        return total_epochs(recipe) * self.epoch_seconds(recipe, facts) + self.fixed_seconds(recipe, facts)

    def fixed_seconds(self, recipe: Recipe, facts: DataFacts) -> float:
        """Estimated time of what does not depend on the number of epochs: evaluation and the report."""
        folds = recipe.data.cross_fitting
        evaluated = facts.test + (facts.images if folds else facts.calibration)
        return self._pass_seconds(recipe, evaluated, 1 / 3) + FINISH_SECONDS


class _Clock(Silent):
    """Notes the time after every step."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.times = clock, [clock()]

    def step(self, step: int, steps: int) -> None:  # noqa: ARG002 (part of the interface)
        self.times.append(self.clock())


def time_steps(
    recipe: Recipe, splits: Splits, machine: Machine, clock: Callable[[], float] = time.perf_counter
) -> Timed:
    """Train a new network for a few steps on images of the data, and return the seconds per image.

    The first step does not count: it also allocates memory and selects kernels.

    Args:
        recipe: without open settings. Loader processes and compiling, which take long to start, are not timed.
        splits: the data.
        clock: in seconds.
    """
    stage, prepared = _timed_run(recipe, splits, machine)
    threads = torch.get_num_threads()
    torch.set_num_threads(machine.threads)
    if machine.device == "cpu" and recipe.exits.after_exit != "drop":
        tune_malloc()
    try:
        watch = _Clock(clock)
        assembled = assemble(prepared, stage, prepared.network, None, machine, watch)
        batch = assembled.batches.batch_size
        try:
            watch.times = [clock()]
            assembled.trainer.run_epoch(0)
            reading = [clock()]
            for _ in assembled.batches.epoch(0):
                reading.append(clock())
        finally:
            assembled.batches.close()
    finally:
        torch.set_num_threads(threads)
    step, read = (median(np.diff(times)[1:]) / batch for times in (watch.times, reading))
    return Timed(max(step - read, 0.0), read)


def _timed_run(recipe: Recipe, splits: Splits, machine: Machine) -> tuple[Stage, Prepared]:
    """The first stage of a run of one epoch on a few images of the data."""
    train = recipe.train
    batch = min(train.batch_size, TIMED_BATCH, len(splits.train))
    short = {"batch_size": batch, "accumulate": 1, "resize_start": 1.0, "prune": 0.0, "compile": "off"}
    recipe = recipe.model_copy(
        update={
            "train": train.model_copy(update=short),
            "data": recipe.data.model_copy(update={"workers": 0, "cache": ""}),
        }
    )
    rows = np.random.default_rng(0).permutation(len(splits.train))
    splits = replace(splits, train=splits.train.take(np.resize(rows, (1 + TIMED_STEPS) * batch)))
    channels = splits.train.example_shape[-1]
    stage = stages_of(recipe)[0]
    network = network_of(stage.recipe.model, classes=len(splits.class_names), image_channels=channels)
    device = torch.device(machine.device)
    fabric = Fabric(strategy=SingleDeviceStrategy(device), precision=fabric_precision(machine.precision))
    prepared = Prepared(
        recipe=recipe,
        splits=splits,
        normalisation=Normalisation((0.5,) * channels, (0.25,) * channels),
        processes=DistributedContext(fabric),
        saved=None,
        stage=stage,
        network=network,
        final_network=network,
        objectives={stage.name: build_objective(stage, splits.class_counts_C.tolist(), network)},
        origin=Origin(None, None, None),
    )
    return stage, prepared
