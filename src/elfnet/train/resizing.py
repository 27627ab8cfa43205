"""Progressive resizing: small images in early epochs, full images in the last ones.

Early epochs learn coarse features, for which small images suffice. The cost of a convolution is proportional to the
area, so half the side takes a quarter of the multiply-adds.
"""

# Shapes: B batch, K channels, H height, W width

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

STEPS = 8
"""Sides are multiples of 1 / STEPS of the full side. Each side needs its own compiled graph, so there are few."""


@dataclass(frozen=True)
class ProgressiveResizing:
    """The side of training images as a pure function of the epoch.

    Attributes:
        start: side in the first epoch, as a fraction of the full side, in (0, 1).
        until: fraction of the epochs after which images have their full side.
        epochs: length of the run.
    """

    start: float
    until: float
    epochs: int

    def share(self, epoch: int) -> float:
        """Side in a 0-based epoch, as a fraction of the full side.

        Example:
            >>> [ProgressiveResizing(0.5, 0.8, 10).share(epoch) for epoch in (0, 2, 4, 6, 8)]
            [0.5, 0.625, 0.75, 0.875, 1.0]
        """
        growing = self.until * self.epochs
        if epoch >= growing:
            return 1.0
        return round(STEPS * (self.start + (1 - self.start) * epoch / growing)) / STEPS

    @property
    def sizes(self) -> int:
        """Number of different sides in the run."""
        return len({self.share(epoch) for epoch in range(self.epochs)})

    def __call__(self, images: Tensor, epoch: int) -> Tensor:
        """Resize images (B, K, H, W) to the side of the epoch, bilinear with anti-aliasing."""
        share = self.share(epoch)
        if share == 1.0 or not len(images):
            return images
        size = [max(1, round(share * side)) for side in images.shape[-2:]]
        return functional.interpolate(images, size=size, mode="bilinear", antialias=True)
