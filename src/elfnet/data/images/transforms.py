"""Transforms of single images for evaluation and training, and their construction from a recipe.

The result is uint8; normalisation and changes of colours are applied to whole batches. Random numbers come from the
caller.
"""

# Shapes: M images, S side of the square, 3 colours, H height, W width, K channels

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from elfnet.data.images.augmentation_policies import Policy
from elfnet.data.images.decode import Limits
from elfnet.data.images.files import Decoder, EncodedImages
from elfnet.data.images.operations import Hole, cutout, random_erasing
from elfnet.data.images.resize import Choose, Part, Pixels, centre_crop_box, flipped, random_crop_box
from elfnet.recipe.schema import DataRecipe

MAX_WORKERS = 8

ReadPart = Callable[[Choose], Pixels]
"""Reads one image, cropped and resized as its argument chooses."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation transform: crop the centre, or squash the whole image, and resize.

    Args:
        image_size: Side of the result.
        resize: Length of the shorter side before the crop; with `squash`, of both sides.
        squash: Keep the whole image and change its aspect ratio.
    """

    image_size: int
    resize: int
    squash: bool = False

    def __call__(self, read: ReadPart) -> Pixels:
        """Transform the image that `read` reads; returns uint8 (S, S, 3)."""
        return read(self._centre)

    def _centre(self, width: int, height: int) -> Part:
        size = (self.image_size, self.image_size)
        return Part(centre_crop_box(width, height, size, share=self.share, squash=self.squash), size)

    @property
    def share(self) -> float:
        """Sides of the part that is shown, relative to the largest possible part."""
        return self.image_size / self.resize


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The training transform of one image: crop, flip, policy.

    It also draws the colour factors and erased rectangles, which are applied to whole batches.

    Args:
        crop: "resized" resizes a random part of an image file; "padded" applies the evaluation transform, pads the
            result and crops it at random; "none" only applies the evaluation transform.
        flip: Mirror half of the images.
        min_crop_area: Smallest random part, as a fraction of the area.
        pad: Zero padding on each side, in pixels.
        policy: AutoAugment, RandAugment or TrivialAugment; None for no policy.
        jitter: Largest relative change of brightness, contrast and saturation; 0 for none.
        cutout: Side of the square erased in every image; 0 for none.
        random_erasing: Probability that a rectangle is erased.
    """

    crop: str
    flip: bool
    min_crop_area: float = 0.08
    pad: int = 4
    policy: Policy | None = None
    jitter: float = 0.0
    cutout: int = 0
    random_erasing: float = 0.0

    def augment_file(self, read: ReadPart, evaluation: Evaluation, rng: np.random.Generator) -> Pixels:
        """Augment an image file; returns uint8 (S, S, 3)."""
        if self.crop == "resized":
            return self._flip_and_policy(read(partial(self._random_part, evaluation, rng)), rng)
        return self.augment_array(evaluation(read), rng)

    def augment_array(self, pixels_HWK: Pixels, rng: np.random.Generator) -> Pixels:
        """Augment an image array; returns uint8 of the same shape."""
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
        """Draw factors of brightness, contrast and saturation between 1 - `jitter` and 1 + `jitter`."""
        brightness, contrast, saturation = rng.uniform(max(0.0, 1 - self.jitter), 1 + self.jitter, 3).tolist()
        return brightness, contrast, saturation

    @property
    def erases(self) -> bool:
        """Whether parts of images are erased."""
        return self.cutout > 0 or self.random_erasing > 0

    def holes(self, height: int, width: int, rng: np.random.Generator) -> list[Hole]:
        """Draw the rectangles to erase in an image; their number is constant, and some may be empty."""
        drawn = []
        if self.cutout:
            drawn.append(cutout(height, width, side=self.cutout, rng=rng))
        if self.random_erasing:
            drawn.append(random_erasing(height, width, probability=self.random_erasing, rng=rng))
        return drawn

    def _random_part(self, evaluation: Evaluation, rng: np.random.Generator, width: int, height: int) -> Part:
        box = random_crop_box(width, height, min_crop_area=self.min_crop_area, rng=rng, squash=evaluation.squash)
        return Part(box, (evaluation.image_size, evaluation.image_size), quick=True)


def evaluation_of(data: DataRecipe) -> Evaluation:
    """The evaluation transform of a recipe.

    With random resized crops, training sees more detail, so a centre crop shows the central 7/8 by default.
    """
    squash = data.fit == "squash"
    closer = data.augment.startswith("resized") and not squash
    default = round(data.image_size * 8 / 7) if closer else data.image_size
    return Evaluation(image_size=data.image_size, resize=data.resize or default, squash=squash)


def decoder_of(data: DataRecipe, images: EncodedImages) -> Decoder:
    """The decoder of some images, with the limits of a recipe."""
    return Decoder(images, limits_of(data))


def limits_of(data: DataRecipe) -> Limits:
    """The limits on image sizes of a recipe."""
    return Limits(
        max_pixels=round(data.max_megapixels * 1e6),
        max_bytes=round(data.max_megabytes * 1e6),
        remedy="make it smaller, or raise data.max_megapixels or data.max_megabytes",
    )


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_of(data: DataRecipe) -> int:
    """The number of loader processes of a recipe; -1 means one per core, at most `MAX_WORKERS`."""
    return min(available_cores(), MAX_WORKERS) if data.workers < 0 else data.workers


def images_as_evaluated(data: DataRecipe, images: EncodedImages) -> Pixels:
    """Apply the evaluation transform to a few images, without normalisation; returns uint8 (M, S, S, 3)."""
    evaluation, decoder = evaluation_of(data), decoder_of(data, images)
    side = data.image_size
    pixels = np.zeros((len(images), side, side, 3), dtype=np.uint8)
    for index in range(len(images)):
        pixels[index] = evaluation(lambda choose, index=index: decoder.part(index, choose))  # type: ignore[misc]
    return pixels
