"""The ELF loss of each example: the base loss summed over the exits it visits (eq. 2 to 4)."""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.losses.base import BaseLoss, Labels
from elfnet.models.experts import own_logits

WARMER = 1.05
"""What a temperature that is too low is multiplied by, once a step."""


class Distillation(nn.Module):
    """L + weight T^2 KL(last exit || this exit) at every exit but the last.

    Both answers are softened by the temperature T, whose square keeps the size of the gradient. The last exit is the
    teacher: it takes no gradient from this, and keeps its own loss. T rises as the teacher grows surer, so that there
    is always something in its answer beside the label.

    Args:
        weight: of what the teacher says, beside the label.
        temperature: at the start.
        confidence: the temperature rises while the teacher's softened answers have more than this on average; with 1
            it stays as it is.
    """

    temperature: Tensor
    _met: Tensor

    def __init__(self, weight: float, *, temperature: float = 1.0, confidence: float = 0.5) -> None:
        super().__init__()
        self._weight, self._confidence = weight, confidence
        self.register_buffer("temperature", torch.tensor(temperature), persistent=False)
        # Of the step that is running: sum of confidences, number of examples.
        self.register_buffer("_met", torch.zeros(2), persistent=False)

    def forward(self, loss_EB: Tensor, logits_EBC: Tensor, *, scale: float = 1.0) -> Tensor:
        """The loss with what the teacher adds to it, shape (E, B).

        Args:
            scale: what the base loss multiplies logits by (see `BaseLoss`).
        """
        precise_EBC = logits_EBC.to(torch.promote_types(logits_EBC.dtype, torch.float32))
        log_p_EBC = (precise_EBC * (scale / self.temperature)).log_softmax(dim=-1)
        teacher_BC = log_p_EBC[-1].detach()
        divergence_EB = functional.kl_div(
            log_p_EBC[:-1], teacher_BC.expand_as(log_p_EBC[:-1]), reduction="none", log_target=True
        ).sum(dim=-1)
        surest_B = teacher_BC.amax(dim=-1).exp()
        self._met += torch.stack([surest_B.sum(), torch.ones_like(surest_B).sum()])
        early_EB = loss_EB[:-1] + self._weight * self.temperature**2 * divergence_EB
        return torch.cat([early_EB, loss_EB[-1:]])

    def end_step(self, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """Raise the temperature if the teacher was too sure of this step's batch.

        Args:
            summed: over processes, which all have the temperature that one with the whole batch would have.
        """
        if self._confidence < 1:
            confidence, number = all_reduce(self._met)
            self.temperature *= torch.where(confidence > self._confidence * number, WARMER, 1.0)
        self._met.zero_()


class ELFLoss(nn.Module):
    """Base loss at every exit that is visited.

    With one exit this is the base loss; with everything visited it is plain joint training.

    Args:
        base: per example and exit.
        exits: of the network.
        experts: how many of these exits are experts, whose losses read their own logits.
        exit_weights: what the loss of each exit is multiplied by (BranchyNet); empty: 1.
        distillation: what early exits learn from the last one, if anything.
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
                f"criterion.exit_weights has {len(exit_weights)} numbers for {exits} exits; give one for each"
            )
        self.base = base
        self._experts = experts
        self._weighted = bool(exit_weights)
        self.register_buffer("weight_E1", torch.tensor([*exit_weights] or [1.0] * exits)[:, None], persistent=False)
        self.distillation = distillation

    def forward(self, logits_EBC: Tensor, labels: Labels, visited_EB: Tensor, weights_C: Tensor) -> Tensor:
        """Loss of each example at each exit, zero where it was not visited; shape (E, B).

        Args:
            logits_EBC: the answers of the network's exits.
        """
        logits_EBC = own_logits(logits_EBC, self._experts)
        loss_EB = labels.loss(self.base, logits_EBC, weights_C)
        if self.distillation is not None:
            loss_EB = self.distillation(loss_EB, logits_EBC, scale=self.base.scale)
        if self._weighted:
            loss_EB = loss_EB * self.weight_E1
        return torch.where(visited_EB, loss_EB, 0.0)

    def end_step(self, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """To be called once a step, after all parts of its batch; `summed` adds up over processes."""
        if self.distillation is not None:
            self.distillation.end_step(all_reduce)


def loss_at_exits(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """`ELFLoss` for a loop of your own: one label per example, every exit counting alike; shape (E, B)."""
    no_weights_C = logits_EBC.new_ones(logits_EBC.shape[-1])
    return torch.where(visited_EB, Labels(target_B).loss(base, logits_EBC, no_weights_C), 0.0)


def elf_per_sample(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """L_ELF of each example, shape (B,); class weights belong to the reduction."""
    return loss_at_exits(base, logits_EBC, target_B, visited_EB).sum(dim=0)
