"""Feeds: every example once, in an order that is a function of (seed, epoch); pairs; parts of several processes."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from elfnet.data.images.augmentation_policies import TrivialAugment
from elfnet.data.images.resize import Choose, Pixels, resized_pixels
from elfnet.data.images.transforms import Augmentation, Evaluation
from elfnet.data.loading.feed import (
    BatchSource,
    EvaluationFeed,
    InMemorySource,
    PairedFeed,
    Read,
    Request,
    SampledFeed,
    TrainingBatch,
)
from elfnet.data.loading.memory import AugmentedSource, CropFlipSource, PlainSource
from elfnet.data.loading.normalise import Normalisation, erase
from elfnet.data.loading.sampler import Shard
from elfnet.data.loading.workers import BatchReader
from elfnet.data.types import LabelledImages

CPU = torch.device("cpu")
UNIT = Normalisation(mean_K=(0.0,), std_K=(1 / 255,))
STRONG = Augmentation(crop="padded", flip=True, pad=1, policy=TrivialAugment(), cutout=3, random_erasing=0.5)


def _numbered(examples: int) -> LabelledImages:
    """Example i has label i and pixels of brightness i."""
    numbers = np.arange(examples)
    images_NHWC = np.broadcast_to(numbers[:, None, None, None].astype(np.uint8), (examples, 4, 4, 1)).copy()
    return LabelledImages(images_NHWC, numbers)


def _feed(images: LabelledImages, source: BatchSource, **changes: Any) -> SampledFeed:
    settings: dict[str, Any] = {"batch_size": 8, "seed": 0, "device": CPU}
    return SampledFeed(source, images.labels_N, **(settings | changes))


def _cropped(images: LabelledImages, *, pad: int = 0, flip: bool = False, **changes: Any) -> SampledFeed:
    return _feed(images, CropFlipSource(images.images_NHWC, UNIT, pad=pad, flip=flip, device=CPU), **changes)


def _augmented(images: LabelledImages, *, seed: int = 0, **changes: Any) -> SampledFeed:
    source = AugmentedSource(images.images_NHWC, STRONG, Normalisation.of(images), seed=seed, device=CPU)
    return _feed(images, source, seed=seed, **changes)


def _order(batches: SampledFeed, epoch: int) -> list[int]:
    return [label for batch in batches.epoch(epoch) for label in batch.labels_b.tolist()]


@pytest.mark.parametrize(
    ("examples", "batch_size", "sizes"),
    [(50, 8, [8] * 6 + [2]), (48, 8, [8] * 6), (5, 8, [5]), (3, 1, [1, 1, 1])],
)
def test_every_example_once_an_epoch_with_its_own_label(examples: int, batch_size: int, sizes: list[int]) -> None:
    batches = _cropped(_numbered(examples), batch_size=batch_size)
    parts = list(batches.epoch(3))
    assert [len(part.labels_b) for part in parts] == sizes
    assert [part.step for part in parts] == list(range(len(sizes)))
    assert len(batches) == len(sizes)
    assert sorted(label for part in parts for label in part.labels_b.tolist()) == list(range(examples))
    for part in parts:
        assert torch.allclose(part.images, part.labels_b.float().view(-1, 1, 1, 1).expand_as(part.images), atol=1e-3)
        assert torch.equal(part.rows_b, part.labels_b)
        assert part.partners is None


def test_order_depends_on_seed_and_epoch_only() -> None:
    images = _numbered(50)
    batches = _cropped(images)
    orders = [_order(batches, epoch) for epoch in range(3)]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])
    torch.manual_seed(99)
    assert _order(batches, 1) == orders[1], "not of what was run before"
    assert _order(_cropped(images), 2) == orders[2], "not of the object"
    assert _order(_cropped(images, batch_size=16, pad=2, flip=True), 2) == orders[2], "not of batch size or crops"
    assert _order(_augmented(images), 2) == orders[2], "not of the source"
    assert orders[0] != list(range(50))


def test_neighbouring_seeds_do_not_share_epochs() -> None:
    orders = [_order(_cropped(_numbered(50), seed=seed), epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9


def test_augmentation_is_the_same_on_a_second_run() -> None:
    once, again = (list(_cropped(_numbered(50), pad=1, flip=True).epoch(4)) for _ in range(2))
    for first, second in zip(once, again, strict=True):
        assert torch.equal(first.images, second.images)


@pytest.mark.parametrize("channels_last", [True, False])
def test_memory_layout_is_as_asked_for(channels_last: bool) -> None:
    rng = np.random.default_rng(0)
    images = LabelledImages(rng.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8), np.arange(6))
    source = CropFlipSource(images.images_NHWC, Normalisation.of(images), pad=1, flip=True, device=CPU)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for batch in _feed(images, source, channels_last=channels_last).epoch(0):
        assert batch.images.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("sampler", ["shuffle", "reversed"])
@pytest.mark.parametrize("source", ["cropped", "augmented"])
def test_processes_see_the_batches_of_one_augmentation_included(sampler: str, source: str) -> None:
    rng = np.random.default_rng(0)
    images = LabelledImages(rng.integers(256, size=(21, 6, 6, 1), dtype=np.uint8), rng.integers(3, size=21))

    def epoch(shard: Shard) -> list[TrainingBatch]:
        changes: dict[str, Any] = {"seed": 4, "sampler": sampler, "shard": shard}
        feed = _cropped(images, pad=2, flip=True, **changes) if source == "cropped" else _augmented(images, **changes)
        return list(feed.epoch(3))

    for whole, *parts in zip(epoch(Shard()), *(epoch(Shard(rank, 3)) for rank in range(3)), strict=True):
        for of_all, *of_each in zip(whole[1:4], *(part[1:4] for part in parts), strict=True):
            assert torch.equal(of_all, torch.cat(of_each))


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
    (batch,) = EvaluationFeed(PlainSource(images.images_NHWC, found, device=CPU), 3, batch_size=3)
    assert torch.allclose(batch, torch.zeros_like(batch), atol=1e-6)


@pytest.mark.parametrize(("batch_size", "sizes"), [(4, [4, 4, 2]), (10, [10]), (99, [10])])
def test_evaluation_runs_every_image_once_in_order(batch_size: int, sizes: list[int]) -> None:
    batches = EvaluationFeed(PlainSource(_numbered(10).images_NHWC, UNIT, device=CPU), 10, batch_size=batch_size)
    parts = list(batches)
    assert [len(part) for part in parts] == sizes
    assert len(batches) == len(sizes)
    assert torch.cat(parts)[:, 0, 2, 1].round().int().tolist() == list(range(10))
    assert batches.rows().tolist() == list(range(10))


def test_evaluation_of_a_part_of_the_split() -> None:
    source = PlainSource(_numbered(10).images_NHWC, UNIT, device=CPU)
    feeds = [EvaluationFeed(source, 10, batch_size=2, shard=Shard(rank, 3)) for rank in range(3)]
    seen = [torch.cat(list(feed))[:, 0, 0, 0].round().int().tolist() for feed in feeds]
    assert [feed.rows().tolist() for feed in feeds] == seen == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    nothing = EvaluationFeed(source, 2, batch_size=2, shard=Shard(2, 3))
    assert list(nothing) == []
    assert len(nothing) == 0
    assert nothing.rows().tolist() == []


def _by_row(images: LabelledImages, *, epoch: int = 2, shares: int = 1, **changes: Any) -> dict[int, bytes]:
    """What each example looks like; labels are row numbers."""
    found: dict[int, bytes] = {}
    for rank in range(shares):
        for batch in _augmented(images, shard=Shard(rank, shares), **changes).epoch(epoch):
            examples = zip(batch.labels_b.tolist(), batch.images, strict=True)
            found |= {row: image.numpy().tobytes() for row, image in examples}
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
    (batch,) = _augmented(images, batch_size=12, sampler="class-balanced").epoch(0)
    rare = batch.images[batch.labels_b == 1]
    assert len(rare) > 2, "one image, several times"
    assert len({image.numpy().tobytes() for image in rare}) == len(rare)


def test_memory_and_files_are_augmented_alike() -> None:
    """Row by row, what the memory feed shows is what the worker of an image file computes."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 9, 3), dtype=np.uint8)
    images = LabelledImages(pixels, np.arange(6))
    unit = Normalisation((0.0,) * 3, (1 / 255,) * 3)
    source = AugmentedSource(pixels, STRONG, unit, seed=3, device=CPU)
    found = {
        int(label): image
        for batch in _feed(images, source, batch_size=4, seed=3).epoch(1)
        for label, image in zip(batch.labels_b, batch.images, strict=True)
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
    source = AugmentedSource(images.images_NHWC, augmentation, UNIT, seed=0, device=CPU)
    (batch,) = _feed(images, source, batch_size=40).epoch(0)
    sizes = set()
    for image in batch.images[:, 0]:
        erased = image == 0
        assert torch.allclose(image[~erased], torch.tensor(200.0))
        rows, columns = erased.any(dim=1), erased.any(dim=0)
        assert torch.equal(erased, rows[:, None] & columns[None, :]), "a rectangle"
        sizes.add((int(rows.sum()), int(columns.sum())))
    assert max(sizes) == (4, 4)
    assert min(min(size) for size in sizes) >= 2, "at least half a side is inside"
    assert len(sizes) > 4


class Shifted:
    """Every example is paired with the next one of its batch; the last batch of an epoch is not mixed."""

    def partners(self, epoch: int, step: int, batch: Request) -> Request | None:  # noqa: ARG002
        if len(batch.rows_r) < 8:
            return None
        return Request(np.roll(batch.rows_r, -1), np.roll(batch.repeat_r, -1))


class Counting(InMemorySource):
    """Numbered images that tell what was asked for; those with numbers in `broken` cannot be read."""

    def __init__(self, broken: Sequence[int] = ()) -> None:
        self.asked: list[list[int]] = []
        self._broken = broken

    def gather(self, epoch: int, request: Request) -> torch.Tensor:  # noqa: ARG002
        self.asked.append(request.rows_r.tolist())
        return torch.from_numpy(request.rows_r).float().view(-1, 1, 1, 1)

    def read(self, epoch: int, requests: Sequence[Request]) -> Iterator[Read]:
        for request, read in zip(requests, super().read(epoch, requests), strict=True):
            kept = np.flatnonzero(~np.isin(request.rows_r, self._broken))
            yield Read(read.images[kept], kept)


def _paired_rows(batch: TrainingBatch) -> list[tuple[int, int]]:
    """The rows of each example and its partner, as their images tell."""
    assert batch.partners is not None
    partner = batch.partners.images[batch.partners.place_b]
    assert torch.equal(batch.partners.labels_r[batch.partners.place_b].float(), partner.flatten())
    return list(zip(batch.images.flatten().int().tolist(), partner.flatten().int().tolist(), strict=True))


def test_partners_come_with_the_batch_and_no_example_is_read_twice() -> None:
    source = Counting()
    first, second, last = _feed(_numbered(20), source, pairing=Shifted()).epoch(0)
    assert sorted(row for rows in source.asked for row in rows) == list(range(20))
    for batch in (first, second):
        rows = batch.rows_b.tolist()
        assert _paired_rows(batch) == list(zip(rows, rows[1:] + rows[:1], strict=True))
    assert last.partners is None


def test_a_process_reads_the_partners_that_others_hold() -> None:
    whole = list(_feed(_numbered(20), Counting(), pairing=Shifted()).epoch(2))
    sources = [Counting() for _ in range(3)]
    parts = [
        list(_feed(_numbered(20), source, pairing=Shifted(), shard=Shard(rank, 3)).epoch(2))
        for rank, source in enumerate(sources)
    ]
    for step in (0, 1):
        assert [pair for part in parts for pair in _paired_rows(part[step])] == _paired_rows(whole[step])
    assert [len(source.asked[0]) for source in sources] == [4, 4, 3], "its part of eight, and one of the next part"


def test_an_example_whose_partner_cannot_be_read_is_its_own_partner() -> None:
    rows = [batch.rows_b.tolist() for batch in _feed(_numbered(16), Counting()).epoch(0)]
    broken = [rows[0][3], *rows[1]]
    batches = list(_feed(_numbered(16), Counting(broken), pairing=Shifted()).epoch(0))
    assert [batch.step for batch in batches] == [0], "a batch of which nothing could be read is left out"
    kept = [row for row in rows[0] if row != broken[0]]
    expected = list(zip(kept, kept[1:] + kept[:1], strict=True))
    expected[2] = (rows[0][2], rows[0][2])
    assert batches[0].rows_b.tolist() == kept
    assert _paired_rows(batches[0]) == expected


def test_several_processes_take_every_step() -> None:
    rows = [batch.rows_b.tolist() for batch in _feed(_numbered(16), Counting()).epoch(0)]
    feed = _feed(_numbered(16), Counting(rows[1]), pairing=Shifted(), shard=Shard(1, 2))
    assert [(batch.step, len(batch.labels_b)) for batch in feed.epoch(0)] == [(0, 4), (1, 0)]


def _sampled(sampler: str, seed: int) -> SampledFeed:
    labels_N = np.repeat(np.arange(3), (40, 8, 2))
    pixels = np.zeros((50, 4, 4, 1), dtype=np.uint8) + labels_N[:, None, None, None].astype(np.uint8)
    return _cropped(LabelledImages(pixels, labels_N), batch_size=16, seed=seed, sampler=sampler)


def test_every_step_has_both_halves_of_its_two_feeds() -> None:
    paired = PairedFeed(_sampled("shuffle", 0), _sampled("reversed", 9))
    first, second = list(_sampled("shuffle", 0).epoch(3)), list(_sampled("reversed", 9).epoch(3))
    steps = list(paired.epoch(3))
    assert len(steps) == len(paired) == 4
    for both, one, other in zip(steps, first, second, strict=True):
        assert both.step == one.step
        for name in ("images", "labels_b", "rows_b"):
            assert torch.equal(getattr(both, name), torch.cat([getattr(one, name), getattr(other, name)]))


def test_the_second_half_shows_rare_classes_most() -> None:
    paired = PairedFeed(_sampled("shuffle", 0), _sampled("reversed", 9))
    halves = [batch.labels_b.chunk(2) for batch in paired.epoch(0)]
    frequent, rare = (torch.cat(half).bincount(minlength=3) for half in zip(*halves, strict=True))
    assert frequent.tolist() == [40, 8, 2]
    assert rare.argsort().tolist() == [0, 1, 2]
