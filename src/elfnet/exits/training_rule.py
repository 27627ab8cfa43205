"""Who leaves where during training (eq. 1 of the paper).

An example leaves at the first exit that predicts its label with a confidence above the threshold; if none does, at the
last. The decision takes no gradient.
"""

# Shapes: E exits, B batch, C classes

import torch
from torch import Tensor


class TrainingRule:
    """Eq. 1 with one threshold for all exits.

    Args:
        threshold: t; an example leaves where argmax z = y and z[y] > t. 1 or more: nobody leaves before the last exit.
        confidence_scale: what logits are multiplied with before the softmax. 1 for cross-entropy, and 1 for the
            paper's LDAM, whose thresholds (2/C) only make sense for a softmax over unscaled cosines.
    """

    def __init__(self, *, threshold: float, confidence_scale: float = 1.0) -> None:
        self.threshold = threshold
        self.confidence_scale = confidence_scale

    @torch.no_grad()
    def leaves(self, logits_BC: Tensor, target_B: Tensor) -> Tensor:
        """Whether each example would leave at an exit with these logits, shape (B,). Also takes (E, B, C)."""
        scaled = logits_BC.float() * self.confidence_scale
        best, prediction = scaled.max(dim=-1)
        confidence = (best - scaled.logsumexp(dim=-1)).exp()
        return (prediction == target_B) & (confidence > self.threshold)

    @torch.no_grad()
    def visited(self, logits_EBC: Tensor, target_B: Tensor) -> Tensor:
        """Which exits each example visits, the one it leaves at included; shape (E, B), the first row all true."""
        left_before_EB = self.leaves(logits_EBC, target_B).cummax(dim=0).values.roll(1, dims=0)
        left_before_EB[0] = False
        return ~left_before_EB


def exit_taken(visited_EB: Tensor) -> Tensor:
    """Index of the exit at which each example leaves: the last it visits; shape (B,)."""
    return visited_EB.sum(dim=0) - 1
