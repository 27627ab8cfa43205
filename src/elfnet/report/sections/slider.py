"""The budget slider: which operating point a run uses within a budget, by each of two rules.

The page carries the points as JSON, and `assets/slider.js` applies the same rule as `BudgetRule.best_within`. Where
scripts do not run, and in print, tables show the same choices.
"""

# Shapes: E exits

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.exits.policy import Policy
from elfnet.report import formatting as fmt
from elfnet.report.html import Heading, Table
from elfnet.report.record import RunRecord
from elfnet.run.results import CurvePoint

STEP = 0.005
MAX_TABLE_ROWS = 24
_TOLERANCE = 1e-9  # A budget with a few digits still admits the point whose cost it was read from.


@dataclass(frozen=True)
class BudgetPoint:
    """A point that a rule can choose. Accuracies and shares are fractions of 1, None for a group without examples.

    Attributes:
        label: name of the point on the page.
        limit: the lowest budget that admits the point.
        rank: the rule chooses the admitted point with the highest rank.
        mean_cost, accuracy, exit_share: on the test split.
        milliseconds: mean time per image on the test split; None if times were not measured.
        accuracy_by_group: on the test split, for many, medium and few.
    """

    label: str
    limit: float
    rank: float
    mean_cost: float
    accuracy: float
    accuracy_by_group: tuple[float | None, ...]
    exit_share: tuple[float, ...]
    milliseconds: float | None = None

    @property
    def cost_and_time(self) -> str:
        """The mean cost, and the time if it was measured: "0.500 (1.23 ms)"."""
        taken = "" if self.milliseconds is None else f" ({fmt.milliseconds(self.milliseconds)} ms)"
        return fmt.cost(self.mean_cost) + taken


@dataclass(frozen=True)
class BudgetRule:
    """A rule that chooses one point for each budget; `title` describes it to the reader."""

    title: str
    points: tuple[BudgetPoint, ...]

    def best_within(self, budget: float) -> BudgetPoint | None:
        """Return the admitted point with the highest rank, the cheapest among equals; None if none is admitted."""
        admitted = [point for point in self.points if point.limit <= budget + _TOLERANCE]
        return max(admitted, key=lambda point: (point.rank, -point.limit), default=None)


def budget_rules(record: RunRecord) -> tuple[BudgetRule, ...]:
    """Return the rule with one threshold for all exits, and the rule of `Family.for_budget`."""
    uniform = BudgetRule("highest threshold, the same at all exits", _curve_points(record))
    if record.plain:
        return (uniform,)
    family = BudgetRule(f"most accurate point of the family on the {record.family.chosen_on}", _family_points(record))
    return uniform, family


def _curve_points(record: RunRecord) -> tuple[BudgetPoint, ...]:
    return tuple(
        BudgetPoint(
            label="full depth" if record.plain or point.threshold >= 1 else f"s = {point.threshold:.4g}",
            limit=point.mean_cost,
            rank=point.threshold,
            mean_cost=point.mean_cost,
            accuracy=point.accuracy,
            accuracy_by_group=tuple(point.accuracy_by_group[group] for group in GROUP_NAMES),
            exit_share=point.exit_share,
            milliseconds=_uniform_time(record, point),
        )
        for point in record.results.curve
    )


def _uniform_time(record: RunRecord, point: CurvePoint) -> float | None:
    if record.times is None:
        return None
    # Where nobody may exit, the head is not run.
    policy = Policy("s", (point.threshold,) * (record.exits - 1), record.family.confidence_scale)
    return record.times.milliseconds(policy, point.exit_share)


def _family_points(record: RunRecord) -> tuple[BudgetPoint, ...]:
    points = []
    for point in record.family.points:
        if point.same_as is not None:  # the same thresholds under a second name
            continue
        measured = record.at(point.name)
        points.append(
            BudgetPoint(
                label=point.name,
                limit=point.expected.mean_cost,
                rank=point.expected.balanced_accuracy,
                mean_cost=measured.mean_cost,
                accuracy=measured.accuracy,
                accuracy_by_group=tuple(measured.accuracy_by_group[group] for group in GROUP_NAMES),
                exit_share=measured.exit_share,
                milliseconds=record.milliseconds(point.name),
            )
        )
    return tuple(points)


def points_json(rule: BudgetRule) -> list[list[str | float]]:
    """Return one row per point: label, limit, rank, cost, accuracy of all and of each group, exit shares.

    Numbers that the page shows are texts, because JavaScript rounds 71.25 to another digit than Python.
    """
    return [
        [
            point.label,
            round(point.limit, 6),
            round(point.rank, 9),
            point.cost_and_time,
            *(fmt.percent(accuracy) for accuracy in (point.accuracy, *point.accuracy_by_group)),
            *(fmt.percent(share) for share in point.exit_share),
        ]
        for point in rule.points
    ]


