"""Distillation within one network (Phuong & Lampert 2019): early exits learn from the last one's answer, too."""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

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

    def end_step(self, summed: Callable[[Tensor], Tensor]) -> None:
        """Raise the temperature if the teacher was too sure of this step's batch.

        Args:
            summed: over processes, which all have the temperature that one with the whole batch would have.
        """
        if self._confidence < 1:
            confidence, number = summed(self._met)
            self.temperature *= torch.where(confidence > self._confidence * number, WARMER, 1.0)
        self._met.zero_()
