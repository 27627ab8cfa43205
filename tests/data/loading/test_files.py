"""Batches from files: what an example looks like is a function of (seed, epoch, position) and of nothing else."""

import hashlib
import logging
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elfnet.data.images.augmentation_policies import RandAugment
from elfnet.data.images.decode import Limits, UnreadableImageError
from elfnet.data.images.files import Decoder, ImageFiles
from elfnet.data.images.transforms import Augmentation, Evaluation
from elfnet.data.loading.feed import EvaluationFeed, SampledFeed
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.loading.sampler import epoch_generator
from elfnet.data.loading.workers import FileSource
from elfnet.data.sources.folder import folder
from elfnet.data.types import SourceRequest
from elfnet.errors import WorkError

CPU = torch.device("cpu")
UNIT = Normalisation((0.0,) * 3, (1 / 255,) * 3)
WHOLE_IMAGE = Evaluation(image_size=8, resize=8)
PLAIN = Augmentation(crop="none", flip=False)
FULL = Augmentation(
    crop="resized", flip=True, policy=RandAugment(operations=1), jitter=0.4, cutout=3, random_erasing=0.5
)
Write = Callable[..., Path]


@pytest.fixture
def files(image_folder: Write) -> ImageFiles:
    """13 images of three classes; image i of class c has the colour (40 c + 10, i, 200) where it is not darker."""
    train: ImageFiles = folder(SourceRequest(root=image_folder({"a": 6, "b": 4, "c": 3}), image_size=8)).train
    return train


def training(
    files: ImageFiles,
    augmentation: Augmentation = FULL,
    *,
    normalisation: Normalisation = UNIT,
    workers: int = 0,
    unreadable: str = "stop",
    seed: int = 0,
    **changes: Any,
) -> SampledFeed:
    source = FileSource(
        Decoder(files, Limits()),
        WHOLE_IMAGE,
        normalisation,
        device=CPU,
        workers=workers,
        augmentation=augmentation,
        seed=seed,
        unreadable=unreadable,
    )
    settings: dict[str, Any] = {"batch_size": 4, "device": CPU} | changes
    return SampledFeed(source, files.labels_N, seed=seed, **settings)


def evaluation(files: ImageFiles, **changes: Any) -> EvaluationFeed:
    settings: dict[str, Any] = {"device": CPU, "workers": 0} | changes
    return EvaluationFeed(FileSource(Decoder(files, Limits()), WHOLE_IMAGE, UNIT, **settings), len(files), batch_size=5)


def by_example(batches: SampledFeed, files: ImageFiles, epoch: int) -> dict[int, bytes]:
    """Pixels of each example, recognised by the order that the labels came in."""
    order = torch.randperm(len(files), generator=_generator(epoch)).tolist()
    images = torch.cat([batch.images for batch in batches.epoch(epoch)])
    return {row: image.numpy().tobytes() for row, image in zip(order, images, strict=True)}


def _generator(epoch: int) -> torch.Generator:
    return epoch_generator(0, epoch)


def test_every_example_once_with_its_own_label(files: ImageFiles) -> None:
    batches = training(files, PLAIN)
    parts = list(batches.epoch(0))
    assert [len(part.labels_b) for part in parts] == [4, 4, 4, 1]
    assert [part.step for part in parts] == [0, 1, 2, 3]
    assert len(batches) == 4
    images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels_b for part in parts])
    assert images.shape == (13, 3, 8, 8)
    corner = images[:, :, 7, 7].round().int()
    assert torch.equal(corner[:, 0], 40 * labels.int() + 10)
    assert sorted(zip(labels.tolist(), corner[:, 1].tolist(), strict=True)) == [
        (label, number) for label, count in enumerate((6, 4, 3)) for number in range(count)
    ]


def test_workers_and_batch_size_change_nothing_and_epochs_do(files: ImageFiles) -> None:
    reference = by_example(training(files), files, 3)
    with_workers = training(files, workers=2)
    try:
        assert by_example(with_workers, files, 3) == reference
        # The same workers go on with another epoch, and come back to an earlier one.
        second = by_example(with_workers, files, 4)
        assert all(second[row] != reference[row] for row in reference)
        assert by_example(with_workers, files, 3) == reference
    finally:
        with_workers.close()
    assert by_example(training(files, batch_size=13), files, 3) == reference
    other_seed = torch.cat([batch.images for batch in training(files, seed=1).epoch(3)])
    assert not set(reference.values()) & {image.numpy().tobytes() for image in other_seed}


def test_reading_draws_nothing_from_the_global_generator(files: ImageFiles) -> None:
    state = torch.get_rng_state()
    list(training(files).epoch(0))
    list(evaluation(files))
    assert torch.equal(torch.get_rng_state(), state)