@dataclass(frozen=True)
class Panel:
    """What the slider shows of one run.

    Attributes:
        name: of the run; empty if there is only one.
        groups: position and name of each group with examples, "all" first.
        exits: number of exits.
    """

    name: str
    groups: tuple[tuple[int, str], ...]
    exits: int


@dataclass(frozen=True, kw_only=True)
class Slider:
    """One slider for one run or several.

    Attributes:
        key: of the part of the page; makes ids unique.
        lowest, highest, start: budgets at the ends of the slider and at first.
        rules: titles of the rules to choose between.
        points: by run and rule, as `points_json` gives them.
        tables: one per rule, for readers without scripts.
    """

    key: str
    lowest: float
    highest: float
    start: float
    rules: tuple[str, ...]
    points: list[list[list[list[str | float]]]]
    panels: tuple[Panel, ...]
    note: str
    tables: tuple[Table, ...]
    step: float = STEP


def budget_slider(records: Sequence[RunRecord], key: str) -> Slider | None:
    """Return one slider for all these runs; None if no run has early exits."""
    if all(record.plain for record in records):
        return None
    rules = [budget_rules(record) for record in records]
    several = len(records) > 1
    cheapest = min(point.limit for of_run in rules for rule in of_run for point in rule.points)
    # From the cost of full depth on, no point is better than full depth.
    lowest, highest = _next_step(cheapest), _next_step(max(record.at("full").mean_cost for record in records))
    measured_on = ", ".join(dict.fromkeys(record.measured_on for record in records))
    time_note = next((f"{record.time_note} " for record in records if record.times), "")
    return Slider(
        key=key,
        lowest=lowest,
        highest=highest,
        start=highest if several else min(highest, _next_step(records[0].at("economic").mean_cost)),
        rules=tuple(rule.title for rule in _longest(rules)),
        points=[[points_json(rule) for rule in of_run] for of_run in rules],
        panels=tuple(_panel(record, record.name if several else "") for record in records),
        note=f"{records[0].cost_note} {time_note}{measured_on}. A dash means no examples, or no point within the "
        "budget.",
        tables=_tables(records, rules, lowest, highest),
    )


def _next_step(cost: float) -> float:
    return round(float(np.ceil(cost / STEP - 1e-6)) * STEP, 6)


def _longest(rules: Sequence[Sequence[BudgetRule]]) -> Sequence[BudgetRule]:
    """Return the rules that the reader chooses between; a run with fewer rules always uses its last."""
    return max(rules, key=len)


def _panel(record: RunRecord, name: str) -> Panel:
    full = record.at("full")
    sizes = {"all": full.n, **full.n_by_group}
    groups = tuple((i, group) for i, group in enumerate(("all", *GROUP_NAMES)) if sizes[group])
    return Panel(name, groups, record.exits)


def _tables(
    records: Sequence[RunRecord], rules: Sequence[Sequence[BudgetRule]], lowest: float, highest: float
) -> tuple[Table, ...]:
    several = len(records) > 1
    budgets = np.linspace(lowest, highest, max(2, min(11, MAX_TABLE_ROWS // len(records)))).tolist()
    headings = [
        Heading("budget"),
        *([Heading("run", numeric=False)] if several else []),
        Heading("point", numeric=False),
        *(Heading(name, "accuracy, %") for name in ("all", *GROUP_NAMES)),
        Heading("mean cost"),
        Heading("share of examples at exits 1, 2, ..., %", numeric=False),
    ]
    return tuple(
        Table(
            headings=headings,
            rows=[
                [
                    f"{budget:.3f}",
                    *([record.name] if several else []),
                    *_row(of_run[min(position, len(of_run) - 1)].best_within(budget)),
                ]
                for budget in budgets
                for record, of_run in zip(records, rules, strict=True)
            ],
            caption=f"Rule: {rule.title}, within the budget.",
        )
        for position, rule in enumerate(_longest(rules))
    )


def _row(point: BudgetPoint | None) -> list[str]:
    if point is None:
        return [fmt.DASH] * (len(GROUP_NAMES) + 4)
    return [
        point.label,
        *(fmt.percent(accuracy) for accuracy in (point.accuracy, *point.accuracy_by_group)),
        point.cost_and_time,
        " / ".join(fmt.percent(share) for share in point.exit_share),
    ]
