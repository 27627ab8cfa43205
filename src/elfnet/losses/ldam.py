"""The LDAM loss (Cao et al. 2019): cross-entropy of cosines with a margin that is larger for rarer classes."""

# Shapes: ... any leading dimensions, C classes

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from elfnet.losses.base import LOSSES, BaseLoss, check_counts
from elfnet.losses.cross_entropy import log_probability_of


def ldam_margins(class_counts: Sequence[int], *, max_margin: float, power: float) -> Tensor:
    """The margin of each class, proportional to n^-power and at most `max_margin`; float64, shape (C,).

    The ELF paper prints C/n; its source has C/n^(1/4), which is the default here.

    Raises:
        RequestError: a class has no training example.

    Example:
        >>> [round(float(m), 6) for m in ldam_margins([5000, 50], max_margin=0.5, power=0.25)]
        [0.158114, 0.5]
    """
    check_counts(class_counts, "margin")
    raw_C = torch.as_tensor(class_counts, dtype=torch.float64).pow(-power)
    return raw_C * (max_margin / raw_C.max())


class LDAMLoss(BaseLoss):
    """LDAM: cross-entropy of scale * (cosine - margin), with the margin at the label only.

    The head returns cosines. The loss owns the scale.

    Args:
        class_counts: the number of training examples per class.
        max_margin: the margin of the rarest class.
        power: the margin of a class with n examples is proportional to n^-power.

    Raises:
        RequestError: a class has no training example, or the scale is not positive.

    Example:
        >>> loss = LDAMLoss([5000, 50])
        >>> loss(torch.tensor([[0.9, -0.2]]), torch.tensor([0])).shape
        torch.Size([1])
    """

    needs_cosines = True
    margins_C: Tensor

    def __init__(
        self, class_counts: Sequence[int], *, max_margin: float = 0.5, power: float = 0.25, scale: float = 30.0
    ) -> None:
        super().__init__(scale=scale, classes=len(class_counts))
        self.keep_constant("margins_C", ldam_margins(class_counts, max_margin=max_margin, power=power))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        logits = self.checked(logits)
        margins_C = self.constant("margins_C", logits)
        margin = margins_C[target].unsqueeze(-1) * functional.one_hot(target, logits.shape[-1])
        return -log_probability_of(self.scale * (logits - margin), target)


@LOSSES.register("ldam")
def build_ldam(
    class_counts: Sequence[int],
    *,
    ldam_max_margin: float = 0.5,
    ldam_power: float = 0.25,
    scale: float = 30.0,
    **_: Any,
) -> BaseLoss:
    """Builder of `LDAMLoss`."""
    return LDAMLoss(class_counts, max_margin=ldam_max_margin, power=ldam_power, scale=scale)
