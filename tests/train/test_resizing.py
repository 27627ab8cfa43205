"""Progressive resizing: sizes by epoch, images against torch's own filter, and a whole run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.train.prepare import refuse_small_images
from elfnet.train.run import train_recipe
from elfnet.train.schedule import ProgressiveResizing


def test_the_side_grows_in_steps_of_an_eighth() -> None:
    resizing = ProgressiveResizing(0.5, 0.75, 100)
    shares = [resizing.share(epoch) for epoch in range(100)]
    assert shares == sorted(shares)
    assert set(shares) == {0.5, 0.625, 0.75, 0.875, 1.0}
    assert shares[0] == 0.5
    assert set(shares[75:]) == {1.0}
    assert resizing.sizes == 5


def test_the_last_epoch_has_full_images_however_short_the_run_is() -> None:
    def shares(epochs: int) -> list[float]:
        return [ProgressiveResizing(0.5, 0.9, epochs).share(epoch) for epoch in range(epochs)]

    assert [shares(epochs) for epochs in (1, 2, 3)] == [[1.0], [0.5, 1.0], [0.5, 0.75, 1.0]]


def test_images_have_the_side_of_the_epoch() -> None:
    resizing = ProgressiveResizing(0.5, 0.8, 10)
    images = torch.rand(2, 3, 32, 24)
    assert resizing(images, 0).shape == (2, 3, 16, 12)
    expected = functional.interpolate(images, size=(20, 15), mode="bilinear", antialias=True)
    assert torch.equal(resizing(images, 2), expected)
    assert resizing(images, 9) is images
    assert resizing(images[:0], 0).shape == (0, 3, 32, 24)


@pytest.fixture
def settings(tiny_settings: dict[str, object]) -> dict[str, object]:
    return {**tiny_settings, "train.resize_start": 0.5, "train.resize_until": 0.7}


@pytest.mark.slow
def test_a_run_with_small_images_first_resumes_bit_for_bit(settings: dict[str, object], tmp_path: Path) -> None:
    recipe = load_recipe("digits/elf-ce-drw", settings)
    whole = train_recipe(recipe, tmp_path / "whole")
    train_recipe(recipe, tmp_path / "parts", stop_after=lambda done: done == 2)
    parts = train_recipe(recipe, tmp_path / "parts", resume=True)
    assert [record.image_side for record in whole.log()] == [0.5, 0.625, 0.75, 0.875, 1.0]
    assert [record.loss for record in whole.log()] == [record.loss for record in parts.log()]
    plain = train_recipe(load_recipe("digits/elf-ce-drw", {**settings, "train.resize_start": 1.0}), tmp_path / "plain")
    assert plain.log()[0].loss != whole.log()[0].loss
    assert plain.log()[0].image_side is None


def test_rows_of_features_are_refused(settings: dict[str, object], tmp_path: Path) -> None:
    labels = np.repeat(np.arange(3), 20)
    np.savez(tmp_path / "rows.npz", X=np.eye(3, dtype=np.float32)[labels], y=labels)
    train = {name: value for name, value in settings.items() if name.startswith("train.")}
    recipe = load_recipe("features/ce", {**train, "data.train": str(tmp_path / "rows.npz")})
    with pytest.raises(RequestError, match=r"train.resize_start=0.5 resizes images, and features has rows of features"):
        train_recipe(recipe, tmp_path / "run")


@pytest.mark.parametrize(("start", "sides"), [(0.25, "8 x 8"), (0.4, "12 x 12")])
def test_images_that_the_backbone_shrinks_to_nothing_are_refused(
    settings: dict[str, object], tmp_path: Path, start: float, sides: str
) -> None:
    recipe = load_recipe("digits/elf-ce-drw", {**settings, "model.backbone": "resnet9_s2", "train.resize_start": start})
    message = rf"train.resize_start={start} shows images of {sides} pixels, .*resnet9_s2, which needs at least 15 x 15"
    with pytest.raises(RequestError, match=message):
        train_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_small_images_are_refused_at_their_full_size() -> None:
    recipe = load_recipe("digits/elf-ce-drw", {"model.backbone": "densenet121"})
    with pytest.raises(RequestError, match=r"images of 28 x 32 pixels are too small .*densenet121, .* 29 x 29; use"):
        refuse_small_images(recipe, 28, 32)
    refuse_small_images(recipe, 29, 32)
    refuse_small_images(load_recipe("digits/elf-ce-drw", {"train.resize_start": 0.25}), 8, 8)
