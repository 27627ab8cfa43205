"""The labels of a batch: one for each example, or two with a share each where examples were mixed."""

# Shapes: E exits, B batch, C classes

from dataclasses import dataclass

from torch import Tensor

from elfnet.criterion.base_loss import BaseLoss


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
