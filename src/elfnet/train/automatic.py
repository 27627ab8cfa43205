"""Set up a run from its data: check all files, fill in automatic settings, and estimate the training time.

Rank 0 does this once, before a new run is created, and sends the result to the other processes. The resolved settings
are stored in recipe.toml, so that a resumed run, and a run that starts from it, times nothing.
"""

from collections import Counter
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elfnet.data.build import load_splits
from elfnet.data.check_files import check_headers
from elfnet.data.folds import held_out_in_fold
from elfnet.data.images.files import EncodedImages
from elfnet.data.images.transforms import limits_of
from elfnet.data.sources.folder import ignored_line, list_folder, split_folders
from elfnet.data.sources.lists import TABLE_SUFFIXES, find_listing
from elfnet.data.sources.tables import split_column
from elfnet.data.splits import Splits
from elfnet.data.types import LabelledImages
from elfnet.errors import RequestError
from elfnet.models.build import backbone_of_weights, exit_trunk
from elfnet.recipe.automatic import (
    CROSS_FITTING_FOLDS,
    LARGE_SIDES,
    MIN_CALIBRATION_IMAGES,
    MIN_EPOCHS,
    SMALL_SIDE,
    DataFacts,
    adopt,
    augmentation_settings,
    choose_settings,
    contradictions,
    resolve,
    wanted_row_epochs,
)
from elfnet.recipe.schema import Recipe
from elfnet.run.directory import RunDirectory
from elfnet.run.info import Machine
from elfnet.train.distributed import DistributedContext
from elfnet.train.logging import Observer
from elfnet.train.machine import choose_device, choose_machine
from elfnet.train.prepare import refuse_small_images
from elfnet.train.speed import Speed, cost_of

HEAD_FILTERS = (0, 64, 48, 32, 24, 16, 12, 8, 4)
"""Candidates for the filters of the early exits; 0 is the default of the backbone."""
MAX_FIRST_EXIT, MAX_HEADS = 0.10, 0.12
"""Largest cost of the first exit, and of all early heads together, relative to the plain backbone."""
MAX_NAMED = 10
MAX_CROSS_FITTED = 50_000_000
"""Logits per exit of the table of all training examples up to which cross-fitting is chosen; 200 MB per exit."""
CROSS_FITTED_EPOCHS = 0.6
"""Cross-fitting is chosen if at least this part of the wanted epochs fits into the time for all of its networks."""
RESERVE = 0.9
"""Part of the time budget that is planned."""


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
    if ready.recipe.data.cross_fitting != recipe.data.cross_fitting:
        splits = load_splits(ready.recipe.data)
    return replace(ready, notes=(*ready.notes, *_data_notes(ready.recipe, splits)))


def set_up_in_rank0(
    recipe: Recipe,
    run: RunDirectory,
    processes: DistributedContext,
    observer: Observer,
    *,
    overwrite: bool,
    own_network: bool,
) -> Recipe:
    """Check the files of a new run and resolve its automatic settings, in rank 0; an existing run has done so."""
    if processes.any(processes.is_rank0 and run.exists() and not overwrite):
        return recipe

    def in_rank0() -> str:
        ready = set_up(recipe, world_size=processes.world_size, own_network=own_network)
        for line in ready.notes:
            observer.note(line)
        return ready.recipe.model_dump_json()

    return Recipe.model_validate_json(processes.broadcast_from_rank0(in_rank0))


