"""metrics.json: accuracy and cost of a run's operating points, of every exit alone, and along the curve."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.run.json_file import Strict

Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
GroupName = Annotated[str, Field(pattern=f"^({'|'.join(GROUP_NAMES)})$")]
EveryGroup = Field(min_length=len(GROUP_NAMES))
"""Of a dictionary by `GroupName`: no group is missing."""
AccuracyByGroup = Annotated[dict[GroupName, Fraction | None], EveryGroup]
"""Accuracy of the groups many, medium and few; None for a group without examples."""


class Metrics(Strict):
    """Metrics of a policy. Figures are fractions of 1; None means that there are no examples.

    Attributes:
        n: number of examples.
        n_by_group: number of examples whose class is "many", "medium" or "few" in training.
        accuracy: fraction of correct predictions.
        accuracy_by_group: accuracy by frequency group.
        accuracy_by_class: accuracy by class.
        balanced_accuracy: mean of the accuracies of the classes that have examples.
        macro_f1: mean F1 over all C classes; a class that is neither present nor predicted counts as 0.
        mean_cost: mean multiply-adds relative to the plain backbone.
        worst_cost: the cost of the deepest exit that an input can take under the policy.
        exit_share: fraction of the examples that take each exit.
        exit_share_by_group: these fractions by frequency group.
        confusion: number of examples by label (row) and prediction (column); None if not computed.
    """

    n: Count
    n_by_group: Annotated[dict[GroupName, Count], EveryGroup]
    accuracy: Fraction
    accuracy_by_group: AccuracyByGroup
    accuracy_by_class: tuple[Fraction | None, ...]
    balanced_accuracy: float
    macro_f1: float
    mean_cost: float
    worst_cost: float
    exit_share: tuple[float, ...]
    exit_share_by_group: Annotated[dict[GroupName, tuple[float, ...] | None], EveryGroup]
    confusion: tuple[tuple[Count, ...], ...] | None


class PointResults(Metrics):
    """Metrics of an operating point, its thresholds, and how they were found (see `OperatingPoint.rule`)."""

    rule: str
    thresholds: tuple[float, ...]


class ExitQuality(Strict):
    """The quality of one exit if all examples take it.

    Attributes:
        exit: counted from 1, as in the paper.
        cost: multiply-adds up to and including this exit, relative to the plain backbone.
        accuracy: fraction of correct predictions.
        accuracy_by_group: accuracy by frequency group; None for a group without examples.
        mean_confidence: at the confidence scale of inference.
        calibration_error: 15 equal bins, top label, at the confidence scale of inference.
    """

    exit: Annotated[int, Field(ge=1)]
    cost: float
    accuracy: Fraction
    accuracy_by_group: AccuracyByGroup
    mean_confidence: float
    calibration_error: float


class CurvePoint(Strict):
    """A point of the accuracy-cost curve.

    Attributes:
        threshold: s of all exits.
        mean_cost: mean multiply-adds relative to the plain backbone.
        accuracy: fraction of correct predictions.
        accuracy_by_group: accuracy by frequency group; None for a group without examples.
        exit_share: fraction of the examples that take each exit.
        efficient: whether the point is Pareto-efficient (see `efficient`).
    """

    threshold: float
    mean_cost: float
    accuracy: Fraction
    accuracy_by_group: AccuracyByGroup
    exit_share: tuple[float, ...]
    efficient: bool


class Results(Strict):
    """The content of metrics.json: what was measured with one checkpoint on one split.

    Attributes:
        n: number of examples.
        cost_unit: unit of all costs.
        plain_multiply_adds: multiply-adds of the plain backbone per image.
        points: results of each operating point, by name.
        exits: quality of each exit if all examples take it.
        curve: results for one threshold at all exits, from 0 to 1.
        group_accuracy: how the accuracy of a group is averaged, if not over its examples.
    """

    split: str
    n: Count
    checkpoint_sha256: str
    cost_unit: str
    plain_multiply_adds: int
    points: dict[str, PointResults]
    exits: tuple[ExitQuality, ...]
    curve: tuple[CurvePoint, ...]
    group_accuracy: str | None = None


def same_points(points: Mapping[str, PointResults]) -> dict[str, list[str]]:
    """Group points that do the same: by the first name of each group, all names of it, in order.

    `accurate` is not named beside `full`: it is another point only if it is more accurate.
    """
    names: dict[tuple[object, ...], list[str]] = {}
    for name, point in points.items():
        key = (tuple(point.thresholds), point.accuracy, point.mean_cost, tuple(point.exit_share))
        names.setdefault(key, []).append(name)
    return {same[0]: [name for name in same if (same[0], name) != ("full", "accurate")] for same in names.values()}
