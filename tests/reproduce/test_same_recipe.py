"""The same experiment on another machine is the same; anything else is named."""

from typing import Any

import pytest

from elfnet.recipe.load import load_recipe
from elfnet.reproduce.same_recipe import (
    BESIDE,
    content_of,
    differences,
    first_difference,
    moved,
    recipe_hash,
    without_places,
)


def content(**settings: Any) -> dict[str, dict[str, Any]]:
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    return content_of(load_recipe("digits/elf-ce-drw", dotted))


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


@pytest.mark.parametrize(("name", "value"), MACHINE.items())
def test_the_machine_makes_no_other_experiment(name: str, value: object) -> None:
    assert first_difference(content(), content(**{name: value})) is None
    assert recipe_hash(content()) == recipe_hash(content(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"), [("train__epochs", 7), ("train__seed", 1), ("data__ratio", 5), ("exits__after_exit", "drop")]
)
def test_everything_else_does(name: str, value: object) -> None:
    found = first_difference(content(), content(**{name: value}))
    assert found is not None
    assert (found[0], found[2]) == (name.replace("__", "."), value)
    assert recipe_hash(content()) != recipe_hash(content(**{name: value}))


def test_what_is_beside_the_experiment_exists() -> None:
    known = {f"{section}.{name}" for section, fields in content().items() for name in fields}
    assert known >= BESIDE


def test_an_older_recipe_has_the_default_of_a_setting_it_does_not_know() -> None:
    older = content()
    del older["criterion"]["distil"], older["refit"]
    assert list(differences(older, content())) == []
    assert list(differences(older, content(criterion__distil=0.5))) == [("criterion.distil", 0.0, 0.5)]


def test_places() -> None:
    there = content(data__root="old", data__directory="kept", train__threads=2)
    now = moved(there, content(data__root="new", train__threads=4))
    assert (now["data"]["root"], now["data"]["directory"], now["train"]["threads"]) == ("new", "kept", 2)
    assert without_places(now)["data"]["root"] == ""
    assert now["data"]["root"] == "new"
