"""Old names of settings: refused from users, translated in what elfnet stored itself."""

from pathlib import Path

import pytest

from elfnet.cli.arguments import Parser, add_recipe_flags
from elfnet.errors import RequestError
from elfnet.recipe import renamed
from elfnet.recipe.load import load_recipe, load_stored_recipe
from elfnet.recipe.renamed import _BY_MEANING, RENAMED, Renamed, hint_by_meaning, translate_stored
from elfnet.recipe.schema import Recipe
from elfnet.reproduce.recipe_diff import recipe_diff


@pytest.fixture(autouse=True)
def _old_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        renamed,
        "RENAMED",
        {
            "train.length": Renamed("train.epochs"),
            "train.halved": Renamed("train.epochs", lambda value: {"train.epochs": 2 * value, "data.ratio": 10}),
        },
    )


def test_a_users_file_is_refused_with_the_new_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[train]\nlength = 3\n")
    with pytest.raises(RequestError, match=r"train\.length is now called train\.epochs"):
        load_recipe(str(file))


def test_a_flag_is_refused_with_the_new_name() -> None:
    parser = Parser("train", "", usage="", example="")
    add_recipe_flags(parser)
    with pytest.raises(RequestError, match=r"--train\.length is now called --train\.epochs"):
        parser.parse_strictly(["--train.length", "3"])


def test_a_stored_recipe_is_translated(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("[train]\nlength = 3\n")
    assert load_stored_recipe(file).train.epochs == 3
    file.write_text("[train]\nhalved = 3\n")
    recipe = load_stored_recipe(file)
    assert (recipe.train.epochs, recipe.data.ratio) == (6, 10)


def test_a_stored_recipe_with_overrides(tmp_path: Path) -> None:
    """As when a run is resumed with a flag: the old name in its file is translated, one in the flag is refused."""
    file = tmp_path / "recipe.toml"
    file.write_text("[train]\nlength = 3\n")
    recipe = load_stored_recipe(file, {"train.seed": 7})
    assert (recipe.train.epochs, recipe.train.seed) == (3, 7)
    with pytest.raises(RequestError, match=r"train\.length is now called train\.epochs"):
        load_stored_recipe(file, {"train.length": 7})


def test_a_record_is_recognised_under_its_old_name() -> None:
    asked = Recipe().model_dump(mode="json")
    there = {section: dict(fields) for section, fields in asked.items()}
    there["train"]["length"] = there["train"].pop("epochs")
    assert list(recipe_diff(there, asked)) == []
    there["train"]["length"] += 1
    assert list(recipe_diff(there, asked)) == [("train.epochs", 201, 200)]


def test_what_is_not_renamed_stays() -> None:
    content = {"train": {"epochs": 3}, "extends": "digits/ce"}
    assert translate_stored(content) == content


@pytest.mark.parametrize(
    ("stored", "policy", "operations"), [("randaugment = 0", "none", 2), ("randaugment = 3", "randaugment", 3)]
)
def test_randaugment_became_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str, policy: str, operations: int
) -> None:
    monkeypatch.setattr(renamed, "RENAMED", RENAMED)
    file = tmp_path / "recipe.toml"
    file.write_text(f"[data]\n{stored}\nrandaugment_magnitude = 5\n")
    data = load_stored_recipe(file).data
    assert (data.policy, data.randaugment_operations, data.randaugment_magnitude) == (policy, operations, 5)
    with pytest.raises(RequestError, match=r"data\.randaugment is now called data\.policy"):
        load_recipe(str(file))
    parser = Parser("train", "", usage="", example="")
    add_recipe_flags(parser)
    with pytest.raises(RequestError, match=r"--data\.randaugment is now called --data\.policy"):
        parser.parse_strictly(["--data.randaugment", "3"])


def test_every_new_name_exists() -> None:
    known = {f"{section}.{name}" for section, fields in Recipe().model_dump().items() for name in fields}
    assert {one.new for one in RENAMED.values()} <= known
    assert not RENAMED.keys() & known


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("train.optimiser", "it is called train.optimizer"),
        ("train.learning-rate", "it is called train.lr"),
        ("img_size", "it is called data.image_size"),
        ("train.early_stopping", "it is called train.patience"),
        ("train.epoch", None),
        ("method", "the method is part of the name of the recipe"),
        ("data.num_classes", "the classes follow from the data"),
    ],
)
def test_hints_look_at_the_meaning(name: str, hint: str | None) -> None:
    found = hint_by_meaning(name)
    assert found is None if hint is None else found is not None and found.startswith(hint)


def test_every_hint_names_a_setting_and_no_setting_is_hinted_at() -> None:
    known = {f"{s}.{name}" for s, info in Recipe.model_fields.items() for name in info.annotation.model_fields}  # type: ignore[union-attr]
    assert set(_BY_MEANING) <= known
    assert not {name for name in known if hint_by_meaning(name) is not None}
