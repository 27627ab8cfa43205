"""Assemble the trainer of one stage of a prepared run: network on its device, optimizer, data feeds, loop.

The second stage starts with new classifiers on the features of the first stage. All other parameters are frozen, so a
step has no backward pass through the stages. `elfnet.recipe.stages` describes its training.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from elfnet.data.images.transforms import workers_of
from elfnet.data.ldam_drw_protocol import PROTOCOL
from elfnet.data.loading.build import evaluation_batches, training_batches
from elfnet.data.loading.feed import EvaluationFeed, PairedFeed, Pairing, Selection, TrainingFeed
from elfnet.data.long_tail import head_classes
from elfnet.data.splits import Splits
from elfnet.data.types import Examples
from elfnet.methods.mixing import PairMixing
from elfnet.methods.refit.build import TRAINED, freeze_what_stays, take_over
from elfnet.models.build import network_of
from elfnet.models.staged import StagedNetwork, freeze_backbone
from elfnet.recipe.schema import DataRecipe, Recipe
from elfnet.recipe.stages import Stage
from elfnet.run.checkpoint import Checkpoint
from elfnet.run.info import Machine
from elfnet.train.distributed import DistributedContext
from elfnet.train.example_pruning import ExitHistory, Pruning, PruningSettings
from elfnet.train.forward import forward_and_mixing
from elfnet.train.logging import Observer
from elfnet.train.loop import Trainer
from elfnet.train.optimizer import WeightAverage, build_optimizer, restore_optimizer
from elfnet.train.prepare import Prepared, resizing_of
from elfnet.train.resume import RunState

# Added to the seed of the second sampler of BBN, so that its crops and flips differ from those of the first sampler.
# No seed of a recipe is as large.
SECOND_SAMPLER_SEED_OFFSET = 2**32


class Assembled(NamedTuple):
    """The trainer of one stage and the parts of it that a run reads or saves."""

    trainer: Trainer
    optimiser: torch.optim.Optimizer
    batches: TrainingFeed
    scored: EvaluationFeed
    average: WeightAverage | None
    pruning: Pruning | None

    def evaluated(self, network: StagedNetwork) -> StagedNetwork:
        """The network to evaluate: the moving average of the trained weights if there is one, else `network`."""
        return network if self.average is None else self.average.network


def assemble(
    prepared: Prepared,
    stage: Stage,
    network: StagedNetwork,
    saved: Checkpoint | None,
    machine: Machine,
    observer: Observer,
) -> Assembled:
    """Build the trainer of one stage.

    Args:
        network: of the stage; it is moved to the device in place.
        saved: the checkpoint of this stage to resume from; None: the stage starts.
    """
    recipe, train, processes = stage.recipe, stage.recipe.train, prepared.processes
    objective = prepared.objectives[stage.name]
    _place(network, recipe, machine, processes)
    forward, mixing = forward_and_mixing(recipe, network, objective.loss.rule, prepared.splits.train.labels_N)
    optimiser = _optimizer(recipe, network, saved)
    average = WeightAverage(network, train.ema_decay) if train.ema_decay else None
    if average is not None and saved is not None:
        average.network.load_state_dict(dict(saved.weights))
        average.steps = saved.progress["ema_steps"]
    resizing = resizing_of(recipe)
    pruning = _pruning(recipe, prepared.splits, saved, processes)
    pairing = mixing if isinstance(mixing, PairMixing) else None
    batches, scored = processes.rank0_first(lambda: _feeds(prepared, recipe, machine, pairing, pruning))
    if machine.compile:
        part = -(-batches.batch_size // (processes.world_size * train.accumulate))
        forward.compile_for(part, image_sizes=1 if resizing is None else resizing.sizes)
    trainer = Trainer(
        fabric=processes.fabric,
        forward=forward,
        optimiser=optimiser,
        loss=objective.loss,
        reweighting=objective.reweighting,
        schedule=objective.schedule,
        batches=batches,
        is_head_C=torch.from_numpy(head_classes(prepared.splits.class_counts_C)),
        seed=train.seed,
        accumulate=train.accumulate,
        mixing=mixing,
        average=average,
        resizing=resizing,
        pruning=pruning,
        frozen="train" if recipe.refit.batch_norm == "train" else "eval",
        on_step=observer.step,
    )
    return Assembled(trainer, optimiser, batches, scored, average, pruning)


def _place(network: StagedNetwork, recipe: Recipe, machine: Machine, processes: DistributedContext) -> None:
    """Move a network to its device and memory layout, and freeze the parameters that the recipe does not train."""
    network.to(processes.fabric.device)
    if machine.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if recipe.train.sync_batch_norm and processes.world_size > 1:
        torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
    if recipe.train.backbone_lr_factor == 0:
        freeze_backbone(network)
    if recipe.refit.method in TRAINED:
        freeze_what_stays(recipe.refit.method, network)


def _optimizer(recipe: Recipe, network: StagedNetwork, saved: Checkpoint | None) -> torch.optim.Optimizer:
    train = recipe.train
    optimizer = build_optimizer(
        network,
        name=train.optimizer,
        lr=train.lr,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        nesterov=train.nesterov,
        beta2=train.beta2,
        decay_norms_and_biases=train.decay_norms_and_biases,
        backbone_lr_factor=train.backbone_lr_factor,
        layer_decay=train.layer_decay,
    )
    if saved is not None:
        restore_optimizer(optimizer, network, saved.optimiser)
    return optimizer


def _feeds(
    prepared: Prepared, recipe: Recipe, machine: Machine, pairing: Pairing | None, selection: Selection | None
) -> tuple[TrainingFeed, EvaluationFeed]:
    """This process's shard of the training split and of `scored_split`. Image files are packed if they are not yet."""
    splits, normalisation, processes = prepared.splits, prepared.normalisation, prepared.processes
    data = _divide_workers(recipe.data, processes.on_this_node)
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
        reversed_data = data.model_copy(update={"sampler": "reversed"})
        batches = PairedFeed(batches, feed(reversed_data, seed=recipe.train.seed + SECOND_SAMPLER_SEED_OFFSET))
    return batches, evaluation_batches(data, scored_split(prepared), normalisation, device=device, shard=shard)


