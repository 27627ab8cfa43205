"""Which pixels reach a batch."""

from functools import partial

import numpy as np
import pytest
from PIL import Image

from elfnet.data.images.augmentation_policies import TrivialAugment
from elfnet.data.images.resize import Choose, Pixels, resized_pixels
from elfnet.data.images.transforms import Augmentation, Evaluation, evaluation_of
from elfnet.recipe.data_section import DataRecipe

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
EVALUATION = Evaluation(image_size=8, resize=8)


def read(choose: Choose) -> Pixels:
    height, width, _ = PIXELS.shape
    return resized_pixels(PIXELS, choose(width, height))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_evaluation_shows_the_middle() -> None:
    assert np.array_equal(EVALUATION(read), PIXELS[:, 2:10])
    assert np.array_equal(Evaluation(image_size=4, resize=8)(read), PIXELS[2:6, 4:8])


def test_a_squashed_image_is_shown_whole() -> None:
    squash = Evaluation(image_size=8, resize=8, squash=True)
    assert np.array_equal(squash(read), np.asarray(Image.fromarray(PIXELS).resize((8, 8), Image.Resampling.BILINEAR)))
    # The whole image, squashed, is also what a random part of the whole area shows in training.
    whole = Augmentation(crop="resized", flip=False, min_crop_area=1.0)
    widths = []

    def read_and_note(choose: Choose) -> Pixels:
        left, _, right, _ = choose(300, 100).box
        widths.append(right - left)
        return read(choose)

    for seed in range(20):
        whole.augment_file(read_and_note, squash, rng(seed))
    assert max(widths) > 250  # a crop with true shapes has at most 4/3 of the height


@pytest.mark.parametrize(
    ("fit", "augment", "resize", "expected"),
    [
        ("crop", "resized-crop", 0, (64, False)),
        ("crop", "crop", 0, (56, False)),
        ("squash", "resized-crop", 0, (56, True)),
        ("squash", "crop", 70, (70, True)),
    ],
)
def test_the_evaluation_of_a_recipe(fit: str, augment: str, resize: int, expected: tuple[int, bool]) -> None:
    data = DataRecipe.model_validate(
        {"source": "folder", "image_size": 56, "fit": fit, "augment": augment, "resize": resize}
    )
    found = evaluation_of(data)
    assert (found.resize, found.squash) == expected


def test_without_augmentation_training_sees_what_evaluation_sees() -> None:
    assert np.array_equal(Augmentation(crop="none", flip=False).augment_file(read, EVALUATION, rng()), EVALUATION(read))


def test_padded_crops_are_shifts_of_the_evaluation_image() -> None:
    augment = Augmentation(crop="padded", flip=False, pad=2)
    padded = np.pad(EVALUATION(read), ((2, 2), (2, 2), (0, 0)))
    shifts = {padded[y : y + 8, x : x + 8].tobytes() for y in range(5) for x in range(5)}
    found = {augment.augment_file(read, EVALUATION, rng(seed)).tobytes() for seed in range(300)}
    assert found == shifts


def test_half_of_the_images_are_flipped() -> None:
    augment = Augmentation(crop="none", flip=True)
    found = [augment.augment_file(read, EVALUATION, rng(seed)) for seed in range(100)]
    mirrored = [np.array_equal(one, EVALUATION(read)[:, ::-1]) for one in found]
    assert all(
        np.array_equal(one, EVALUATION(read)) for one, flipped in zip(found, mirrored, strict=True) if not flipped
    )
    assert 35 < sum(mirrored) < 65


@pytest.mark.parametrize(
    "change",
    [{"crop": "padded"}, {"crop": "none"}, {"flip": True}, {"min_crop_area": 0.9}, {"policy": TrivialAugment()}],
)
def test_every_setting_changes_something(change: dict[str, object]) -> None:
    settings: dict[str, object] = {"crop": "resized", "flip": False, "min_crop_area": 0.1}
    plain = Augmentation(**settings)  # type: ignore[arg-type]
    changed = Augmentation(**(settings | change))  # type: ignore[arg-type]
    run = [partial(one.augment_file, read, EVALUATION) for one in (plain, changed)]
    assert any(not np.array_equal(run[0](rng(seed)), run[1](rng(seed))) for seed in range(10))
    assert np.array_equal(run[1](rng(5)), run[1](rng(5)))


def test_colour_factors_are_spread_around_one() -> None:
    augment = Augmentation(crop="none", flip=False, jitter=0.4)
    found = np.array([augment.colour_factors(rng(seed)) for seed in range(500)])
    assert found.min() == pytest.approx(0.6, abs=0.01)
    assert found.max() == pytest.approx(1.4, abs=0.01)
    assert np.abs(np.corrcoef(found.T) - np.eye(3)).max() < 0.15
    strong = Augmentation(crop="none", flip=False, jitter=1.0)
    assert min(min(strong.colour_factors(rng(seed))) for seed in range(50)) >= 0
