"""The table of a sweep: one row per run, mean and deviation over seeds, and accuracy by inference threshold s.

The last is the paper's ablation of the training threshold t against the inference threshold s. Only t needs training;
all s come from the exit table of the same run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from elfnet import atomic
from elfnet.report.formatting import DASH
from elfnet.sweep.grid import Cell, SweepDirectory

SEED = "train.seed"
POINTS = ("full", "accurate", "economic")
GROUPS = ("many", "medium", "few")
BY_S = "s="
"""Prefix of the names of points with one threshold s for all exits."""


@dataclass(frozen=True)
class AtThreshold:
    """Accuracy and mean cost with one threshold for all exits."""

    accuracy: float
    cost: float


@dataclass(frozen=True)
class RunRow:
    """Results of one run on the test split.

    Attributes:
        run: name of the run.
        settings: values of the swept settings.
        n: number of test examples.
        figures: accuracies and costs by column; None for a group without examples.
        by_s: results by inference threshold.
    """

    run: str
    settings: dict[str, str]
    n: int
    figures: dict[str, float | None]
    by_s: dict[str, AtThreshold]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation; the deviation of one value is None."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class SeedRow:
    """Spread over the runs that differ only in their seed."""

    settings: dict[str, str]
    seeds: int
    figures: dict[str, Spread]


@dataclass(frozen=True)
class ThresholdRow:
    """Results by inference threshold, as means over the runs that differ only in their seed."""

    settings: dict[str, str]
    seeds: int
    by_s: dict[str, AtThreshold]


@dataclass(frozen=True)
class SweepTable:
    """The whole table; `over_seeds` and `by_s` are None if they would say nothing."""

    over: list[str]
    runs: list[RunRow]
    over_seeds: list[SeedRow] | None
    by_s: list[ThresholdRow] | None


def sweep_table(sweep: SweepDirectory, over: Sequence[str], cells: Sequence[Cell]) -> dict[str, Any]:
    """Write table.json and table.md with the finished runs; return the content of table.json."""
    rows = [_read_row(sweep, cell) for cell in cells if sweep.is_done(cell)]
    several_seeds = SEED in over and len({row.settings[SEED] for row in rows}) > 1
    table = SweepTable(
        over=list(over),
        runs=rows,
        over_seeds=_over_seeds(rows) if several_seeds else None,
        by_s=_by_s(rows) if any(row.by_s for row in rows) else None,
    )
    content = {name: value for name, value in asdict(table).items() if value is not None}
    atomic.write_json(sweep.root / "table.json", content)
    atomic.write_text(sweep.root / "table.md", _markdown(table))
    return content


def _read_row(sweep: SweepDirectory, cell: Cell) -> RunRow:
    """Read the results of a run from its metrics.json."""
    measured = sweep.run(cell).results()
    figures: dict[str, float | None] = {}
    for name in POINTS:
        point = measured.points.get(name)
        if point is None:
            continue
        figures[f"{name} accuracy"] = point.accuracy
        figures |= {f"{name} {group}": point.accuracy_by_group[group] for group in GROUPS}
        figures[f"{name} cost"] = point.mean_cost
    by_s = {
        name.removeprefix(BY_S): AtThreshold(point.accuracy, point.mean_cost)
        for name, point in measured.points.items()
        if name.startswith(BY_S)
    }
    return RunRow(cell.name, dict(cell.values), measured.n, figures, by_s)


def _by_settings(rows: Iterable[RunRow]) -> list[tuple[dict[str, str], list[RunRow]]]:
    """Return the rows that differ only in their seed together, with the settings they share."""
    groups: dict[tuple[tuple[str, str], ...], list[RunRow]] = {}
    for row in rows:
        groups.setdefault(tuple((k, v) for k, v in row.settings.items() if k != SEED), []).append(row)
    return [(dict(settings), members) for settings, members in groups.items()]


def _over_seeds(rows: Sequence[RunRow]) -> list[SeedRow]:
    summary = []
    for settings, members in _by_settings(rows):
        figures = {}
        for name in members[0].figures:
            values = [value for row in members if (value := row.figures.get(name)) is not None]
            if len(values) == len(members):
                figures[name] = Spread(mean(values), stdev(values) if len(values) > 1 else None)
        summary.append(SeedRow(settings, len(members), figures))
    return summary


def _by_s(rows: Sequence[RunRow]) -> list[ThresholdRow]:
    """Average over seeds at every s that all seeds of a combination have."""
    summary = []
    for settings, members in _by_settings(rows):
        shared = [s for s in members[0].by_s if all(s in row.by_s for row in members)]
        by_s = {
            s: AtThreshold(mean(row.by_s[s].accuracy for row in members), mean(row.by_s[s].cost for row in members))
            for s in shared
        }
        summary.append(ThresholdRow(settings, len(members), by_s))
    return summary


def _markdown(table: SweepTable) -> str:
    names = list(dict.fromkeys(name for row in table.runs for name in row.figures))
    others = [name for name in table.over if name != SEED]
    lines = ["Test split; accuracy in %, cost is mean multiply-adds relative to the plain backbone.", ""]
    lines += _lines(
        [*table.over, *names, "n"],
        [
            [*row.settings.values(), *(_number(name, row.figures.get(name)) for name in names), str(row.n)]
            for row in table.runs
        ],
    )
    if table.over_seeds is not None:
        lines += ["", "Mean ± standard deviation over seeds:", ""]
        lines += _lines(
            [*others, *names, "seeds"],
            [
                [*row.settings.values(), *(_spread(name, row.figures.get(name)) for name in names), str(row.seeds)]
                for row in table.over_seeds
            ],
        )
    if table.by_s is not None:
        values = list(dict.fromkeys(s for row in table.by_s for s in row.by_s))
        averaged = ", means over seeds" if SEED in table.over else ""
        lines += ["", f"Accuracy at cost for one threshold s at all exits (from the exit tables{averaged}):", ""]
        lines += _lines(
            [*others, *(f"s = {s}" for s in values)],
            [[*row.settings.values(), *(_at_threshold(row.by_s.get(s)) for s in values)] for row in table.by_s],
        )
    return "\n".join(lines) + "\n"


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _number(name: str, value: float | None) -> str:
    if value is None:
        return DASH
    return f"{value:.3f}" if name.endswith("cost") else f"{100 * value:.1f}"


def _spread(name: str, value: Spread | None) -> str:
    if value is None:
        return DASH
    return _number(name, value.mean) + ("" if value.deviation is None else f" ± {_number(name, value.deviation)}")


def _at_threshold(point: AtThreshold | None) -> str:
    return DASH if point is None else f"{_number('accuracy', point.accuracy)} at {point.cost:.2f}"
