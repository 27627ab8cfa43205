"""The training loop: forward, loss, backward and optimizer step; one log record per epoch."""

# Shapes: E exits, b examples of one part of this process's batch, C classes

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor

from elfnet.data.loading.feed import TrainingBatch, TrainingFeed
from elfnet.errors import WorkError
from elfnet.exits.training_rule import exit_taken
from elfnet.losses.base import Labels
from elfnet.losses.elf import ELFLoss
from elfnet.losses.weighting import DeferredReweighting, weighted_batch_mean
from elfnet.methods.mixing import MixedBatch, Mixing
from elfnet.models.staged import training_mode
from elfnet.run.log import EpochRecord
from elfnet.train.distributed import DistributedContext
from elfnet.train.epoch_statistics import EpochStatistics
from elfnet.train.example_pruning import Pruning
from elfnet.train.forward import TrainingForward
from elfnet.train.optimizer import WeightAverage, set_learning_rate
from elfnet.train.schedule import ProgressiveResizing, Schedule

# Reading the loss makes the host wait for the device, so it is checked only every so many steps.
STEPS_PER_LOSS_CHECK = 20
REMEDY = "lower train.lr, lengthen train.warmup_epochs, or set train.precision=float32"


class DivergedError(WorkError):
    """The loss or the weights are not finite."""