def test_normalised_and_laid_out_as_asked_for(files: ImageFiles) -> None:
    normalisation = Normalisation((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    plain = torch.cat([batch.images for batch in training(files, PLAIN).epoch(0)])
    found = [batch.images for batch in training(files, PLAIN, normalisation=normalisation).epoch(0)]
    assert all(images.is_contiguous(memory_format=torch.channels_last) for images in found)
    mean, std = (torch.tensor(one).view(1, 3, 1, 1) for one in ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    assert torch.allclose(torch.cat(found), (plain / 255 - mean) / std, atol=1e-5)
    rows = training(files, PLAIN, channels_last=False)
    assert all(batch.images.is_contiguous() for batch in rows.epoch(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_runs_every_image_once_in_order(files: ImageFiles, workers: int) -> None:
    batches = evaluation(files, workers=workers)
    for _ in range(2):
        parts = list(batches)
        assert [len(part) for part in parts] == [5, 5, 3] == [5] * 2 + [len(files) - 10]
        assert len(batches) == 3
        corner = torch.cat(parts)[:, :, 7, 7].round().int()
        assert corner[:, 1].tolist() == [*range(6), *range(4), *range(3)]
        assert batches.rows().tolist() == list(range(13))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_stops_the_run_with_its_path(files: ImageFiles, workers: int) -> None:
    broken = Path(files.name(7))
    damaged = bytearray(broken.read_bytes())
    damaged[damaged.index(b"IDAT") + 20] ^= 1
    broken.write_bytes(damaged)
    to_train_on = training(files, workers=workers)
    for read in (lambda: list(to_train_on.epoch(0)), lambda: list(evaluation(files, workers=workers))):
        with pytest.raises(UnreadableImageError) as caught:
            read()
        to_train_on.close()
        assert str(broken) in str(caught.value)
        assert "leave it out with data.unreadable=skip" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_skip_counts_logs_once_and_goes_on(files: ImageFiles, caplog: pytest.LogCaptureFixture) -> None:
    Path(files.name(7)).write_text("no image")
    Path(files.name(2)).unlink()
    batches = training(files, PLAIN, unreadable="skip")
    with caplog.at_level(logging.WARNING, logger="elfnet.data"):
        for epoch in range(2):
            parts = list(batches.epoch(epoch))
            assert sum(len(part.labels_b) for part in parts) == 11
            for part in parts:
                assert torch.equal(part.images[:, 0, 7, 7].round().long(), 40 * part.labels_b + 10)
                assert torch.equal(part.labels_b, torch.from_numpy(files.labels_N)[part.rows_b])
    assert batches.skipped() == 2
    assert sorted(Path(files.name(row)).name in record.message for row in (2, 7) for record in caplog.records) == [
        False,
        False,
        True,
        True,
    ]
    checked = evaluation(files, unreadable="skip")
    assert sum(len(part) for part in checked) == 11
    assert checked.rows().tolist() == [row for row in range(13) if row not in (2, 7)]


def test_a_batch_of_unreadable_images_only_is_left_out(files: ImageFiles) -> None:
    for row in range(13):
        Path(files.name(row)).write_text("no image")
    assert list(training(files, unreadable="skip").epoch(0)) == []


def test_a_file_beyond_the_limit_is_refused(files: ImageFiles) -> None:
    Path(files.name(0)).write_bytes(bytes(2000))
    limited = Decoder(files, Limits(max_bytes=1000))
    with pytest.raises(UnreadableImageError, match=r"has more than 1,000 bytes; make it smaller"):
        limited.part(0, WHOLE_IMAGE._centre)


def test_a_killed_worker_is_reported_in_one_line(files: ImageFiles) -> None:
    batches = training(files, workers=1, batch_size=1)
    source = batches._source
    assert isinstance(source, FileSource)
    running = batches.epoch(0)
    next(running)
    for worker in source._workers._running._workers:
        os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkError, match=r"ended unexpectedly .*lower data\.workers") as caught:
        list(running)
    batches.close()
    assert "\n" not in str(caught.value)


def test_missing_files_are_found_before_training(files: ImageFiles) -> None:
    digest = hashlib.sha256()
    files.update_fingerprint(digest)
    Path(files.name(4)).unlink()
    Path(files.name(5)).unlink()
    with pytest.raises(WorkError, match=r"image .*004\.png is missing \(and 1 more\); correct the path"):
        files.update_fingerprint(hashlib.sha256())


def test_the_fingerprint_is_of_names_labels_and_sizes(files: ImageFiles, tmp_path: Path) -> None:
    def mark(images: ImageFiles) -> str:
        digest = hashlib.sha256()
        images.update_fingerprint(digest)
        return digest.hexdigest()

    before = mark(files)
    shutil.copytree(files.root, tmp_path / "copy")
    assert mark(replace(files, root=tmp_path / "copy")) == before, "a copy elsewhere is the same data"
    os.utime(files.name(0), (1, 1))
    assert mark(files) == before, "and so is a file that was only touched"
    assert mark(files.take(np.arange(12))) != before
    assert mark(replace(files, labels_N=files.labels_N[::-1].copy())) != before
    with Path(files.name(0)).open("ab") as file:
        file.write(b"x")
    assert mark(files) != before
