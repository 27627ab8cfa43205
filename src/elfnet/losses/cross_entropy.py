"""Cross-entropy."""

# Shapes: ... any leading dimensions, C classes

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.losses.base import LOSSES, BaseLoss


def log_probability_of(logits: Tensor, target: Tensor) -> Tensor:
    """Log-softmax at the target, over the last dimension; logits (..., C) and target (...) give (...)."""
    chosen = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(dim=-1)


class CrossEntropy(BaseLoss):
    """-log p[y]."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return -log_probability_of(self.scaled(logits), target)


@LOSSES.register("ce")
def build_cross_entropy(class_counts: Sequence[int], *, scale: float = 1.0, **_: Any) -> BaseLoss:  # noqa: ARG001
    return CrossEntropy(scale=scale)


class Focal(BaseLoss):
    """-(1 - p[y])^gamma log p[y]. Class weights stay outside p[y]; at gamma 0 this is cross-entropy."""

    def __init__(self, *, gamma: float, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        if gamma < 0:
            raise RequestError(f"criterion.focal_gamma={gamma} must not be negative; 0 is cross-entropy")
        self.gamma = gamma

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        log_p = log_probability_of(self.scaled(logits), target)
        if self.gamma == 0:
            return -log_p
        # 1 - p from expm1 keeps its precision, and the floor keeps the gradient of a power below 1 finite at p = 1.
        miss = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
        return -miss.pow(self.gamma) * log_p


@LOSSES.register("focal")
def build_focal(
    class_counts: Sequence[int],  # noqa: ARG001 (every builder takes the counts)
    *,
    focal_gamma: float = 0.5,
    scale: float = 1.0,
    **_: Any,
) -> BaseLoss:
    return Focal(gamma=focal_gamma, scale=scale)
