"""How long the rest of a table takes, from the seconds that epochs took so far."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import mean

from elfnet.reproduce.cell import Cell


@dataclass
class Pace:
    """Seconds an epoch, by column and row."""

    _seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, cell: Cell, seconds: float) -> None:
        """One epoch of a run took so long."""
        self._seconds.setdefault(cell.column.name, {}).setdefault(cell.row.name, []).append(seconds)

    def of(self, cell: Cell) -> float | None:
        """Of the same row and column, with any seed; else the mean of the column's rows, else of all; None: unknown."""
        column = self._seconds.get(cell.column.name, {})
        if cell.row.name in column:
            return mean(column[cell.row.name])
        rows = column or {f"{c}/{r}": times for c, rows in self._seconds.items() for r, times in rows.items()}
        return mean(mean(times) for times in rows.values()) if rows else None


def seconds_left(pace: Pace, todo: Iterable[tuple[Cell, int]]) -> float | None:
    """Of runs with so many epochs to go; None where nothing has been measured yet."""
    total = 0.0
    for cell, epochs in todo:
        each = pace.of(cell)
        if each is None:
            return None
        total += each * epochs
    return total
