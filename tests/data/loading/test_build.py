"""The data section of a recipe becomes splits and batches; every setting changes what it names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elfnet.data.build import load_splits
from elfnet.data.images.transforms import images_as_evaluated, workers_of
from elfnet.data.loading.build import IMAGENET, augmentation_of, evaluation_batches, image_reader, normalisation_of
from elfnet.data.loading.build import training_batches as batches_of
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.loading.pack import PackedImages
from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import DataRecipe

CPU = torch.device("cpu")
Make = Callable[..., DataRecipe]


@pytest.fixture
def recipe(image_folder: Callable[..., Path]) -> Make:
    root = image_folder({"a": 12, "b": 8})

    def make(**changes: Any) -> DataRecipe:
        settings = {"root": str(root), "image_size": 8, "workers": 0} | changes
        return load_recipe("folder/ce", {f"data.{name}": value for name, value in settings.items()}).data

    return make


def images(data: DataRecipe) -> torch.Tensor:
    splits = load_splits(data)
    batches = batches_of(data, splits, normalisation_of(data, splits), batch_size=5, seed=0, device=CPU)
    return torch.cat([batch.images for batch in batches.epoch(0)])


def test_splits_of_a_folder(recipe: Make) -> None:
    splits = load_splits(recipe())
    assert splits.class_counts_C.tolist() == [9, 5]
    assert splits.calibration_counts_C.tolist() == [1, 1]
    assert splits.test_counts_C.tolist() == [2, 2]
    tail = load_splits(recipe(profile="exponential", ratio=5))
    assert tail.class_counts_C.tolist() == [9, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"augment": "crop"},
        {"augment": "none"},
        {"augment": "resized-crop"},
        {"colour_jitter": 0.9},
        {"policy": "randaugment"},
        {"policy": "autoaugment"},
        {"policy": "trivialaugment"},
        {"cutout": 4},
        {"random_erasing": 1.0},
        {"min_crop_area": 0.9},
        {"normalise": "none"},
        {"normalise": "measured"},
    ],
    ids=str,
)
def test_settings_change_the_images(recipe: Make, change: dict[str, Any]) -> None:
    plain, changed = images(recipe()), images(recipe(**change))
    assert plain.shape == changed.shape == (14, 3, 8, 8)
    assert not torch.equal(plain, changed)


def test_pad_and_magnitude_and_size(recipe: Make) -> None:
    assert not torch.equal(images(recipe(augment="crop", pad=1)), images(recipe(augment="crop", pad=3)))
    drawn = [images(recipe(policy="randaugment", **change)) for change in ({}, {"randaugment_operations": 3})]
    drawn.append(images(recipe(policy="randaugment", randaugment_magnitude=25)))
    assert not any(torch.equal(one, other) for i, one in enumerate(drawn) for other in drawn[:i])
    assert images(recipe(image_size=6)).shape[-1] == 6


@pytest.mark.parametrize(("side", "pad"), [(4, 1), (8, 1), (24, 2), (48, 5)])
def test_by_default_images_are_shifted_by_a_tenth(recipe: Make, side: int, pad: int) -> None:
    data = recipe(augment="crop", pad=-1, image_size=side)
    assert augmentation_of(data, load_splits(data)).pad == pad


def test_images_in_memory_are_shifted_by_a_tenth_of_their_own_side() -> None:
    data = load_recipe("digits/ce", {"data.pad": -1}).data
    assert augmentation_of(data, load_splits(data)).pad == 3


def test_resize_decides_how_closely_evaluation_looks(recipe: Make) -> None:
    def seen(**changes: Any) -> torch.Tensor:
        data = recipe(**changes)
        return torch.cat(list(evaluation_batches(data, load_splits(data).test, IMAGENET, batch_size=3, device=CPU)))

    assert torch.equal(seen(), seen(resize=9)), "8/7 of the size where training sees random parts"
    assert torch.equal(seen(augment="crop"), seen(augment="crop", resize=8)), "else all of it"
    assert not torch.equal(seen(resize=9), seen(resize=16))
    with pytest.raises(RequestError, match="resize=4 is below image_size=8"):
        recipe(resize=4)


def test_normalisation(recipe: Make) -> None:
    assert normalisation_of(recipe(), load_splits(recipe())) == IMAGENET
    data = recipe(normalise="measured", augment="none")
    splits = load_splits(data)
    pixels = images_as_evaluated(data, splits.train) / 255
    found = normalisation_of(data, splits)
    assert found.mean_K == pytest.approx(pixels.mean(axis=(0, 1, 2)).tolist(), abs=1e-9)
    assert found.std_K == pytest.approx(pixels.std(axis=(0, 1, 2)).tolist(), abs=1e-9)
    assert normalisation_of(recipe(normalise="none"), splits) == Normalisation((0.0,) * 3, (1.0,) * 3)
    digits = load_recipe("digits/ce", {"data.normalise": "imagenet"}).data
    with pytest.raises(RequestError, match="needs three channels, not 1"):
        normalisation_of(digits, load_splits(digits))


def test_images_as_evaluated_are_what_the_network_sees(recipe: Make) -> None:
    data = recipe(normalise="none")
    splits = load_splits(data)
    seen = evaluation_batches(data, splits.test, normalisation_of(data, splits), batch_size=9, device=CPU)
    expected = images_as_evaluated(data, splits.test)
    assert np.array_equal((torch.cat(list(seen)) * 255).round().numpy().transpose(0, 2, 3, 1), expected)


def test_a_cache_gives_the_same_batches(recipe: Make, tmp_path: Path) -> None:
    # The images are smaller than the side that is kept, so nothing is resized twice.
    cached = recipe(cache=str(tmp_path / "cache"), resize=10)
    assert torch.equal(images(cached), images(recipe(resize=10)))
    assert isinstance(image_reader(cached, load_splits(cached).train), PackedImages)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_workers(recipe: Make) -> None:
    assert workers_of(recipe(workers=3)) == 3
    assert 1 <= workers_of(recipe(workers=-1)) <= 8


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "autoaugment"},
        {"policy": "randaugment"},
        {"policy": "trivialaugment"},
        {"cutout": 3},
        {"random_erasing": 1.0},
    ],
    ids=str,
)
def test_images_in_memory_take_the_same_augmentation(change: dict[str, Any]) -> None:
    plain = load_recipe("digits/ce").data
    changed = plain.model_copy(update=change)
    one, other = images(plain), images(changed)
    assert one.shape == other.shape
    assert not torch.equal(one, other)
    assert torch.equal(other, images(changed))


def test_operations_and_magnitude_are_for_images_in_memory_too() -> None:
    plain = load_recipe("digits/ce", {"data.policy": "randaugment"}).data
    changes: list[dict[str, Any]] = [{}, {"randaugment_operations": 3}, {"randaugment_magnitude": 25}]
    drawn = [images(plain.model_copy(update=change)) for change in changes]
    assert not any(torch.equal(one, other) for i, one in enumerate(drawn) for other in drawn[:i])


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"policy": "autoaugment"}, "policy=autoaugment"),
        ({"cutout": 1}, "cutout=1"),
        ({"random_erasing": 0.5}, "random_erasing=0.5"),
    ],
)
def test_feature_rows_are_not_augmented(tmp_path: Path, change: dict[str, Any], setting: str) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.random((60, 4), dtype=np.float32), y=np.arange(60) % 3)
    settings = {"data.train": str(tmp_path / "rows.npz")} | {f"data.{name}": value for name, value in change.items()}
    with pytest.raises(RequestError, match=rf"data\.{setting} changes images, and .* has feature rows; set data\."):
        load_splits(load_recipe("features/ce", settings).data)


def test_a_hole_larger_than_the_image_is_refused(recipe: Make) -> None:
    load_splits(recipe(cutout=8))
    with pytest.raises(RequestError, match=r"data\.cutout=9 is larger than the images of 8 x 8 pixels; lower"):
        load_splits(recipe(cutout=9))
    with pytest.raises(RequestError, match=r"data\.cutout=33 is larger than the images of 32 x 32"):
        load_splits(load_recipe("digits/ce", {"data.cutout": 33}).data)


@pytest.mark.parametrize(
    "change",
    [{"augment": "resized-crop-flip"}, {"colour_jitter": 0.1}, {"cache": "somewhere"}],
    ids=str,
)
def test_what_is_for_files_is_refused_for_data_in_memory(change: dict[str, Any]) -> None:
    data = load_recipe("digits/ce", {f"data.{name}": value for name, value in change.items()}).data
    with pytest.raises(RequestError, match=rf"data\.{next(iter(change))}=.* needs image files"):
        load_splits(data)
