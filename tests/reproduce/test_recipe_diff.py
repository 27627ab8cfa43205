"""Comparing recipes: the machine makes no difference, everything else is named, and shared epochs are counted."""

from typing import Any

import pytest

from elfnet.recipe.load import load_recipe
from elfnet.recipe.roles import without_directories
from elfnet.reproduce.recipe_diff import (
    NOT_COMPARED,
    recipe_dict,
    recipe_diff,
    recipe_hash,
    relocate,
    shared_prefix_epochs,
)

FORTY = {"train.epochs": 40}
SECOND_STAGE = {"refit.method": "balanced", "refit.epochs": 5}
MACHINE = {
    "train__threads": 3,
    "train__device": "cpu",
    "train__precision": "float32",
    "train__compile": "off",
    "train__channels_last": "on",
    "data__workers": 2,
    "data__root": "elsewhere",
    "data__directory": "there",
}


def content(**settings: Any) -> dict[str, dict[str, Any]]:
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    return recipe_dict(load_recipe("digits/elf-ce-drw", dotted))


@pytest.mark.parametrize(("name", "value"), MACHINE.items())
def test_the_machine_does_not_change_the_experiment(name: str, value: object) -> None:
    assert list(recipe_diff(content(), content(**{name: value}))) == []
    assert recipe_hash(content()) == recipe_hash(content(**{name: value}))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("train__epochs", 40, 7), ("train__seed", 0, 1), ("data__ratio", 20.0, 5), ("exits__after_exit", "mask", "drop")],
)
def test_every_other_setting_does(name: str, old: object, new: object) -> None:
    assert list(recipe_diff(content(), content(**{name: new}))) == [(name.replace("__", "."), old, new)]
    assert recipe_hash(content()) != recipe_hash(content(**{name: new}))


def test_settings_that_are_not_compared_exist() -> None:
    known = {f"{section}.{name}" for section, fields in content().items() for name in fields}
    assert known >= NOT_COMPARED


def test_a_setting_missing_in_a_stored_recipe_has_its_default() -> None:
    older = content()
    del older["criterion"]["distil"], older["refit"]
    assert list(recipe_diff(older, content())) == []
    assert list(recipe_diff(older, content(criterion__distil=0.5))) == [("criterion.distil", 0.0, 0.5)]


def test_paths_are_replaced_where_given_and_removed_for_publication() -> None:
    stored = content(data__root="old", data__directory="kept", train__threads=2)
    relocated = relocate(stored, content(data__root="new", train__threads=4))
    assert relocated["data"]["root"] == "new"
    assert relocated["data"]["directory"] == "kept"
    assert relocated["train"]["threads"] == 2
    assert without_directories(relocated)["data"]["root"] == ""
    assert relocated["data"]["root"] == "new"


@pytest.mark.parametrize(
    ("first", "second", "settings", "epochs"),
    [
        ("ce", "ce-drw", {}, 32),
        ("ce-drw", "ce", {}, 32),
        ("focal", "focal-drw", {}, 32),
        ("ce-drw", "ce-drw", {"train.drw_start": 100}, 20),
        ("ce-drw", "ce-drw", {"criterion.reweight": "inverse"}, 32),
        ("ce", "ce", {"train.drw_start": 100}, 40),
        ("joint-ce-drw", "branchynet", {}, 40),
        ("balanced-softmax", "logit-adjusted", {}, 40),
        ("balanced-softmax", "logit-adjusted", {"criterion.adjust_tau": 1.5}, 0),
        ("ce", "ce-effective", {}, 0),
        ("ce-drw", "focal-drw", {}, 0),
        ("ce-drw", "elf-ce-drw", {}, 0),
        ("ce-drw", "ce-drw", {"train.epochs": 80}, 0),
        ("ce-drw", "ce-drw", {"train.lr_steps": [100, 180]}, 0),
        ("ce-drw", "ce-drw", {"data.ratio": 10}, 0),
        # A second stage follows the training; a refit of another run trains no features.
        ("ce", "ce", SECOND_STAGE, 40),
        ("ce", "ce-drw", SECOND_STAGE, 32),
        ("ce", "focal", SECOND_STAGE, 0),
        ("ce", "balanced", {"refit.run": "run"}, 0),
        ("crt", "lws", {"refit.run": "run"}, 0),
    ],
)
def test_shared_prefix_epochs(first: str, second: str, settings: dict[str, Any], epochs: int) -> None:
    """Runs of 40 epochs, in which the class weights apply after 32."""
    start = {"refit.run": "run"} if "refit.run" in settings and first != "ce" else {}
    recipes = (
        load_recipe(f"cifar10-lt/{first}", {**FORTY, **start}),
        load_recipe(f"cifar10-lt/{second}", {**FORTY, **settings}),
    )
    assert shared_prefix_epochs(*recipes) == epochs


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [({}, 45), ({"refit.epochs": 8}, 40), ({"refit.lr": 0.2}, 40), ({"exits.confidence": "entropy"}, 45)],
)
def test_runs_with_two_stages_share_both_or_the_first(settings: dict[str, Any], epochs: int) -> None:
    first = load_recipe("cifar10-lt/joint-ce-drw", {**FORTY, **SECOND_STAGE})
    second = load_recipe("cifar10-lt/joint-ce-drw", {**FORTY, **SECOND_STAGE, **settings})
    assert shared_prefix_epochs(first, second) == epochs
