"""The ELF loss of each example: the base loss summed over the exits it visits (eq. 2 to 4)."""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from elfnet.criterion.base_loss import BaseLoss
from elfnet.criterion.distillation import Distillation
from elfnet.criterion.labels import Labels
from elfnet.errors import RequestError
from elfnet.models.experts import own_logits


class ExitLoss(nn.Module):
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

    def end_step(self, summed: Callable[[Tensor], Tensor]) -> None:
        """To be called once a step, after all parts of its batch; `summed` adds up over processes."""
        if self.distillation is not None:
            self.distillation.end_step(summed)


def loss_at_exits(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """`ExitLoss` for a loop of one's own: one label an example, every exit counting alike; shape (E, B)."""
    no_weights_C = logits_EBC.new_ones(logits_EBC.shape[-1])
    return torch.where(visited_EB, Labels(target_B).loss(base, logits_EBC, no_weights_C), 0.0)


def elf_per_sample(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """L_ELF of each example, shape (B,); class weights belong to the reduction."""
    return loss_at_exits(base, logits_EBC, target_B, visited_EB).sum(dim=0)
