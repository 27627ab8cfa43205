"""Batches: every example once, in an order that is a function of (seed, epoch)."""

from typing import Any

import numpy as np
import pytest
import torch

from elfnet.data.batch_reader import BatchReader
from elfnet.data.batches import EvaluationBatches, Normalisation, TrainingBatches
from elfnet.data.colour import erase
from elfnet.data.images.policies import TrivialAugment
from elfnet.data.preparation import Augmentation, Evaluation
from elfnet.data.resize import Choose, Pixels, resized_pixels
from elfnet.data.share import Share
from elfnet.data.source import LabelledImages

CPU = torch.device("cpu")
UNIT = Normalisation(mean_K=(0.0,), std_K=(1 / 255,))
PLAIN = Augmentation(crop="none", flip=False)
CROP_FLIP = Augmentation(crop="padded", flip=True, pad=1)


def _numbered(examples: int) -> LabelledImages:
    """Example i has label i and pixels of brightness i."""
    numbers = np.arange(examples)
    images_NHWC = np.broadcast_to(numbers[:, None, None, None].astype(np.uint8), (examples, 4, 4, 1)).copy()
    return LabelledImages(images_NHWC, numbers)


def _batches(examples: int = 50, **changes: Any) -> TrainingBatches:
    settings: dict[str, Any] = {"augmentation": PLAIN, "batch_size": 8, "seed": 0, "device": CPU}
    return TrainingBatches(_numbered(examples), normalisation=UNIT, **(settings | changes))


def _order(batches: TrainingBatches, epoch: int) -> list[int]:
    return [label for _, labels in batches.epoch(epoch) for label in labels.tolist()]


@pytest.mark.parametrize(
    ("examples", "batch_size", "sizes"),
    [(50, 8, [8] * 6 + [2]), (48, 8, [8] * 6), (5, 8, [5]), (3, 1, [1, 1, 1])],
)
def test_every_example_once_an_epoch_with_its_own_label(examples: int, batch_size: int, sizes: list[int]) -> None:
    batches = _batches(examples, batch_size=batch_size)
    parts = list(batches.epoch(3))
    assert [len(labels) for _, labels in parts] == sizes
    assert len(batches) == len(sizes)
    assert sorted(label for _, labels in parts for label in labels.tolist()) == list(range(examples))
    for images, labels in parts:
        assert torch.allclose(images, labels.float().view(-1, 1, 1, 1).expand_as(images), atol=1e-3)


def test_order_depends_on_seed_and_epoch_only() -> None:
    batches = _batches()
    orders = [_order(batches, epoch) for epoch in range(3)]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])
    torch.manual_seed(99)
    assert _order(batches, 1) == orders[1], "not of what was run before"
    assert _order(_batches(), 2) == orders[2], "not of the object"
    assert _order(_batches(batch_size=16, augmentation=CROP_FLIP), 2) == orders[2], "not of batch size or augmentation"
    assert orders[0] != list(range(50))


