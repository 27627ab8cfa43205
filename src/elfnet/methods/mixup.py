"""Mixup (Zhang et al. 2018): train on weighted means of two images, with the same mean of their losses."""

# Shapes: B batch

from torch import Tensor

from elfnet.criterion.labels import Labels
from elfnet.methods.mixing import MixedBatch, draw_partners, draw_share


class Mixup:
    """Pairs within a batch, one share for all of them, as the authors' code has it."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha

    def __call__(self, images: Tensor, target_B: Tensor, epoch: int) -> MixedBatch:  # noqa: ARG002
        share, partner_B = draw_share(self._alpha), draw_partners(target_B)
        # lerp keeps the memory layout that the images have.
        mixed = images[partner_B].lerp(images, share)
        return MixedBatch(mixed, Labels(target_B, target_B[partner_B], share))
