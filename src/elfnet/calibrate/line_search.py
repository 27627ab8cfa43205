"""One threshold s for all exits: the paper's line search on the calibration split, and points at given thresholds."""

from collections.abc import Sequence
from typing import Any

from elfnet.calibrate.calibration_table import require_calibration
from elfnet.calibrate.operating_point import Expected, OperatingPoint, most_accurate
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.policy_replay import ExitConfidences, compute_confidences, replay
from elfnet.exits.policy import NEVER, Policy
from elfnet.exits.threshold import parse_threshold


def line_search(
    table: ExitTable,
    candidates: Sequence[str | float],
    *,
    tolerance_points: float = 1.0,
    confidence_scale: float | Sequence[float] | None = None,
) -> Family:
    """Measure every candidate for s on the calibration split and select two of them.

    The family holds, in this order:

    - `full`: every example uses the full depth;
    - `accurate`: the highest accuracy, which is how the paper selects s; of equally accurate points the cheapest;
    - `economic`: the cheapest point that is at most `tolerance_points` less accurate than `full`; of equally cheap
      points the most accurate;
    - one point per candidate, named after it: `s=0.85`, `s=1.5/C`; none for a plain network, which has one exit.

    `full` is itself a candidate for `accurate` and `economic`, so both always exist, and on this table `accurate` is
    never worse than `full`. Accuracy means balanced accuracy: frequent classes do not dominate it.

    Args:
        table: exit table of the calibration split; a table of the test split is refused.
        candidates: values of s, as numbers or multiples of 1/C.
        tolerance_points: largest accuracy loss of `economic`, in percentage points.
        confidence_scale: one scale for all exits or one per exit; the scale of the table by default.
    """
    require_calibration(table)
    if not candidates:
        raise RequestError("the line search has no candidates for s; give at least one, such as 0.9 or '1.5/C'")
    if not tolerance_points >= 0.0:
        raise RequestError(
            f"tolerance_points={tolerance_points!r} must be 0 or more; 1.0 means one percentage point of accuracy"
        )

    confidences = compute_confidences(table, confidence_scale)
    full = measured_point(confidences, confidences.uniform("full", NEVER), rule="full depth")
    searched = [
        measured_point(confidences, confidences.uniform(name, threshold), rule="line search")
        for name, threshold in named_thresholds(candidates, table.classes).items()
        if table.exits > 1  # a plain network has nothing to decide
    ]
    eligible = [full, *searched]
    best = most_accurate(eligible).renamed("accurate")
    economic = _cheapest(eligible, full.expected.balanced_accuracy - tolerance_points / 100).renamed("economic")
    return Family.of(table, [full, best, economic, *searched], confidence_scale=confidences.confidence_scale)


def named_thresholds(candidates: Sequence[str | float], classes: int) -> dict[str, float]:
    """Map the name of each candidate's operating point, such as `s=0.85`, to its threshold."""
    named: dict[str, float] = {}
    for candidate in candidates:
        text = "".join(candidate.split()) if isinstance(candidate, str) else f"{candidate:g}"
        name = f"s={text}"
        if name in named:
            raise RequestError(f"candidate {candidate!r} is given twice; give each value of s once")
        named[name] = parse_threshold(candidate, classes=classes)
    return named


def measured_point(
    confidences: ExitConfidences, policy: Policy, *, rule: str, promise: dict[str, Any] | None = None
) -> OperatingPoint:
    """Return the operating point of a policy, with accuracy and cost measured on the table of the confidences."""
    metrics = measure(confidences.table, replay(confidences, policy), with_confusion=False)
    expected = Expected.from_metrics(metrics)
    return OperatingPoint(name=policy.name, policy=policy, expected=expected, rule=rule, promise=promise)


def _cheapest(points: list[OperatingPoint], least_accuracy: float) -> OperatingPoint:
    # The slack keeps a point exactly at the limit, whatever the rounding.
    enough = [point for point in points if point.expected.balanced_accuracy >= least_accuracy - 1e-12]
    return min(enough, key=lambda point: (point.expected.mean_cost, -point.expected.balanced_accuracy))


def fixed_points(
    table: ExitTable, thresholds: Sequence[str | float], *, confidence_scale: float | None = None
) -> Family:
    """Return a family of full depth and one point per threshold, in the given order."""
    confidences = compute_confidences(table, confidence_scale)
    policies = [
        confidences.uniform("full", NEVER),
        *(
            confidences.uniform(name, threshold)
            for name, threshold in named_thresholds(thresholds, table.classes).items()
        ),
    ]
    points = [
        measured_point(confidences, policy, rule="full depth" if policy.name == "full" else "fixed")
        for policy in policies
    ]
    return Family.of(table, points, confidence_scale=confidences.confidence_scale)
