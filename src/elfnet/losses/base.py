"""The interface of base losses, their registry, and the labels of a batch.

A base loss is computed per example, in at least float32 and without class weights, which the reduction applies.
`Labels` gives an example one label, or two with mixing fractions (Mixup, CutMix, BBN).
"""

# Shapes: ... any leading dimensions, E exits, B batch, C classes

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.registry import Registry


class BaseLoss(nn.Module):
    """Base class of losses that return one value per example.

    A loss computes in float32, or in float64 if the logits are float64.

    Attributes:
        needs_cosines: whether the logits must come from a cosine head.
        weights_inside: whether class weights are an argument of the loss instead of a factor of it.
        classes: the number of classes; None for any number.

    Args:
        scale: the factor that logits are multiplied by before the softmax. It is 1 for linear heads. Cosines lie in
            [-1, 1], where a softmax is nearly uniform, so losses on cosine heads need a larger scale (usually 30).
        classes: the number of classes that the loss was built for; None for any number.

    Raises:
        RequestError: the scale is not positive.
    """

    needs_cosines: bool = False
    weights_inside: bool = False

    def __init__(self, *, scale: float = 1.0, classes: int | None = None) -> None:
        super().__init__()
        if scale <= 0:
            raise RequestError(f"criterion.cosine_scale={scale} must be positive; the usual value is 30")
        self.scale = scale
        self.classes = classes
        self._exact: dict[str, Tensor] = {}

    def scaled(self, logits: Tensor) -> Tensor:
        """Return the logits in at least float32, multiplied by the scale."""
        logits = self.checked(logits)
        return logits if self.scale == 1.0 else self.scale * logits

    def checked(self, logits: Tensor) -> Tensor:
        """Return the logits in at least float32.

        Raises:
            RequestError: they have another number of classes than the loss.
        """
        if self.classes is not None and logits.shape[-1] != self.classes:
            raise RequestError(
                f"the logits have {logits.shape[-1]} classes, and {type(self).__name__} got counts of {self.classes}; "
                "give one count per class"
            )
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def keep_constant(self, name: str, values_C: Tensor) -> None:
        """Keep a tensor that follows from the class counts: a float32 buffer, not saved; float64 stays available."""
        self.register_buffer(name, values_C.float(), persistent=False)
        self._exact[name] = values_C

    def constant(self, name: str, like: Tensor) -> Tensor:
        """Return a tensor of `keep_constant` in the precision of the logits and on their device."""
        if like.dtype == torch.float64:
            return self._exact[name].to(like)
        values_C: Tensor = getattr(self, name)
        return values_C

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of each example: logits (..., C) and target (...) give (...)."""
        raise NotImplementedError


def check_counts(class_counts: Sequence[int], what: str) -> None:
    """Raise a RequestError unless every class has a training example; `what` would be undefined without."""
    if len(class_counts) == 0:
        raise RequestError("class_counts is empty; give the number of training examples of each class")
    for label, count in enumerate(class_counts):
        if count <= 0:
            raise RequestError(
                f"class {label} has no training example, so its {what} is undefined; drop it or add examples"
            )


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

    def weight(self, base: BaseLoss, weights_C: Tensor) -> Tensor:
        """The weight of each example in the reduction, shape (B,).

        It is the mean of its class weights by share, times its importance. Class weights that enter the loss itself
        (`BaseLoss.weights_inside`) count as 1 here.
        """
        if base.weights_inside:
            weights_C = torch.ones_like(weights_C)
        weight_B = weights_C[self.first_B]
        if self.second_B is not None:
            weight_B = self.share * weight_B + (1 - self.share) * weights_C[self.second_B]
        return weight_B if self.importance_B is None else weight_B * self.importance_B

    def loss(self, base: BaseLoss, logits_EBC: Tensor, weights_C: Tensor) -> Tensor:
        """The base loss of each example at each exit, shape (E, B), before the weights of `weight` are applied.

        With two labels it is the mean of both losses, weighted by share and class weight.
        """
        exits = logits_EBC.shape[0]
        inside = (weights_C,) if base.weights_inside else ()
        first_EB: Tensor = base(logits_EBC, self.first_B.expand(exits, -1), *inside)
        if self.second_B is None:
            return first_EB
        second_EB: Tensor = base(logits_EBC, self.second_B.expand(exits, -1), *inside)
        if base.weights_inside:
            return self.share * first_EB + (1 - self.share) * second_EB
        first_part_B = self.share * weights_C[self.first_B]
        second_part_B = (1 - self.share) * weights_C[self.second_B]
        return (first_part_B * first_EB + second_part_B * second_EB) / (first_part_B + second_part_B)