def _data_notes(recipe: Recipe, splits: Splits) -> list[str]:
    """What is not as the user may think: files that are not used, classes that calibration does not see."""
    notes = []
    data = recipe.data
    if data.source == "folder":
        found = split_folders(Path(data.root).expanduser())
        named = {"train": data.train, "calibration": data.calibration, "test": data.test}
        places = found | {split: Path(text).expanduser() for split, text in named.items() if text}
        ignored: Counter[str] = Counter()
        for place in places.values():
            ignored.update(list_folder(place).ignored if place is not None else {})
        notes += [f"warning: {line}" for line in [ignored_line(ignored)] if line]
    if data.source == "lists" and not (data.calibration or data.test):
        root = Path(data.root).expanduser() if data.root else None
        notes += _unused_split_column(find_listing("train", Path(data.train).expanduser(), root))
    if data.cross_fitting and not data.fold:
        fold_N = held_out_in_fold(
            splits.train, classes=len(splits.class_names), folds=data.cross_fitting, seed=data.subset_seed
        )
        seen_C = np.bincount(splits.train.labels_N[fold_N > 0], minlength=len(splits.class_names))
        missing = tuple(np.flatnonzero(seen_C == 0).tolist())
    else:
        # A protocol without a calibration split says so itself.
        missing = splits.missing_from_calibration if len(splits.calibration) else ()
    if missing:
        listed = ", ".join(splits.class_names[label] for label in missing[:MAX_NAMED])
        more = " ..." if len(missing) > MAX_NAMED else ""
        classes = "1 class" if len(missing) == 1 else f"{len(missing)} classes"
        notes.append(f"warning: without calibration examples: {classes} ({listed}{more})")
    return notes


def _unused_split_column(file: Path) -> list[str]:
    name = split_column(file) if file.suffix.lower() in TABLE_SUFFIXES else None
    if name is None:
        return []
    return [
        f"warning: column {name!r} of {file} is not used, and splits are drawn anew; to keep yours, write one table "
        "per split and name them with --data.train, --data.calibration and --data.test"
    ]


