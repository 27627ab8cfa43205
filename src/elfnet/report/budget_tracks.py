"""What a budget buys: the points that the page's slider moves along, and the rule by which it chooses among them.

The page carries these points as JSON and the same rule as a script; here they fill the table that stands for the slider
where there is no script, and on paper.
"""

# Shapes: E exits

from dataclasses import dataclass
from typing import Any

from elfnet.data.groups import GROUP_NAMES
from elfnet.report import formatting as say
from elfnet.report.record import RunRecord

SLACK = 1e-9
"""A budget written with a few digits still admits the point whose cost it was read from."""


@dataclass(frozen=True)
class TrackPoint:
    """One point of a track; fractions of 1, None for a group without examples.

    Attributes:
        label: what it is called.
        limit: the budget that admits it.
        rank: of the points within the budget, the one with the highest rank is taken.
        mean_cost, accuracy, exit_share: on the test split.
        accuracy_by_group: many, medium, few.
    """

    label: str
    limit: float
    rank: float
    mean_cost: float
    accuracy: float
    accuracy_by_group: tuple[float | None, ...]
    exit_share: tuple[float, ...]


@dataclass(frozen=True)
class Track:
    """Points under one rule, in words in `title`."""

    title: str
    points: tuple[TrackPoint, ...]

    def within(self, budget: float) -> TrackPoint | None:
        """The point of the highest rank that the budget admits, of equal ones the cheapest; None if it admits none."""
        admitted = [point for point in self.points if point.limit <= budget + SLACK]
        return max(admitted, key=lambda point: (point.rank, -point.limit), default=None)


def tracks_of(record: RunRecord) -> tuple[Track, ...]:
    """One threshold for all exits; and the family, as `Family.for_budget` chooses from it."""
    one = Track("the highest threshold, the same at all exits", _curve(record))
    if record.plain:
        return (one,)
    return one, Track(f"the family's most accurate point on the {record.family.split} split", _family(record))


def _curve(record: RunRecord) -> tuple[TrackPoint, ...]:
    return tuple(
        TrackPoint(
            label="full depth" if record.plain or point.threshold >= 1 else f"s = {point.threshold:.4g}",
            limit=point.mean_cost,
            rank=point.threshold,
            mean_cost=point.mean_cost,
            accuracy=point.accuracy,
            accuracy_by_group=tuple(point.accuracy_by_group[group] for group in GROUP_NAMES),
            exit_share=point.exit_share,
        )
        for point in record.results.curve
    )


def _family(record: RunRecord) -> tuple[TrackPoint, ...]:
    points = []
    for point in record.family.points:
        if point.same_as is not None:  # the same thresholds under a second name
            continue
        measured = record.at(point.name)
        points.append(
            TrackPoint(
                label=point.name,
                limit=point.expected.mean_cost,
                rank=point.expected.balanced_accuracy,
                mean_cost=measured.mean_cost,
                accuracy=measured.accuracy,
                accuracy_by_group=tuple(measured.accuracy_by_group[group] for group in GROUP_NAMES),
                exit_share=measured.exit_share,
            )
        )
    return tuple(points)


def track_json(track: Track) -> list[list[Any]]:
    """A row a point: label, limit, rank, cost, accuracies of all and of the groups, exit shares.

    What is shown is text already: a browser rounds 71.25 to another digit than Python does.
    """
    return [
        [
            point.label,
            round(point.limit, 6),
            round(point.rank, 9),
            say.cost(point.mean_cost),
            *(say.percent(accuracy) for accuracy in (point.accuracy, *point.accuracy_by_group)),
            *(say.percent(share) for share in point.exit_share),
        ]
        for point in track.points
    ]
