"""Which rectangle of an image is erased: Cutout (DeVries and Taylor 2017) and random erasing (Zhong et al. 2020)."""

import math
from typing import NamedTuple

import numpy as np

AREAS = (0.02, 0.33)  # of random erasing, as shares of the image
RATIOS = (0.3, 3.3)  # height : width of the erased rectangle, drawn evenly on a logarithmic scale
TRIES = 10
_LOG_RATIOS = (math.log(RATIOS[0]), math.log(RATIOS[1]))


class Hole(NamedTuple):
    """Rows `top` to `bottom` and columns `left` to `right`, the last ones excluded. All zero: no hole."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0


def cutout(height: int, width: int, *, side: int, rng: np.random.Generator) -> Hole:
    """A square of `side` pixels whose centre lies anywhere in the image; what is outside the image is cut off."""
    y, x = rng.random(2).tolist()
    top, left = int(y * height) - side // 2, int(x * width) - side // 2
    return Hole(max(top, 0), max(left, 0), min(top + side, height), min(left + side, width))


def random_erasing(height: int, width: int, *, probability: float, rng: np.random.Generator) -> Hole:
    """A rectangle of random area and shape, all inside the image, with a probability.

    The first of ten draws that fits is taken; if none does, nothing is erased.
    """
    # All numbers at once, whichever of the draws fits: what follows then draws the same numbers whatever the image is.
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
