"""Tables whose runs take a second, and invented records, so that every number of a table is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.recipe.roles import without_directories
from elfnet.reproduce.cell import Cell, cell_recipe
from elfnet.reproduce.paper_table import TIERS, load_table
from elfnet.reproduce.recipe_diff import recipe_dict
from elfnet.reproduce.record import pack_bits
from elfnet.reproduce.run import Outcome, reproduce_table
from elfnet.reproduce.summary import summarize

COLUMN = "cifar10-lt-100"
MakeRecord = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def tiny(tiny_settings: dict[str, Any]) -> dict[str, Any]:
    return {**tiny_settings, "train.epochs": 2}


@pytest.fixture(scope="session")
def filled(tiny: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A table with a row that starts from another one and a row with exits; tests must not write into it."""
    out = tmp_path_factory.mktemp("tables") / "filled"
    return out, reproduce_table("table2", out, rows=["tau-norm", "elf-ce-drw"], columns=[COLUMN], settings=tiny)


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
    """Make a record of table 2 with the given numbers."""

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
        paper_table = load_table(table)
        cell = Cell(paper_table.row(row), paper_table.column(column), seed)
        source = "run" if cell.row.starts_from else ""
        content = recipe_dict(cell_recipe(cell, TIERS[tier], settings or {}, starts_from=source))

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
            points["s=0.95"] = point(full - 0.002, 0.95)
        images = others.pop("images", cell.column.images)
        return {
            "n": 10_000,
            "recipe": without_directories(content),
            "versions": {"elfnet": "0.1.0", "torch": "2.0", "python": "3.11.0"},
            "hardware": {"processor": "a processor"},
            "machine": {"device": "cpu", "precision": "float32"},
            "data": {
                "class_counts": [images - 9, *[1] * (cell.column.classes - 1)],
                "images": images,
                "calibration": 2000,
            },
            "plain_multiply_adds": 100,
            "baseline_multiply_adds": 100,
            "exits": [{}] if accurate is None else [{}, {}],
            "points": points,
            **others,
        }

    return make


@pytest.fixture
def compared(make_record: MakeRecord) -> dict[str, Any]:
    """The content of a table whose records have answers, so that pairs of rows are compared."""

    def record(row: str, seed: int, correct: int, **points: int) -> tuple[tuple[str, str, int], dict[str, Any]]:
        """A run that classifies the first `correct` of 100 images correctly; the first 10 are of the large class."""
        answers = {"full": correct, **{name.replace("_", "="): number for name, number in points.items()}}
        packed = {name: pack_bits(np.arange(100) < number) for name, number in answers.items()}
        content = make_record(row, seed=seed, right={"examples_of_class": [10] * 10, "points": packed})
        content["data"]["fingerprint"] = "the same"
        return (row, COLUMN, seed), content

    records = dict(
        [
            record("ce-drw", 0, 60),
            record("elf-ce-drw", 0, 70, budget_0=66),
            record("joint-ce-drw", 0, 65),
            record("joint-ce-drw", 1, 69),
            record("elf-ce-drw", 1, 70),
            # An older record without answers, and a seed that the other row does not have.
            (("ldam-drw", COLUMN, 0), make_record("ldam-drw")),
            record("ce-drw", 3, 1),
        ]
    )
    return summarize(load_table("table2"), TIERS["paper"], records)
