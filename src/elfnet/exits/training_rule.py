"""The training rule of ELF (eq. 1 of the paper): at which exit each training example stops.

An example stops at the first exit that predicts its label with a confidence above the threshold. If no exit does, it
stops at the last one. No gradient flows through the decision.
"""

# Shapes: E exits, B batch, C classes

import torch
from torch import Tensor


class TrainingRule:
    """The rule of eq. 1 with one threshold for all exits.

    Args:
        threshold: t of eq. 1. An example stops where argmax p = y and p[y] > t, with p the softmax of the logits. At 1
            or above, every example runs to the last exit.
        confidence_scale: the factor that logits are multiplied by before the softmax. It is 1 for cross-entropy and
            for the paper's LDAM, whose thresholds (2/C) assume a softmax over unscaled cosines.
    """

    def __init__(self, *, threshold: float, confidence_scale: float = 1.0) -> None:
        self.threshold = threshold
        self.confidence_scale = confidence_scale

    @torch.no_grad()
    def leaves(self, logits_BC: Tensor, target_B: Tensor) -> Tensor:
        """Whether each example meets the rule at an exit with these logits, shape (B,).

        Logits of all exits, shape (E, B, C), give shape (E, B).
        """
        scaled = logits_BC.to(torch.promote_types(logits_BC.dtype, torch.float32)) * self.confidence_scale
        best, prediction = scaled.max(dim=-1)
        confidence = (best - scaled.logsumexp(dim=-1)).exp()
        return (prediction == target_B) & (confidence > self.threshold)

    @torch.no_grad()
    def visited(self, logits_EBC: Tensor, target_B: Tensor) -> Tensor:
        """Which exits each example visits, including the one where it stops; shape (E, B), the first row all true."""
        stopped_before_EB = self.leaves(logits_EBC, target_B).cummax(dim=0).values.roll(1, dims=0)
        stopped_before_EB[0] = False
        return ~stopped_before_EB


def exit_taken(visited_EB: Tensor) -> Tensor:
    """The index of the exit where each example stops, which is the last one it visits; shape (B,)."""
    return visited_EB.sum(dim=0) - 1
