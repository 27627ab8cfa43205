"""The set-up of a run from its data: cheap heads, a length that fits the time, resolved settings in recipe.toml."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from elfnet.data.build import load_splits
from elfnet.errors import RequestError, WorkError
from elfnet.models.build import build_network
from elfnet.models.weights import export_backbone
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.run.info import Machine
from elfnet.sweep.grid import SweepDirectory, expand_grid, resolve_automatic
from elfnet.train import automatic, speed
from elfnet.train.automatic import rough_duration, set_up
from elfnet.train.logging import Silent
from elfnet.train.run import train_recipe
from elfnet.train.speed import Timed, cost_of, time_steps

MACHINE = Machine(device="cpu", precision="float32", compile=False, channels_last=True, threads=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, number in (("a", 40), ("b", 12)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(number):
            pixels = rng.integers(0, 256, (20, 24), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{index}.png")
    return tmp_path / "images"


@pytest.fixture(autouse=True)
def fixed_speed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine that takes a hundredth of a second per image; returns the backbones that were timed."""
    timed: list[str] = []

    def fixed(recipe: Recipe, *_: Any) -> Timed:
        timed.append(recipe.model.backbone)
        return Timed(step=0.01, read=0.0)

    monkeypatch.setattr(speed, "time_steps", fixed)
    return timed


def folder(root: Path, **settings: Any) -> Recipe:
    given = {"data.root": str(root), "data.cross_fitting": 0, **settings}
    return load_recipe("folder", given)


def open_folder(root: Path, **settings: Any) -> Recipe:
    """Like `folder`, but cross-fitting is chosen from the data."""
    return load_recipe("folder", {"data.root": str(root), "train.threads": 2, **settings})


def test_says_what_it_found_chose_and_how_long_it_takes(root: Path) -> None:
    ready = set_up(folder(root, **{"train.threads": 2}))
    # 37 training images at 0.01 s and 5 calibration images at a third of it, 100 epochs with their checkpoints, and
    # the fixed end.
    assert ready.notes[0] == (
        "20 px grey, 37 images of 2 classes (28 to 9 per class) -> 32 px, resnet9, 100 epochs, about 70 seconds on "
        "2 threads"
    )
    assert ready.recipe.train.automatic == ()
    # Nothing is compiled, which would take longer than a short training.
    assert ready.recipe.train.compile == "off"


def test_few_calibration_images_choose_cross_fitting_and_its_networks_are_in_the_time(root: Path) -> None:
    ready = set_up(open_folder(root))
    # 42 images in the final network, twice as many in the three others, which score 42 in all; 100 epochs.
    assert ready.notes[0] == (
        "20 px grey, 42 images of 2 classes (32 to 10 per class) -> 32 px, resnet9, 100 epochs of each of 4 networks "
        "(cross-fitting), about 4 minutes on 2 threads"
    )
    assert ready.recipe.data.cross_fitting == 3


def test_cross_fitting_may_take_a_part_of_the_epochs(root: Path) -> None:
    # All epochs of all networks take about four minutes.
    ready = set_up(open_folder(root, **{"train.hours": 180 / 3600}))
    assert ready.recipe.data.cross_fitting == 3
    assert 60 <= ready.recipe.train.epochs < 100


def test_every_choice_is_a_flag_that_gives_the_same_recipe(root: Path) -> None:
    opened = folder(root, **{"model.backbone": "resnet8"})
    ready = set_up(opened)
    words = ready.notes[1].removeprefix("chosen: ").split(" ")
    flags = dict(zip(words[::2], words[1::2], strict=True))
    assert set(flags) == {f"--{name}" for name in opened.train.automatic}
    assert "--model.backbone" not in flags
    given = {name.removeprefix("--"): value for name, value in flags.items()}
    assert folder(root, **{"model.backbone": "resnet8", **given, "train.automatic": []}) == ready.recipe


@pytest.mark.slow
def test_cross_fitting_is_only_offered_if_it_does_not_fit_the_time(root: Path) -> None:
    ready = set_up(open_folder(root, **{"train.hours": 100 / 3600}))
    assert (ready.recipe.data.cross_fitting, ready.recipe.train.epochs) == (0, 100)
    assert ready.notes[2] == (
        "warning: the smallest class has 1 calibration image, so operating points are uncertain; "
        "--data.cross_fitting 3 chooses them on all training images, in about 4 minutes"
    )


@pytest.mark.parametrize(
    "settings",
    [{"data.calibration_per_class": 2}, {"train.patience": 5}, {"train.keep": "best"}],
    ids=["a number was given", "early stopping", "best epoch"],
)
def test_cross_fitting_is_not_chosen_where_a_calibration_split_is_wanted(root: Path, settings: dict[str, Any]) -> None:
    assert set_up(open_folder(root, **settings)).recipe.data.cross_fitting == 0


