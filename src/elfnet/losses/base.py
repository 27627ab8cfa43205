"""What every base loss is: per-example, unweighted, float32. Class weights belong to the reduction."""

# Shapes: ... any leading dimensions, C classes
# Shapes: E exits, B batch, C classes

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    from elfnet.losses import cross_entropy, ldam, logit_adjusted  # noqa: F401

    return LOSSES[name](class_counts, **settings)


@dataclass(frozen=True)
class Labels:
    """What a batch is to be classified as.

    Attributes:
        first_B: the label, or the first of two.
        second_B: the second; None: there is one only.
        share: of the first, in [0, 1].
        importance_B: what each example counts, where some stand for others that are not shown; None: 1.
    """

    first_B: Tensor
    second_B: Tensor | None = None
    share: float = 1.0
    importance_B: Tensor | None = None

    @property
    def leading(self) -> Tensor:
        """The label with the larger share: an answer is correct in the sense of eq. 1 if it is this one."""
        return self.first_B if self.second_B is None or self.share >= 0.5 else self.second_B

    def weight(self, weights_C: Tensor) -> Tensor:
        """Weight of each example, shape (B,): that of its classes, by their shares, times its importance."""
        weight_B = weights_C[self.first_B]
        if self.second_B is not None:
            weight_B = self.share * weight_B + (1 - self.share) * weights_C[self.second_B]
        return weight_B if self.importance_B is None else weight_B * self.importance_B

    def loss(self, base: BaseLoss, logits_EBC: Tensor, weights_C: Tensor) -> Tensor:
        """Base loss of each example at each exit, shape (E, B), to be weighted by `weight`.

        With two labels it is the mean of both losses, each by its share and by the weight of its class.
        """
        exits = logits_EBC.shape[0]
        first_EB: Tensor = base(logits_EBC, self.first_B.expand(exits, -1))
        if self.second_B is None:
            return first_EB
        second_EB: Tensor = base(logits_EBC, self.second_B.expand(exits, -1))
        first_part_B = self.share * weights_C[self.first_B]
        second_part_B = (1 - self.share) * weights_C[self.second_B]
        return (first_part_B * first_EB + second_part_B * second_EB) / (first_part_B + second_part_B)
