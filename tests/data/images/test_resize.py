"""Two implementations of one filter, and parts of arrays as of images."""

import numpy as np
import pytest
from PIL import Image

from elfnet.data.images.resize import Part, Pixels, flipped, resized_image, resized_pixels


@pytest.fixture
def pixels() -> Pixels:
    noise = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize((120, 90), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("box", [(0, 0, 120, 90), (10, 20, 74, 84), (30, 30, 50, 45)])
@pytest.mark.parametrize("size", [(32, 32), (64, 64)])
def test_torch_and_pillow_agree(pixels: Pixels, box: tuple[int, int, int, int], size: tuple[int, int]) -> None:
    exact = np.asarray(Image.fromarray(pixels).crop(box).resize(size, Image.Resampling.BILINEAR)).astype(int)
    for quick in (
        resized_image(Image.fromarray(pixels), Part(box, size, quick=True)),
        resized_pixels(pixels, Part(box, size, quick=True)),
    ):
        assert quick.shape == (size[1], size[0], 3)
        assert np.abs(quick - exact).max() <= 1
        if size != (box[2] - box[0], box[3] - box[1]):
            assert quick.flags.c_contiguous, "the quick kernel was used: the other one gives colours plane by plane"


@pytest.mark.parametrize("box", [(0, 0, 120, 90), (10.5, 20.25, 74.5, 84.25), (90, 60, 120, 90)])
def test_a_part_of_an_array_is_that_of_the_image(pixels: Pixels, box: tuple[float, float, float, float]) -> None:
    part = Part(box, (40, 40))
    assert np.array_equal(resized_pixels(pixels, part), resized_image(Image.fromarray(pixels), part))


def test_a_part_of_the_right_size_is_not_changed(pixels: Pixels) -> None:
    for quick in (False, True):
        assert np.array_equal(resized_pixels(pixels, Part((10, 20, 42, 52), (32, 32), quick)), pixels[20:52, 10:42])


def test_flipped(pixels: Pixels) -> None:
    assert np.array_equal(flipped(pixels), pixels[:, ::-1])
    assert np.array_equal(flipped(pixels[3:50, 7:60]), pixels[3:50, 7:60][:, ::-1])
    assert flipped(pixels).flags.c_contiguous
