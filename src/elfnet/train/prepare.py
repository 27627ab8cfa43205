"""Prepare a training run: build and check everything it needs before anything is written.

`prepare` loads the data, builds the network, and builds rule, schedule and loss of every stage. The run then trains
with these same objects.
"""

# Shapes: N examples of the calibration split

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.calibrate.class_mix import check_mix
from elfnet.data.build import load_splits
from elfnet.data.ldam_drw_protocol import PROTOCOL
from elfnet.data.loading.build import normalisation_of
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError
from elfnet.exits.threshold import parse_threshold
from elfnet.losses.base import BaseLoss, build_loss
from elfnet.losses.elf import Distillation, ELFLoss
from elfnet.losses.weighting import DeferredReweighting, class_weights
from elfnet.methods.refit.build import TRAINED, start_from_run
from elfnet.models.build import BACKBONES, load_initial_weights, network_of
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import Stage, final_model, loss_scale, stage_of_weights, stages_of
from elfnet.run.checkpoint import Checkpoint, load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.run.info import NetworkInfo, RefitInfo, WeightsInfo
from elfnet.train.distributed import DistributedContext
from elfnet.train.example_pruning import require_floor
from elfnet.train.external_network import describe_network
from elfnet.train.launch import refuse_empty_shards
from elfnet.train.schedule import ProgressiveResizing, Schedule, scale_schedule


@dataclass(frozen=True)
class Objective:
    """What one stage of a run optimizes, and when.

    Attributes:
        schedule: learning rate and start of deferred re-weighting.
        reweighting: class weights by epoch.
        loss: the loss over all exits; its `rule` is the exit rule in training (eq. 1).
    """

    schedule: Schedule
    reweighting: DeferredReweighting
    loss: ELFLoss


@dataclass(frozen=True)
class Origin:
    """Where the initial weights of a run come from; the sections of run.json about it.

    Attributes:
        weights: a file with weights of the backbone; None: there is none.
        network: the network that the caller passed; None: the recipe's own.
        refit: the finished run that this one starts from; None: there is none.
    """

    weights: WeightsInfo | None
    network: NetworkInfo | None
    refit: RefitInfo | None

    def sections(self) -> dict[str, object]:
        """The sections that this run has, by name."""
        return {name: section for name, section in vars(self).items() if section is not None}


