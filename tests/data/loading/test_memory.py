"""Crop, flip and normalise against a pipeline that treats one image after the other."""

# Shapes: N images, B batch, H height, W width, K channels

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.data.loading.feed import CROP_NUMBERS, Request
from elfnet.data.loading.memory import CropFlipSource
from elfnet.data.loading.normalise import Normalisation, normalise

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def _images(channels: int, *, height: int = 5, width: int = 7) -> Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (9, height, width, channels), dtype=np.uint8))


Batch = Callable[[Tensor, torch.Generator], Tensor]


def _augment(images_NHWK: Tensor, *, pad: int, flip: bool, normalisation: Normalisation | None = None) -> Batch:
    """Makes a batch of chosen images with the random numbers of a generator."""
    channels = images_NHWK.shape[-1]
    normalisation = normalisation or Normalisation(MEAN[:channels], STD[:channels])
    source = CropFlipSource(images_NHWK.numpy(), normalisation, pad=pad, flip=flip, device=torch.device("cpu"))

    def batch(chosen_B: Tensor, generator: torch.Generator) -> Tensor:
        crops_3B = torch.randint(CROP_NUMBERS, (3, len(chosen_B)), generator=generator)
        return source.gather(0, Request(chosen_B.numpy(), np.zeros(len(chosen_B), dtype=np.int64), crops_3B))

    return batch


def _generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _one_by_one(images_NHWK: Tensor, chosen: list[int], *, pad: int, flip: bool) -> NDArray[np.float64]:
    """The same random numbers, one image at a time."""
    top_left_mirror = torch.randint(2**30, (3, len(chosen)), generator=_generator()).numpy()
    _, height, width, channels = images_NHWK.shape
    batch = []
    for position, index in enumerate(chosen):
        padded = np.pad(images_NHWK[index].numpy(), ((pad, pad), (pad, pad), (0, 0)))
        if flip and top_left_mirror[2, position] % 2 == 1:
            padded = padded[:, ::-1]
        top, left = (int(number) % (2 * pad + 1) for number in top_left_mirror[:2, position])
        crop = padded[top : top + height, left : left + width]
        batch.append(((crop / 255.0 - MEAN[:channels]) / STD[:channels]).transpose(2, 0, 1))
    return np.stack(batch)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pad", [0, 1, 4])
@pytest.mark.parametrize("flip", [True, False])
def test_equals_a_naive_pipeline(channels: int, pad: int, flip: bool) -> None:
    images_NHWK = _images(channels)
    chosen = [3, 0, 8, 3, 1, 2, 7, 7, 4, 5, 6, 0]
    batch = _augment(images_NHWK, pad=pad, flip=flip)(torch.tensor(chosen), _generator())
    assert batch.dtype == torch.float32
    assert batch.shape == (12, channels, 5, 7)
    assert np.allclose(batch.numpy(), _one_by_one(images_NHWK, chosen, pad=pad, flip=flip), atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("flip", [True, False])
def test_batches_lie_in_memory_as_channels_last(channels: int, flip: bool) -> None:
    batch = _augment(_images(channels), pad=2, flip=flip)(torch.arange(9), _generator())
    assert batch.is_contiguous(memory_format=torch.channels_last)
    evaluation = normalise(_images(channels), mean_K=torch.tensor(MEAN[:channels]), std_K=torch.tensor(STD[:channels]))
    assert evaluation.is_contiguous(memory_format=torch.channels_last)


def test_random_numbers_come_from_the_generator_only() -> None:
    augment = _augment(_images(3), pad=2, flip=True)
    first = augment(torch.arange(9), _generator())
    torch.manual_seed(123)
    augment(torch.arange(9), _generator(6))
    assert torch.equal(augment(torch.arange(9), _generator()), first)
    assert not torch.equal(augment(torch.arange(9), _generator(6)), first)


def test_every_offset_and_both_directions_occur() -> None:
    """One bright pixel in the middle tells where the crop was and whether it was mirrored."""
    image = torch.zeros(1, 3, 3, 1, dtype=torch.uint8)
    image[0, 1, 1], image[0, 1, 2] = 100, 200
    augment = _augment(image, pad=1, flip=True, normalisation=Normalisation((0.0,), (1 / 255,)))
    batch = augment(torch.zeros(600, dtype=torch.int64), _generator())
    found = {tuple(example.flatten().round().int().tolist()) for example in batch}
    assert len(found) == 3 * 3 * 2


def test_without_flip_nothing_is_mirrored() -> None:
    images_NHWK = _images(1)
    batch = _augment(images_NHWK, pad=0, flip=False)(torch.arange(9).repeat(20), _generator())
    plain = normalise(images_NHWK, mean_K=torch.tensor(MEAN[:1]), std_K=torch.tensor(STD[:1]))
    assert torch.allclose(batch, plain.repeat(20, 1, 1, 1), atol=1e-6)


@pytest.mark.parametrize("pad", [0, 2])
def test_any_memory_layout_of_the_images_will_do(pad: int) -> None:
    """CIFAR's files hold channels first; such an array may arrive as a transposed view."""
    images_NHWK = _images(3)
    view = images_NHWK.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    expected = _augment(images_NHWK, pad=pad, flip=True)(torch.arange(9), _generator())
    assert torch.equal(_augment(view, pad=pad, flip=True)(torch.arange(9), _generator()), expected)


def test_the_images_themselves_are_not_changed() -> None:
    images_NHWK = _images(3)
    before = images_NHWK.clone()
    _augment(images_NHWK, pad=0, flip=True)(torch.arange(9), _generator())
    assert torch.equal(images_NHWK, before)


def test_evaluation_transform_is_a_naive_formula() -> None:
    images_NHWK = _images(3)
    expected = ((images_NHWK.numpy() / 255.0 - MEAN) / STD).transpose(0, 3, 1, 2)
    got = normalise(images_NHWK, mean_K=torch.tensor(MEAN), std_K=torch.tensor(STD))
    assert np.allclose(got.numpy(), expected, atol=1e-5)
    assert got.dtype == torch.float32
