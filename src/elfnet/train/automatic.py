"""Set up a run from its data: check all files, fill in automatic settings, time a few steps, estimate the whole run.

Rank 0 does this once, before a new run is created, and sends the result to the other processes. The resolved settings
are stored in recipe.toml, so that a resumed run, and a run that starts from it, times nothing.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from elfnet.data.build import load_splits
from elfnet.data.check_files import check_headers
from elfnet.data.images.decode import UnreadableImageError
from elfnet.data.images.files import EncodedImages
from elfnet.data.images.transforms import images_as_evaluated, limits_of, workers_of
from elfnet.data.sources.folder import ignored_line, list_folder, split_folders
from elfnet.data.splits import Splits
from elfnet.data.types import LabelledImages
from elfnet.errors import RequestError
from elfnet.models.build import network_of
from elfnet.models.flops import NetworkCost, count_cost
from elfnet.recipe.automatic import (
    LARGE_SIDES,
    MIN_EPOCHS,
    SMALL_SIDE,
    DataFacts,
    adopt,
    augmentation_settings,
    choose_settings,
    contradictions,
    resolve,
)
from elfnet.recipe.schema import ModelRecipe, Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.run.directory import RunDirectory
from elfnet.run.info import Machine
from elfnet.train.machine import choose_machine
from elfnet.train.optimizer import build_optimizer

HEAD_FILTERS = (0, 64, 48, 32, 24, 16, 12, 8, 4)
"""Candidates for the filters of the early exits; 0 is the default of the backbone."""
MAX_FIRST_EXIT, MAX_HEADS = 0.10, 0.12
"""Largest cost of the first exit, and of all early heads together, relative to the plain backbone."""
MAX_NAMED = 10
RESERVE = 0.9
"""Part of the time budget that is planned."""
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


@dataclass(frozen=True)
class SetUp:
    """A recipe without open settings, and what the user should know before the run starts.

    Attributes:
        recipe: resolved.
        notes: lines for the user: data, choices and estimated time; warnings.
    """

    recipe: Recipe
    notes: tuple[str, ...] = ()


def adopt_known(recipe: Recipe, run: RunDirectory, *, overwrite: bool) -> Recipe:
    """Take the automatic settings from the run to resume, or from the run that a refit starts from."""
    if not recipe.train.automatic:
        return recipe
    if run.exists() and not overwrite:
        return adopt(recipe, run.recipe())
    source = RunDirectory(Path(recipe.refit.run).expanduser())
    return adopt(recipe, source.recipe()) if recipe.refit.run and source.exists() else recipe


def set_up(recipe: Recipe, *, world_size: int = 1, own_network: bool = True) -> SetUp:
    """Check the headers of all image files, and resolve the automatic settings of a recipe.

    Args:
        world_size: number of processes that train together; the batch is divided among them.
        own_network: whether the run trains the network of the recipe; the settings of another network are not chosen.

    Raises:
        WorkError: a file is damaged.
        RequestError: settings are automatic, and the data are no images.
    """
    splits = load_splits(recipe.data)
    facts = read_facts(recipe, splits)
    ready = _chosen(recipe, splits, facts, world_size=world_size, own_network=own_network)
    return replace(ready, notes=(*ready.notes, *_data_notes(recipe, splits)))


def _data_notes(recipe: Recipe, splits: Splits) -> list[str]:
    """What is not as the user may think: files that are not used, classes that calibration does not see."""
    notes = []
    if recipe.data.source == "folder" and recipe.data.root:
        root = Path(recipe.data.root).expanduser()
        places = [Path(recipe.data.train).expanduser()] if recipe.data.train else split_folders(root).values()
        ignored: Counter[str] = Counter()
        for place in places:
            ignored.update(list_folder(place).ignored if place is not None else {})
        notes += [f"warning: {line}" for line in [ignored_line(ignored)] if line]
    # A protocol without a calibration split says so itself.
    if len(splits.calibration) and (missing := splits.missing_from_calibration):
        named = ", ".join(splits.class_names[label] for label in missing[:MAX_NAMED])
        more = " ..." if len(missing) > MAX_NAMED else ""
        notes.append(f"warning: without calibration examples: {len(missing)} classes ({named}{more})")
    return notes


def _chosen(recipe: Recipe, splits: Splits, facts: DataFacts | None, *, world_size: int, own_network: bool) -> SetUp:
    """Resolve the automatic settings; for arguments see `set_up`."""
    if facts is None:
        if recipe.train.automatic:
            raise RequestError(
                f"train.automatic={','.join(recipe.train.automatic)} needs images, and data.source="
                f"{recipe.data.source} has rows of features; leave it out"
            )
        return SetUp(recipe)
    if not recipe.train.automatic:
        # Images in memory have the size that they have.
        checked = own_network and isinstance(splits.train, EncodedImages)
        found = contradictions(facts, recipe) if checked else []
        return SetUp(recipe, tuple(f"warning: {text}" for text in found))
    values = choose_settings(facts, recipe)
    parts = world_size * recipe.train.accumulate
    values["train.batch_size"] = -(-values["train.batch_size"] // parts) * parts
    chosen = resolve(recipe, values)
    if not own_network:
        return SetUp(chosen, (_summary(facts, chosen, None),))
    chosen = _with_heads(recipe, chosen, len(facts.class_counts))
    machine = _machine(chosen)
    speed = Speed(chosen, splits, machine, len(facts.class_counts))
    chosen = _fit_time(recipe, chosen, facts, speed)
    notes = [_summary(facts, chosen, speed.run_seconds(chosen, facts))]
    wanted = values["train.epochs"]
    if chosen.train.epochs < min(wanted, MIN_EPOCHS) and "train.epochs" in recipe.train.automatic:
        hours = wanted * speed.epoch_seconds(chosen, facts) / 3600 / RESERVE
        notes.append(
            f"warning: {chosen.train.epochs} epochs fit into --train.hours {chosen.train.hours:g}, and {wanted} would "
            f"be better; they take --train.hours {hours:.1f}"
        )
    notes += [f"warning: {text}" for text in contradictions(facts, chosen)]
    return SetUp(chosen, tuple(notes))


def read_facts(recipe: Recipe, splits: Splits) -> DataFacts | None:
    """What the headers of all files say about the data; None for rows of features.

    Raises:
        UnreadableImageError: a file is damaged, and `data.unreadable` is `stop`.
    """
    counts, calibration = tuple(splits.class_counts_C.tolist()), len(splits.calibration)
    train = splits.train
    if isinstance(train, EncodedImages):
        parts = {"train": train, "calibration": splits.calibration, "test": splits.test}
        found = check_headers(parts, limits_of(recipe.data), unreadable=recipe.data.unreadable)["train"]
        return DataFacts(side=found.side, grey=found.grey, class_counts=counts, calibration=calibration)
    if isinstance(train, LabelledImages):
        height, width, channels = train.example_shape
        return DataFacts(side=min(height, width), grey=channels == 1, class_counts=counts, calibration=calibration)
    return None


def _summary(facts: DataFacts, recipe: Recipe, seconds: float | None) -> str:
    """Such as `28 px grey, 2,800 images ... -> 32 px, resnet20, 89 epochs, about 9 minutes on 2 threads`."""
    text = f"{facts.describe()} -> {recipe.data.image_size} px"
    if seconds is None:
        return f"{text}, {recipe.train.epochs} epochs"
    threads = recipe.train.threads or torch.get_num_threads()
    return (
        f"{text}, {recipe.model.backbone}, {recipe.train.epochs} epochs, about {rough_duration(seconds)} on "
        f"{threads} thread{'s' if threads > 1 else ''}"
    )


def rough_duration(seconds: float) -> str:
    """Such as `40 seconds`, `9 minutes` or `1.5 hours`."""
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _with_heads(recipe: Recipe, chosen: Recipe, classes: int) -> Recipe:
    """Choose the largest early heads that are cheap beside the backbone."""
    if not chosen.model.exits or "model.head_filters" not in recipe.train.automatic:
        return chosen
    for filters in HEAD_FILTERS:
        model = chosen.model.model_copy(update={"head_filters": filters})
        cost = cost_of(model, classes, chosen.data.image_size)
        if cost.relative[0] <= MAX_FIRST_EXIT and sum(cost.heads[:-1]) <= MAX_HEADS * cost.plain:
            break
    return chosen.model_copy(update={"model": model})


def _machine(recipe: Recipe) -> Machine:
    train = recipe.train
    return choose_machine(
        device=train.device,
        precision=train.precision,
        compile="off",
        channels_last=train.channels_last,
        threads=train.threads,
        work=0.0,
    )


def _fit_time(recipe: Recipe, chosen: Recipe, facts: DataFacts, speed: Speed) -> Recipe:
    """Lower the side of large images, then the number of epochs, until the run fits into `train.hours`."""
    opened, budget = set(recipe.train.automatic), RESERVE * 3600 * chosen.train.hours - FINISH_SECONDS
    if "data.image_size" in opened and chosen.data.image_size > SMALL_SIDE:
        for side in (one for one in LARGE_SIDES if one <= chosen.data.image_size):
            values = {"data.image_size": side, **augmentation_settings(facts, side)}
            smaller = _replace(chosen, {name: value for name, value in values.items() if name in opened})
            if speed.epoch_seconds(smaller, facts) * min(MIN_EPOCHS, chosen.train.epochs) <= budget:
                break
        chosen = smaller
    if "train.epochs" in opened:
        fitting = int(budget / speed.epoch_seconds(chosen, facts))
        chosen = _replace(chosen, {"train.epochs": max(1, min(chosen.train.epochs, fitting))})
    return chosen


def _replace(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    opened = recipe.train.model_copy(update={"automatic": tuple(values)})
    return resolve(recipe.model_copy(update={"train": opened}), values)
