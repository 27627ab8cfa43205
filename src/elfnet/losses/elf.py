"""The ELF loss (eq. 2 to 4): the base loss at the exits that an example visits, and distillation between exits."""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.losses.base import BaseLoss, Labels
from elfnet.models.experts import own_logits

TEMPERATURE_STEP = 1.05
"""The factor that a temperature is multiplied by after each step in which it was too low."""


class Distillation(nn.Module):
    """Self-distillation: adds weight T^2 KL(last exit || this exit) to the loss of every exit except the last.

    Both distributions are softened by the temperature T. The factor T^2 keeps the size of the gradient. The last exit
    is the teacher: it gets no gradient from this term. T rises as the teacher becomes more confident, so that the
    teacher's distribution always holds more than the label.

    Args:
        weight: the weight of the distillation term.
        temperature: the initial temperature.
        confidence: the temperature rises while the mean confidence of the teacher's softened predictions is above this
            value. At 1 the temperature is constant.
    """

    temperature: Tensor
    _teacher_confidence: Tensor

    def __init__(self, weight: float, *, temperature: float = 1.0, confidence: float = 0.5) -> None:
        super().__init__()
        self._weight, self._confidence = weight, confidence
        self.register_buffer("temperature", torch.tensor(temperature), persistent=False)
        # Of the current step: the sum of the teacher's confidences, and the number of examples.
        self.register_buffer("_teacher_confidence", torch.zeros(2), persistent=False)

    def forward(self, loss_EB: Tensor, logits_EBC: Tensor, *, scale: float = 1.0) -> Tensor:
        """Return the loss with the distillation term added, shape (E, B).

        Args:
            scale: the factor that the base loss multiplies logits by (see `BaseLoss`).
        """
        precise_EBC = logits_EBC.to(torch.promote_types(logits_EBC.dtype, torch.float32))
        log_p_EBC = (precise_EBC * (scale / self.temperature)).log_softmax(dim=-1)
        teacher_BC = log_p_EBC[-1].detach()
        divergence_EB = functional.kl_div(
            log_p_EBC[:-1], teacher_BC.expand_as(log_p_EBC[:-1]), reduction="none", log_target=True
        ).sum(dim=-1)
        confidence_B = teacher_BC.amax(dim=-1).exp()
        self._teacher_confidence += torch.stack([confidence_B.sum(), torch.ones_like(confidence_B).sum()])
        early_EB = loss_EB[:-1] + self._weight * self.temperature**2 * divergence_EB
        return torch.cat([early_EB, loss_EB[-1:]])

    def end_step(self, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """Raise the temperature if the teacher was too confident on the batch of this step.

        Args:
            all_reduce: sums a tensor over all processes, so that all have the same temperature.
        """
        if self._confidence < 1:
            confidence, number = all_reduce(self._teacher_confidence)
            self.temperature *= torch.where(confidence > self._confidence * number, TEMPERATURE_STEP, 1.0)
        self._teacher_confidence.zero_()


class ELFLoss(nn.Module):
    """The ELF loss: the base loss at every exit that an example visits.

    With one exit it is the base loss. If every exit is visited it is ordinary joint training.

    Args:
        base: the base loss, computed per example and exit.
        exits: the number of exits of the network.
        experts: how many of these exits are experts. Their losses use their own logits, not the mean over experts.
        exit_weights: the factor for the loss of each exit (BranchyNet); empty for 1 everywhere.
        distillation: lets early exits learn from the last one; None for no distillation.

    Raises:
        RequestError: the number of exit weights is not the number of exits.
    """

    weight_E1: Tensor

    def __init__(
        self,
        base: BaseLoss,
        exits: int,
        *,
        experts: int = 1,
        exit_weights: Sequence[float] = (),
        distillation: Distillation | None = None,
    ) -> None:
        super().__init__()
        if exit_weights and len(exit_weights) != exits:
            raise RequestError(
                f"criterion.exit_weights has {len(exit_weights)} numbers for {exits} exits; give one per exit"
            )
        self.base = base
        self._experts = experts
        self._weighted = bool(exit_weights)
        self.register_buffer("weight_E1", torch.tensor([*exit_weights] or [1.0] * exits)[:, None], persistent=False)
        self.distillation = distillation

    def forward(self, logits_EBC: Tensor, labels: Labels, visited_EB: Tensor, weights_C: Tensor) -> Tensor:
        """The loss of each example at each exit, zero at exits that it does not visit; shape (E, B).

        Args:
            logits_EBC: the logits of all exits, as the network returns them.
        """
        logits_EBC = own_logits(logits_EBC, self._experts)
        loss_EB = labels.loss(self.base, logits_EBC, weights_C)
        if self.distillation is not None:
            loss_EB = self.distillation(loss_EB, logits_EBC, scale=self.base.scale)
        if self._weighted:
            loss_EB = loss_EB * self.weight_E1
        return torch.where(visited_EB, loss_EB, 0.0)

    def end_step(self, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """Finish a training step. Call this once per step, after all parts of the batch.

        Args:
            all_reduce: sums a tensor over all processes.
        """
        if self.distillation is not None:
            self.distillation.end_step(all_reduce)


def loss_at_exits(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """The loss of each example at each exit it visits, else zero; shape (E, B).

    A plain function for custom training loops: one label per example, all exits with equal weight.
    """
    no_weights_C = logits_EBC.new_ones(logits_EBC.shape[-1])
    return torch.where(visited_EB, Labels(target_B).loss(base, logits_EBC, no_weights_C), 0.0)


def elf_per_sample(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """The ELF loss of each example, summed over the exits it visits; shape (B,).

    Class weights are applied by the reduction, see `weighted_batch_mean`.
    """
    return loss_at_exits(base, logits_EBC, target_B, visited_EB).sum(dim=0)
