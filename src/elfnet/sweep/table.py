"""The table of a sweep: a row a run, where seeds are swept the mean and deviation over them, and accuracy by s.

The last is the paper's ablation of training threshold t against inference threshold s: only t needs training, every s
is read from the run's exit table.
"""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from elfnet import atomic
from elfnet.checkpoint.run_directory import read_json
from elfnet.sweep.directory import SweepDirectory
from elfnet.sweep.grid import Cell

SEED = "train.seed"
POINTS = ("full", "accurate", "economic")
GROUPS = ("many", "medium", "few")
BY_S = "s="
"""How the points with one threshold s for all exits are called."""


def sweep_table(sweep: SweepDirectory, over: Sequence[str], cells: Sequence[Cell]) -> dict[str, Any]:
    """Rows of the runs that are done, with the figures of the test split; writes table.json and table.md."""
    rows = [_row(sweep, cell) for cell in cells if sweep.is_done(cell)]
    table: dict[str, Any] = {"over": list(over), "runs": rows}
    if SEED in over and len({row["settings"][SEED] for row in rows}) > 1:
        table["over_seeds"] = _over_seeds(rows)
    if any(row["by_s"] for row in rows):
        table["by_s"] = _by_s(rows)
    atomic.write_json(sweep.root / "table.json", table)
    atomic.write_text(sweep.root / "table.md", _markdown(table))
    return table


def _row(sweep: SweepDirectory, cell: Cell) -> dict[str, Any]:
    measured = read_json(sweep.run(cell).metrics_file)
    figures: dict[str, float | None] = {}
    for name in POINTS:
        point = measured["points"].get(name)
        if point is None:
            continue
        figures[f"{name} accuracy"] = point["accuracy"]
        figures |= {f"{name} {group}": point["accuracy_by_group"].get(group) for group in GROUPS}
        figures[f"{name} cost"] = point["mean_cost"]
    by_s = {
        name.removeprefix(BY_S): {"accuracy": point["accuracy"], "cost": point["mean_cost"]}
        for name, point in measured["points"].items()
        if name.startswith(BY_S)
    }
    return {"run": cell.name, "settings": dict(cell.values), "n": measured["n"], "figures": figures, "by_s": by_s}


def _without_seeds(rows: Sequence[Mapping[str, Any]]) -> list[tuple[dict[str, str], list[Mapping[str, Any]]]]:
    """The rows that differ by their seed only, together, with the settings that they share."""
    together: dict[tuple[tuple[str, str], ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        together.setdefault(tuple((k, v) for k, v in row["settings"].items() if k != SEED), []).append(row)
    return [(dict(settings), same) for settings, same in together.items()]


def _by_s(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Accuracy and cost at every s that all seeds of a combination have, as their mean over the seeds."""
    summary = []
    for settings, same in _without_seeds(rows):
        shared = [s for s in same[0]["by_s"] if all(s in row["by_s"] for row in same)]
        by_s = {s: {k: mean(row["by_s"][s][k] for row in same) for k in ("accuracy", "cost")} for s in shared}
        summary.append({"settings": settings, "seeds": len(same), "by_s": by_s})
    return summary


def _over_seeds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and sample deviation of every figure over the seeds of each combination of the other settings."""
    summary = []
    for settings, same in _without_seeds(rows):
        figures = {}
        for name in same[0]["figures"]:
            values = [row["figures"].get(name) for row in same]
            if all(value is not None for value in values):
                figures[name] = {"mean": mean(values), "deviation": stdev(values) if len(values) > 1 else None}
        summary.append({"settings": settings, "seeds": len(same), "figures": figures})
    return summary


def _markdown(table: Mapping[str, Any]) -> str:
    over: list[str] = table["over"]
    names = list(dict.fromkeys(name for row in table["runs"] for name in row["figures"]))
    lines = ["Test split; accuracy in %, cost is mean multiply-adds relative to the plain backbone.", ""]
    lines += _rows(
        [*over, *names, "n"],
        [
            [*row["settings"].values(), *(_number(name, row["figures"].get(name)) for name in names), str(row["n"])]
            for row in table["runs"]
        ],
    )
    if "over_seeds" in table:
        others = [name for name in over if name != SEED]
        lines += ["", "Mean ± standard deviation over seeds:", ""]
        lines += _rows(
            [*others, *names, "seeds"],
            [
                [
                    *row["settings"].values(),
                    *(_spread(name, row["figures"].get(name)) for name in names),
                    str(row["seeds"]),
                ]
                for row in table["over_seeds"]
            ],
        )
    if "by_s" in table:
        values = list(dict.fromkeys(s for row in table["by_s"] for s in row["by_s"]))
        others = [name for name in over if name != SEED]
        averaged = ", means over seeds" if SEED in over else ""
        lines += ["", f"Accuracy at cost for one threshold s at all exits (from the exit tables{averaged}):", ""]
        lines += _rows(
            [*others, *(f"s = {s}" for s in values)],
            [[*row["settings"].values(), *(_at(row["by_s"].get(s)) for s in values)] for row in table["by_s"]],
        )
    return "\n".join(lines) + "\n"


def _at(point: Mapping[str, float] | None) -> str:
    if point is None:
        return "–"
    return f"{_number('accuracy', point['accuracy'])} at {point['cost']:.2f}"


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if name.endswith("cost") else f"{100 * value:.1f}"


def _spread(name: str, value: Mapping[str, float | None] | None) -> str:
    if value is None:
        return "–"
    deviation = value["deviation"]
    return _number(name, value["mean"]) + ("" if deviation is None else f" ± {_number(name, deviation)}")