def test_cross_fitting_is_not_chosen_for_a_table_that_would_not_fit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "MAX_CROSS_FITTED", 73)  # 37 training images of two classes
    assert set_up(open_folder(root)).recipe.data.cross_fitting == 0


def test_cross_fitting_is_not_chosen_with_enough_calibration_images(root: Path) -> None:
    for number in range(12, 48):
        Image.new("L", (20, 20)).save(root / "b" / f"{number}.png")
    for number in range(40, 48):
        Image.new("L", (20, 20)).save(root / "a" / f"{number}.png")
    assert set_up(open_folder(root)).recipe.data.cross_fitting == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"data.image_size": 6},
            "images of 6 x 6 pixels are too small .*=resnet9, .* 8 x 8; use larger",
        ),
        (
            {"data.image_size": 32, "model.backbone": "resnet9_s2", "train.resize_start": 0.25},
            "train.resize_start=0.25 shows images of 8 x 8 pixels, .*resnet9_s2, .* 15 x 15; raise it",
        ),
    ],
)
def test_images_that_are_too_small_are_refused_before_steps_are_timed(
    root: Path, fixed_speed: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        set_up(folder(root, **settings))
    assert fixed_speed == []


def test_a_size_that_was_chosen_is_no_reason_for_a_warning(root: Path) -> None:
    notes = set_up(folder(root, **{"model.backbone": "resnet18"})).notes
    assert [note.partition(" needs")[0] for note in notes if "px" in note][1:] == ["warning: model.backbone=resnet18"]


@pytest.mark.parametrize("backbone", ["resnet8", "resnet14", "resnet20", "resnet32"])
def test_heads_are_cheap_beside_the_backbone(root: Path, backbone: str) -> None:
    recipe = set_up(folder(root, **{"model.backbone": backbone})).recipe
    cost = cost_of(recipe.model, 2, recipe.data.image_size)
    assert cost.relative[0] <= 0.10
    assert sum(cost.heads[:-1]) <= 0.12 * cost.plain


def test_epochs_fit_into_the_hours_and_a_short_time_is_a_warning(root: Path) -> None:
    ready = set_up(folder(root, **{"train.hours": 20 / 3600}))
    assert ready.recipe.train.epochs == 5
    assert "5 epochs fit into --train.hours" in ready.notes[2]
    one_epoch = set_up(folder(root, **{"train.hours": 1e-6}))
    assert ", 1 epoch, about" in one_epoch.notes[0]
    short = one_epoch.notes[2]
    assert short.startswith("warning: 1 epoch fits into --train.hours 1e-06, and 100 would be better; they take")
    enough = float(short.rpartition(" ")[2])
    assert set_up(folder(root, **{"train.hours": enough})).recipe.train.epochs == 100
    assert set_up(folder(root, **{"train.hours": 1e-6, "train.epochs": 9})).recipe.train.epochs == 9


@pytest.mark.slow
def test_large_images_are_shown_smaller_if_time_is_short(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for index in range(6):
            Image.new("RGB", (240, 300), (40 * index, 0, 0)).save(tmp_path / name / f"{index}.png")
    recipes = [
        set_up(folder(tmp_path, **{"train.hours": hours, "model.backbone": "resnet18"})).recipe
        for hours in (1.0, 60 / 3600)
    ]
    assert [recipe.data.image_size for recipe in recipes] == [224, 160]


def test_a_new_run_is_timed_once_and_a_resumed_one_never(root: Path, tmp_path: Path, fixed_speed: list[str]) -> None:
    recipe = folder(root, **{"train.epochs": 2, "model.backbone": "resnet8", "data.image_size": 16})
    run = train_recipe(recipe, tmp_path / "run", observer=Silent(), stop_after=lambda done: done == 1)
    stored = run.recipe()
    assert (stored.train.automatic, stored.data.augment, stored.data.normalise) == ((), "crop", "measured")
    assert fixed_speed == ["resnet8"]
    train_recipe(recipe, tmp_path / "run", resume=True, observer=Silent())
    train_recipe(stored, tmp_path / "run", resume=True, observer=Silent())
    assert len(run.log()) == 2
    assert fixed_speed == ["resnet8"]


def test_a_damaged_test_image_stops_before_training(root: Path, tmp_path: Path) -> None:
    (root / "a" / "39.png").write_bytes(b"broken")
    with pytest.raises(WorkError, match=r"39.png is not an image or is damaged"):
        train_recipe(folder(root), tmp_path / "run", observer=Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("mix", "message"),
    [("3,2,1", "class mix 3,2,1 has 3 numbers, and the data have 2 classes"), ("even", "class mix 'even' is unknown")],
)
def test_a_class_mix_that_does_not_fit_stops_before_training(
    root: Path, tmp_path: Path, mix: str, message: str
) -> None:
    with pytest.raises(RequestError, match=f"exits.class_mix: {message}"):
        train_recipe(folder(root, **{"exits.class_mix": mix}), tmp_path / "run", observer=Silent())
    assert not (tmp_path / "run").exists()


def test_a_sweep_is_timed_once(root: Path, tmp_path: Path, fixed_speed: list[str]) -> None:
    over = {"train.seed": ["0", "1"]}
    sweep, notes = SweepDirectory(tmp_path / "sweep"), list[str]()
    cells = resolve_automatic(expand_grid("folder", {"data.root": str(root)}, over), sweep, on_note=notes.append)
    assert "resnet9, 100 epochs" in notes[0]
    assert notes[1].startswith("chosen: --")
    assert [cell.recipe.train.automatic for cell in cells] == [(), ()]
    assert cells[0].recipe.train.epochs == cells[1].recipe.train.epochs == 100
    sweep.open(over, cells)
    again = resolve_automatic(expand_grid("folder", {"data.root": str(root)}, over), sweep, on_note=notes.append)
    assert again == cells
    assert len(notes) == 2
    assert fixed_speed == ["resnet9"]


def test_of_feature_rows_epochs_and_cross_fitting_are_chosen(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(2000, 4)).astype(np.float32), y=np.arange(2000) % 2)
    ready = set_up(load_recipe("features", {"data.train": str(tmp_path / "rows.npz")}))
    assert ready.recipe.data.cross_fitting == 0
    # 1,400 rows are 22 steps of 64, so that 228 epochs have 5,000 steps.
    assert ready.recipe.train.epochs == 228
    assert ready.notes == ("1,400 rows of 2 classes -> 228 epochs",)
    few = load_recipe("features", {"data.train": str(tmp_path / "few.npz"), "train.epochs": 7})
    np.savez(tmp_path / "few.npz", X=rng.normal(size=(60, 4)).astype(np.float32), y=np.arange(60) % 2)
    ready = set_up(few)
    assert (ready.recipe.data.cross_fitting, ready.recipe.train.epochs) == (3, 7)
    assert ready.notes[0].startswith("a tenth of the smallest class would be 3 calibration rows: cross-fitting with 3 ")
    with pytest.raises(RequestError, match=r"train.automatic=data.image_size needs images"):
        set_up(
            load_recipe("features", {"data.train": str(tmp_path / "few.npz"), "train.automatic": ["data.image_size"]})
        )


def test_the_first_step_does_not_count(root: Path) -> None:
    settings = {"model.backbone": "resnet8", "train.batch_size": 2, "train.automatic": [], "data.image_size": 16}
    recipe = folder(root, **settings)
    # Steps of 90, 10, 10, 12 and 14 seconds, in which two images are read in 50, 1, 2, 3 and 3 seconds.
    steps, reads = [0.0, 90.0, 100.0, 110.0, 122.0, 136.0], [0.0, 50.0, 51.0, 53.0, 56.0, 59.0]
    ticks = iter([0.0, *steps, *reads])
    assert time_steps(recipe, load_splits(recipe.data), MACHINE, lambda: next(ticks)) == Timed(step=4.25, read=1.25)


def test_ignored_files_and_classes_without_calibration_examples_are_named(root: Path) -> None:
    (root / "a" / "photo.HEIC").write_bytes(b"")
    (root / "c").mkdir()
    Image.new("L", (20, 20)).save(root / "c" / "only.png")
    Image.new("L", (20, 20)).save(root / "c" / "second.png")
    notes = set_up(folder(root)).notes
    assert "warning: ignored files: 1 .heic; convert .heic to JPEG or PNG to use them" in notes
    assert "warning: without calibration examples: 1 class (c)" in notes
    (root / "c" / "second.png").unlink()
    notes = set_up(open_folder(root)).notes
    assert "(cross-fitting)" in notes[0]
    assert "warning: without calibration examples: 1 class (c)" in notes


def test_a_column_with_splits_is_named_because_a_table_is_split_anew(root: Path) -> None:
    lines = [f"{kind}/{number}.png,{kind},train" for kind in "ab" for number in range(10)]
    table = root / "images.csv"
    table.write_text("\n".join(["path,label,Split", *lines]))
    # A table is also found below data.root.
    for train in (str(table), "images.csv"):
        recipe = load_recipe("csv", {"data.train": train, "data.root": str(root), "data.cross_fitting": 0})
        (warning,) = [note for note in set_up(recipe).notes if "'Split'" in note]
        assert "is not used, and splits are drawn anew" in warning


def test_the_backbone_follows_from_the_weights(root: Path, tmp_path: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    save_file(export_backbone(build_network("resnet8", classes=4, exits=False)), weights)
    ready = set_up(folder(root, **{"model.weights": str(weights), "model.weights_licence": "own"}))
    assert ready.recipe.model.backbone == "resnet8"
    assert "-> 32 px, resnet8 from mine.safetensors, 100 epochs" in ready.notes[0]


def test_durations_are_rough() -> None:
    assert [rough_duration(s) for s in (2, 52, 540, 7200)] == ["5 seconds", "50 seconds", "9 minutes", "2.0 hours"]
