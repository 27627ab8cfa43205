"""Putting a network where it is to run, and everything that trains it around it."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from elfnet.data.images.transforms import workers_of
from elfnet.data.loading.build import evaluation_batches, training_batches
from elfnet.data.loading.feed import EvaluationFeed, PairedFeed, Pairing, Selection, TrainingFeed
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.errors import RequestError
from elfnet.exits.threshold import parse_threshold
from elfnet.exits.training_rule import TrainingRule
from elfnet.losses.base import BaseLoss, build_loss
from elfnet.losses.elf import Distillation, ELFLoss
from elfnet.losses.weighting import class_weights
from elfnet.methods.mixup import PairMixing
from elfnet.methods.refit.build import freeze_what_stays
from elfnet.models.layers import freeze_backbone
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import DataRecipe, Recipe
from elfnet.recipe.stages import loss_scale
from elfnet.run.checkpoint import Checkpoint
from elfnet.train.distributed import DistributedContext
from elfnet.train.ema import WeightAverage
from elfnet.train.forward import forward_and_mixing
from elfnet.train.logging import Observer
from elfnet.train.loop import Trainer
from elfnet.train.machine import Machine
from elfnet.train.optimizer import build_optimizer, restore_optimizer
from elfnet.train.pruning import ExitHistory, Pruning, PruningSettings
from elfnet.train.resizing import ProgressiveResizing
from elfnet.train.schedule import Schedule, scale_schedule
from elfnet.train.statistics import head_classes


def schedule_of(recipe: Recipe) -> Schedule:
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
    )


def rule_of(recipe: Recipe, classes: int) -> TrainingRule | None:
    """Eq. 1 as the recipe has it; None for plain networks and for joint training over all exits."""
    try:
        threshold = parse_threshold(recipe.exits.train_threshold, classes=classes)
    except RequestError as error:
        raise RequestError(f"exits.train_threshold: {error}") from error
    if not recipe.model.exits or recipe.exits.rule == "all":
        return None
    return TrainingRule(threshold=threshold, confidence_scale=recipe.exits.train_confidence_scale)


def loss_of(recipe: Recipe, class_counts: list[int]) -> BaseLoss:
    """The base loss, with the scale that suits the recipe's heads."""
    criterion = recipe.criterion
    return build_loss(
        criterion.loss,
        class_counts,
        focal_gamma=criterion.focal_gamma,
        ldam_max_margin=criterion.ldam_max_margin,
        ldam_power=criterion.ldam_power,
        scale=loss_scale(recipe),
        adjust_tau=criterion.adjust_tau,
    )


def exit_loss_of(
    recipe: Recipe,
    class_counts: list[int],
    exits: int,
    *,
    experts: int = 1,
    temperature: float | None = None,
) -> ELFLoss:
    """The loss of a recipe; `temperature` is that of distillation in a run that goes on."""
    criterion = recipe.criterion
    distillation = None
    if criterion.distil:
        start = criterion.distil_temperature if temperature is None else temperature
        distillation = Distillation(criterion.distil, temperature=start, confidence=criterion.distil_confidence)
    return ELFLoss(
        loss_of(recipe, class_counts),
        exits,
        experts=experts,
        exit_weights=criterion.exit_weights,
        distillation=distillation,
    )


# Added to the seed of a second sampler, so that it crops and flips otherwise than the first; beyond every seed.
SECOND_SAMPLER = 2**32


class Assembled(NamedTuple):
    """What a run is made of."""

    trainer: Trainer
    optimiser: torch.optim.Optimizer
    batches: TrainingFeed
    calibration: EvaluationFeed
    average: WeightAverage | None
    pruning: Pruning | None

    def evaluated(self, network: StagedNetwork) -> StagedNetwork:
        """What is evaluated of the network that is trained: the average of its weights, if there is one."""
        return network if self.average is None else self.average.network


