"""The speed of this machine: a few timed training steps, and the time of epochs and runs that follows from them."""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from torch.nn import functional

from elfnet.data.images.decode import UnreadableImageError
from elfnet.data.images.files import EncodedImages
from elfnet.data.images.transforms import images_as_evaluated, workers_of
from elfnet.data.splits import Splits
from elfnet.models.build import network_of
from elfnet.models.flops import NetworkCost, count_cost
from elfnet.recipe.automatic import LARGE_SIDES, DataFacts
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.run.info import Machine
from elfnet.train.machine import choose_machine
from elfnet.train.optimizer import build_optimizer

TIMED_STEPS, TIMED_IMAGES = 3, 32
COMPILED, COMPILE_SECONDS = 0.8, 45.0
"""Time of a compiled step relative to an eager one, and the time that compiling takes."""
FINISH_SECONDS = 15.0
"""Time for evaluation, calibration and report of a small run."""


def cost_of(model: ModelRecipe, classes: int, side: int) -> NetworkCost:
    """Multiply-adds of the network of a recipe on square colour images."""
    return count_cost(network_of(model, classes=classes, image_channels=3), (3, side, side))


class Speed:
    """The speed of this machine, from a few timed steps; other image sizes are estimated by their multiply-adds."""

    def __init__(self, recipe: Recipe, splits: Splits, machine: Machine, classes: int) -> None:
        # Timing large images takes as long as training on them, and the smallest candidate predicts the others.
        side = min(recipe.data.image_size, LARGE_SIDES[-1])
        self._classes = classes
        self._step_seconds = time_steps(recipe, machine, classes, side)
        self._work = cost_of(recipe.model, classes, side).to_exit[-1]
        self._read_seconds = time_reading(recipe, splits)
        self._cpu = machine.device == "cpu"

    def epoch_seconds(self, recipe: Recipe, facts: DataFacts) -> float:
        """Estimated time of an epoch with its evaluation on the calibration split."""
        work = cost_of(recipe.model, self._classes, recipe.data.image_size).to_exit[-1]
        step = self._step_seconds * work / self._work
        if self._compiles(recipe, work, facts):
            step *= COMPILED
        workers = workers_of(recipe.data)
        read = self._read_seconds / max(1, workers)
        scored = facts.calibration / recipe.train.evaluate_every
        # A third of a training step is its forward pass. On a CPU, loading takes time from computing.
        if self._cpu or not workers:
            return facts.images * (step + read) + scored * (step / 3 + read)
        return facts.images * max(step, read) + scored * max(step / 3, read)

    def run_seconds(self, recipe: Recipe, facts: DataFacts) -> float:
        """Estimated time of the whole run."""
        work = cost_of(recipe.model, self._classes, recipe.data.image_size).to_exit[-1]
        compiling = COMPILE_SECONDS if self._compiles(recipe, work, facts) else 0.0
        return total_epochs(recipe) * self.epoch_seconds(recipe, facts) + compiling + FINISH_SECONDS

    def _compiles(self, recipe: Recipe, work: float, facts: DataFacts) -> bool:
        train = recipe.train
        return choose_machine(
            device=train.device,
            precision=train.precision,
            compile=train.compile,
            channels_last=train.channels_last,
            threads=train.threads,
            work=work * facts.images * total_epochs(recipe),
            batch_shrinks=recipe.exits.after_exit == "drop",
        ).compile


def time_steps(
    recipe: Recipe, machine: Machine, classes: int, side: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds per image of a training step of the recipe's network on random images; the median of a few steps."""
    train, device = recipe.train, torch.device(machine.device)
    threads = torch.get_num_threads()
    if train.threads:
        torch.set_num_threads(train.threads)
    try:
        network = network_of(recipe.model, classes=classes, image_channels=3).to(device).train()
        layout = torch.channels_last if machine.channels_last else torch.contiguous_format
        network = network.to(memory_format=layout)  # type: ignore[call-overload]
        optimizer = build_optimizer(
            network, name=train.optimizer, lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay
        )
        batch = min(train.batch_size, TIMED_IMAGES)
        draw = torch.Generator().manual_seed(0)
        images = torch.randn(batch, 3, side, side, generator=draw).to(device, memory_format=layout)
        labels_B = torch.randint(0, classes, (batch,), generator=draw).to(device)
        seconds = []
        for _ in range(1 + TIMED_STEPS):
            began = clock()
            with torch.autocast(machine.device, dtype=torch.bfloat16, enabled=machine.precision == "bfloat16"):
                logits_EBC = network(images)
            exits, _, _ = logits_EBC.shape
            loss = functional.cross_entropy(logits_EBC.float().flatten(0, 1), labels_B.repeat(exits))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            loss.item()  # waits for the device
            seconds.append(clock() - began)
    finally:
        torch.set_num_threads(threads)
    # The first step also allocates memory and selects kernels.
    return median(seconds[1:]) / batch


def time_reading(recipe: Recipe, splits: Splits) -> float:
    """Seconds to read and decode one training image in one process; 0 for images in memory."""
    train = splits.train
    if not isinstance(train, EncodedImages) or recipe.data.unreadable == "skip":
        return 0.0
    rows = np.random.default_rng(0).permutation(len(train))[:TIMED_IMAGES]
    began = time.perf_counter()
    try:
        images_as_evaluated(recipe.data, train.take(np.sort(rows)))
    except UnreadableImageError:
        return 0.0  # training reports it
    return (time.perf_counter() - began) / len(rows)
