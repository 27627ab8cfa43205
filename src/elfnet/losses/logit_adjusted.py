"""The logit-adjusted loss (Menon et al. 2021) and balanced softmax (Ren et al. 2020), its case tau = 1.

Both are the cross-entropy of logits + tau log prior.
"""

# Shapes: ... any leading dimensions, C classes

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.losses.base import LOSSES, BaseLoss, check_counts
from elfnet.losses.cross_entropy import smoothed_cross_entropy


def log_prior(class_counts: Sequence[int]) -> Tensor:
    """The log of each class's fraction of the training examples; float64, shape (C,).

    Raises:
        RequestError: a class has no training example.

    Example:
        >>> log_prior([3, 1]).exp().tolist()
        [0.75, 0.25]
    """
    check_counts(class_counts, "log prior")
    counts_C = torch.as_tensor(class_counts, dtype=torch.float64)
    return (counts_C / counts_C.sum()).log()


class LogitAdjustedLoss(BaseLoss):
    """Cross-entropy of (scale * logits + tau log prior).

    The prior is added in training only. So the logits, which give confidence and prediction, do not favour frequent
    classes.

    Args:
        class_counts: the number of training examples per class.
        smoothing: the weight of label smoothing; see `smoothed_cross_entropy`.

    Raises:
        RequestError: a class has no training example, or tau is negative.
    """

    shift_C: Tensor

    def __init__(
        self, class_counts: Sequence[int], *, tau: float = 1.0, scale: float = 1.0, smoothing: float = 0.0
    ) -> None:
        super().__init__(scale=scale, classes=len(class_counts))
        self.smoothing = smoothing
        if tau < 0:
            raise RequestError(f"criterion.adjust_tau={tau} must not be negative; 0 is cross-entropy")
        self.keep_constant("shift_C", tau * log_prior(class_counts))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        scaled = self.scaled(logits)
        return smoothed_cross_entropy(scaled + self.constant("shift_C", scaled), target, self.smoothing)


class BalancedSoftmaxLoss(LogitAdjustedLoss):
    """Balanced softmax, -log(n[y] exp z[y] / sum_c n[c] exp z[c]): the logit-adjusted loss at tau = 1."""

    def __init__(self, class_counts: Sequence[int], *, scale: float = 1.0, smoothing: float = 0.0) -> None:
        super().__init__(class_counts, tau=1.0, scale=scale, smoothing=smoothing)


@LOSSES.register("logit-adjusted")
def build_logit_adjusted(
    class_counts: Sequence[int], *, adjust_tau: float = 1.0, scale: float = 1.0, smoothing: float = 0.0, **_: Any
) -> BaseLoss:
    """Builder of `LogitAdjustedLoss`."""
    return LogitAdjustedLoss(class_counts, tau=adjust_tau, scale=scale, smoothing=smoothing)


@LOSSES.register("balanced-softmax")
def build_balanced_softmax(
    class_counts: Sequence[int], *, scale: float = 1.0, smoothing: float = 0.0, **_: Any
) -> BaseLoss:
    """Builder of `BalancedSoftmaxLoss`."""
    return BalancedSoftmaxLoss(class_counts, scale=scale, smoothing=smoothing)
