"""Which rows, columns and seeds of a table are asked for."""

from collections.abc import Sequence

from elfnet.errors import RequestError
from elfnet.registry import unknown_name
from elfnet.reproduce.cell import Cell
from elfnet.reproduce.paper_table import Column, PaperTable, Row

PAPER, EXTRA = "paper", "extra"
"""Words that stand for the rows with published numbers, and for those without."""


def choose_cells(
    table: PaperTable, *, rows: Sequence[str] = (), columns: Sequence[str] = (), seeds: Sequence[int] = (0,)
) -> list[Cell]:
    """The runs that are asked for, in the order in which they are run, with those that they start from.

    The first seed of everything comes before the second, and a column is done before the next is begun: what is there
    after a while is then a table with few numbers in every row rather than many in one.

    Args:
        rows, columns: names; none: all of them.
    """
    chosen_rows, chosen_columns = choose_rows(table, rows), choose_columns(table, columns)
    cells: dict[str, Cell] = {}
    for seed in _checked(seeds):
        for column in chosen_columns:
            for row in chosen_rows:
                first = [table.row(row.starts_from)] if row.starts_from else []
                for one in (*first, row):
                    cell = Cell(one, column, seed)
                    cells.setdefault(cell.name, cell)
    return list(cells.values())


def choose_rows(table: PaperTable, names: Sequence[str]) -> list[Row]:
    """In the order of the table; rows that only have published numbers cannot be run."""
    runnable = [row for row in table.rows if row.method is not None]
    known = [row.name for row in runnable]
    for name in names:
        if name not in (*known, PAPER, EXTRA):
            raise unknown_name(f"row of {table.name}", name, [*known, PAPER, EXTRA])
    return [row for row in runnable if not names or row.name in names or (PAPER if row.in_paper else EXTRA) in names]


def choose_columns(table: PaperTable, names: Sequence[str]) -> list[Column]:
    known = [column.name for column in table.columns]
    for name in names:
        if name not in known:
            raise unknown_name(f"column of {table.name}", name, known)
    return [column for column in table.columns if not names or column.name in names]


def _checked(seeds: Sequence[int]) -> list[int]:
    if not seeds:
        raise RequestError("--seeds names no seed; give at least one, such as 0")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise RequestError(f"--seeds {seed}: a seed is a whole number from 0 to {2**32 - 1}")
    if len(set(seeds)) < len(seeds):
        raise RequestError(f"--seeds {','.join(map(str, seeds))} has a seed twice; leave one out")
    return list(seeds)
