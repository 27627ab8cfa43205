"""Tables whose runs take a second, and records made up so that every number of a table is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elfnet.reproduce.cell import Cell, recipe_of
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.run_table import Outcome, reproduce_table
from elfnet.reproduce.same_recipe import content_of, without_places
from elfnet.reproduce.tiers import TIERS

COLUMN = "cifar10-lt-100"
MakeRecord = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def tiny(tiny_settings: dict[str, Any]) -> dict[str, Any]:
    return {**tiny_settings, "train.epochs": 2}


@pytest.fixture(scope="session")
def filled(tiny: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A table with a row that needs another one and a row with exits; do not write into it."""
    out = tmp_path_factory.mktemp("tables") / "filled"
    return out, reproduce_table("table2", out, rows=["tau-norm", "elf-ce-drw"], columns=[COLUMN], settings=tiny)


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
    """A record of table 2 with the figures given."""

    def make(
        row: str,
        column: str = COLUMN,
        seed: int = 0,
        *,
        tier: str = "paper",
        table: str = "table2",
        settings: dict[str, Any] | None = None,
        full: float = 0.5,
        accurate: tuple[float, float] | None = None,
        per_exit: tuple[float, float] | None = None,
        **others: Any,
    ) -> dict[str, Any]:
        of = load_table(table)
        cell = Cell(of.row(row), of.column(column), seed)
        start = "run" if cell.row.starts_from else ""
        content = content_of(recipe_of(cell, TIERS[tier], settings or {}, starts_from=start))

        def point(accuracy: float, cost: float) -> dict[str, Any]:
            by_group = {"many": accuracy + 0.1, "medium": accuracy - 0.1, "few": None}
            shares = [1.0] if accurate is None else [0.25, 0.75]
            return {
                "accuracy": accuracy,
                "accuracy_by_group": by_group,
                "mean_cost": cost,
                "worst_cost": cost + 0.1,
                "exit_share": shares,
            }

        points = {"full": point(full, 1.0), "accurate": point(*(accurate or (full, 1.0)))}
        if per_exit is not None:
            points["within-1"] = point(*per_exit)
        images = others.pop("images", cell.column.images)
        return {
            "n": 10_000,
            "recipe": without_places(content),
            "versions": {"elfnet": "0.1.0", "torch": "2.0", "python": "3.11.0"},
            "hardware": {"processor": "a processor"},
            "machine": {"device": "cpu", "precision": "float32"},
            "data": {"class_counts": [images - 9, *[1] * (cell.column.classes - 1)], "images": images},
            "plain_multiply_adds": 100,
            "baseline_multiply_adds": 100,
            "exits": [{}] if accurate is None else [{}, {}],
            "points": points,
            **others,
        }

    return make
