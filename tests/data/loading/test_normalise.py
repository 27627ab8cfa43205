"""Colour jitter and normalising in one product, against the operations one after the other."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from elfnet.data.images.operations import Hole
from elfnet.data.loading.normalise import (
    GREY_K,
    IMAGES_IN_CPU_CACHE,
    erase,
    holes_tensor,
    jitter_and_normalise,
    normalise_bytes,
)

MEAN, STD = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
ZERO, ONE = torch.zeros(3), torch.ones(3)
FACTORS = [(1, 1, 1), (1.3, 1, 1), (1, 0.6, 1), (1, 1, 0.2), (0.8, 1.3, 1.2), (1, 1, 0)]


def made_up(batch: int, height: int, width: int, low: int = 90, high: int = 150) -> torch.Tensor:
    """Values far from both ends, so that nothing is cut."""
    values = np.random.default_rng(0).integers(low, high, (batch, height, width, 3), dtype=np.uint8)
    return torch.from_numpy(values)


def naive(pixels: NDArray[np.uint8], brightness: float, contrast: float, saturation: float) -> NDArray[np.float64]:
    found = pixels / 255 * brightness
    mean_grey = (found @ np.array(GREY_K)).mean()
    found = mean_grey + (found - mean_grey) * contrast
    grey = (found @ np.array(GREY_K))[..., None]
    result: NDArray[np.float64] = (grey + (found - grey) * saturation).clip(0, 1)
    return result


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 6), (5, 7)])
def test_one_product_is_all_operations_image_by_image(height: int, width: int) -> None:
    images = made_up(len(FACTORS), height, width)
    found = jitter_and_normalise(images, torch.tensor(FACTORS), mean_K=MEAN, std_K=STD)
    assert found.shape == (len(FACTORS), 3, height, width)
    assert found.is_contiguous(memory_format=torch.channels_last)
    for image, factors, one in zip(images.numpy(), FACTORS, found, strict=True):
        expected = (naive(image, *factors) - MEAN.numpy()) / STD.numpy()
        assert np.allclose(one.permute(1, 2, 0).numpy(), expected, atol=1e-5)


def test_it_is_what_pillow_does_one_by_one() -> None:
    pixels = made_up(1, 20, 30)
    image = Image.fromarray(pixels[0].numpy())
    for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = kind(image).enhance(1.2)
    found = jitter_and_normalise(pixels, torch.full((1, 3), 1.2), mean_K=ZERO, std_K=ONE)[0] * 255
    assert np.abs(found.permute(1, 2, 0).numpy() - np.asarray(image)).max() <= 3


def test_values_are_cut() -> None:
    # More than are computed at a time.
    more = IMAGES_IN_CPU_CACHE + 1
    doubled = torch.tensor([[2.0, 1, 1]]).repeat(more, 1)
    bright = jitter_and_normalise(made_up(more, 4, 4, 200, 255), doubled, mean_K=MEAN, std_K=STD)
    assert torch.allclose(bright, ((1 - MEAN) / STD).view(1, 3, 1, 1).expand_as(bright))
    dark = jitter_and_normalise(made_up(1, 4, 4, 0, 9), torch.tensor([[0.0, 1, 1]]), mean_K=MEAN, std_K=STD)
    assert torch.allclose(dark, (-MEAN / STD).view(1, 3, 1, 1).expand_as(dark))


def test_without_jitter_bytes_are_normalised() -> None:
    images = made_up(2, 3, 5, 0, 255)
    expected = ((images / 255 - MEAN) / STD).permute(0, 3, 1, 2)
    found = normalise_bytes(images, mean_K=MEAN, std_K=STD)
    assert torch.allclose(found, expected, atol=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last)
    unchanged = jitter_and_normalise(images, torch.ones(2, 3), mean_K=MEAN, std_K=STD)
    assert torch.allclose(unchanged, expected, atol=1e-5)


def test_erased_rectangles_are_zero_and_nothing_else_is() -> None:
    images = torch.randn(3, 2, 5, 6).contiguous(memory_format=torch.channels_last) + 10
    holes = [[Hole(0, 1, 2, 3), Hole()], [Hole(4, 5, 5, 6), Hole(0, 0, 5, 1)], [Hole(), Hole()]]
    expected = images.clone()
    for image, rectangles in zip(expected, holes, strict=True):
        for hole in rectangles:
            image[:, hole.top : hole.bottom, hole.left : hole.right] = 0
    found = erase(images.clone(memory_format=torch.channels_last), holes_tensor(holes))
    assert torch.equal(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert erase(images[:0].clone(), holes_tensor([])).shape == (0, 2, 5, 6)
