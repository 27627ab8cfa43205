"""The ELF loss of each example: the base loss summed over the exits it visits (eq. 2 to 4)."""

# Shapes: E exits, B batch, C classes

import torch
from torch import Tensor

from elfnet.criterion.base_loss import BaseLoss


def loss_at_exits(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """Base loss of each example at each exit, zero where it was not visited; shape (E, B).

    With one exit this is the base loss; with everything visited it is plain joint training.
    """
    exits = logits_EBC.shape[0]
    loss_EB: Tensor = base(logits_EBC, target_B.expand(exits, -1))
    return torch.where(visited_EB, loss_EB, 0.0)


def elf_per_sample(base: BaseLoss, logits_EBC: Tensor, target_B: Tensor, visited_EB: Tensor) -> Tensor:
    """L_ELF of each example, shape (B,); class weights belong to the reduction."""
    return loss_at_exits(base, logits_EBC, target_B, visited_EB).sum(dim=0)
