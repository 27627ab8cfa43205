"""Recipes by name or file, overrides, and one line for everything that is wrong with one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.errors import ElfnetError, RequestError, WorkError
from elfnet.recipe.load import (
    DEFAULT_RECIPE,
    load_recipe,
    recipe_names,
    recipe_summary,
    save_recipe,
    validate_recipe,
)
from elfnet.recipe.schema import Recipe

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a recipe file and give its path."""

    def to_file(text: str) -> str:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return str(path)

    return to_file


def _line(name: str, overrides: dict[str, Any] | None = None, kind: type[ElfnetError] = RequestError) -> str:
    with pytest.raises(kind) as caught:
        load_recipe(name, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_shipped_recipe_is_a_data_file_and_a_method_file() -> None:
    recipe = load_recipe("cifar100-lt/elf-ldam-drw")
    assert (recipe.data.source, recipe.data.ratio, recipe.data.calibration_per_class) == ("cifar100", 100, 20)
    assert (recipe.criterion.loss, recipe.model.head, recipe.exits.train_threshold) == ("ldam", "cosine", "2/C")
    assert (recipe.criterion.reweight, recipe.train.drw_start) == ("effective", 160)
    assert (recipe.train.epochs, recipe.train.lr_steps, recipe.train.weight_decay) == (200, (160, 180), 2e-4)


def test_the_default_is_elf_on_the_embedded_data() -> None:
    assert load_recipe() == load_recipe(DEFAULT_RECIPE) == load_recipe("digits/elf-ce-drw")


def test_overrides_by_dotted_name_change_what_they_name_only() -> None:
    plain, changed = load_recipe("digits/ce"), load_recipe("digits/ce", {"train.epochs": 7, "data.ratio": 3})
    assert (changed.train.epochs, changed.data.ratio) == (7, 3)
    assert changed.model_copy(update={"train": plain.train, "data": plain.data}) == plain
    assert changed.train.model_copy(update={"epochs": plain.train.epochs}) == plain.train


def test_a_file_of_ones_own_may_extend_a_shipped_recipe(write: Write) -> None:
    name = write('extends = "cifar10-lt/elf-ldam"\n[train]\nepochs = 9\n[data]\nratio = 50\n')
    recipe = load_recipe(name, {"train.seed": 4})
    assert (recipe.train.epochs, recipe.data.ratio, recipe.train.seed) == (9, 50, 4)
    assert (recipe.data.source, recipe.criterion.loss) == ("cifar10", "ldam")


def test_a_file_without_extends_starts_from_the_defaults(write: Write) -> None:
    assert load_recipe(write("[train]\nepochs = 9\n")) == Recipe(train=Recipe().train.model_copy(update={"epochs": 9}))


@pytest.mark.parametrize("name", ["cifar10-lt/elf-ce-drw", "digits/elf-ldam-scaled-drw"])
def test_saved_recipes_load_as_they_were(name: str, tmp_path: Path) -> None:
    overrides: dict[str, Any] = {"data.counts": [30, 20, 10], "data.profile": "counts", "train.lr": 0.1 + 0.2}
    recipe = load_recipe(name, overrides)
    save_recipe(recipe, tmp_path / "saved.toml")
    assert load_recipe(str(tmp_path / "saved.toml")) == recipe


def test_names_have_summaries() -> None:
    assert DEFAULT_RECIPE in recipe_names()
    assert len(set(recipe_names())) == len(recipe_names())
    assert recipe_summary("digits/ldam") == (
        "scikit-learn's handwritten digits, ratio 20, embedded: trains in seconds; LDAM, plain backbone"
    )


@pytest.mark.parametrize(
    ("name", "start"),
    [
        (
            "digits/elf-ce-drv",
            "unknown recipe 'digits/elf-ce-drv'; did you mean 'digits/elf-ce-drw'? 'elfnet recipes ls' lists all",
        ),
        ("cifar/ce", "unknown recipe 'cifar/ce'; did you mean 'cifar"),
        ("digit", "unknown recipe 'digit'"),
        ("digits/ce/more", "unknown recipe 'digits/ce/more'"),
        ("../data/digits/ce", "unknown recipe '../data/digits/ce'"),
    ],
)
def test_unknown_recipe(name: str, start: str) -> None:
    assert _line(name).startswith(start)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trian.epochs", "unknown section in recipe digits/ce: 'trian'; did you mean 'train'? choose from: "),
        (
            "train.epoch",
            "unknown setting in recipe digits/ce: 'train.epoch'; did you mean 'train.epochs'? choose from: ",
        ),
        ("train.epochs.more", "unknown setting in recipe digits/ce: 'train.epochs.more'; did you mean 'train.epochs'?"),
        ("epochs", "override 'epochs' must name a section and a setting, such as train.epochs"),
    ],
)
def test_unknown_override(override: str, message: str) -> None:
    assert _line("digits/ce", {override: 1}).startswith(message)


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("train.epochs", 0, "train.epochs=0: Input should be greater than 0"),
        ("train.epochs", "many", "train.epochs=many: Input should be a valid integer"),
        ("train.lr", -0.1, "train.lr=-0.1: Input should be greater than 0"),
        ("train.lr", float("inf"), "train.lr=inf: Input should be a finite number"),
        ("train.lr", float("nan"), "train.lr=nan: Input should be a finite number"),
        ("train.seed", 2**32, "train.seed=4294967296: Input should be less than or equal to 4294967295"),
        (
            "criterion.loss",
            "hinge",
            "criterion.loss=hinge: Input should be 'ce', 'focal', 'focal-reference', 'ldam', "
            "'balanced-softmax' or 'logit-adjusted'",
        ),
        ("exits.after_exit", "leave", "exits.after_exit=leave: Input should be 'mask' or 'drop'"),
        ("data.ratio", 0.5, "data.ratio=0.5: Input should be greater than or equal to 1"),
        ("model.head_stride", 3, "model.head_stride=3: Input should be 1 or 2"),
        ("model.head_stride", "3", "model.head_stride=3: Input should be 1 or 2"),
        ("data.counts", [5, 0], "data.counts.1=0: Input should be greater than 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_reason(setting: str, value: object, reason: str) -> None:
    assert _line("digits/ce", {setting: value}).startswith(f"recipe digits/ce: {reason}")


def test_a_choice_of_numbers_may_be_a_word_of_the_command_line() -> None:
    assert load_recipe("digits/elf-ce", {"model.head_stride": "1"}).model.head_stride == 1
    assert load_recipe("digits/bbn", {"model.branches": "2"}) == load_recipe("digits/bbn")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"criterion.loss": "ldam"}, "criterion.loss=ldam needs a cosine classifier: set model.head=cosine"),
        ({"exits.after_exit": "drop", "model.exits": False}, "exits.after_exit=drop needs a network with exits"),
        ({"data.profile": "counts"}, "profile=counts needs data.counts"),
        ({"data.few_below": 60}, "few_below=60 overlaps many_above=40; lower it"),
        (
            {"criterion.reweight": "effective", "train.drw_start": 200},
            "train.drw_start=200 is never reached in train.schedule_epochs=200; "
            "lower it, or set criterion.reweight=none",
        ),
    ],
)
def test_settings_that_contradict_each_other(overrides: dict[str, Any], reason: str) -> None:
    message = _line("digits/elf-ce", overrides)
    assert message.startswith("recipe digits/elf-ce: ")
    assert reason in message


