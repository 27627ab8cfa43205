"""Small made-up data: every image is different, so that an example can be recognised by its pixels."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elfnet.data.types import LabelledImages, Source

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


def write_image(file: Path, *, colour: tuple[int, int, int], width: int = 12, height: int = 10) -> Path:
    """An image of one colour, with a darker upper left quarter so that flips and turns show."""
    pixels = np.empty((height, width, 3), dtype=np.uint8)
    pixels[:] = colour
    pixels[: height // 2, : width // 2] //= 2
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return file


@pytest.fixture
def image_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write a folder of class folders; image i of class c has the colour (40 c + 10, i, 200)."""

    def write(classes: Mapping[str, int], *, below: str = "images", ending: str = "png") -> Path:
        root = tmp_path / below
        for label, (name, count) in enumerate(classes.items()):
            (root / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                write_image(root / name / f"{number:03}.{ending}", colour=(40 * label + 10, number, 200))
        return root

    return write
