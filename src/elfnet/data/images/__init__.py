"""Images: safe decoding, resizing, crops, augmentation policies, and random numbers per example."""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.data.images.augmentation_policies import AutoAugment, RandAugment, TrivialAugment

_MODULES = {
    "AutoAugment": "elfnet.data.images.augmentation_policies",
    "RandAugment": "elfnet.data.images.augmentation_policies",
    "TrivialAugment": "elfnet.data.images.augmentation_policies",
}

__all__ = [
    "AutoAugment",
    "RandAugment",
    "TrivialAugment",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
