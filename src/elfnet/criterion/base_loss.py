"""What every base loss is: per-example, unweighted, float32. Class weights belong to the reduction."""

# Shapes: ... any leading dimensions, C classes

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.registry import Registry


class BaseLoss(nn.Module):
    """A loss of each example on its own.

    Attributes:
        needs_cosines: whether logits must come from a cosine head.

    Args:
        scale: what the loss multiplies logits by before its softmax. 1 for linear heads. Cosines lie in [-1, 1], and a
            softmax over them is nearly uniform, so with cosine heads the loss owns a scale (usually 30).

    Raises:
        RequestError: the scale is not positive.
    """

    needs_cosines: bool = False

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__()
        if scale <= 0:
            raise RequestError(f"criterion.cosine_scale={scale} must be positive; the usual value is 30")
        self.scale = scale

    def scaled(self, logits: Tensor) -> Tensor:
        """The logits in float32, multiplied by the scale."""
        return logits.float() if self.scale == 1.0 else self.scale * logits.float()

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Loss of each example: logits (..., C) and target (...) give (...)."""
        raise NotImplementedError


# A builder takes the training counts of each class and the loss's own settings by keyword.
LOSSES: Registry[Callable[..., BaseLoss]] = Registry("criterion.loss")


def build_loss(name: str, class_counts: Sequence[int], **settings: Any) -> BaseLoss:
    """A base loss by name; `settings` may hold those of other losses, too, each builder takes its own.

    Every loss takes `scale`, see `BaseLoss`.

    Example:
        >>> build_loss("ce", [100, 10]).scale
        1.0
    """
    # Imported here so that the registry is filled however this function is reached.
    from elfnet.criterion import balanced_softmax, cross_entropy, focal, ldam, logit_adjusted  # noqa: F401

    return LOSSES[name](class_counts, **settings)
