"""Cross-entropy and focal loss (Lin et al. 2017)."""

# Shapes: ... any leading dimensions, C classes

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.losses.base import LOSSES, BaseLoss


def log_probability_of(logits: Tensor, target: Tensor) -> Tensor:
    """The log-probability of the target class: logits (..., C) and target (...) give (...)."""
    chosen = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(dim=-1)


def smoothed_cross_entropy(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with label smoothing: the label has weight 1 - s, and all C classes share the weight s.

    Args:
        logits: shape (..., C).
        target: shape (...).
        smoothing: the weight s; 0 is cross-entropy.
    """
    loss = -log_probability_of(logits, target)
    if not smoothing:
        return loss
    return (1 - smoothing) * loss + smoothing * (logits.logsumexp(dim=-1) - logits.mean(dim=-1))


class CrossEntropyLoss(BaseLoss):
    """Cross-entropy: -log p[y], with label smoothing if wanted; see `smoothed_cross_entropy`.

    Example:
        >>> CrossEntropyLoss()(torch.zeros(2, 4), torch.tensor([0, 3])).exp().tolist()
        [4.0, 4.0]
    """

    def __init__(self, *, scale: float = 1.0, smoothing: float = 0.0) -> None:
        super().__init__(scale=scale)
        self.smoothing = smoothing

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return smoothed_cross_entropy(self.scaled(logits), target, self.smoothing)


@LOSSES.register("ce")
def build_cross_entropy(
    class_counts: Sequence[int],  # noqa: ARG001 (part of the interface of builders)
    *,
    scale: float = 1.0,
    smoothing: float = 0.0,
    **_: Any,
) -> BaseLoss:
    """Builder of `CrossEntropyLoss`."""
    return CrossEntropyLoss(scale=scale, smoothing=smoothing)


class FocalLoss(BaseLoss):
    """Focal loss: -(1 - p[y])^gamma log p[y], which is cross-entropy at gamma 0.

    Class weights do not enter p[y].
    """

    def __init__(self, gamma: float = 0.5, *, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        if gamma < 0:
            raise RequestError(f"criterion.focal_gamma={gamma} must not be negative; 0 is cross-entropy")
        self.gamma = gamma

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return self._focal(log_probability_of(self.scaled(logits), target))

    def _focal(self, log_p: Tensor) -> Tensor:
        if self.gamma == 0:
            return -log_p
        # expm1 keeps 1 - p precise. The lower bound keeps the gradient finite at p = 1 if gamma is below 1.
        one_minus_p = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
        return -one_minus_p.pow(self.gamma) * log_p


class ReferenceFocalLoss(FocalLoss):
    """Focal loss as in the reference code of LDAM-DRW: with class weight w, p[y] is replaced by p[y]^w.

    The loss is w (1 - p[y]^w)^gamma (-log p[y]), and the mean over a batch divides by its size instead of the sum of
    weights. Without class weights it is `FocalLoss`. Effective-number weights have a mean of 0.17 over the images of
    CIFAR-10-LT (ratio 100), so this makes steps about six times smaller from the start of re-weighting on.
    """

    weights_inside = True

    def forward(self, logits: Tensor, target: Tensor, weights_C: Tensor | None = None) -> Tensor:
        log_p = log_probability_of(self.scaled(logits), target)
        return self._focal(log_p if weights_C is None else weights_C[target] * log_p)


@LOSSES.register("focal")
def build_focal(
    class_counts: Sequence[int],  # noqa: ARG001 (part of the interface of builders)
    *,
    focal_gamma: float = 0.5,
    scale: float = 1.0,
    **_: Any,
) -> BaseLoss:
    """Builder of `FocalLoss`."""
    return FocalLoss(focal_gamma, scale=scale)


@LOSSES.register("focal-reference")
def build_reference_focal(
    class_counts: Sequence[int],  # noqa: ARG001 (part of the interface of builders)
    *,
    focal_gamma: float = 1.0,
    scale: float = 1.0,
    **_: Any,
) -> BaseLoss:
    """Builder of `ReferenceFocalLoss`."""
    return ReferenceFocalLoss(focal_gamma, scale=scale)
