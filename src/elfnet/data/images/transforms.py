"""How one image becomes the array of bytes that a batch is made of. The random numbers come from the caller."""

# Shapes: S side of the square, 3 colours; H height, W width, K channels of an array
# Shapes: M images, S side

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from elfnet.data.images.decode import Limits
from elfnet.data.images.erasing import Hole, cutout, random_erasing
from elfnet.data.images.files import Decoder, EncodedImages
from elfnet.data.images.policies import Policy
from elfnet.data.images.resize import Choose, Part, Pixels, flipped, middle_part, random_part
from elfnet.recipe.schema import DataRecipe

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
    """The training transform of one image: crop, flip, policy. It draws what is changed later, for a whole batch, too.

    Args:
        crop: "resized" takes a random part of an image file and resizes it; "padded" pads the image as evaluation
            shows it by `pad` zeros and crops it at random; "none" takes it as evaluation shows it.
        min_crop_area: of the area, for a random part.
        flip: mirror half of the images.
        policy: AutoAugment, RandAugment or TrivialAugment; None for none of them.
        jitter: largest change of brightness, contrast and saturation; 0 leaves colours alone.
        cutout: side of the square that is erased in every image; 0 for none.
        random_erasing: probability that a rectangle is erased.
    """

    crop: str
    flip: bool
    min_crop_area: float = 0.08
    pad: int = 4
    policy: Policy | None = None
    jitter: float = 0.0
    cutout: int = 0
    random_erasing: float = 0.0

    def of_file(self, read: ReadPart, evaluation: Evaluation, rng: np.random.Generator) -> Pixels:
        """The augmented image of a file, uint8 (S, S, 3)."""
        if self.crop == "resized":
            return self._flip_and_policy(read(partial(self._random_part, evaluation.image_size, rng)), rng)
        return self.of_array(evaluation(read), rng)

    def of_array(self, pixels_HWK: Pixels, rng: np.random.Generator) -> Pixels:
        """The augmented image of an array, uint8 of the same shape."""
        if self.crop == "padded":
            height, width, channels = pixels_HWK.shape
            pad = self.pad
            top, left = rng.integers(0, 2 * pad + 1, 2).tolist()
            padded = np.zeros((height + 2 * pad, width + 2 * pad, channels), dtype=np.uint8)
            padded[pad : pad + height, pad : pad + width] = pixels_HWK
            pixels_HWK = padded[top : top + height, left : left + width]
        return self._flip_and_policy(pixels_HWK, rng)

    def _flip_and_policy(self, pixels_HWK: Pixels, rng: np.random.Generator) -> Pixels:
        if self.flip and rng.random() < 0.5:
            pixels_HWK = flipped(pixels_HWK)
        return pixels_HWK if self.policy is None else self.policy(pixels_HWK, rng)

    def colour_factors(self, rng: np.random.Generator) -> tuple[float, float, float]:
        """Of brightness, contrast and saturation, between 1 - `jitter` and 1 + `jitter`."""
        brightness, contrast, saturation = rng.uniform(max(0.0, 1 - self.jitter), 1 + self.jitter, 3).tolist()
        return brightness, contrast, saturation

    @property
    def erases(self) -> bool:
        """Whether images get holes."""
        return self.cutout > 0 or self.random_erasing > 0

    def holes(self, height: int, width: int, rng: np.random.Generator) -> list[Hole]:
        """What is erased in an image of this size: always as many rectangles, some of which may be empty."""
        found = []
        if self.cutout:
            found.append(cutout(height, width, side=self.cutout, rng=rng))
        if self.random_erasing:
            found.append(random_erasing(height, width, probability=self.random_erasing, rng=rng))
        return found

    def _random_part(self, side: int, rng: np.random.Generator, width: int, height: int) -> Part:
        box = random_part(width, height, min_crop_area=self.min_crop_area, rng=rng)
        return Part(box, (side, side), quick=True)


MAX_WORKERS = 8


def evaluation_of(data: DataRecipe) -> Evaluation:
    """What evaluation shows; a random part sees more detail in training, so the middle is cropped somewhat closer."""
    default = round(data.image_size * 8 / 7) if data.augment.startswith("resized") else data.image_size
    return Evaluation(image_size=data.image_size, resize=data.resize or default)


def decoder_of(data: DataRecipe, images: EncodedImages) -> Decoder:
    return Decoder(images, limits_of(data))


def limits_of(data: DataRecipe) -> Limits:
    return Limits(max_pixels=round(data.max_megapixels * 1e6), max_bytes=round(data.max_megabytes * 1e6))


def workers_of(data: DataRecipe) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_WORKERS) if data.workers < 0 else data.workers


def images_as_evaluated(data: DataRecipe, images: EncodedImages) -> Pixels:
    """Images as evaluation shows them to the network, before normalising: uint8 (M, S, S, 3). For a few images."""
    evaluation, decoder = evaluation_of(data), decoder_of(data, images)
    side = data.image_size
    pixels = np.zeros((len(images), side, side, 3), dtype=np.uint8)
    for index in range(len(images)):
        pixels[index] = evaluation(lambda choose, index=index: decoder.part(index, choose))  # type: ignore[misc]
    return pixels
