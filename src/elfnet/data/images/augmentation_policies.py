"""Augmentation policies: AutoAugment, RandAugment and TrivialAugment.

A policy selects the operations of an image, their probabilities and magnitudes. AutoAugment (Cubuk et al. 2019) has the
policy learnt on CIFAR-10, RandAugment is by Cubuk et al. (2020), TrivialAugment has the wide range (Müller and Hutter
2021). Magnitudes are 0..9 for AutoAugment and 0..30 for the others. The number of random numbers that a policy draws
does not depend on the image.
"""

# Shapes: H height, W width, K channels (1 or 3)

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from elfnet.data.images.operations import OPERATIONS

AUTOAUGMENT_STEPS = 9
MAX_MAGNITUDE = 30
"""The largest magnitude of RandAugment and TrivialAugment."""


class Range(NamedTuple):
    """The range of amounts of an operation.

    Attributes:
        at_zero, at_full: The amounts at magnitude 0 and at the largest magnitude; linear between them.
        signed: Whether the sign is random.
        per_side: Whether the amount is a fraction of the image's width (translate_x) or height (translate_y).
    """

    at_zero: float = 0.0
    at_full: float = 0.0
    signed: bool = False
    per_side: bool = False


Space = dict[str, Range]
"""The operations of a policy by name, with their ranges."""

_WITHOUT_AMOUNT = {"identity": Range(), "autocontrast": Range(), "equalize": Range()}
_SPACE: Space = {
    **_WITHOUT_AMOUNT,
    "rotate": Range(0, 30, signed=True),
    "solarize": Range(256, 0),
    "posterize": Range(8, 4),
    **{name: Range(0, 0.9, signed=True) for name in ("color", "contrast", "brightness", "sharpness")},
    **{name: Range(0, 0.3, signed=True) for name in ("shear_x", "shear_y")},
    **{name: Range(0, 150 / 331, signed=True, per_side=True) for name in ("translate_x", "translate_y")},
}
RANDAUGMENT_SPACE: Space = _SPACE
AUTOAUGMENT_SPACE: Space = {**_SPACE, "invert": Range()}
TRIVIALAUGMENT_SPACE: Space = {
    **_WITHOUT_AMOUNT,
    "rotate": Range(0, 135, signed=True),
    "solarize": Range(256, 0),
    "posterize": Range(8, 2),
    **{name: Range(0, 0.99, signed=True) for name in ("color", "contrast", "brightness", "sharpness")},
    **{name: Range(0, 0.99, signed=True) for name in ("shear_x", "shear_y")},
    **{name: Range(0, 32, signed=True) for name in ("translate_x", "translate_y")},
}
_RANDAUGMENT_OPERATIONS = tuple(RANDAUGMENT_SPACE)
_TRIVIALAUGMENT_OPERATIONS = tuple(TRIVIALAUGMENT_SPACE)


class Step(NamedTuple):
    """One operation of a sub-policy of AutoAugment, with its probability and magnitude."""

    operation: str
    probability: float
    magnitude: int = 0


CIFAR10_POLICY: tuple[tuple[Step, Step], ...] = (
    (Step("invert", 0.1), Step("contrast", 0.2, 6)),
    (Step("rotate", 0.7, 2), Step("translate_x", 0.3, 9)),
    (Step("sharpness", 0.8, 1), Step("sharpness", 0.9, 3)),
    (Step("shear_y", 0.5, 8), Step("translate_y", 0.7, 9)),
    (Step("autocontrast", 0.5), Step("equalize", 0.9)),
    (Step("shear_y", 0.2, 7), Step("posterize", 0.3, 7)),
    (Step("color", 0.4, 3), Step("brightness", 0.6, 7)),
    (Step("sharpness", 0.3, 9), Step("brightness", 0.7, 9)),
    (Step("equalize", 0.6), Step("equalize", 0.5)),
    (Step("contrast", 0.6, 7), Step("sharpness", 0.6, 5)),
    (Step("color", 0.7, 7), Step("translate_x", 0.5, 8)),
    (Step("equalize", 0.3), Step("autocontrast", 0.4)),
    (Step("translate_y", 0.4, 3), Step("sharpness", 0.2, 6)),
    (Step("brightness", 0.9, 6), Step("color", 0.2, 8)),
    (Step("solarize", 0.5, 2), Step("invert", 0.0)),
    (Step("equalize", 0.2), Step("autocontrast", 0.6)),
    (Step("equalize", 0.2), Step("equalize", 0.6)),
    (Step("color", 0.9, 9), Step("equalize", 0.6)),
    (Step("autocontrast", 0.8), Step("solarize", 0.2, 8)),
    (Step("brightness", 0.1, 3), Step("color", 0.7, 0)),
    (Step("solarize", 0.4, 5), Step("autocontrast", 0.9)),
    (Step("translate_y", 0.9, 9), Step("translate_y", 0.7, 9)),
    (Step("autocontrast", 0.9), Step("solarize", 0.8, 3)),
    (Step("equalize", 0.8), Step("invert", 0.1)),
    (Step("translate_y", 0.7, 9), Step("autocontrast", 0.9)),
)
"""The 25 sub-policies learnt on CIFAR-10, with two operations each."""


