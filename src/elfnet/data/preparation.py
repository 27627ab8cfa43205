"""How one image becomes the square of bytes that a batch is made of. The random numbers come from the caller."""

# Shapes: S side of the square, 3 colours

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

from elfnet.data.crops import middle_part, random_part
from elfnet.data.randaugment import randaugment
from elfnet.data.resize import Choose, Part, Pixels, flipped

ReadPart = Callable[[Choose], Pixels]
"""Reads the part of one image that is chosen."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Resize the shorter side, crop the middle.

    Args:
        image_size: side of the result.
        resize: the shorter side before the crop.
    """

    image_size: int
    resize: int

    def __call__(self, read: ReadPart) -> Pixels:
        """uint8 (S, S, 3)."""
        return read(self._middle)

    def _middle(self, width: int, height: int) -> Part:
        box = middle_part(width, height, share=self.image_size / self.resize)
        return Part(box, (self.image_size, self.image_size))


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The training transform: crop, flip, RandAugment; colours are changed later, for a whole batch (see `colour`).

    Args:
        crop: "resized" takes a random part and brings it to size; "padded" pads the evaluation image by `pad` zeros
            and crops at random; "none" takes the evaluation image.
        smallest_share: of the area, for a random part.
        flip: mirror half of the images.
        operations, magnitude: of RandAugment; 0 operations switch it off.
        jitter: largest change of brightness, contrast and saturation; 0 leaves colours alone.
    """

    evaluation: Evaluation
    crop: str
    flip: bool
    smallest_share: float = 0.08
    pad: int = 4
    operations: int = 0
    magnitude: int = 9
    jitter: float = 0.0

    def __call__(self, read: ReadPart, rng: np.random.Generator) -> Pixels:
        """uint8 (S, S, 3)."""
        side = self.evaluation.image_size
        if self.crop == "resized":
            pixels = read(partial(self._at_random, rng))
        else:
            pixels = self.evaluation(read)
            if self.crop == "padded":
                top, left = rng.integers(0, 2 * self.pad + 1, 2)
                around = ((self.pad, self.pad), (self.pad, self.pad), (0, 0))
                pixels = np.pad(pixels, around)[top : top + side, left : left + side]
        if self.flip and rng.random() < 0.5:
            pixels = flipped(pixels)
        if self.operations:
            image = Image.fromarray(pixels)
            pixels = np.asarray(randaugment(image, operations=self.operations, magnitude=self.magnitude, rng=rng))
        return pixels

    def colour_factors(self, rng: np.random.Generator) -> tuple[float, float, float]:
        """Of brightness, contrast and saturation, between 1 - `jitter` and 1 + `jitter`."""
        brightness, contrast, saturation = rng.uniform(max(0.0, 1 - self.jitter), 1 + self.jitter, 3).tolist()
        return brightness, contrast, saturation

    def _at_random(self, rng: np.random.Generator, width: int, height: int) -> Part:
        side = self.evaluation.image_size
        box = random_part(width, height, smallest_share=self.smallest_share, rng=rng)
        return Part(box, (side, side), quick=True)