def test_neighbouring_seeds_do_not_share_epochs() -> None:
    orders = [_order(_batches(seed=seed), epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9


def test_augmentation_is_the_same_on_a_second_run() -> None:
    changes: dict[str, Any] = {"augmentation": CROP_FLIP}
    for (first, _), (second, _) in zip(_batches(**changes).epoch(4), _batches(**changes).epoch(4), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("channels_last", [True, False])
def test_memory_layout_is_as_asked_for(channels_last: bool) -> None:
    rng = np.random.default_rng(0)
    images = LabelledImages(rng.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8), np.arange(6))
    batches = TrainingBatches(
        images,
        CROP_FLIP,
        Normalisation.of(images),
        batch_size=4,
        seed=0,
        device=CPU,
        channels_last=channels_last,
    )
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert all(batch.is_contiguous(memory_format=layout) for batch, _ in batches.epoch(0))


def test_normalisation_is_numpys_mean_and_deviation() -> None:
    images_NHWC = np.random.default_rng(0).integers(0, 256, (11, 6, 5, 3), dtype=np.uint8)
    images_NHWC[..., 2] //= 3
    found = Normalisation.of(LabelledImages(images_NHWC, np.zeros(11, dtype=np.int64)))
    scaled = images_NHWC / 255.0
    assert found.mean_K == pytest.approx(scaled.mean(axis=(0, 1, 2)).tolist(), abs=1e-12)
    assert found.std_K == pytest.approx(scaled.std(axis=(0, 1, 2)).tolist(), abs=1e-12)


@pytest.mark.parametrize("value", [0, 7, 128, 255])
def test_constant_channel_is_left_as_it_is(value: int) -> None:
    images = LabelledImages(np.full((3, 4, 4, 1), value, dtype=np.uint8), np.zeros(3, dtype=np.int64))
    found = Normalisation.of(images)
    assert found.std_K == (1.0,)
    batch = next(iter(EvaluationBatches(images, found, batch_size=3, device=CPU)))
    assert torch.allclose(batch, torch.zeros_like(batch), atol=1e-6)


@pytest.mark.parametrize(("batch_size", "sizes"), [(4, [4, 4, 2]), (10, [10]), (99, [10])])
def test_evaluation_runs_every_image_once_in_order(batch_size: int, sizes: list[int]) -> None:
    batches = EvaluationBatches(_numbered(10), UNIT, batch_size=batch_size, device=CPU)
    parts = list(batches)
    assert [len(part) for part in parts] == sizes
    assert len(batches) == len(sizes)
    assert torch.cat(parts)[:, 0, 2, 1].round().int().tolist() == list(range(10))


STRONG = Augmentation(crop="padded", flip=True, pad=1, policy=TrivialAugment(), cutout=3, random_erasing=0.5)


def _by_row(images: LabelledImages, *, epoch: int = 2, shares: int = 1, **changes: Any) -> dict[int, bytes]:
    """What each example looks like; labels are row numbers."""
    settings: dict[str, Any] = {"batch_size": 8, "seed": 0, "device": CPU} | changes
    found: dict[int, bytes] = {}
    for rank in range(shares):
        batches = TrainingBatches(images, STRONG, Normalisation.of(images), share=Share(rank, shares), **settings)
        for batch, labels in batches.epoch(epoch):
            found |= {row: image.numpy().tobytes() for row, image in zip(labels.tolist(), batch, strict=True)}
    return found


@pytest.mark.parametrize("channels", [1, 3])
def test_augmented_examples_are_a_function_of_seed_epoch_and_row(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (21, 9, 7, channels), dtype=np.uint8)
    images = LabelledImages(pixels, np.arange(21))
    reference = _by_row(images)
    assert len(reference) == 21
    assert _by_row(images, batch_size=5) == reference
    assert _by_row(images, shares=3) == reference
    assert all(_by_row(images, epoch=3)[row] != reference[row] for row in reference)
    assert not set(_by_row(images, seed=1).values()) & set(reference.values())


def test_an_example_shown_again_looks_different() -> None:
    images = LabelledImages(
        np.random.default_rng(0).integers(0, 256, (12, 9, 9, 1), dtype=np.uint8), np.arange(12) // 11
    )
    batches = TrainingBatches(
        images, STRONG, Normalisation.of(images), batch_size=12, seed=0, device=CPU, sampler="class-balanced"
    )
    ((batch, labels),) = batches.epoch(0)
    rare = batch[labels == 1]
    assert len(rare) > 2, "one image, several times"
    assert len({image.numpy().tobytes() for image in rare}) == len(rare)


def test_memory_and_files_are_augmented_alike() -> None:
    """Row by row, what the memory feed shows is what the worker of an image file computes."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 9, 3), dtype=np.uint8)
    images = LabelledImages(pixels, np.arange(6))
    unit = Normalisation((0.0,) * 3, (1 / 255,) * 3)
    found = {
        int(label): image
        for batch, labels in TrainingBatches(images, STRONG, unit, batch_size=4, seed=3, device=CPU).epoch(1)
        for label, image in zip(labels, batch, strict=True)
    }

    class Reader:
        def part(self, row: int, choose: Choose) -> Pixels:
            return resized_pixels(pixels[row], choose(9, 9))

        def name(self, row: int) -> str:
            return str(row)

    reader = BatchReader(Reader(), Evaluation(image_size=9, resize=9), STRONG, seed=3)
    read = reader[1, np.arange(6), np.zeros(6, dtype=np.int64)]
    assert read.holes_BR4 is not None
    expected = erase(read.pixels_BSSK.permute(0, 3, 1, 2).float(), read.holes_BR4)
    for row in range(6):
        assert torch.allclose(found[row], expected[row], atol=1e-3)


def test_cutout_erases_a_square_to_the_mean() -> None:
    images = LabelledImages(np.full((40, 8, 8, 1), 200, dtype=np.uint8), np.arange(40))
    augmentation = Augmentation(crop="none", flip=False, cutout=4)
    batches = TrainingBatches(images, augmentation, UNIT, batch_size=40, seed=0, device=CPU)
    ((batch, _),) = batches.epoch(0)
    sizes = set()
    for image in batch[:, 0]:
        erased = image == 0
        assert torch.allclose(image[~erased], torch.tensor(200.0))
        rows, columns = erased.any(dim=1), erased.any(dim=0)
        assert torch.equal(erased, rows[:, None] & columns[None, :]), "a rectangle"
        sizes.add((int(rows.sum()), int(columns.sum())))
    assert max(sizes) == (4, 4)
    assert min(min(size) for size in sizes) >= 2, "at least half a side is inside"
    assert len(sizes) > 4
