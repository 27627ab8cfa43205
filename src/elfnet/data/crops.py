"""Which part of an image is taken: at random for training, the middle for evaluation."""

import math

import numpy as np

from elfnet.data.resize import Box

RATIOS = (3 / 4, 4 / 3)  # width : height of a random part
TRIES = 10
_LOWEST, _HIGHEST = math.log(RATIOS[0]), math.log(RATIOS[1])


def random_part(width: int, height: int, *, smallest_share: float, rng: np.random.Generator) -> Box:
    """A part with a random share of the area and a random shape, somewhere in the image.

    The first of ten draws that fits; if none does, the largest middle part of an allowed shape.
    """
    # All numbers at once, whichever of the draws fits: what follows then draws the same numbers whatever the image is.
    for share, shape, x, y in rng.random((TRIES, 4)).tolist():
        area = (smallest_share + (1 - smallest_share) * share) * width * height
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
