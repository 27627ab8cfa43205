"""What every shipped recipe must do. A test is one fact about all recipes; its failure names the recipe."""

import re
from functools import cache
from pathlib import Path

import pytest

from elfnet.data.build import SOURCES
from elfnet.data.long_tail import class_counts
from elfnet.exits.threshold import parse_threshold
from elfnet.losses.base import LOSSES, build_loss
from elfnet.losses.weighting import WEIGHTINGS
from elfnet.models.build import BACKBONES
from elfnet.models.heads import CLASSIFIERS
from elfnet.recipe.load import DEFAULT_METHOD, load_recipe, recipe_names, recipe_summary, save_recipe
from elfnet.recipe.schema import Recipe
from elfnet.train.schedule import scale_schedule

CLASSES = {"digits": 10, "cifar10": 10, "cifar100": 100}
"""Sources whose number of classes is known; the others have what their files have."""
LISTED = ("imagenet-lt", "places-lt", "inaturalist18", "csv")
"""Names of data sets that come as lists or tables of files."""
LARGEST = {"digits": 94, "cifar10": 4800, "cifar100": 480}
build_loss("ce", [1])  # fills the registry


def _covering() -> list[str]:
    """Every method on two kinds of data, and all data with two methods: halves of a name hardly know each other."""
    halves = [name.partition("/") for name in recipe_names()]
    return [
        f"{data}/{method}"
        for data, _, method in halves
        if data in ("cifar10-lt", "imagenet-lt") or method in ("ce-drw", DEFAULT_METHOD)
    ]


@cache
def _recipes() -> dict[str, Recipe]:
    return {name: load_recipe(name) for name in _covering()}


def test_every_row_of_the_papers_cifar_tables_is_there() -> None:
    rows = [f"{elf}{loss}{drw}" for elf in ("", "elf-") for loss in ("ce", "focal", "ldam") for drw in ("", "-drw")]
    expected = {f"{data}/{row}" for data in ("digits", "cifar10-lt", "cifar100-lt") for row in rows}
    assert expected <= set(recipe_names())


def test_names_only_what_is_registered() -> None:
    for name, recipe in _recipes().items():
        assert recipe.data.source in SOURCES.names(), name
        assert recipe.model.backbone in BACKBONES.names(), name
        assert recipe.model.head in CLASSIFIERS.names(), name
        assert recipe.criterion.loss in LOSSES.names(), name
        assert recipe.criterion.reweight in WEIGHTINGS.names(), name


def test_thresholds_parse_and_the_smallest_s_says_something() -> None:
    for name, recipe in _recipes().items():
        classes = CLASSES.get(recipe.data.source, 50)
        assert 0 < parse_threshold(recipe.exits.train_threshold, classes=classes) < 1, name
        search = [parse_threshold(text, classes=classes) for text in recipe.exits.search]
        assert search == sorted(set(search)), name
        assert all(1 / classes < s < 1 for s in search), name


def test_name_and_content_agree() -> None:
    for name, recipe in _recipes().items():
        data, _, method = name.partition("/")
        assert data.removesuffix("-lt") == recipe.data.source or data in LISTED, name
        assert recipe.model.head == "cosine" or not build_loss(recipe.criterion.loss, [1]).needs_cosines, name
        assert (recipe.exits.rule == "elf" and recipe.model.exits) is method.startswith("elf-"), name
        if recipe.train.schedule_epochs == 200 and method.endswith("-drw"):
            assert recipe.train.drw_start == 160, name
        named = re.fullmatch(f"(elf-|joint-)?({'|'.join(LOSSES.names())})(-scaled)?(-drw)?", method)
        if named is None:
            # A system that is not named by its loss; each has a test of what it does.
            continue
        exits, loss, _, deferred = named.groups()
        assert bool(exits) is recipe.model.exits, name
        assert recipe.criterion.loss == loss, name
        assert bool(deferred) is (recipe.criterion.reweight != "none"), name
        assert bool(deferred) is (recipe.train.drw_start > 0), name


def test_a_refit_of_a_finished_run_is_named_by_its_method() -> None:
    for name, recipe in _recipes().items():
        method = name.partition("/")[2].removesuffix("-fast")
        starts_from_a_run = recipe.refit.method != "none" and not recipe.refit.epochs
        assert (recipe.refit.method == method) is starts_from_a_run, name


@pytest.mark.parametrize("epochs", [1, 40])
def test_schedule_scales_to_any_length(epochs: int) -> None:
    for name, recipe in _recipes().items():
        train = recipe.train
        schedule = scale_schedule(
            epochs=epochs,
            reference_epochs=train.schedule_epochs,
            lr=train.lr,
            warmup_epochs=train.warmup_epochs,
            lr_steps=train.lr_steps,
            lr_factor=train.lr_factor,
            drw_start=train.drw_start,
        )
        assert max([*schedule.lr_steps, schedule.drw_start]) < epochs, name


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    for name, recipe in _recipes().items():
        save_recipe(recipe, tmp_path / "recipe.toml")
        assert load_recipe(str(tmp_path / "recipe.toml")) == recipe, name


def test_opens_with_a_summary_and_the_command() -> None:
    shipped = Path(load_recipe.__code__.co_filename).parent / "shipped"
    halves = {half for name in _recipes() for half in zip(("data", "method"), name.split("/"), strict=True)}
    for kind, half in halves:
        summary, command, *_ = (shipped / kind / f"{half}.toml").read_text().splitlines()
        assert summary.startswith("# "), half
        assert command.startswith("# elfnet train "), half
        # A bare name of data stands for its default method.
        named = command.split()[3]
        assert (named if "/" in named else f"{named}/{DEFAULT_METHOD}") in recipe_names(), half
        assert half in command
    for name in _recipes():
        assert all(recipe_summary(name).split("; ")), name


def test_no_class_is_left_without_examples() -> None:
    for name, recipe in _recipes().items():
        data = recipe.data
        if data.source not in CLASSES:
            assert data.profile == "none", f"{name}: what a user brings is used as it is"
            continue
        classes = CLASSES[data.source]
        counts = class_counts(data.profile, classes=classes, largest=LARGEST[data.source], ratio=data.ratio)
        assert len(counts) == classes, name
        assert min(counts) >= 4, name
        assert counts[0] / counts[-1] == pytest.approx(data.ratio, rel=0.25), name
