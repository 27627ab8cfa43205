"""RandAugment (Cubuk et al. 2020): a few operations drawn at random, all of one magnitude, with Pillow.

Pillow and not a batched tensor library: every image draws other operations, so a batch would have to compute all of
them for all images and choose; and worker processes do this beside the training step.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

LARGEST_MAGNITUDE = 30
GREY = (128, 128, 128)

Operation = Callable[[Image.Image, float, float], Image.Image]
"""Gets the image, the strength in [0, 1] and a sign."""


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    """1 leaves the image as it is; full strength is 0.1 or 1.9."""
    return lambda image, strength, sign: kind(image).enhance(1 + sign * 0.9 * strength)


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR, fillcolor=GREY
    )


def _shear_x(image: Image.Image, strength: float, sign: float) -> Image.Image:
    slope = sign * 0.3 * strength
    return _affine(image, (1, slope, -slope * image.height / 2, 0, 1, 0))


def _shear_y(image: Image.Image, strength: float, sign: float) -> Image.Image:
    slope = sign * 0.3 * strength
    return _affine(image, (1, 0, 0, slope, 1, -slope * image.width / 2))


def _translate_x(image: Image.Image, strength: float, sign: float) -> Image.Image:
    return _affine(image, (1, 0, sign * 0.45 * strength * image.width, 0, 1, 0))


def _translate_y(image: Image.Image, strength: float, sign: float) -> Image.Image:
    return _affine(image, (1, 0, 0, 0, 1, sign * 0.45 * strength * image.height))


def _rotate(image: Image.Image, strength: float, sign: float) -> Image.Image:
    return image.rotate(sign * 30 * strength, resample=Image.Resampling.BILINEAR, fillcolor=GREY)


def _posterize(image: Image.Image, strength: float, _sign: float) -> Image.Image:
    return ImageOps.posterize(image, 8 - round(4 * strength))


def _solarize(image: Image.Image, strength: float, _sign: float) -> Image.Image:
    return ImageOps.solarize(image, 256 - round(256 * strength))


OPERATIONS: dict[str, Operation] = {
    "identity": lambda image, _strength, _sign: image,
    "autocontrast": lambda image, _strength, _sign: ImageOps.autocontrast(image),
    "equalize": lambda image, _strength, _sign: ImageOps.equalize(image),
    "rotate": _rotate,
    "solarize": _solarize,
    "posterize": _posterize,
    "colour": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear x": _shear_x,
    "shear y": _shear_y,
    "translate x": _translate_x,
    "translate y": _translate_y,
}
_NAMES = tuple(OPERATIONS)


def randaugment(image: Image.Image, *, operations: int, magnitude: int, rng: np.random.Generator) -> Image.Image:
    """Apply `operations` operations drawn with replacement; strength is `magnitude` of 30, signs are random."""
    strength = magnitude / LARGEST_MAGNITUDE
    for place, sign in zip(rng.integers(len(_NAMES), size=operations), rng.integers(2, size=operations), strict=True):
        image = OPERATIONS[_NAMES[place]](image, strength, 1.0 if sign else -1.0)
    return image