def apply(space: Space, operation: str, strength: float, image: Image.Image, *, negative: bool) -> Image.Image:
    """Apply an operation to an image.

    Args:
        space: Ranges of the operations.
        operation: Name of the operation.
        strength: Magnitude divided by the largest magnitude, in [0, 1].
        negative: Negate the amount if the operation has a sign.
    """
    range_ = space[operation]
    amount = range_.at_zero + (range_.at_full - range_.at_zero) * strength
    if range_.per_side:
        amount *= image.width if operation.endswith("x") else image.height
    return OPERATIONS[operation](image, -amount if negative and range_.signed else amount)


class Policy:
    """Base class of policies for 8-bit images; a subclass implements `change`."""

    def __call__(self, pixels_HWK: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
        """Augment an image; returns a new array of the same shape (H, W, K)."""
        one_channel = pixels_HWK.shape[-1] == 1
        # Pillow images with one channel have no channel axis.
        image = Image.fromarray(pixels_HWK[..., 0] if one_channel else pixels_HWK)
        changed = np.asarray(self.change(image, rng))
        return changed[..., None] if one_channel else changed

    def change(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Augment one image."""
        raise NotImplementedError


@dataclass(frozen=True)
class AutoAugment(Policy):
    """One sub-policy per image; each of its two operations is applied with its probability."""

    def change(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Augment one image."""
        chosen, *drawn = rng.random(5).tolist()
        steps = CIFAR10_POLICY[int(chosen * len(CIFAR10_POLICY))]
        for step, happens, sign in zip(steps, drawn[:2], drawn[2:], strict=True):
            if happens < step.probability:
                strength = step.magnitude / AUTOAUGMENT_STEPS
                image = apply(AUTOAUGMENT_SPACE, step.operation, strength, image, negative=sign < 0.5)
        return image


@dataclass(frozen=True)
class RandAugment(Policy):
    """Some operations per image, drawn with replacement, all with the same magnitude.

    Args:
        operations: Number of operations per image.
        magnitude: Magnitude of the operations, 0..30.
    """

    operations: int = 2
    magnitude: int = 9

    def change(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Augment one image."""
        for chosen, sign in rng.random((self.operations, 2)).tolist():
            operation = _RANDAUGMENT_OPERATIONS[int(chosen * len(_RANDAUGMENT_OPERATIONS))]
            strength = self.magnitude / MAX_MAGNITUDE
            image = apply(RANDAUGMENT_SPACE, operation, strength, image, negative=sign < 0.5)
        return image


@dataclass(frozen=True)
class TrivialAugment(Policy):
    """One random operation per image, with a random magnitude."""

    def change(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Augment one image."""
        chosen, magnitude, sign = rng.random(3).tolist()
        operation = _TRIVIALAUGMENT_OPERATIONS[int(chosen * len(_TRIVIALAUGMENT_OPERATIONS))]
        strength = int(magnitude * (MAX_MAGNITUDE + 1)) / MAX_MAGNITUDE
        return apply(TRIVIALAUGMENT_SPACE, operation, strength, image, negative=sign < 0.5)


def build_policy(name: str, *, operations: int = 2, magnitude: int = 9) -> Policy:
    """Make a policy by name: autoaugment, randaugment or trivialaugment.

    Args:
        operations, magnitude: Arguments of RandAugment; the others ignore them.
    """
    policies: dict[str, Policy] = {
        "autoaugment": AutoAugment(),
        "randaugment": RandAugment(operations, magnitude),
        "trivialaugment": TrivialAugment(),
    }
    return policies[name]