def test_boundaries_that_do_not_contradict() -> None:
    load_recipe("digits/elf-ce", {"data.few_below": 41})
    load_recipe("digits/elf-ce-drw", {"train.drw_start": 199})
    load_recipe("digits/elf-ce", {"train.drw_start": 500})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train\n", "is not valid TOML"),
        ("train.epochs = \n", "is not valid TOML"),
        ("train = 3\n", "train is a section, not a value; write [train]"),
        ("[trian]\nepochs = 3\n", "'trian'; did you mean 'train'?"),
        ("[train]\nepoch = 3\n", "'train.epoch'; did you mean 'train.epochs'?"),
        ('extends = "digits/cee"\n', "unknown recipe 'digits/cee'; did you mean 'digits/ce'?"),
        ("extends = 3\n", "unknown recipe '3'"),
    ],
)
def test_a_file_with_a_mistake_is_one_line(write: Write, text: str, message: str) -> None:
    assert message in _line(write(text))


def test_a_file_that_extends_itself_is_one_line(write: Write) -> None:
    name = write("")
    Path(name).write_text(f'extends = "{name}"\n')
    assert "extends itself" in _line(name)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert "cannot read recipe" in _line(str(tmp_path / "no.toml"), kind=WorkError)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read recipe" in _line(str(tmp_path / "binary.toml"), kind=WorkError)


def test_validating_plain_settings() -> None:
    assert validate_recipe("mine", {"train": {"epochs": 3}}).train.epochs == 3
    with pytest.raises(RequestError, match=r"recipe mine: train\.epochs=-3: "):
        validate_recipe("mine", {"train": {"epochs": -3}})
