"""Focal loss (Lin et al. 2017) in its softmax form."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elfnet.criterion.base_loss import LOSSES, BaseLoss
from elfnet.criterion.cross_entropy import log_probability_of
from elfnet.errors import RequestError


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
def build(
    class_counts: Sequence[int],  # noqa: ARG001 (every builder takes the counts)
    *,
    focal_gamma: float = 0.5,
    scale: float = 1.0,
    **_: Any,
) -> BaseLoss:
    return Focal(gamma=focal_gamma, scale=scale)
