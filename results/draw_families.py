"""Draw the picture of the README from the records in `strong-medium`: families of exits and plain networks.

    python results/draw_families.py

It writes docs/images/families-against-cost.png. A line joins the points `budget=B` of one network with exits, whose
thresholds were chosen on the calibration split; a diamond is its full depth, and a cross a plain network. All rows have
the same training. Costs are relative to the plain ResNet-32. Beside it, `strong-medium/against-plain.md` has the
distance of each point from the line through the plain networks.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from elfnet.report.figures.base import INK, MUTED, PAPER, SeriesStyle, figure_style, series_style

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "strong-medium" / "records"
PANELS = {"cifar10-lt-100": "CIFAR-10-LT, ratio 100", "cifar100-lt-100": "CIFAR-100-LT, ratio 100"}
FAMILIES = {
    "elf-strong": "ResNet-32 with exits (ELF)",
    "joint-strong-late": "ResNet-32 of 2, 2, 11 blocks with exits",
    "elf-strong-experts-late": "the same with 3 experts (ELF)",
    "elf-strong-experts": "ResNet-32 with 3 experts (ELF)",
}
PLAIN = {"plain-strong-resnet14": "14", "plain-strong-resnet20": "20", "plain-strong": "32"}
SIZE_INCHES = (8.2, 3.9)
BUDGETS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
INTRODUCTION = """# Families of exits against the line through plain networks

Accuracy on the test split minus that of the straight lines between plain ResNet-14, ResNet-20 and ResNet-32 of the same
recipe at the same mean multiply-adds, in percentage points; in brackets the mean cost relative to ResNet-32. One seed:
each accuracy has a standard error of half a point. Written by `python results/draw_families.py`.
"""


def _records(column: str, rows: dict[str, str]) -> dict[str, Any]:
    """The records of a column that exist, by label."""
    files = {label: RECORDS / column / row / "seed0.json" for row, label in rows.items()}
    return {label: json.loads(file.read_text()) for label, file in files.items() if file.is_file()}


def _place(record: Any, point: str) -> tuple[float, float]:
    """Cost relative to the plain ResNet-32, and accuracy in %, of a point."""
    scale = record["plain_multiply_adds"] / record["baseline_multiply_adds"]
    return scale * record["points"][point]["mean_cost"], 100 * record["points"][point]["accuracy"]


def _draw_family(axes: Any, record: Any, style: SeriesStyle) -> None:
    budgets = sorted(_place(record, name) for name in record["points"] if name.startswith("budget="))
    axes.plot(
        [cost for cost, _ in budgets],
        [accuracy for _, accuracy in budgets],
        color=style.colour,
        linestyle=style.line,
        marker=".",
        markersize=7,
        markeredgecolor=PAPER,
        markeredgewidth=0.5,
    )
    cost, accuracy = _place(record, "full")
    axes.plot([cost], [accuracy], "D", color=style.colour, markersize=6)


def _draw_plain(axes: Any, records: dict[str, Any]) -> None:
    for depth, record in records.items():
        cost, accuracy = _place(record, "full")
        axes.plot([cost], [accuracy], "x", color=INK, markersize=8, markeredgewidth=1.8, zorder=5)
        # Above and to the left, where no family has points.
        axes.annotate(
            f"ResNet-{depth}",
            (cost, accuracy),
            (-4, 5),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=MUTED,
        )


def _above_plain(column: str) -> list[str]:
    """The lines of a table: each family minus the plain networks, by budget."""
    plain = sorted(_place(record, "full") for record in _records(column, PLAIN).values())
    costs, accuracies = ([one[k] for one in plain] for k in (0, 1))
    heads = ["network", *(f"{budget:g}" for budget in BUDGETS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for label, record in _records(column, FAMILIES).items():
        cells = []
        for name in (f"budget={budget:g}" for budget in BUDGETS):
            cost, accuracy = _place(record, name) if name in record["points"] else (np.inf, np.nan)
            inside = costs[0] <= cost <= costs[-1] * 1.01
            cells.append(f"{accuracy - np.interp(cost, costs, accuracies):+.1f} ({cost:.2f})" if inside else "-")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def write_table() -> None:
    """Write how far the families are above or below the plain networks."""
    lines = [INTRODUCTION]
    for column, title in PANELS.items():
        if len(_records(column, PLAIN)) > 1:
            lines += [f"## {title}", "", *_above_plain(column), ""]
    (ROOT / "results" / "strong-medium" / "against-plain.md").write_text("\n".join(lines))


def main() -> None:
    """Draw the figure and write the table."""
    write_table()
    with figure_style():
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D

        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        styles = {label: series_style(position) for position, label in enumerate(FAMILIES.values())}
        drawn: dict[str, SeriesStyle] = {}
        for axes, (column, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            for label, record in _records(column, FAMILIES).items():
                _draw_family(axes, record, styles[label])
                drawn[label] = styles[label]
            _draw_plain(axes, _records(column, PLAIN))
            axes.set_title(title)
            axes.set_xlabel("mean multiply-adds per image, relative to ResNet-32")
            axes.set_ylabel("test accuracy (%)")
        handles = [Line2D([], [], color=one.colour, linestyle=one.line, label=label) for label, one in drawn.items()]
        handles += [
            Line2D([], [], linestyle="none", marker="D", color=MUTED, label="full depth"),
            Line2D([], [], linestyle="none", marker="x", color=INK, markeredgewidth=1.8, label="plain network"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=3)
        figure.savefig(ROOT / "docs" / "images" / "families-against-cost.png", dpi=150, facecolor=PAPER)


if __name__ == "__main__":
    main()
