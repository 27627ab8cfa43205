"""Crops: random and central crop boxes, cropping and resizing, mirroring.

Resizing is bilinear with antialiasing. Evaluation uses Pillow, which is also available where a model is deployed.
Training may use torch's implementation of the same filter, which takes a third of the time; with integer boxes the two
differ by at most 1 of 255.
"""

# Shapes: H height, W width, 3 colours

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]
"""Left, top, right and bottom edge, in pixels of the upright image at its full size."""


class Part(NamedTuple):
    """A part of an image to crop, and the size to resize it to.

    Attributes:
        box: The part to crop.
        size: Width and height after resizing.
        quick: Resize with torch; the box is rounded to integers.
    """

    box: Box
    size: tuple[int, int]
    quick: bool = False


Choose = Callable[[int, int], Part]
"""Returns the part to crop, given width and height of the image."""


def resized_image(image: Image.Image, part: Part) -> Pixels:
    """Crop and resize a Pillow image in RGB; returns uint8 (H, W, 3)."""
    if part.quick:
        return _resize_with_torch(np.asarray(image.crop(_rounded(part.box))), part.size)
    # reducing_gap: a much larger box is first reduced by an integer factor, which is much faster.
    return np.asarray(image.resize(part.size, Image.Resampling.BILINEAR, box=part.box, reducing_gap=3.0))


def resized_pixels(pixels_HW3: Pixels, part: Part) -> Pixels:
    """Crop and resize an image array; of a memory-mapped array only the pixels that the filter needs are read."""
    left, top, right, bottom = part.box
    if part.quick:
        left, top, right, bottom = _rounded(part.box)
        return _resize_with_torch(pixels_HW3[top:bottom, left:right], part.size)
    reach = int(max((right - left) / part.size[0], (bottom - top) / part.size[1], 1)) + 2
    x, y = max(int(left) - reach, 0), max(int(top) - reach, 0)
    seen = Image.fromarray(pixels_HW3[y : int(bottom) + reach + 1, x : int(right) + reach + 1])
    return resized_image(seen, Part((left - x, top - y, right - x, bottom - y), part.size))


def flipped(pixels_HW3: Pixels) -> Pixels:
    """Mirror an image horizontally, with torch, which is faster than NumPy here."""
    import torch

    mirrored: Pixels = torch.from_numpy(np.require(pixels_HW3, requirements=["C", "W"])).flip(1).numpy()
    return mirrored


def _rounded(box: Box) -> tuple[int, int, int, int]:
    """The box rounded to integers, at least one pixel wide and high."""
    left, top = int(box[0] + 0.5), int(box[1] + 0.5)
    return left, top, max(int(box[2] + 0.5), left + 1), max(int(box[3] + 0.5), top + 1)


def _resize_with_torch(pixels_HW3: Pixels, size: tuple[int, int]) -> Pixels:
    import torch

    if pixels_HW3.shape[:2] == size[::-1]:
        return pixels_HW3
    # Copied because torch needs writable memory. torch's fast kernel for uint8 needs channels_last, which it recognises
    # by the stride of the batch axis; only `view` sets that stride for a batch of one.
    image = torch.from_numpy(np.array(pixels_HW3)).view(1, *pixels_HW3.shape).permute(0, 3, 1, 2)
    small = torch.nn.functional.interpolate(image, size[::-1], mode="bilinear", antialias=True)
    result: Pixels = small[0].permute(1, 2, 0).numpy()
    return result


RATIOS = (3 / 4, 4 / 3)  # width divided by height of a random crop
TRIES = 10
_LOWEST, _HIGHEST = math.log(RATIOS[0]), math.log(RATIOS[1])


def random_crop_box(
    width: int, height: int, *, min_crop_area: float, rng: np.random.Generator, squash: bool = False
) -> Box:
    """Draw a box with a random area, shape and position in the image.

    The first of ten draws that fits is taken; if none fits, the largest central box of an allowed shape.

    Args:
        min_crop_area: Smallest area as a fraction of the image.
        squash: Draw the box as if the image had been resized to a square first.
    """
    if squash and width != height:
        side = max(width, height)
        left, top, right, bottom = random_crop_box(side, side, min_crop_area=min_crop_area, rng=rng)
        return left * width / side, top * height / side, right * width / side, bottom * height / side
    # The number of draws does not depend on the image, so that later random numbers do not, either.
    for share, shape, x, y in rng.random((TRIES, 4)).tolist():
        area = (min_crop_area + (1 - min_crop_area) * share) * width * height
        ratio = math.exp(_LOWEST + (_HIGHEST - _LOWEST) * shape)
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 1 <= across <= width and 1 <= down <= height:
            left, top = int(x * (width - across + 1)), int(y * (height - down + 1))
            return left, top, left + across, top + down
    across = min(width, round(height * RATIOS[1]))
    down = min(height, round(width / RATIOS[0]))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def centre_crop_box(width: int, height: int, size: tuple[int, int], *, share: float, squash: bool = False) -> Box:
    """The central part of an image that is resized to `size`, the width and height of the network's input.

    Args:
        share: Sides of the part, as a fraction of the largest possible ones.
        squash: The largest possible part is the whole image; otherwise it has the aspect ratio of `size`.
    """
    across, down = width * share, height * share
    if not squash:
        across, down = min(across, down * size[0] / size[1]), min(down, across * size[1] / size[0])
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down
