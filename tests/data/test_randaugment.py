"""RandAugment: every operation does something, is bounded by its magnitude, and is a function of the generator."""

import numpy as np
import pytest
from PIL import Image

from elfnet.data.randaugment import OPERATIONS, randaugment


@pytest.fixture
def image() -> Image.Image:
    noise = np.random.default_rng(0).integers(30, 200, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((32, 32), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_keeps_the_size_and_changes_what_it_should(image: Image.Image, name: str) -> None:
    changed = OPERATIONS[name](image, 1.0, 1.0)
    assert (changed.size, changed.mode) == (image.size, image.mode)
    assert np.array_equal(np.asarray(changed), np.asarray(image)) is (name == "identity")


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"autocontrast", "equalize"}))
def test_no_strength_changes_nothing(image: Image.Image, name: str) -> None:
    assert np.array_equal(np.asarray(OPERATIONS[name](image, 0.0, 1.0)), np.asarray(image))


@pytest.mark.parametrize("name", ["rotate", "shear x", "shear y", "translate x", "translate y", "brightness"])
def test_the_sign_matters(image: Image.Image, name: str) -> None:
    one, other = (np.asarray(OPERATIONS[name](image, 0.5, sign)) for sign in (1.0, -1.0))
    assert not np.array_equal(one, other)


def test_translation_by_hand(image: Image.Image) -> None:
    moved = np.asarray(OPERATIONS["translate x"](image, 10 / (0.45 * 32), 1.0))
    assert np.array_equal(moved[:, :22], np.asarray(image)[:, 10:])
    assert (moved[:, 22:] == 128).all()


def test_drawn_by_the_generator_only(image: Image.Image) -> None:
    def run(seed: int, operations: int = 2, magnitude: int = 9) -> bytes:
        rng = np.random.default_rng(seed)
        return randaugment(image, operations=operations, magnitude=magnitude, rng=rng).tobytes()

    assert run(3) == run(3)
    assert len({run(seed) for seed in range(30)}) > 20
    assert run(3, operations=0) == image.tobytes()
    assert run(4, magnitude=20) != run(4, magnitude=9)
