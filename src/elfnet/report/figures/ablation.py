"""The paper's ablation: one line per training threshold t, one mark per inference threshold s."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elfnet.calibrate.family import MULTIPLY_ADDS
from elfnet.calibrate.line_search import named_thresholds
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.exits.threshold import parse_threshold
from elfnet.report.figures.base import (
    MUTED,
    FigureOrReason,
    NoFigure,
    RunFigure,
    label_text,
    new_figure,
    series_style,
    styled,
)
from elfnet.report.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAME = "threshold-ablation"


@dataclass(frozen=True)
class AblationPoint:
    """One pair (t, s): mean cost relative to the plain backbone, accuracy as a fraction of 1."""

    s: str
    mean_cost: float
    accuracy: float


def threshold_ablation(records: Sequence[RunRecord]) -> FigureOrReason:
    """Accuracy against cost for every pair (t, s), from the exit tables of runs that differ only in t.

    The values of s are the candidates in the recipe of the first run.
    """
    chosen = runs_by_training_threshold(records)
    if len(chosen) < 2:
        return NoFigure(_NAME, "the ablation needs at least two runs that differ only in exits.train_threshold")
    candidates = next(iter(chosen.values())).recipe.exits.search
    lines = {t: ablation_points(record, candidates) for t, record in chosen.items()}
    first = next(iter(chosen.values()))
    highest = {t: max(point.accuracy for point in points) for t, points in lines.items()}
    spread = 100 * (max(highest.values()) - min(highest.values()))
    return RunFigure(
        _NAME,
        "Training and inference thresholds",
        f"One line per training threshold t (one run each), one mark per inference threshold s: "
        f"{', '.join(candidates)}. The highest accuracies of the lines differ by {spread:.1f} points. "
        f"{first.measured_on}.",
        lambda: draw_threshold_ablation(lines, unit=first.short_cost_unit),
    )


def runs_by_training_threshold(records: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """Return the largest set of runs whose recipes differ only in t, one run per t, by increasing t."""
    sets: dict[str, dict[str, RunRecord]] = {}
    for record in records:
        if record.plain or record.table is None or record.recipe.exits.rule != "elf":
            continue
        exits = record.recipe.exits.model_copy(update={"train_threshold": "", "search": ("",)})
        rest = record.recipe.model_copy(update={"exits": exits}).model_dump_json()
        sets.setdefault(rest, {}).setdefault(record.recipe.exits.train_threshold, record)
    largest: Mapping[str, RunRecord] = max(sets.values(), key=len, default={})
    classes = records[0].info.data.classes if records else 1
    return dict(sorted(largest.items(), key=lambda pair: parse_threshold(pair[0], classes=classes)))


def ablation_points(record: RunRecord, candidates: Sequence[str]) -> list[AblationPoint]:
    """Replay the exit table with each s, at the confidence scale of the recipe."""
    table = record.table
    assert table is not None, "only runs with an exit table are chosen"
    derived = compute_confidences(table)
    points = []
    for name, threshold in named_thresholds(candidates, table.classes).items():
        policy = derived.uniform(name, threshold)
        metrics = measure(table, replay(derived, policy), with_confusion=False)
        points.append(AblationPoint(name.removeprefix("s="), metrics.mean_cost, metrics.accuracy))
    return points


@styled
def draw_threshold_ablation(lines: Mapping[str, Sequence[AblationPoint]], *, unit: str = MULTIPLY_ADDS) -> "Figure":
    """Draw one line per t; the first and the last s are labelled."""
    figure = new_figure(3.6)
    axes: Any = figure.add_subplot()
    for position, (t, points) in enumerate(lines.items()):
        style = series_style(position)
        axes.plot(
            [point.mean_cost for point in points],
            [100 * point.accuracy for point in points],
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            label=label_text(f"t = {t}"),
        )
    for end, offset, side in ((0, (0, 8), "center"), (-1, (0, 8), "right")):
        point = max((points[end] for points in lines.values()), key=lambda one: one.accuracy)
        axes.annotate(
            label_text(f"s = {point.s}"),
            (point.mean_cost, 100 * point.accuracy),
            xytext=offset,
            textcoords="offset points",
            ha=side,
            fontsize=8,
            color=MUTED,
        )
    axes.margins(x=0.08, y=0.14)
    axes.set_xlabel(f"mean cost ({unit})")
    axes.set_ylabel("accuracy (%)")
    figure.legend(loc="outside upper center", ncols=min(4, len(lines)))
    return figure
