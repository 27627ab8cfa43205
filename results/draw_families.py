"""Draw the picture of the README from the records beside this file: two families and plain networks on CIFAR-10-LT.

    python results/draw_families.py

It writes docs/images/families-against-cost.png. Lines: one threshold for all exits. Dots: points that are best for a
budget by the calibration split. Costs are relative to the plain ResNet-32, also that of the plain ResNet-20.
"""

import json
from pathlib import Path
from typing import Any

from elfnet.exits.policy import NEVER
from elfnet.models import build_network, count_cost
from elfnet.report.figures.base import PAPER, series_style
from elfnet.report.figures.trade_off import CurveLine, draw_accuracy_cost_curve

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "cifar10-lt-100"
FAMILIES = {"elf-ldam-drw": "ELF(LDAM)+DRW", "elf-ce-drw": "ELF(CE)+DRW"}
PLAIN = {"ce-drw": "plain ResNet-32", "ce-drw-resnet20": "plain ResNet-20"}


def _record(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.json").read_text())


def _best_for_budgets(record: Any) -> list[str]:
    """Names of the points with the highest balanced accuracy within some cost, both on the calibration split."""
    expected = record["policy"]
    best: list[str] = []
    for name in sorted(expected, key=lambda name: (expected[name]["mean_cost"], -expected[name]["balanced_accuracy"])):
        if not best or expected[name]["balanced_accuracy"] > expected[best[-1]]["balanced_accuracy"]:
            best.append(name)
    return best


def _family(position: int, name: str) -> CurveLine:
    record = _record(name)
    test, points = record["test"], record["test"]["points"]
    curve = [point for point in test["curve"] if point["threshold"] < NEVER]
    return CurveLine(
        label=FAMILIES[name],
        style=series_style(position),
        cost_P=[point["mean_cost"] for point in curve],
        accuracy_P=[point["accuracy"] for point in curve],
        marks={"full": (points["full"]["mean_cost"], points["full"]["accuracy"])},
        family=[(points[best]["mean_cost"], points[best]["accuracy"]) for best in _best_for_budgets(record)],
    )


def _plain(position: int, name: str) -> CurveLine:
    record = _record(name)
    backbones = (record["recipe"]["model"]["backbone"], "resnet32")
    own, reference = (
        count_cost(build_network(backbone, classes=10, exits=False), (3, 32, 32)).plain for backbone in backbones
    )
    accuracy = record["test"]["points"]["full"]["accuracy"]
    return CurveLine(PLAIN[name], series_style(position), [own / reference], [accuracy])


def main() -> None:
    """Draw the figure."""
    lines = [_family(position, name) for position, name in enumerate(FAMILIES)]
    lines += [_plain(len(lines) + position, name) for position, name in enumerate(PLAIN)]
    figure = draw_accuracy_cost_curve(lines, unit="multiply-adds relative to the plain ResNet-32")
    figure.savefig(ROOT / "docs" / "images" / "families-against-cost.png", dpi=200, facecolor=PAPER)


if __name__ == "__main__":
    main()