@dataclass(frozen=True)
class Prepared:
    """A run that is built and checked, but not yet written. Every process has its own.

    Attributes:
        recipe: of the whole run.
        splits: the data.
        normalisation: of the images.
        processes: that train together.
        saved: the checkpoint to resume from; None: the run starts.
        stage: the stage that the weights of `network` belong to.
        network: to train, with its initial weights. The weights of `saved` are not loaded yet.
        final_network: a network with the structure that the run ends with; often `network` itself.
        objectives: by name of stage.
        origin: of the initial weights.
        source: the last checkpoint of the finished run that this one starts from; None: there is none, or it resumes.
    """

    recipe: Recipe
    splits: Splits
    normalisation: Normalisation
    processes: DistributedContext
    saved: Checkpoint | None
    stage: Stage
    network: StagedNetwork
    final_network: StagedNetwork
    objectives: Mapping[str, Objective]
    origin: Origin
    source: Checkpoint | None = None

    @property
    def classes(self) -> int:
        """Number of classes in the data."""
        return len(self.splits.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        height, width, channels = self.splits.train.example_shape
        return channels, height, width


def prepare(
    recipe: Recipe, run: RunDirectory, processes: DistributedContext, *, overwrite: bool, given: StagedNetwork | None
) -> Prepared:
    """Build and check everything that a run needs. Nothing is written, so an old run survives a refusal."""
    splits, normalisation = processes.rank0_first(lambda: load_checked_data(recipe))
    (height, width, channels), classes = splits.train.example_shape, len(splits.class_names)
    # A resumed run has its weights in its checkpoint. A run that stopped before its first checkpoint starts again.
    resumes = processes.any(processes.is_rank0 and run.checkpoint("last").is_file() and not overwrite)
    saved = processes.fail_together(lambda: load_checkpoint(run.checkpoint("last"))) if resumes else None
    stage = stage_of_weights(recipe, 0 if saved is None else saved.epochs_done)
    torch.manual_seed(recipe.train.seed)
    if given is None:
        described = None
        processes.fail_together(lambda: refuse_small_images(recipe, height, width))
        network = processes.fail_together(
            lambda: network_of(stage.recipe.model, classes=classes, image_channels=channels)
        )
    else:
        network, shape = given, (channels, height, width)
        described = describe_network(given, stage.recipe, classes=classes, image_shape=shape, processes=processes)
    temperature = None if saved is None else saved.progress.get("distil_temperature")
    counts = splits.class_counts_C.tolist()
    objectives = processes.fail_together(
        lambda: {
            each.name: build_objective(
                each, counts, network, temperature=temperature if each.name == stage.name else None
            )
            for each in stages_of(recipe)
        }
    )
    loaded = processes.fail_together(lambda: None if resumes else load_initial_weights(recipe.model, network))
    processes.fail_together(lambda: refuse_empty_shards(recipe, len(splits.train), processes.world_size))
    started, source = None, None
    if recipe.refit.method in TRAINED and not resumes:
        found = processes.fail_together(lambda: start_from_run(recipe, network, splits, out=run.root))
        started, source = found or (None, None)
    final = network
    if given is None and final_model(recipe) != stage.recipe.model:
        final = network_of(final_model(recipe), classes=classes, image_channels=channels)
    weights = None if loaded is None else WeightsInfo(file=loaded.file, sha256=loaded.sha256, summary=str(loaded))
    return Prepared(
        recipe=recipe,
        splits=splits,
        normalisation=normalisation,
        processes=processes,
        saved=saved,
        stage=stage,
        network=network,
        final_network=final,
        objectives=objectives,
        origin=Origin(weights, described, started),
        source=source,
    )


def load_checked_data(recipe: Recipe) -> tuple[Splits, Normalisation]:
    """Load the data of a recipe, and refuse settings that do not fit them."""
    splits = load_splits(recipe.data)
    for threshold in recipe.exits.search:
        parse_threshold(threshold, classes=len(splits.class_names))
    try:
        check_mix(recipe.exits.class_mix, len(splits.class_names))
    except RequestError as error:
        raise RequestError(f"exits.class_mix: {error}") from error
    if len(splits.calibration):
        _refuse_one_class(splits.calibration.labels_N)
    if recipe.train.prune:
        require_floor(recipe.train.prune_floor, splits.class_counts_C, splits.class_names)
    if recipe.train.resize_start < 1 and splits.train.example_shape[0] == 1:
        raise RequestError(
            f"train.resize_start={recipe.train.resize_start:g} resizes images, and {recipe.data.source} has rows of "
            "features; set it to 1"
        )
    return splits, normalisation_of(recipe.data, splits)


def _refuse_one_class(labels_N: NDArray[np.int64]) -> None:
    """Refuse a calibration split with a single class: nothing can be chosen on it."""
    if len(np.unique(labels_N)) < 2:
        raise RequestError(
            f"all {len(labels_N)} examples of the calibration split are of one class; "
            "name or hold out one that has several (data.calibration, data.calibration_per_class)"
        )


def refuse_small_images(recipe: Recipe, height: int, width: int) -> None:
    """Refuse images of which the backbone leaves no pixel, at their full size or at that of the first epoch."""
    backbone, resizing = recipe.model.backbone, resizing_of(recipe)
    smallest = BACKBONES[backbone].smallest_image
    needs = f"too small for model.backbone={backbone}, which needs at least {smallest} x {smallest}"
    if min(height, width) < smallest:
        raise RequestError(
            f"images of {height} x {width} pixels are {needs}; use larger images, or another model.backbone"
        )
    if resizing is not None and min(first := resizing.size(height, width, 0)) < smallest:
        raise RequestError(
            f"train.resize_start={recipe.train.resize_start:g} shows images of {first[0]} x {first[1]} pixels, which "
            f"are {needs}; raise it, or set it to 1"
        )


def build_objective(
    stage: Stage, class_counts: list[int], network: StagedNetwork, *, temperature: float | None = None
) -> Objective:
    """Build the schedule, the class weights and the loss of one stage.

    Args:
        class_counts: training examples per class.
        temperature: of the distillation, from the checkpoint to resume from; None: the recipe's initial one.

    Raises:
        RequestError: a setting does not fit the data or the network.
    """
    criterion, schedule = stage.recipe.criterion, replace(schedule_of(stage.recipe), first_epoch=stage.first)
    weights_C = class_weights(class_counts, criterion.reweight, beta=criterion.effective_beta)
    return Objective(
        schedule,
        DeferredReweighting(weights_C, start=schedule.drw_start, name=criterion.reweight),
        exit_loss_of(stage.recipe, class_counts, network, temperature=temperature),
    )


def schedule_of(recipe: Recipe) -> Schedule:
    """The schedule of a recipe, scaled to its number of epochs."""
    train = recipe.train
    return scale_schedule(
        epochs=train.epochs,
        reference_epochs=train.schedule_epochs,
        lr=train.lr,
        warmup_epochs=train.warmup_epochs,
        lr_steps=train.lr_steps,
        lr_factor=train.lr_factor,
        drw_start=train.drw_start,
        kind=train.schedule,
        per_epoch=train.lr_update == "epoch" or recipe.data.protocol == PROTOCOL,
    )


def resizing_of(recipe: Recipe) -> ProgressiveResizing | None:
    """The progressive resizing of a recipe; None without."""
    train = recipe.train
    if train.resize_start == 1:
        return None
    return ProgressiveResizing(train.resize_start, train.resize_until, train.epochs)


def training_threshold(recipe: Recipe, classes: int) -> float | None:
    """The threshold t of eq. 1 of a recipe; None for plain networks and for joint training of all exits."""
    try:
        threshold = parse_threshold(recipe.exits.train_threshold, classes=classes)
    except RequestError as error:
        raise RequestError(f"exits.train_threshold: {error}") from error
    return threshold if recipe.model.exits and recipe.exits.rule == "elf" else None


def loss_of(recipe: Recipe, class_counts: list[int]) -> BaseLoss:
    """The base loss of a recipe, with the logit scale of the recipe's heads."""
    criterion = recipe.criterion
    return build_loss(
        criterion.loss,
        class_counts,
        focal_gamma=criterion.focal_gamma,
        ldam_max_margin=criterion.ldam_max_margin,
        ldam_power=criterion.ldam_power,
        scale=loss_scale(recipe),
        adjust_tau=criterion.adjust_tau,
        smoothing=criterion.label_smoothing,
    )


def exit_loss_of(
    recipe: Recipe, class_counts: list[int], network: StagedNetwork, *, temperature: float | None = None
) -> ELFLoss:
    """The loss of a recipe over all exits of a network; for `temperature` see `build_objective`."""
    criterion = recipe.criterion
    distillation = None
    if criterion.distil:
        start = criterion.distil_temperature if temperature is None else temperature
        distillation = Distillation(criterion.distil, temperature=start, confidence=criterion.distil_confidence)
    return ELFLoss(
        loss_of(recipe, class_counts),
        training_threshold(recipe, len(class_counts)),
        exits=network.exits,
        confidence_scale=recipe.exits.train_confidence_scale,
        experts=network.experts,
        exit_weights=criterion.exit_weights,
        distillation=distillation,
    )