def assemble(
    recipe: Recipe,
    splits: Splits,
    normalisation: Normalisation,
    network: StagedNetwork,
    machine: Machine,
    saved: Checkpoint | None,
    observer: Observer,
    processes: DistributedContext,
    *,
    first_epoch: int = 0,
) -> Assembled:
    """Assemble one stage of a run.

    Args:
        recipe: of the stage.
        saved: the checkpoint that the stage goes on from; None where it starts.
        first_epoch: of the run's epochs, the one that the stage starts at.
    """
    fabric = processes.fabric
    network.to(fabric.device)
    if machine.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if recipe.train.sync_batch_norm and processes.world_size > 1:
        torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
    counts = splits.class_counts_C.tolist()
    forward, mixing = forward_and_mixing(recipe, network, rule_of(recipe, len(counts)), splits.train.labels_N)
    if recipe.train.backbone_lr_factor == 0:
        freeze_backbone(network)
    freeze_what_stays(recipe.refit.method, network)
    train = recipe.train
    optimiser = build_optimizer(
        network,
        name=train.optimizer,
        lr=train.lr,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        nesterov=train.nesterov,
        beta2=train.beta2,
        decay_norms_and_biases=train.decay_norms_and_biases,
        backbone_lr_factor=train.backbone_lr_factor,
    )
    if saved is not None:
        restore_optimizer(optimiser, network, saved.optimiser)
    average = WeightAverage(network, train.ema_decay) if train.ema_decay else None
    if average is not None and saved is not None:
        average.network.load_state_dict(dict(saved.weights))
        average.steps = saved.progress["ema_steps"]
    resizing = ProgressiveResizing(train.resize_start, train.resize_until, train.epochs)
    data = _workers_divided(recipe.data, processes.on_this_node)
    pruning = _pruning(recipe, splits, saved, processes)
    pairing = mixing if isinstance(mixing, PairMixing) else None
    batches, calibration = processes.rank0_first(
        lambda: _feeds(data, recipe, splits, normalisation, machine, processes, pairing, pruning)
    )
    if machine.compile:
        part = -(-batches.batch_size // (processes.world_size * train.accumulate))
        forward.compile_for(part, image_sizes=resizing.sizes)
    trainer = Trainer(
        fabric=fabric,
        forward=forward,
        optimiser=optimiser,
        loss=exit_loss_of(
            recipe,
            counts,
            network.exits,
            experts=network.experts,
            temperature=None if saved is None else saved.progress.get("distil_temperature"),
        ),
        class_weights_C=torch.from_numpy(
            class_weights(recipe.criterion.reweight, counts, beta=recipe.criterion.effective_beta)
        ).float(),
        reweight=recipe.criterion.reweight,
        schedule=replace(schedule_of(recipe), first_epoch=first_epoch),
        batches=batches,
        is_head_C=head_classes(counts),
        seed=recipe.train.seed,
        accumulate=recipe.train.accumulate,
        mixing=mixing,
        average=average,
        resizing=resizing,
        pruning=pruning,
        on_step=observer.step,
    )
    return Assembled(trainer, optimiser, batches, calibration, average, pruning)


def _feeds(
    data: DataRecipe,
    recipe: Recipe,
    splits: Splits,
    normalisation: Normalisation,
    machine: Machine,
    processes: DistributedContext,
    pairing: Pairing | None,
    selection: Selection | None,
) -> tuple[TrainingFeed, EvaluationFeed]:
    """This process's share of both splits; image files are packed here if they are not yet."""
    device, shard = processes.fabric.device, processes.shard
    feed = partial(
        training_batches,
        splits=splits,
        normalisation=normalisation,
        batch_size=recipe.train.batch_size,
        device=device,
        channels_last=machine.channels_last,
        shard=shard,
        pairing=pairing,
        selection=selection,
    )
    batches = feed(data, seed=recipe.train.seed)
    if recipe.model.branches == 2:
        reversed_ = data.model_copy(update={"sampler": "reversed"})
        batches = PairedFeed(batches, feed(reversed_, seed=recipe.train.seed + SECOND_SAMPLER))
    calibration = evaluation_batches(data, splits.calibration, normalisation, device=device, shard=shard)
    return batches, calibration


def _pruning(recipe: Recipe, splits: Splits, saved: Checkpoint | None, processes: DistributedContext) -> Pruning | None:
    """Pruning as the recipe has it, with the history of the checkpoint that a stage goes on from."""
    train, labels_N = recipe.train, splits.train.labels_N
    if not train.prune:
        return None
    history = ExitHistory(len(labels_N), processes.fabric.device, processes.all_reduce)
    if saved is not None and saved.exit_history is not None:
        history.streak_N.copy_(saved.exit_history)
    settings = PruningSettings(train.prune, train.prune_patience, train.prune_floor, train.prune_until)
    return Pruning(settings, history, labels_N, seed=train.seed, epochs=train.epochs)


def _workers_divided(data: DataRecipe, processes: int) -> DataRecipe:
    """Processes of a node share its cores; a number of readers that was asked for is each process's."""
    if data.workers >= 0 or processes == 1:
        return data
    return data.model_copy(update={"workers": max(1, workers_of(data) // processes)})