def _chosen(recipe: Recipe, splits: Splits, facts: DataFacts | None, *, world_size: int, own_network: bool) -> SetUp:
    """Resolve the automatic settings; for arguments see `set_up`."""
    if facts is None:
        return _chosen_for_rows(recipe, splits)
    if not recipe.train.automatic:
        # Images in memory have the size that they have.
        checked = own_network and isinstance(splits.train, EncodedImages)
        found = contradictions(facts, recipe) if checked else []
        return SetUp(recipe, tuple(f"warning: {text}" for text in found))
    if recipe.model.weights and own_network and "model.backbone" in recipe.train.automatic:
        recipe = _with_backbone_of_weights(recipe)
    values = choose_settings(facts, recipe, on_cpu=choose_device(recipe.train.device) == "cpu")
    parts = world_size * recipe.train.accumulate
    values["train.batch_size"] = -(-values["train.batch_size"] // parts) * parts
    chosen = resolve(recipe, values)
    if not own_network:
        return SetUp(chosen, (_summary(facts, chosen, None),))
    # Steps on images that are too small cannot be timed.
    height, width = _network_input(chosen, splits)
    refuse_small_images(chosen, height, width)
    chosen = _with_heads(recipe, chosen, len(facts.class_counts))
    machine = _machine(chosen)
    speed = Speed(chosen, splits, machine, len(facts.class_counts))
    wanted = values["train.epochs"]
    chosen = _fit_time(recipe, chosen, facts, speed)
    notes = []
    if "data.cross_fitting" in recipe.train.automatic and _is_too_small(splits, recipe):
        crossed, whole = _cross_fitted(chosen, facts, splits)
        seconds = speed.run_seconds(crossed, whole)
        shorter = _fewer_epochs(recipe, crossed, whole, speed)
        fits = speed.run_seconds(shorter, whole) <= RESERVE * 3600 * chosen.train.hours
        if fits and shorter.train.epochs >= CROSS_FITTED_EPOCHS * wanted:
            chosen, facts = shorter, whole
        else:
            least = int(splits.calibration_counts_C.min())
            notes.append(
                f"warning: the smallest class has {least} calibration image{'' if least == 1 else 's'}, so operating "
                "points are uncertain; "
                f"--data.cross_fitting {CROSS_FITTING_FOLDS} chooses them on all training images, in about "
                f"{rough_duration(seconds)}"
            )
    notes[:0] = [_summary(facts, chosen, speed.run_seconds(chosen, facts)), _choices(recipe, chosen)]
    if chosen.train.epochs < min(wanted, MIN_EPOCHS) and "train.epochs" in recipe.train.automatic:
        seconds = wanted * speed.epoch_seconds(chosen, facts) + speed.fixed_seconds(chosen, facts)
        # Rounded up: the hours must suffice.
        hours = ceil(seconds / 360 / RESERVE) / 10
        few = "1 epoch fits" if chosen.train.epochs == 1 else f"{chosen.train.epochs} epochs fit"
        notes.append(
            f"warning: {few} into --train.hours {chosen.train.hours:g}, and {wanted} would be better; they take "
            f"--train.hours {hours:g}"
        )
    size_is_chosen = "data.image_size" in recipe.train.automatic
    notes += [f"warning: {text}" for text in contradictions(facts, chosen, size_is_chosen=size_is_chosen)]
    return SetUp(chosen, tuple(notes))


def _network_input(recipe: Recipe, splits: Splits) -> tuple[int, int]:
    """Height and width of the images that the network gets; those in memory have the size that they have."""
    if isinstance(splits.train, EncodedImages):
        return recipe.data.image_size, recipe.data.image_size
    height, width, _ = splits.train.example_shape
    return height, width


def _chosen_for_rows(recipe: Recipe, splits: Splits) -> SetUp:
    """Resolve the automatic settings of feature rows: epochs, and cross-fitting, whose networks take little time."""
    opened = [name for name in recipe.train.automatic if name not in ("data.cross_fitting", "train.epochs")]
    if opened:
        raise RequestError(
            f"train.automatic={','.join(opened)} needs images, and data.source={recipe.data.source} has rows of "
            "features; leave it out"
        )
    values: dict[str, Any] = {}
    notes = []
    if "data.cross_fitting" in recipe.train.automatic and _is_too_small(splits, recipe):
        values["data.cross_fitting"] = CROSS_FITTING_FOLDS
        least = int(splits.calibration_counts_C.min())
        notes.append(
            f"a tenth of the smallest class would be {least} calibration row{'' if least == 1 else 's'}: cross-fitting "
            f"with {CROSS_FITTING_FOLDS} more networks instead (--data.cross_fitting 0 turns it off)"
        )
    if "train.epochs" in recipe.train.automatic:
        values["train.epochs"] = wanted_row_epochs(len(splits.train), recipe.train.batch_size)
        notes.append(
            f"{len(splits.train):,} rows of {len(splits.class_names)} classes -> {values['train.epochs']} epochs"
        )
    return SetUp(resolve(recipe, values), tuple(notes))


def _with_backbone_of_weights(recipe: Recipe) -> Recipe:
    """The recipe with the backbone that its weights belong to, which is then no longer automatic."""
    backbone = backbone_of_weights(recipe.model.weights)
    left = tuple(name for name in recipe.train.automatic if name != "model.backbone")
    return recipe.model_copy(
        update={
            "model": recipe.model.model_copy(update={"backbone": backbone}),
            "train": recipe.train.model_copy(update={"automatic": left}),
        }
    )


def _is_too_small(splits: Splits, recipe: Recipe) -> bool:
    """Whether a calibration split that is held out by default has too few images of a class, and may be left out."""
    held_out = splits.calibration_indices is not None and not recipe.data.calibration_per_class
    chooses_epoch = recipe.train.patience or recipe.train.keep == "best"
    if not held_out or chooses_epoch or recipe.refit.run or recipe.refit.method not in ("none", "balanced"):
        return False
    if len(splits.train) * len(splits.class_names) > MAX_CROSS_FITTED:
        return False
    return bool(splits.calibration_counts_C.min() < MIN_CALIBRATION_IMAGES)


def _cross_fitted(recipe: Recipe, facts: DataFacts, splits: Splits) -> tuple[Recipe, DataFacts]:
    """The recipe with cross-fitting, and the facts about its data: calibration images are training images."""
    counts = tuple((splits.class_counts_C + splits.calibration_counts_C).tolist())
    data = recipe.data.model_copy(update={"cross_fitting": CROSS_FITTING_FOLDS})
    return recipe.model_copy(update={"data": data}), replace(facts, class_counts=counts, calibration=0)


def read_facts(recipe: Recipe, splits: Splits) -> DataFacts | None:
    """What the headers of all files say about the data; None for rows of features.

    Raises:
        UnreadableImageError: a file is damaged, and `data.unreadable` is `stop`.
    """
    counts, calibration, test = tuple(splits.class_counts_C.tolist()), len(splits.calibration), len(splits.test)
    train = splits.train
    if isinstance(train, EncodedImages):
        parts = {"train": train, "calibration": splits.calibration, "test": splits.test}
        found = check_headers(parts, limits_of(recipe.data), unreadable=recipe.data.unreadable)["train"]
        return DataFacts(side=found.side, grey=found.grey, class_counts=counts, calibration=calibration, test=test)
    if isinstance(train, LabelledImages):
        height, width, channels = train.example_shape
        return DataFacts(
            side=min(height, width), grey=channels == 1, class_counts=counts, calibration=calibration, test=test
        )
    return None


def _summary(facts: DataFacts, recipe: Recipe, seconds: float | None) -> str:
    """Such as `28 px grey, 414 images ... -> 32 px, resnet9, 100 epochs ..., about 17 minutes on 1 thread`."""
    text = f"{facts.describe()} -> {recipe.data.image_size} px"
    epochs = f"{recipe.train.epochs} epoch{'s' if recipe.train.epochs > 1 else ''}"
    if seconds is None:
        return f"{text}, {epochs}"
    threads, folds = recipe.train.threads or torch.get_num_threads(), recipe.data.cross_fitting
    networks = f" of each of {folds + 1} networks (cross-fitting)" if folds else ""
    network = recipe.model.backbone
    if recipe.model.weights:
        network += f" from {Path(recipe.model.weights).name}"
    return (
        f"{text}, {network}, {epochs}{networks}, about {rough_duration(seconds)} on "
        f"{threads} thread{'s' if threads > 1 else ''}"
    )


def _choices(recipe: Recipe, chosen: Recipe) -> str:
    """The chosen settings as flags, so that each can be seen and replaced."""
    settings = chosen.model_dump()
    dotted = {name: name.split(".") for name in recipe.train.automatic}
    flags = [f"--{name} {settings[section][field]}" for name, (section, field) in dotted.items()]
    return f"chosen: {' '.join(flags)}"


def rough_duration(seconds: float) -> str:
    """Such as `40 seconds`, `9 minutes` or `1.5 hours`."""
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _with_heads(recipe: Recipe, chosen: Recipe, classes: int) -> Recipe:
    """Choose the largest early heads that are cheap beside the backbone."""
    trunk, _ = exit_trunk(chosen.model.backbone, exit_head=chosen.model.exit_head)
    if not chosen.model.exits or trunk in ("grid", "none") or "model.head_filters" not in recipe.train.automatic:
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
    opened = set(recipe.train.automatic)
    if "data.image_size" in opened and chosen.data.image_size > SMALL_SIDE:
        budget = _training_seconds(chosen, facts, speed)
        for side in (one for one in LARGE_SIDES if one <= chosen.data.image_size):
            values = {"data.image_size": side, **augmentation_settings(facts, side)}
            smaller = _replace(chosen, {name: value for name, value in values.items() if name in opened})
            if speed.epoch_seconds(smaller, facts) * min(MIN_EPOCHS, chosen.train.epochs) <= budget:
                break
        chosen = smaller
    return _fewer_epochs(recipe, chosen, facts, speed)


def _fewer_epochs(recipe: Recipe, chosen: Recipe, facts: DataFacts, speed: Speed) -> Recipe:
    """Lower the number of epochs, if it is open, until the run fits into `train.hours`."""
    if "train.epochs" not in recipe.train.automatic:
        return chosen
    fitting = int(_training_seconds(chosen, facts, speed) / speed.epoch_seconds(chosen, facts))
    return _replace(chosen, {"train.epochs": max(1, min(chosen.train.epochs, fitting))})


def _training_seconds(chosen: Recipe, facts: DataFacts, speed: Speed) -> float:
    """The part of `train.hours` that is left for epochs."""
    return RESERVE * 3600 * chosen.train.hours - speed.fixed_seconds(chosen, facts)


def _replace(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    opened = recipe.train.model_copy(update={"automatic": tuple(values)})
    return resolve(recipe.model_copy(update={"train": opened}), values)
