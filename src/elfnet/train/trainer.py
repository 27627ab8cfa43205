"""The loop: steps, epochs, nothing else. What is in it is handed in, what comes out is a record an epoch."""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from elfnet.criterion.base_loss import BaseLoss
from elfnet.criterion.deferred import weights_in_force
from elfnet.criterion.exit_loss import loss_at_exits
from elfnet.criterion.reduction import weighted_batch_mean
from elfnet.data.batches import TrainingBatches
from elfnet.errors import WorkError
from elfnet.train.epoch_statistics import EpochStatistics
from elfnet.train.exiting_forward import ExitingForward
from elfnet.train.schedule import Schedule

# Looking at the loss makes the host wait for the device, so it is done only this often.
STEPS_BETWEEN_LOOKS = 20
WAY_OUT = "lower train.lr, lengthen train.warmup_epochs, or set train.precision=float32"


class DivergedError(WorkError):
    """The loss or the weights stopped being finite."""


class Trainer:
    """Runs epochs.

    Args:
        class_weights_C: the weights that apply from `schedule.drw_start` on.
        reweight: their name, for the log.
        on_step: called after every step with (step, steps in the epoch).
    """

    def __init__(
        self,
        *,
        fabric: Fabric,
        forward: ExitingForward,
        optimiser: torch.optim.Optimizer,
        loss: BaseLoss,
        class_weights_C: Tensor,
        reweight: str,
        schedule: Schedule,
        batches: TrainingBatches,
        is_head_C: Tensor,
        seed: int,
        on_step: Callable[[int, int], None] | None = None,
    ) -> None:
        self._fabric = fabric
        self._network = forward.network
        self._forward, self._optimiser = fabric.setup(forward, optimiser)
        self._loss = loss.to(fabric.device)
        self._weights_C = {
            reweight: class_weights_C.to(fabric.device, torch.float32),
            "none": torch.ones(len(class_weights_C), device=fabric.device),
        }
        self._reweight = reweight
        self._schedule = schedule
        self._batches = batches
        self._is_head_C = is_head_C
        self._seed = seed
        self._on_step = on_step or (lambda *_: None)

    def run_epoch(self, epoch: int) -> dict[str, Any]:
        """Train one epoch; a pure function of the state before it, the seed and the epoch."""
        # Whatever draws from torch's own generator (dropout, say) starts each epoch from the same place on resume.
        torch.manual_seed(self._seed * 1_000_003 + epoch)
        weighting = weights_in_force(epoch, reweight=self._reweight, start=self._schedule.drw_start)
        weights_C = self._weights_C[weighting]
        steps = len(self._batches)
        statistics = EpochStatistics(
            steps=steps,
            exits=self._network.exits,
            is_head_C=self._is_head_C,
            scale=self._loss.scale,
            device=self._fabric.device,
        )
        self._forward.train()
        rate = 0.0
        for step, (images, target_B) in enumerate(self._batches.epoch(epoch)):
            rate = self._schedule.learning_rate(epoch, step, steps)
            self._step(images, target_B, weights_C[target_B], rate, statistics)
            if (step + 1) % STEPS_BETWEEN_LOOKS == 0 or step + 1 == steps:
                self._refuse_loss_not_finite(epoch, statistics)
            self._on_step(step + 1, steps)
        # The last step may have ruined the weights without a loss to show for it yet.
        if not all(bool(p.isfinite().all()) for p in self._network.parameters()):
            raise DivergedError(f"the weights are not finite after the last step of epoch {epoch}; {WAY_OUT}")
        return {"epoch": epoch, "learning_rate": rate, "weights": weighting, **statistics.record()}

    def _step(
        self, images: Tensor, target_B: Tensor, weight_B: Tensor, rate: float, statistics: EpochStatistics
    ) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad(set_to_none=True)
        logits_EBC, visited_EB = self._forward(images, target_B)
        loss_EB = loss_at_exits(self._loss, logits_EBC, target_B, visited_EB)
        self._fabric.backward(weighted_batch_mean(loss_EB.sum(dim=0), weight_B))
        statistics.add(logits_EBC.detach(), target_B, visited_EB, loss_EB.detach(), weight_B)
        self._optimiser.step()

    def _refuse_loss_not_finite(self, epoch: int, statistics: EpochStatistics) -> None:
        found = statistics.first_not_finite()
        if found is not None:
            step, k = found
            raise DivergedError(
                f"the loss at exit {k + 1} is not finite in step {step + 1} of epoch {epoch}; {WAY_OUT}"
            )
