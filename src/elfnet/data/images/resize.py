"""Bringing a part of an image to a size: bilinear, averaging over what a pixel of the result covers.

Evaluation uses Pillow, which a deployed model has, too. Training may use torch's implementation of the same filter, at
a third of the time; on parts with whole corners the two differ by at most 1 of 255.
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
"""Left, top, right, bottom, in pixels of the upright image at its full size."""


class Part(NamedTuple):
    """A part of an image and the size (width, height) it is brought to.

    Attributes:
        quick: with torch; the part is rounded to whole pixels.
    """

    box: Box
    size: tuple[int, int]
    quick: bool = False


Choose = Callable[[int, int], Part]
"""From the width and height of an image to the part that is wanted."""


def resized_image(image: Image.Image, part: Part) -> Pixels:
    """A part of an RGB image as uint8 (H, W, 3)."""
    if part.quick:
        return _by_torch(np.asarray(image.crop(_whole(part.box))), part.size)
    # A box far larger than the result is first averaged by whole numbers: much quicker.
    return np.asarray(image.resize(part.size, Image.Resampling.BILINEAR, box=part.box, reducing_gap=3.0))


def resized_pixels(pixels_HW3: Pixels, part: Part) -> Pixels:
    """A part of an image that is an array, which may lie in a file: only what the filter can reach is read."""
    left, top, right, bottom = part.box
    if part.quick:
        left, top, right, bottom = _whole(part.box)
        return _by_torch(pixels_HW3[top:bottom, left:right], part.size)
    reach = int(max((right - left) / part.size[0], (bottom - top) / part.size[1], 1)) + 2
    x, y = max(int(left) - reach, 0), max(int(top) - reach, 0)
    seen = Image.fromarray(pixels_HW3[y : int(bottom) + reach + 1, x : int(right) + reach + 1])
    return resized_image(seen, Part((left - x, top - y, right - x, bottom - y), part.size))


def flipped(pixels_HW3: Pixels) -> Pixels:
    """The mirror image; by torch, since NumPy copies it byte by byte."""
    import torch

    mirrored: Pixels = torch.from_numpy(np.require(pixels_HW3, requirements=["C", "W"])).flip(1).numpy()
    return mirrored


def _whole(box: Box) -> tuple[int, int, int, int]:
    """Rounded to whole pixels, at least one."""
    left, top = int(box[0] + 0.5), int(box[1] + 0.5)
    return left, top, max(int(box[2] + 0.5), left + 1), max(int(box[3] + 0.5), top + 1)


def _by_torch(pixels_HW3: Pixels, size: tuple[int, int]) -> Pixels:
    import torch

    if pixels_HW3.shape[:2] == size[::-1]:
        return pixels_HW3
    # A copy, since torch wants memory that it may write to. channels_last, since its quick kernel for bytes does; only
    # with `view` has the batch of one the stride by which torch recognises that layout.
    image = torch.from_numpy(np.array(pixels_HW3)).view(1, *pixels_HW3.shape).permute(0, 3, 1, 2)
    small = torch.nn.functional.interpolate(image, size[::-1], mode="bilinear", antialias=True)
    result: Pixels = small[0].permute(1, 2, 0).numpy()
    return result


RATIOS = (3 / 4, 4 / 3)  # width : height of a random part
TRIES = 10
_LOWEST, _HIGHEST = math.log(RATIOS[0]), math.log(RATIOS[1])


def random_part(width: int, height: int, *, min_crop_area: float, rng: np.random.Generator) -> Box:
    """A part with a random share of the area and a random shape, somewhere in the image.

    The first of ten draws that fits; if none does, the largest middle part of an allowed shape.
    """
    # All numbers at once, whichever of the draws fits: what follows then draws the same numbers whatever the image is.
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


def middle_part(width: int, height: int, *, share: float) -> Box:
    """The middle square with `share` of the shorter side: what resizing and then cropping the centre shows."""
    side = min(width, height) * share
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side
