"""The paper's line search for s, the one threshold of all exits, on data that is not the test split."""

from collections.abc import Sequence
from typing import Any

from elfnet.calibrate.family import Expected, Family, OperatingPoint, most_accurate, require_calibration
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import ExitConfidences, compute_confidences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.replay import replay
from elfnet.exits.policy import NEVER, Policy
from elfnet.exits.threshold import parse_threshold


def line_search(
    table: ExitTable,
    candidates: Sequence[str | float],
    *,
    tolerance_points: float = 1.0,
    confidence_scale: float | Sequence[float] | None = None,
) -> Family:
    """Measure every candidate s on the calibration split and choose two of them by fixed rules.

    The family holds, in this order:

    - `full`: nobody leaves early;
    - `accurate`: the highest accuracy, which is how the paper picks s; of equally accurate points the cheapest;
    - `economic`: the cheapest point that is at most `tolerance_points` less accurate than `full`; of equally cheap
      points the most accurate;
    - one point per candidate, named after it: `s=0.85`, `s=1.5/C`; none for a plain network, which has one exit.

    `full` takes part in both choices, so that both always exist and `accurate` is never worse than `full` here.
    Accuracy is the balanced one: the plain accuracy on a balanced split, not ruled by frequent classes on any other.

    Args:
        table: of the calibration split; a table of the test split is refused.
        candidates: values of s, as numbers or multiples of 1/C.
        tolerance_points: how much accuracy `economic` may give up, in percentage points.
        confidence_scale: for all exits or one per exit; the table's own by default.
    """
    require_calibration(table)
    if not candidates:
        raise RequestError("the line search has no candidates for s; give at least one, such as 0.9 or '1.5/C'")
    if not tolerance_points >= 0.0:
        raise RequestError(
            f"tolerance_points={tolerance_points!r} must not be negative; 1.0 means one point of accuracy"
        )

    derived = compute_confidences(table, confidence_scale)
    full = measured_point(derived, derived.uniform("full", NEVER), rule="full depth")
    searched = [
        measured_point(derived, derived.uniform(name, threshold), rule="line search")
        for name, threshold in named_thresholds(candidates, table.classes).items()
        if table.exits > 1  # a plain network has nothing to decide
    ]
    eligible = [full, *searched]
    accurate = most_accurate(eligible).renamed("accurate")
    economic = _cheapest(eligible, full.expected.balanced_accuracy - tolerance_points / 100).renamed("economic")
    return Family.of(table, [full, accurate, economic, *searched], confidence_scale=derived.confidence_scale)


def named_thresholds(candidates: Sequence[str | float], classes: int) -> dict[str, float]:
    """Each candidate under the name of its operating point."""
    named: dict[str, float] = {}
    for candidate in candidates:
        text = "".join(candidate.split()) if isinstance(candidate, str) else f"{candidate:g}"
        name = f"s={text}"
        if name in named:
            raise RequestError(f"candidate {candidate!r} is given twice; give each value of s once")
        named[name] = parse_threshold(candidate, classes=classes)
    return named


def measured_point(
    derived: ExitConfidences, policy: Policy, *, rule: str, promise: dict[str, Any] | None = None
) -> OperatingPoint:
    """A policy with what it gives on a table."""
    metrics = measure(derived.table, replay(derived, policy), with_confusion=False)
    expected = Expected.from_metrics(metrics)
    return OperatingPoint(name=policy.name, policy=policy, expected=expected, rule=rule, promise=promise)


def _cheapest(points: list[OperatingPoint], least_accuracy: float) -> OperatingPoint:
    # The same slack as among equally accurate points: rounding must not exclude a point exactly at the limit.
    enough = [point for point in points if point.expected.balanced_accuracy >= least_accuracy - 1e-12]
    return min(enough, key=lambda point: (point.expected.mean_cost, -point.expected.balanced_accuracy))


def fixed_points(
    table: ExitTable, thresholds: Sequence[str | float], *, confidence_scale: float | None = None
) -> Family:
    """Full depth and one point per threshold, in the order given."""
    derived = compute_confidences(table, confidence_scale)
    policies = [
        derived.uniform("full", NEVER),
        *(derived.uniform(name, threshold) for name, threshold in named_thresholds(thresholds, table.classes).items()),
    ]
    points = [
        measured_point(derived, policy, rule="full depth" if policy.name == "full" else "fixed") for policy in policies
    ]
    return Family.of(table, points, confidence_scale=derived.confidence_scale)
