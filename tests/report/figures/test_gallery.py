"""The gallery of test images."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from elfnet.data.build import load_splits
from elfnet.data.sources import cifar
from elfnet.recipe.load import DEFAULT_RECIPE, load_recipe
from elfnet.recipe.schema import DataRecipe
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.figures.gallery import (
    NO_IMAGE,
    gallery_point,
    image_source,
    images_by_exit,
    is_local,
    sample_images,
    shown_classes,
    thumbnails,
)
from elfnet.report.record import read_run
from elfnet.run.directory import RunDirectory


def axes_of(figure: Any) -> Any:
    return figure.axes


def test_picked_at_random_once_each_and_where_they_belong() -> None:
    rng = np.random.default_rng(0)
    exits, labels = rng.integers(0, 3, 400), rng.integers(0, 5, 400)
    exits[(labels == 4) & (exits == 1)] = 0
    index = sample_images(exits, labels, [4, 2], exits=3, seed=7)
    assert index.shape == (2, 3, 4)
    assert (index[0, 1] == NO_IMAGE).all()
    for row, label in enumerate((4, 2)):
        for k in range(3):
            chosen = [i for i in index[row, k].tolist() if i != NO_IMAGE]
            assert len(set(chosen)) == len(chosen) == min(4, int(((labels == label) & (exits == k)).sum()))
            assert all(labels[i] == label and exits[i] == k for i in chosen)
    assert np.array_equal(index, sample_images(exits, labels, [4, 2], exits=3, seed=7))
    assert not np.array_equal(index, sample_images(exits, labels, [4, 2], exits=3, seed=8))
    assert index[1, 0].tolist() != np.flatnonzero((labels == 2) & (exits == 0))[:4].tolist()  # not just the first


def test_classes_by_frequency_with_both_ends() -> None:
    assert shown_classes(np.array([3, 9, 5])) == [1, 2, 0]
    shown = shown_classes(np.arange(100))
    assert (len(shown), shown[0], shown[-1]) == (10, 99, 0)


def test_thumbnails_are_the_images_small_enough() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 6, 3), dtype=np.uint8)
    shown = thumbnails(lambda index: images[index], np.array([[[2, NO_IMAGE]]]))
    assert np.array_equal(shown[0, 0, 0, ..., :3], images[2])
    assert (shown[0, 0, 0, ..., 3] == 255).all()
    assert len(np.unique(shown[0, 0, 1].reshape(-1, 4), axis=0)) == 1
    assert shown[0, 0, 1, 0, 0, 3] < 255
    large = np.zeros((1, 200, 100, 1), dtype=np.uint8)
    assert thumbnails(lambda index: large[index], np.array([[[0]]])).shape[3:] == (48, 24, 4)


def test_gallery_of_real_images(digits_run: RunDirectory) -> None:
    record = read_run(digits_run)
    assert record.table is not None
    read_images = image_source(record)
    assert not isinstance(read_images, str)
    images = read_images(np.arange(record.table.examples))
    assert np.array_equal(images, load_splits(record.recipe.data).test.images_NHWC)
    figure = images_by_exit(record, seed=3)
    assert isinstance(figure, RunFigure)
    assert "seed 3" in figure.caption
    assert f"Test split, n = {record.results.n}" in figure.caption
    (axes,) = axes_of(figure.draw())
    replayed = record.replayed(gallery_point(record))
    raster = np.asarray(axes.images[0].get_array())
    index = sample_images(
        replayed.exit_N,
        record.table.labels_N,
        shown_classes(record.class_counts),
        exits=4,
        seed=3,
    )
    assert np.array_equal(raster[:32, :32, 0], images[index[0, 0, 0], ..., 0])
    wrong = replayed.prediction_N != record.table.labels_N
    assert len(axes.patches) == sum(bool(wrong[i]) for i in index.ravel() if i != NO_IMAGE)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    taken = np.bincount(replayed.exit_N, minlength=4)
    assert labels[0] == f"exit 1 (easy)\n{taken[0]:,} images"
    assert labels[3].startswith("exit 4 (hard)")


def test_the_point_shows_early_exits_if_any_does(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    full = record.at("full")
    points = {**record.results.points, "economic": full}
    lonely = replace(record, results=record.results.model_copy(update={"points": points}))
    even = max(("s=0.5", "s=0.7", "s=0.9"), key=lambda name: min(record.at(name).exit_share))
    assert record.at(gallery_point(lonely)).exit_share == record.at(even).exit_share


def test_other_data_is_not_shown(digits_run: RunDirectory, plain_run: RunDirectory) -> None:
    record = read_run(digits_run)
    assert record.table is not None
    figure = images_by_exit(
        replace(
            record,
            info=record.info.model_copy(update={"data": record.info.data.model_copy(update={"fingerprint": "other"})}),
        )
    )
    assert isinstance(figure, NoFigure)
    assert "differ from those that digits was trained and measured on" in figure.reason
    swapped = replace(record.table, labels_N=np.roll(record.table.labels_N, 1))
    assert "does not belong to the test images" in str(image_source(replace(record, table=swapped)))
    assert "no exit table" in str(image_source(replace(record, table=None)))
    plain = images_by_exit(read_run(plain_run))
    assert isinstance(plain, NoFigure)
    assert plain.reason == "plain is a plain network: it has one exit only"


def test_nothing_is_downloaded_for_a_figure(
    elf_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Path:
        raise AssertionError("a download")

    monkeypatch.setattr(cifar, "download", refuse)
    monkeypatch.setenv("ELFNET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    figure = images_by_exit(read_run(elf_run))
    assert isinstance(figure, NoFigure)
    assert "ELFNET_DATA" in figure.reason
    data = DataRecipe(source="cifar10")
    assert not is_local(data)
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert is_local(data)
    assert is_local(DataRecipe(source="digits"))
    assert not is_local(DataRecipe(source="hub", hub="somebody/pictures"))


def test_image_files_are_shown_as_the_network_sees_them(make_run: Callable[..., RunDirectory], tmp_path: Path) -> None:
    """A folder of files with one flat colour each: what comes back is that colour."""
    root = tmp_path / "pictures"
    for label in ("ant", "bee"):
        (root / label).mkdir(parents=True)
        for number in range(12):
            colour = (20 * number, 100, 200 if label == "ant" else 50)
            Image.new("RGB", (40, 30), colour).save(root / label / f"{number:02}.png")
    settings = {
        "data.source": "folder",
        "data.root": str(root),
        "data.image_size": 16,
        "data.profile": "none",
        "data.calibration_per_class": 2,
        "data.test_per_class": 4,
    }
    splits = load_splits(load_recipe(DEFAULT_RECIPE, settings).data)
    labels_N = splits.test.labels_N
    run = make_run(
        names=splits.class_names,
        counts=splits.class_counts_C.tolist(),
        recipe=DEFAULT_RECIPE,
        overrides=settings,
        labels=labels_N,
        fingerprint=splits.fingerprint,
    )
    read_images = image_source(read_run(run))
    assert not isinstance(read_images, str), read_images
    pixels = read_images(np.arange(len(labels_N)))
    assert pixels.shape == (8, 16, 16, 3)
    assert {(int(label), int(image[8, 8, 2])) for label, image in zip(labels_N, pixels, strict=True)} == {
        (0, 200),
        (1, 50),
    }
    assert isinstance(images_by_exit(read_run(run)), RunFigure)
    for file in root.rglob("*.png"):  # the same size and time, so that the fingerprint is the same
        stamp = file.stat()
        file.write_bytes(b"x" * stamp.st_size)
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    spoilt = images_by_exit(read_run(run))
    assert isinstance(spoilt, NoFigure)
    assert "an image cannot be read (" in spoilt.reason
