"""Cross-entropy."""

# Shapes: ... any leading dimensions, C classes

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from elfnet.criterion.base_loss import LOSSES, BaseLoss


def log_probability_of(logits: Tensor, target: Tensor) -> Tensor:
    """Log-softmax at the target, over the last dimension; logits (..., C) and target (...) give (...)."""
    chosen = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(dim=-1)


class CrossEntropy(BaseLoss):
    """-log p[y]."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return -log_probability_of(self.scaled(logits), target)


@LOSSES.register("ce")
def build(class_counts: Sequence[int], *, scale: float = 1.0, **_: Any) -> BaseLoss:  # noqa: ARG001
    return CrossEntropy(scale=scale)
