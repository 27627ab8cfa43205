"""A small made-up source: every image is different, so that an example can be recognised by its pixels."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from elfnet.data.source import LabelledImages, Source

MakeSource = Callable[..., Source]


def numbered_images(class_sizes: Sequence[int], *, first: int = 0) -> LabelledImages:
    """2 x 2 x 1 images that spell their number, classes interleaved."""
    labels = np.random.default_rng(7).permutation(np.repeat(np.arange(len(class_sizes)), class_sizes))
    numbers = np.arange(first, first + len(labels), dtype="<u4")
    return LabelledImages(numbers.view(np.uint8).reshape(-1, 2, 2, 1), labels.astype(np.int64))


@pytest.fixture
def make_source() -> MakeSource:
    def make(class_sizes: Sequence[int], *, own_test: bool = False) -> Source:
        return Source(
            name="made-up",
            class_names=tuple(f"class {label}" for label in range(len(class_sizes))),
            train=numbered_images(class_sizes),
            test=numbered_images([3] * len(class_sizes), first=1_000_000) if own_test else None,
            horizontal_flip=True,
        )

    return make
