"""Operating points at thresholds that somebody wrote down: nothing is chosen, so any split may be looked at."""

from collections.abc import Sequence

from elfnet.calibrate.family import Family
from elfnet.calibrate.line_search import measured_point, named_thresholds
from elfnet.evaluate.derived import derive
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.policy import NEVER


def fixed_points(
    table: ExitTable, thresholds: Sequence[str | float], *, confidence_scale: float | None = None
) -> Family:
    """Full depth and one point per threshold, in the order given."""
    derived = derive(table, confidence_scale)
    policies = [
        derived.uniform("full", NEVER),
        *(derived.uniform(name, threshold) for name, threshold in named_thresholds(thresholds, table.classes).items()),
    ]
    points = [
        measured_point(derived, policy, rule="full depth" if policy.name == "full" else "fixed") for policy in policies
    ]
    return Family.of(table, points, confidence_scale=derived.confidence_scale)
