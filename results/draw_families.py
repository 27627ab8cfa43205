"""Draw the picture of the README from the records in `strong-medium`: families of exits and plain networks.

    python results/draw_families.py

It writes docs/images/families-against-cost.png. A line joins the points `budget=B` of one network with exits, whose
thresholds were chosen on the calibration split; a diamond is its full depth, and a cross a plain network. All rows have
the same training. Costs are relative to the plain ResNet-32.
"""

import json
from pathlib import Path
from typing import Any

from elfnet.report.figures.base import INK, MUTED, PAPER, SeriesStyle, figure_style, series_style

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "strong-medium" / "records"
PANELS = {"cifar10-lt-100": "CIFAR-10-LT, ratio 100", "cifar100-lt-100": "CIFAR-100-LT, ratio 100"}
FAMILIES = {
    "elf-strong": "ResNet-32 with exits (ELF)",
    "joint-strong-late": "ResNet-32 of 2, 2, 11 blocks with exits",
    "elf-strong-experts": "ResNet-32 with 3 experts (ELF)",
}
PLAIN = {"plain-strong-resnet14": "14", "plain-strong-resnet20": "20", "plain-strong": "32"}
SIZE_INCHES = (8.2, 3.9)


def _records(column: str, rows: dict[str, str]) -> dict[str, Any]:
    """The records of a column that exist, by label."""
    files = {label: RECORDS / column / row / "seed0.json" for row, label in rows.items()}
    return {label: json.loads(file.read_text()) for label, file in files.items() if file.is_file()}


def _draw_family(axes: Any, record: Any, style: SeriesStyle) -> None:
    points, scale = record["points"], record["plain_multiply_adds"] / record["baseline_multiply_adds"]
    budgets = [point for name, point in points.items() if name.startswith("budget=")]
    budgets.sort(key=lambda point: float(point["mean_cost"]))
    axes.plot(
        [scale * point["mean_cost"] for point in budgets],
        [100 * point["accuracy"] for point in budgets],
        color=style.colour,
        linestyle=style.line,
        marker=".",
        markersize=7,
        markeredgecolor=PAPER,
        markeredgewidth=0.5,
    )
    full = points["full"]
    axes.plot([scale * full["mean_cost"]], [100 * full["accuracy"]], "D", color=style.colour, markersize=6)


def _draw_plain(axes: Any, records: dict[str, Any]) -> None:
    for depth, record in records.items():
        cost = record["plain_multiply_adds"] / record["baseline_multiply_adds"]
        accuracy = 100 * record["points"]["full"]["accuracy"]
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


def main() -> None:
    """Draw the figure."""
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
