"""Two implementations of one filter, and parts of arrays as of images."""

import numpy as np
import pytest
from PIL import Image

from elfnet.data.images.resize import (
    Part,
    Pixels,
    centre_crop_box,
    flipped,
    random_crop_box,
    resized_image,
    resized_pixels,
)


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


@pytest.mark.parametrize(("width", "height"), [(500, 375), (40, 400), (3, 3), (1, 1)])
def test_random_parts_lie_in_the_image_with_whole_corners(width: int, height: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        left, top, right, bottom = random_crop_box(width, height, min_crop_area=0.08, rng=rng)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        assert all(corner == int(corner) for corner in (left, top, right, bottom))


def test_shares_and_shapes_are_spread_as_asked_for() -> None:
    rng = np.random.default_rng(0)
    parts = np.array([random_crop_box(1000, 1000, min_crop_area=0.25, rng=rng) for _ in range(3000)])
    across, down = parts[:, 2] - parts[:, 0], parts[:, 3] - parts[:, 1]
    share, shape = across * down / 1e6, across / down
    assert share.min() == pytest.approx(0.25, abs=0.01)
    assert share.max() > 0.95
    assert shape.min() == pytest.approx(0.75, abs=0.01)
    assert shape.max() == pytest.approx(4 / 3, abs=0.01)
    # Uniform share would have its middle at 0.625; large parts of odd shapes do not fit, which lowers it a little.
    assert 0.52 < np.median(share) < 0.63
    assert abs(parts[:, 0] / np.maximum(1000 - across, 1)).mean() == pytest.approx(0.5, abs=0.03)


def test_an_image_of_an_extreme_shape_gives_its_middle() -> None:
    found = random_crop_box(1000, 10, min_crop_area=1.0, rng=np.random.default_rng(0))
    assert list(found) == [493, 0, 506, 10]
    found = random_crop_box(10, 1000, min_crop_area=1.0, rng=np.random.default_rng(0))
    assert list(found) == [0, 493, 10, 506]


def test_the_middle_part() -> None:
    assert centre_crop_box(300, 200, (32, 32), share=1) == (50, 0, 250, 200)
    assert centre_crop_box(300, 200, (32, 32), share=0.5) == (100, 50, 200, 150)
    assert centre_crop_box(300, 200, (32, 64), share=1) == (100, 0, 200, 200)


def test_the_middle_part_of_a_squashed_image_has_its_shape() -> None:
    assert centre_crop_box(300, 200, (32, 32), share=1, squash=True) == (0, 0, 300, 200)
    assert centre_crop_box(300, 200, (32, 32), share=0.5, squash=True) == (75, 50, 225, 150)


def test_random_parts_of_a_squashed_image_are_those_of_a_square() -> None:
    for seed in range(20):
        square = random_crop_box(300, 300, min_crop_area=0.3, rng=np.random.default_rng(seed))
        found = random_crop_box(300, 100, min_crop_area=0.3, rng=np.random.default_rng(seed), squash=True)
        assert found == pytest.approx((square[0], square[1] / 3, square[2], square[3] / 3))
    whole = [random_crop_box(30, 90, min_crop_area=0.98, rng=np.random.default_rng(0), squash=True) for _ in range(9)]
    assert all(right - left >= 20 and bottom - top >= 60 for left, top, right, bottom in whole)


def test_every_place_is_reached() -> None:
    rng = np.random.default_rng(0)
    parts = [random_crop_box(6, 6, min_crop_area=0.6, rng=rng) for _ in range(300)]
    smaller = [part for part in parts if part[2] - part[0] == 5]
    assert {part[0] for part in smaller} == {0, 1}
    assert {part[2] for part in smaller} == {5, 6}