def scored_split(prepared: Prepared) -> Examples:
    """The split that is scored after every epoch: calibration; if it is empty, test in LDAM-DRW's protocol, else none.

    An empty split is not scored: the final network of cross-fitting has no calibration examples.
    """
    splits: Splits = prepared.splits
    scores_test = not len(splits.calibration) and prepared.recipe.data.protocol == PROTOCOL
    scored: Examples = splits.test if scores_test else splits.calibration
    return scored


def _pruning(recipe: Recipe, splits: Splits, saved: Checkpoint | None, processes: DistributedContext) -> Pruning | None:
    """The pruning of a recipe, with the exit history of the checkpoint to resume from; None without pruning."""
    train, labels_N = recipe.train, splits.train.labels_N
    if not train.prune:
        return None
    history = ExitHistory(len(labels_N), processes.fabric.device, processes.all_reduce)
    if saved is not None and saved.exit_history is not None:
        history.streak_N.copy_(saved.exit_history)
    settings = PruningSettings(train.prune, train.prune_patience, train.prune_floor, train.prune_until)
    return Pruning(settings, history, labels_N, seed=train.seed, epochs=train.epochs)


def _divide_workers(data: DataRecipe, processes: int) -> DataRecipe:
    """Divide the automatic number of workers among the processes of a node. A number that the user set is kept."""
    if data.workers >= 0 or processes == 1:
        return data
    return data.model_copy(update={"workers": max(1, workers_of(data) // processes)})


def second_stage_network(
    stage: Stage, weights: Mapping[str, Tensor], *, classes: int, image_channels: int
) -> StagedNetwork:
    """Build the network that the second stage starts from.

    Args:
        stage: the second stage.
        weights: final weights of the first stage; the averaged weights if the run averages them.

    Returns:
        A network on the CPU with these weights and new classifiers, which depend only on the seed.
    """
    torch.manual_seed(stage.recipe.train.seed)
    network = network_of(stage.recipe.model, classes=classes, image_channels=image_channels)
    take_over(stage.recipe.refit.method, network, weights)
    return network


def second_stage_state(state: RunState) -> RunState:
    """The progress of a run at the start of its second stage: epochs and time of the first stage.

    The best epoch is chosen among those of the second stage only, because its network may differ.
    """
    return RunState(epochs_done=state.epochs_done, seconds=state.seconds)
