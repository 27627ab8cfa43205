"""Rectangles to erase from an image: Cutout (DeVries and Taylor 2017) and random erasing (Zhong et al. 2020)."""

import math
from typing import NamedTuple

import numpy as np

AREAS = (0.02, 0.33)  # area of the rectangle of random erasing, as a fraction of the image
RATIOS = (0.3, 3.3)  # its height divided by its width, uniform on a logarithmic scale
TRIES = 10
_LOG_RATIOS = (math.log(RATIOS[0]), math.log(RATIOS[1]))


class Hole(NamedTuple):
    """A rectangle to erase: rows `top` to `bottom`, columns `left` to `right`, ends excluded. All zero: nothing."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0


def cutout(height: int, width: int, *, side: int, rng: np.random.Generator) -> Hole:
    """Draw a square of `side` pixels with its centre anywhere in the image, clipped to the image."""
    y, x = rng.random(2).tolist()
    top, left = int(y * height) - side // 2, int(x * width) - side // 2
    return Hole(max(top, 0), max(left, 0), min(top + side, height), min(left + side, width))


def random_erasing(height: int, width: int, *, probability: float, rng: np.random.Generator) -> Hole:
    """Draw a rectangle of random area and shape inside the image, with a probability.

    The first of ten draws that fits is taken; if none fits, nothing is erased.
    """
    # The number of draws does not depend on the image, so that later random numbers do not, either.
    happens, *drawn = rng.random(1 + 4 * TRIES).tolist()
    if happens >= probability:
        return Hole()
    for first in range(0, 4 * TRIES, 4):
        share, shape, y, x = drawn[first : first + 4]
        area = (AREAS[0] + (AREAS[1] - AREAS[0]) * share) * height * width
        ratio = math.exp(_LOG_RATIOS[0] + (_LOG_RATIOS[1] - _LOG_RATIOS[0]) * shape)
        down, across = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 1 <= down <= height and 1 <= across <= width:
            top, left = int(y * (height - down + 1)), int(x * (width - across + 1))
            return Hole(top, left, top + down, left + across)
    return Hole()
