"""Image operations of augmentation: those of AutoAugment, RandAugment and TrivialAugment, and rectangles to erase.

Every operation takes an 8-bit image (mode "RGB", or "L" for one channel) and an amount in natural units, and returns an
image of the same size and mode. Pixels that move into the image are mid-grey. Operations on colours do not change
images with one channel.

Geometry and blending use Pillow. Operations on values use NumPy: Pillow gives the same images, but builds a table of
all values in Python, which is several times slower for small images.
"""

# Shapes: V = 256 values

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageEnhance

FILL = 128
"""Value of pixels that a shear, translation or rotation moves into the image."""

Operation = Callable[[Image.Image, float], Image.Image]
"""Takes an image and an amount, and returns the changed image."""


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """Output pixel (x, y) shows the input at (a x + b y + c, d x + e y + f), matrix = (a, b, c, d, e, f)."""
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR, fillcolor=_fill(image)
    )


def _fill(image: Image.Image) -> int | tuple[int, ...]:
    return FILL if image.mode == "L" else (FILL,) * len(image.getbands())


def shear_x(image: Image.Image, slope: float) -> Image.Image:
    """Shift each row by `slope` pixels more than the row above it: to the left if positive. The first row stays."""
    return _affine(image, (1, slope, 0, 0, 1, 0))


def shear_y(image: Image.Image, slope: float) -> Image.Image:
    """Shift each column by `slope` pixels more than the one before: upwards if positive. The first column stays."""
    return _affine(image, (1, 0, 0, slope, 1, 0))


def translate_x(image: Image.Image, pixels: float) -> Image.Image:
    """Shift to the left by a whole number of pixels; to the right if negative."""
    return _affine(image, (1, 0, int(pixels), 0, 1, 0))


def translate_y(image: Image.Image, pixels: float) -> Image.Image:
    """Shift upwards by a whole number of pixels; downwards if negative."""
    return _affine(image, (1, 0, 0, 0, 1, int(pixels)))


def rotate(image: Image.Image, degrees: float) -> Image.Image:
    """Rotate about the centre; counterclockwise if positive."""
    return image.rotate(degrees, resample=Image.Resampling.BILINEAR, fillcolor=_fill(image))


def brightness(image: Image.Image, change: float) -> Image.Image:
    """Blend with black: -1 is black, 0 the image itself, positive values extrapolate."""
    return ImageEnhance.Brightness(image).enhance(1 + change)


def color(image: Image.Image, change: float) -> Image.Image:
    """Blend with the image without colour: -1 is grey, 0 the image itself. An image with one channel is not changed."""
    return image if image.mode == "L" else ImageEnhance.Color(image).enhance(1 + change)


def contrast(image: Image.Image, change: float) -> Image.Image:
    """Blend with the mean grey of the image: -1 is uniform, 0 the image itself."""
    return ImageEnhance.Contrast(image).enhance(1 + change)


def sharpness(image: Image.Image, change: float) -> Image.Image:
    """Blend with a smoothed copy: -1 is smoothed, 0 the image itself, positive values sharpen."""
    return ImageEnhance.Sharpness(image).enhance(1 + change)


def posterize(image: Image.Image, bits: float) -> Image.Image:
    """Keep the highest `bits` bits of each value; 8 changes nothing."""
    return Image.fromarray(np.asarray(image) & np.uint8(256 - 2 ** (8 - round(bits))))


def solarize(image: Image.Image, threshold: float) -> Image.Image:
    """Invert values that are at least the threshold; 256 changes nothing."""
    pixels = np.asarray(image)
    return Image.fromarray(np.where(pixels < threshold, pixels, ~pixels))


def autocontrast(image: Image.Image, _amount: float) -> Image.Image:
    """Stretch the values of each channel to 0..255; a channel with a single value is not changed."""
    pixels = np.asarray(image)
    low = pixels.min(axis=(0, 1)).astype(np.float64)
    high = pixels.max(axis=(0, 1))
    scale = np.where(high > low, 255.0 / np.maximum(high - low, 1.0), 1.0)
    offset = np.where(high > low, -low * scale, 0.0)
    return Image.fromarray((pixels * scale + offset).clip(0, 255).astype(np.uint8))


def equalize(image: Image.Image, _amount: float) -> Image.Image:
    """Make the histogram of each channel as even as possible."""
    pixels = np.asarray(image)
    changed = pixels.copy()
    for channel in range(len(image.getbands())):
        part = (..., channel) if pixels.ndim == 3 else (...,)
        count_V = np.bincount(pixels[part].ravel(), minlength=256)
        below_V = count_V.cumsum() - count_V
        # Pixels per new value; those with the largest value do not count, since it becomes 255 anyway.
        step = int(below_V[count_V > 0][-1]) // 255
        if step:
            changed[part] = ((below_V + step // 2) // step).clip(max=255).astype(np.uint8)[pixels[part]]
    return Image.fromarray(changed)


def invert(image: Image.Image, _amount: float) -> Image.Image:
    """255 minus each value."""
    return Image.fromarray(~np.asarray(image))


def identity(image: Image.Image, _amount: float) -> Image.Image:
    """The image itself."""
    return image


OPERATIONS: dict[str, Operation] = {
    "identity": identity,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "invert": invert,
    "rotate": rotate,
    "solarize": solarize,
    "posterize": posterize,
    "color": color,
    "contrast": contrast,
    "brightness": brightness,
    "sharpness": sharpness,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
}
"""All operations by name."""


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
