"""The time left, from what is nearest to having been measured."""

import pytest

from elfnet.reproduce.cell import Cell
from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.time_left import Pace, seconds_left

TABLE = load_table("table2")


def cell(row: str, column: str, seed: int = 0) -> Cell:
    return Cell(TABLE.row(row), TABLE.column(column), seed)


def test_nothing_is_known_before_the_first_epoch() -> None:
    assert seconds_left(Pace(), [(cell("ce", "cifar10-lt-10"), 3)]) is None
    assert seconds_left(Pace(), []) == 0


def test_its_own_row_then_its_column_then_anything() -> None:
    pace = Pace()
    for seconds in (2.0, 4.0):
        pace.add(cell("ce", "cifar10-lt-10"), seconds)
    pace.add(cell("bbn", "cifar10-lt-10"), 9.0)
    pace.add(cell("ce", "cifar10-lt-100"), 12.0)
    assert pace.of(cell("ce", "cifar10-lt-10", seed=1)) == 3
    # Of the column's rows, each counts once, however many epochs it has.
    assert pace.of(cell("focal", "cifar10-lt-10")) == 6
    assert pace.of(cell("focal", "cifar100-lt-10")) == pytest.approx((3 + 9 + 12) / 3)
    todo = [(cell("ce", "cifar10-lt-10", 1), 10), (cell("focal", "cifar10-lt-10"), 2)]
    assert seconds_left(pace, todo) == pytest.approx(42)
