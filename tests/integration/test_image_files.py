"""Training from files on disk: the whole path, resumed as from memory, and the same as from memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from elfnet.calibrate.run import calibrate_run, measure_run
from elfnet.data.build import load_splits
from elfnet.data.images.files import ImageFiles
from elfnet.data.images.transforms import images_as_evaluated
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.run import evaluate_run
from elfnet.export.read_run import open_parts
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import load_checkpoint
from elfnet.run.directory import RunDirectory
from elfnet.train.run import train_recipe

Make = Callable[..., Recipe]


@pytest.fixture
def recipe(tmp_path: Path) -> Make:
    """Two classes of noise with a tint that tells them apart, and settings that train in a second."""
    rng = np.random.default_rng(0)
    for label, (name, count) in enumerate({"red": 24, "blue": 10}.items()):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 120, (20, 24, 3), dtype=np.uint8)
            pixels[..., 2 * label] += 100
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")

    def make(**changes: Any) -> Recipe:
        settings: dict[str, Any] = {
            "data.root": str(tmp_path / "images"),
            "data.image_size": 16,
            "data.workers": 0,
            "model.backbone": "resnet8",
            "model.head_filters": 8,
            "train.epochs": 4,
            "train.batch_size": 8,
            "train.compile": "off",
            "train.threads": 1,
        }
        return load_recipe("folder", settings | {name.replace("__", "."): value for name, value in changes.items()})

    return make


def weights(run: RunDirectory) -> str:
    return load_checkpoint(run.checkpoint("last")).sha256


def test_a_folder_is_trained_calibrated_and_measured(recipe: Make, tmp_path: Path) -> None:
    run = train_recipe(recipe(train__epochs=8), tmp_path / "run")
    results = measure_run(run, calibrate_run(run))
    assert results.points["full"].n == 7
    assert results.points["full"].accuracy > 0.8
    assert run.info().data.class_names == ("blue", "red")
    assert run.info().data.image_shape == (16, 16, 3)


@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_an_exported_network_sees_images_as_the_evaluation_did(recipe: Make, tmp_path: Path, fit: str) -> None:
    run = train_recipe(recipe(train__epochs=1, data__fit=fit), tmp_path / "run")
    calibrate_run(run)
    data = run.recipe().data
    test = load_splits(data).test
    assert isinstance(test, ImageFiles)
    files = [test.name(index) for index in range(len(test))]
    assert np.array_equal(open_parts(run).preprocess.stack(files), images_as_evaluated(data, test))


@pytest.mark.parametrize("changes", [{}, {"data__augment": "crop-flip", "data__policy": "randaugment"}], ids=str)
def test_resumed_equals_uninterrupted_on_any_number_of_workers(
    recipe: Make, tmp_path: Path, changes: dict[str, Any]
) -> None:
    whole = train_recipe(recipe(data__workers=0, **changes), tmp_path / "whole")
    with_workers = recipe(data__workers=2, **changes)
    train_recipe(with_workers, tmp_path / "parts", stop_after=lambda done: done == 2)
    parts = train_recipe(with_workers, tmp_path / "parts", resume=True)
    assert weights(parts) == weights(whole)


def test_a_damaged_image_stops_the_run_or_is_skipped_and_counted(recipe: Make, tmp_path: Path) -> None:
    for number in range(24):
        broken = tmp_path / "images" / "red" / f"{number}.png"
        broken.write_bytes(broken.read_bytes()[:-50])
    with pytest.raises(WorkError, match=r"red/\d+\.png is truncated .*data\.unreadable=skip"):
        train_recipe(recipe(data__normalise="imagenet"), tmp_path / "stopped")
    run = train_recipe(recipe(data__unreadable="skip"), tmp_path / "skipped")
    assert [record.unreadable for record in run.log()] == [17, 17, 17, 17]
    table = evaluate_run(run, "test")
    assert table.labels_N.tolist() == [0, 0], "only what could be read is counted"


def test_other_files_are_other_data(recipe: Make, tmp_path: Path) -> None:
    train_recipe(recipe(), tmp_path / "run", stop_after=lambda done: done == 1)
    (tmp_path / "images" / "red" / "3.png").rename(tmp_path / "images" / "red" / "x.png")
    with pytest.raises(WorkError, match=r"the data is not what the run in .* was trained on"):
        train_recipe(recipe(), tmp_path / "run", resume=True)


def test_calibration_images_of_one_class_are_refused_before_training(recipe: Make, tmp_path: Path) -> None:
    images = tmp_path / "images"
    of_one = tmp_path / "of-one.txt"
    of_one.write_text("".join(f"red/{number}.png 0\n" for number in range(5)))
    of_both = [f"red/{number}.png 0\n" for number in range(5, 24)] + [f"blue/{number}.png 1\n" for number in range(10)]
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    train.write_text("".join(of_both[::2]))
    test.write_text("".join(of_both[1::2]))
    lists = {"data__source": "lists", "data__root": str(images), "data__train": str(train), "data__test": str(test)}
    with pytest.raises(RequestError, match="all 5 examples of the calibration split are of one class"):
        train_recipe(recipe(**lists, data__calibration=str(of_one)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
