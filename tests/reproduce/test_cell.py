"""The cells of a table: their order, their recipes at every tier, and the requests that are refused."""

from typing import Any

import pytest

from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import Recipe
from elfnet.reproduce.cell import Cell, cell_recipe, select_cells, select_rows
from elfnet.reproduce.paper_table import TIERS, load_table

TABLE = load_table("table2")


def names(**request: Any) -> list[str]:
    return [cell.name for cell in select_cells(TABLE, **request)]


def recipe(table: str, row: str, column: str, tier: str, seed: int = 0, **settings: Any) -> Recipe:
    paper_table = load_table(table)
    cell = Cell(paper_table.row(row), paper_table.column(column), seed)
    overrides = {name.replace("__", "."): value for name, value in settings.items()}
    return cell_recipe(cell, TIERS[tier], overrides, starts_from="run" if cell.row.starts_from else "")


def test_everything_is_selected_by_default() -> None:
    assert len(names()) == len(TABLE.rows) * len(TABLE.columns)
    assert len(names(seeds=[0, 1])) == 2 * len(names())


def test_a_source_row_is_selected_once_and_first() -> None:
    selected = names(rows=["lws", "crt"], columns=["cifar10-lt-10"], seeds=[3])
    assert selected == [f"cifar10-lt-10/{row}/seed3" for row in ("ce", "crt", "lws")]


def test_seeds_vary_slowest_and_rows_fastest() -> None:
    selected = names(rows=["elf-ce-drw", "ce"], columns=["cifar100-lt-10", "cifar10-lt-10"], seeds=[1, 0])
    assert selected == [
        f"{column}/{row}/seed{seed}"
        for seed in (1, 0)
        for column in ("cifar10-lt-10", "cifar100-lt-10")
        for row in ("ce", "elf-ce-drw")
    ]


def test_paper_and_extra_select_groups_of_rows() -> None:
    paper, extra = select_rows(TABLE, ["paper"]), select_rows(TABLE, ["extra"])
    assert [row.name for row in (*paper, *extra)] == [row.name for row in TABLE.rows]
    assert all(row.in_paper for row in paper)
    assert [row.name for row in select_rows(TABLE, ["extra", "ce"])] == ["ce", *(row.name for row in extra)]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"rows": ["elf-ce-drv"]}, "unknown row of table2 'elf-ce-drv'; did you mean 'elf-ce-drw'"),
        ({"columns": ["cifar10-100"]}, "unknown column of table2 'cifar10-100'; did you mean 'cifar10"),
        ({"seeds": []}, "--seeds names no seed; give at least one"),
        ({"seeds": [-1]}, "--seeds -1: a seed is a whole number from 0 to 4294967295"),
        ({"seeds": [1, 1]}, "--seeds 1,1 has a seed twice; give each seed once"),
    ],
)
def test_wrong_selections(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        names(**request_)


def test_the_paper_tier_is_the_shipped_recipe() -> None:
    found = recipe("table2", "elf-ldam-drw", "cifar100-lt-50", "paper", seed=2)
    assert found == load_recipe("cifar100-lt/elf-ldam-drw", {"data.ratio": 50, "train.seed": 2})
    assert recipe("table3", "ce-drw", "imagenet-lt", "paper").model.backbone == "densenet169"
    assert recipe("table1", "ce-drw", "imagenet-lt", "paper").model.backbone == "resnet50"


@pytest.mark.parametrize(
    ("table", "row", "column", "epochs"),
    [
        ("table2", "ce", "cifar10-lt-100", (5, 40, 200)),
        ("table1", "ce", "imagenet-lt", (5, 40, 100)),
        ("table1", "elf-ldam-drw-2x", "imagenet-lt", (10, 80, 200)),
        # Classifiers on fixed features keep their length, unless the tier is shorter.
        ("table2", "crt", "cifar10-lt-100", (5, 10, 10)),
        ("table2", "crt-fast", "cifar10-lt-100", (5, 20, 20)),
        ("table1", "lws", "imagenet-lt", (5, 5, 5)),
    ],
)
def test_epochs_at_every_tier(table: str, row: str, column: str, epochs: tuple[int, ...]) -> None:
    assert tuple(recipe(table, row, column, tier).train.epochs for tier in ("smoke", "short", "paper")) == epochs


def test_epochs_of_a_second_stage_at_every_tier() -> None:
    two_stages: dict[str, Any] = {"refit__method": "balanced", "refit__epochs": 10}
    found = [recipe("table2", "ce", "cifar10-lt-100", tier, **two_stages) for tier in ("smoke", "short", "paper")]
    assert [(one.train.epochs, one.refit.epochs) for one in found] == [(5, 5), (40, 10), (200, 10)]
    refits = [recipe("table2", "balanced", "cifar10-lt-100", tier) for tier in ("smoke", "short")]
    assert [one.refit.epochs for one in refits] == [5, 10]


def test_train_epochs_replaces_the_tiers_epochs() -> None:
    assert recipe("table1", "elf-ldam-drw-2x", "imagenet-lt", "short", train__epochs="3").train.epochs == 6
    assert recipe("table1", "crt", "imagenet-lt", "short", train__epochs=10).train.epochs == 10
    assert recipe("table1", "crt", "imagenet-lt", "short", train__epochs=30).train.epochs == 10
    for wrong in ("0", "many", -1):
        with pytest.raises(RequestError, match=f"--train.epochs {wrong} must be a positive whole number"):
            recipe("table2", "ce", "cifar10-lt-10", "short", train__epochs=wrong)


def test_the_smoke_tier_uses_digits_with_the_columns_ratio_up_to_20() -> None:
    found = {
        column.name: recipe("table2", "ce", column.name, "smoke").data for column in load_table("table2").columns[:3]
    }
    assert {data.source for data in found.values()} == {"digits"}
    assert [data.ratio for data in found.values()] == [20, 20, 10]
    assert recipe("table3", "ce", "imagenet-lt", "smoke").model.backbone == "resnet8"


def test_a_row_that_starts_from_another_run_has_its_path() -> None:
    assert recipe("table2", "tau-norm", "cifar10-lt-100", "short").refit.run == "run"


@pytest.mark.parametrize(
    ("setting", "way_out"),
    [("train__seed", "--seeds"), ("refit__run", "themselves"), ("train__schedule_epochs", "tier")],
)
def test_settings_that_the_table_decides(setting: str, way_out: str) -> None:
    with pytest.raises(RequestError, match=f"cannot be set for a whole table.*{way_out}"):
        recipe("table2", "ce", "cifar10-lt-10", "short", **{setting: 1})
