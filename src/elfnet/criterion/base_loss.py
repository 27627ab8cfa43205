"""What every base loss is: per-example, unweighted, float32. Class weights belong to the reduction."""

# Shapes: ... any leading dimensions, C classes

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from elfnet.registry import Registry


class BaseLoss(nn.Module):
    """A loss of each example on its own.

    Attributes:
        scale: what the loss multiplies logits with before its softmax; 1 unless the loss owns a scale (LDAM).
        needs_cosines: whether logits must come from a cosine head.
    """

    scale: float = 1.0
    needs_cosines: bool = False

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Loss of each example: logits (..., C) and target (...) give (...)."""
        raise NotImplementedError


# A builder takes the training counts of each class and the loss's own settings by keyword.
LOSSES: Registry[Callable[..., BaseLoss]] = Registry("criterion.loss")


def build_loss(name: str, class_counts: Sequence[int], **settings: Any) -> BaseLoss:
    """A base loss by name; `settings` may hold those of other losses, too, each builder takes its own.

    Example:
        >>> build_loss("ce", [100, 10]).scale
        1.0
    """
    # Imported here so that the registry is filled however this function is reached.
    from elfnet.criterion import balanced_softmax, cross_entropy, focal, ldam, logit_adjusted  # noqa: F401

    return LOSSES[name](class_counts, **settings)
