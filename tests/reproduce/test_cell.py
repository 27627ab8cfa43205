"""The recipe of a cell: its length at every tier, its data, and what cannot be overridden."""

from typing import Any

import pytest

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.recipe.stages import total_epochs
from elfnet.reproduce.cell import Cell, recipe_of
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.tiers import TIERS


def recipe(table: str, row: str, column: str, tier: str, seed: int = 0, **settings: Any) -> Recipe:
    of = load_table(table)
    cell = Cell(of.row(row), of.column(column), seed)
    overrides = {name.replace("__", "."): value for name, value in settings.items()}
    return recipe_of(cell, TIERS[tier], overrides, starts_from="run" if cell.row.starts_from else "")


def test_the_paper_tier_is_the_shipped_recipe() -> None:
    asked = recipe("table2", "elf-ldam-drw", "cifar100-lt-50", "paper", seed=2)
    assert asked == load_recipe("cifar100-lt/elf-ldam-drw", {"data.ratio": 50, "train.seed": 2})
    assert recipe("table3", "ce-drw", "imagenet-lt", "paper").model.backbone == "densenet169"
    assert recipe("table1", "ce-drw", "imagenet-lt", "paper").model.backbone == "resnet50"


@pytest.mark.parametrize(
    ("table", "row", "column", "epochs"),
    [
        ("table2", "ce", "cifar10-lt-100", (5, 40, 200)),
        ("table1", "ce", "imagenet-lt", (5, 40, 100)),
        ("table1", "elf-ldam-drw-2x", "imagenet-lt", (10, 80, 200)),
        # Classifiers on fixed features take as long as they take, but no longer than an ordinary row.
        ("table2", "crt", "cifar10-lt-100", (5, 20, 20)),
        ("table1", "lws", "imagenet-lt", (5, 20, 20)),
    ],
)
def test_length_at_every_tier(table: str, row: str, column: str, epochs: tuple[int, ...]) -> None:
    assert tuple(recipe(table, row, column, tier).train.epochs for tier in ("smoke", "short", "paper")) == epochs


def test_a_second_stage_has_a_length_of_its_own() -> None:
    """In a table it is no longer than an ordinary row, and the training before it is as long as any."""
    table = load_table("table2")
    column = table.column("cifar10-lt-100")
    alone = Cell(table.row("crt").model_copy(update={"method": "balanced"}), column, 0)
    after = {"refit.method": "balanced", "refit.epochs": 20}
    for tier, lengths in (("smoke", (5, 5, 5)), ("short", (10, 40, 20)), ("paper", (10, 200, 20))):
        own = recipe_of(alone, TIERS[tier], {}, starts_from="run")
        both = recipe_of(Cell(table.row("ce"), column, 0), TIERS[tier], after)
        assert (total_epochs(own), both.train.epochs, total_epochs(both) - both.train.epochs) == lengths


def test_another_length_keeps_the_proportions() -> None:
    assert recipe("table1", "elf-ldam-drw-2x", "imagenet-lt", "short", train__epochs="3").train.epochs == 6
    assert recipe("table1", "crt", "imagenet-lt", "short", train__epochs=10).train.epochs == 10
    assert recipe("table1", "crt", "imagenet-lt", "short", train__epochs=30).train.epochs == 20
    for wrong in ("0", "many", -1):
        with pytest.raises(RequestError, match="positive whole number"):
            recipe("table2", "ce", "cifar10-lt-10", "short", train__epochs=wrong)


def test_smoke_is_the_digits_with_the_column_s_imbalance_as_far_as_it_goes() -> None:
    found = {
        column.name: recipe("table2", "ce", column.name, "smoke").data for column in load_table("table2").columns[:3]
    }
    assert {data.source for data in found.values()} == {"digits"}
    assert [data.ratio for data in found.values()] == [20, 20, 10]
    assert recipe("table3", "ce", "imagenet-lt", "smoke").model.backbone == "resnet8"


def test_a_row_that_starts_from_another_run_names_it() -> None:
    assert recipe("table2", "tau-norm", "cifar10-lt-100", "short").refit.run == "run"


@pytest.mark.parametrize(
    ("setting", "way_out"),
    [("train__seed", "--seeds"), ("refit__run", "themselves"), ("train__schedule_epochs", "tier")],
)
def test_settings_that_belong_to_the_table(setting: str, way_out: str) -> None:
    with pytest.raises(RequestError, match=f"cannot be set for a whole table.*{way_out}"):
        recipe("table2", "ce", "cifar10-lt-10", "short", **{setting: 1})