class Trainer:
    """Trains a network, one epoch per call.

    Several processes compute the same step as one process with the whole batch: each sums w L over its shard and
    divides by the sum of w over all processes, and the gradients are added.

    Args:
        fabric: launched.
        reweighting: class weights by epoch.
        batches: feed of this process's shard.
        is_head_C: whether a class is frequent, for the statistics.
        accumulate: number of parts that a batch is split into; their gradients are accumulated.
        mixing: applied to every batch; it must match `forward` (see `forward_and_mixing`). None: examples stay as they
            are.
        average: moving average to update after every step.
        resizing: image size by epoch; None: always the full size.
        pruning: which examples an epoch shows; it is also the selection of `batches`.
        frozen: mode of frozen parts of the network, see `training_mode`.
        on_step: called after every step with (step, steps in the epoch).
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        forward: TrainingForward,
        optimiser: torch.optim.Optimizer,
        loss: ELFLoss,
        reweighting: DeferredReweighting,
        schedule: Schedule,
        batches: TrainingFeed,
        is_head_C: Tensor,
        seed: int,
        accumulate: int = 1,
        mixing: Mixing | None = None,
        average: WeightAverage | None = None,
        resizing: ProgressiveResizing | None = None,
        pruning: Pruning | None = None,
        frozen: Literal["eval", "train"] = "eval",
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        self._fabric, self._processes = fabric, DistributedContext(fabric)
        self._network = forward.network
        self._forward, self._optimiser = fabric.setup(forward, optimiser)
        self._loss = loss.to(fabric.device)
        self._reweighting = reweighting.to(fabric.device)
        self._schedule = schedule
        self._batches = batches
        self._is_head_C = is_head_C
        self._seed = seed
        self._accumulate = accumulate
        self._mixing = mixing
        self._average = average
        self._resizing = resizing
        self._pruning = pruning
        self._frozen = frozen
        self._on_step = on_step or (lambda *_: None)

    def run_epoch(self, epoch: int) -> EpochRecord:
        """Train one epoch (0-based) and return its log record.

        The result is a pure function of the state before the epoch, the seed and the epoch.
        """
        # Seeds torch's global generator (used by dropout, for example), so that a resumed epoch draws the same numbers.
        # Each process has its own seed, because their examples differ.
        torch.manual_seed(self._seed * 1_000_003 + epoch + (self._processes.rank << 53))
        weights_C = self._reweighting(epoch)
        if self._pruning is not None:
            self._pruning.begin_epoch(epoch)
        steps = self._batches.steps(epoch)
        statistics = EpochStatistics(
            steps=steps,
            exits=self._network.exits,
            is_head_C=self._is_head_C,
            scale=self._loss.base.scale,
            device=self._fabric.device,
            all_reduce=self._processes.all_reduce,
        )
        training_mode(self._network, self._forward, frozen=self._frozen)
        rate = 0.0
        for step, batch in enumerate(self._batches.epoch(epoch)):
            rate = self._schedule.learning_rate(epoch, step, steps)
            self._step(self._mixed(batch, epoch), weights_C, rate, statistics)
            if (step + 1) % STEPS_PER_LOSS_CHECK == 0 or step + 1 == steps:
                self._refuse_loss_not_finite(epoch, statistics)
            self._on_step(step + 1, steps)
        # The last step may have made weights infinite that no loss has shown yet.
        if not all(bool(p.isfinite().all()) for p in self._network.parameters()):
            raise DivergedError(f"the weights are not finite after the last step of epoch {epoch + 1}; {REMEDY}")
        known: dict[str, object] = {}
        if self._pruning is not None:
            self._pruning.history.end_epoch()
            known["examples"] = int(self._pruning.shown(epoch).sum())
        if self._resizing is not None:
            known["image_side"] = self._resizing.share(epoch)
        if self._loss.distillation is not None:
            known["distil_temperature"] = float(self._loss.distillation.temperature)
        return statistics.record(epoch, learning_rate=rate, weights=self._reweighting.in_force(epoch)).model_copy(
            update=known
        )

    def _mixed(self, batch: TrainingBatch, epoch: int) -> MixedBatch:
        """The images and labels that the network is trained on: mixed, resized and weighted as the run does it."""
        if self._mixing is None:
            mixed = MixedBatch(batch.images, Labels(batch.labels_b), rows_b=batch.rows_b)
        else:
            mixed = self._mixing(batch, epoch)
        if self._resizing is not None:
            mixed = replace(mixed, images=self._resizing(mixed.images, epoch))
        if self._pruning is not None:
            importance_b = self._pruning.weight(batch.rows_b)
            mixed = replace(mixed, labels=replace(mixed.labels, importance_B=importance_b))
        return mixed

    def _step(self, batch: MixedBatch, weights_C: Tensor, rate: float, statistics: EpochStatistics) -> None:
        set_learning_rate(self._optimiser, rate)
        self._optimiser.zero_grad(set_to_none=True)
        parts = parts_of(batch, self._accumulate)
        whole = len(parts) == 1 and self._processes.world_size == 1
        weight_of_batch = None if whole else self._processes.all_reduce_async(self._weight(batch, weights_C).sum())
        for number, part in enumerate(parts):
            last = number + 1 == len(parts)
            leading_b, weight_b = part.labels.leading, self._weight(part, weights_C)
            with self._gradient_sync(last):
                logits_EbC, visited_Eb = self._forward(part.images, leading_b, **part.forward)
                loss_Eb = self._loss.at_exits(logits_EbC, part.labels, visited_Eb, weights_C)
                loss_b = loss_Eb.sum(dim=0)
                if weight_of_batch is None:
                    loss = weighted_batch_mean(loss_b, weight_b)
                else:
                    loss = weighted_batch_mean(loss_b, weight_b, _one_if_zero(weight_of_batch()))
                    # DDP averages gradients over processes; this step needs their sum.
                    loss = loss * self._processes.world_size
                self._fabric.backward(loss)
            statistics.add(logits_EbC.detach(), leading_b, visited_Eb, loss_Eb.detach(), weight_b, ends_step=last)
            if self._pruning is not None and part.rows_b is not None:
                self._pruning.history.add(part.rows_b, exit_taken(visited_Eb))
        self._optimiser.step()
        if self._average is not None:
            self._average.update(self._network)
        self._loss.end_step(self._processes.all_reduce)

    def _weight(self, batch: MixedBatch, weights_C: Tensor) -> Tensor:
        """The weight of each example in the mean over the batch."""
        return batch.labels.weight(self._loss.base, weights_C)

    def _gradient_sync(self, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients between processes once per step, with its last part."""
        if last or self._processes.world_size == 1:
            return nullcontext()
        return self._fabric.no_backward_sync(self._forward)

    def _refuse_loss_not_finite(self, epoch: int, statistics: EpochStatistics) -> None:
        found = statistics.first_not_finite()
        if found is not None:
            step, k = found
            raise DivergedError(
                f"the loss at exit {k + 1} is not finite in step {step + 1} of epoch {epoch + 1}; {REMEDY}"
            )


def parts_of(batch: MixedBatch, number: int) -> list[MixedBatch]:
    """Split a batch into `number` parts for gradient accumulation.

    Empty parts are left out. An empty batch gives one empty part.
    """
    if number == 1:
        return [batch]
    assert not batch.forward, "a batch that is mixed inside the network cannot be split; the recipe refuses it"
    labels = batch.labels

    def split(tensor: Tensor | None) -> Sequence[Tensor | None]:
        return [None] * number if tensor is None else tensor.tensor_split(number)

    parts = [
        MixedBatch(images, Labels(first_b, second_b, labels.share, importance_b), rows_b=rows_b)
        for images, first_b, second_b, importance_b, rows_b in zip(
            batch.images.tensor_split(number),
            labels.first_B.tensor_split(number),
            split(labels.second_B),
            split(labels.importance_B),
            split(batch.rows_b),
            strict=True,
        )
    ]
    return [part for part in parts if len(part.images)] or parts[:1]


def _one_if_zero(weight: Tensor) -> Tensor:
    """Avoid a division by zero for a batch without any readable example; its loss is zero as well."""
    return torch.where(weight == 0, torch.ones_like(weight), weight)
