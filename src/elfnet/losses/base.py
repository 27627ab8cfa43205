"""The interface of base losses, their registry, and the labels of a batch.

A base loss is computed per example, in float32 and without class weights, which the reduction applies. `Labels` gives
an example one label, or two with mixing fractions (Mixup, CutMix, BBN).
"""

# Shapes: ... any leading dimensions, E exits, B batch, C classes

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.registry import Registry


class BaseLoss(nn.Module):
    """Base class of losses that return one value per example.

    Attributes:
        needs_cosines: whether the logits must come from a cosine head.

    Args:
        scale: the factor that logits are multiplied by before the softmax. It is 1 for linear heads. Cosines lie in
            [-1, 1], where a softmax is nearly uniform, so losses on cosine heads need a larger scale (usually 30).

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
        """Return the logits in float32, multiplied by the scale."""
        return logits.float() if self.scale == 1.0 else self.scale * logits.float()

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of each example: logits (..., C) and target (...) give (...)."""
        raise NotImplementedError


LOSSES: Registry[Callable[..., BaseLoss]] = Registry("criterion.loss")
"""Builders by name. A builder takes the number of training examples per class, and settings by keyword."""


def build_loss(name: str, class_counts: Sequence[int], **settings: Any) -> BaseLoss:
    """Build a base loss by name.

    Args:
        class_counts: the number of training examples per class.
        settings: `scale` (see `BaseLoss`) and the settings of any loss. Each builder uses its own and ignores the rest.

    Raises:
        RequestError: the name is unknown, or a setting has a wrong value.

    Example:
        >>> build_loss("ce", [100, 10]).scale
        1.0
    """
    # Importing these modules registers their losses.
    from elfnet.losses import cross_entropy, ldam, logit_adjusted  # noqa: F401

    return LOSSES[name](class_counts, **settings)


@dataclass(frozen=True)
class Labels:
    """The labels of a batch: one per example, or two that share the example.

    Attributes:
        first_B: the label, or the first of two.
        second_B: the second label; None if there is only one.
        share: the fraction of the first label, in [0, 1].
        importance_B: the weight of each example if some examples represent others that were left out; None for 1.
    """

    first_B: Tensor
    second_B: Tensor | None = None
    share: float = 1.0
    importance_B: Tensor | None = None

    @property
    def leading(self) -> Tensor:
        """The label with the larger share. A prediction counts as correct in eq. 1 if it equals this label."""
        return self.first_B if self.second_B is None or self.share >= 0.5 else self.second_B

    def weight(self, weights_C: Tensor) -> Tensor:
        """The weight of each example, shape (B,): the mean of its class weights by share, times its importance."""
        weight_B = weights_C[self.first_B]
        if self.second_B is not None:
            weight_B = self.share * weight_B + (1 - self.share) * weights_C[self.second_B]
        return weight_B if self.importance_B is None else weight_B * self.importance_B

    def loss(self, base: BaseLoss, logits_EBC: Tensor, weights_C: Tensor) -> Tensor:
        """The base loss of each example at each exit, shape (E, B), before the weights of `weight` are applied.

        With two labels it is the mean of both losses, weighted by share and class weight.
        """
        exits = logits_EBC.shape[0]
        first_EB: Tensor = base(logits_EBC, self.first_B.expand(exits, -1))
        if self.second_B is None:
            return first_EB
        second_EB: Tensor = base(logits_EBC, self.second_B.expand(exits, -1))
        first_part_B = self.share * weights_C[self.first_B]
        second_part_B = (1 - self.share) * weights_C[self.second_B]
        return (first_part_B * first_EB + second_part_B * second_EB) / (first_part_B + second_part_B)
