"""Judging operating points on calibration examples that did not choose their thresholds.

The accuracy of a fitted point on the examples that it was fitted on is too high. Here the calibration split is divided
into folds; each is judged by points that were fitted on the others, in the same way as the points of the family. This
gives the accuracy to expect, and decides how much a point may lose where it is fitted and whether it is better than
full depth. With cross-fitting of networks, the folds of the accuracy to expect are those of the networks.
"""

# Shapes: N examples, C classes, P candidate losses

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import ROUNDING, take_rows
from elfnet.calibrate.class_mix import mean_and_error
from elfnet.calibrate.confidence_scale import expected_correct
from elfnet.calibrate.line_search import measured_point
from elfnet.calibrate.operating_point import HeldOut, OperatingPoint, most_accurate
from elfnet.calibrate.per_exit_search import thresholds_for_budget
from elfnet.calibrate.threshold_search import AboveFloor, ThresholdSearch
from elfnet.data.folds import stratified_folds
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import ExitConfidences, replay
from elfnet.exits.policy import NEVER, Policy

FOLDS = 5
NORMAL_95 = 1.96
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Candidates for the loss that thresholds are chosen by, as shares of the permitted loss."""
JUDGED_CELLS = 2**15
"""Points of the grid of thresholds that candidates are chosen from."""

Limit = tuple[float, str | None]
"""A loss of accuracy, and the examples it applies to: None for all, or "worst"; see `thresholds_for_floor`."""


def held_out_accuracies(
    table: ExitTable,
    fit: Callable[[ExitTable], Mapping[str, Policy]],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    network_N: NDArray[np.int64] | None = None,
) -> dict[str, HeldOut]:
    """Cross-validate operating points within the calibration split.

    Args:
        table: exit table of the calibration split, weighted to its class mix.
        fit: fits policies by name; it is called once per fold, with the examples of the other folds.
        folds: number of folds, stratified by class.
        seed: seed of the folds.
        network_N: with cross-fitting, the network that computed the logits of each example, 0 to K - 1. The folds are
            then those of the networks, and intervals include the spread between them and that the final network learns
            from more examples.
    """
    fold_N = stratified_folds(table.labels_N, folds, seed) if network_N is None else network_N
    right = right_when_held_out(table, fit, fold_N)
    return {name: interval(right_N, table, network_N) for name, right_N in right.items()}


def right_when_held_out(
    table: ExitTable, fit: Callable[[ExitTable], Mapping[str, Policy]], fold_N: NDArray[np.int64]
) -> dict[str, NDArray[np.bool_]]:
    """Return, by policy, whether each example is right under the policy that was fitted on the other folds.

    Args:
        fit: fits policies by name; it is called once per fold.
    """
    right: dict[str, NDArray[np.bool_]] = {}
    for fold in np.unique(fold_N):
        held_out = np.flatnonzero(fold_N == fold)
        policies = fit(take_rows(table, np.flatnonzero(fold_N != fold)))
        part = take_rows(table, held_out)
        for name, policy in policies.items():
            right_N = right.setdefault(name, np.zeros(table.examples, dtype=np.bool_))
            right_N[held_out] = replay(part, policy).prediction_N == part.labels_N
    return right


def better_beyond_noise(
    table: ExitTable,
    compute: Callable[[ExitTable], ExitConfidences],
    full: OperatingPoint,
    searched: Sequence[OperatingPoint],
) -> OperatingPoint:
    """Return the most accurate point that costs at most 1 and is better than full depth by two standard errors.

    The points are those of the line search, and the best thresholds per exit. The latter have more freedom, so they are
    judged on held-out examples. If none is better, full depth is returned. Accuracy is balanced accuracy.

    Args:
        table: exit table of the calibration split.
        compute: computes the confidences that thresholds per exit compare.
    """
    weight_N = replace(table, target_C=np.ones(table.classes)).example_weights()
    full_N = replay(table, full.policy).prediction_N == table.labels_N

    def is_better(right_N: NDArray[np.bool_]) -> bool:
        gain, error = mean_and_error(right_N.astype(float) - full_N, weight_N)
        return gain > 2 * error and gain > 0

    affordable = [point for point in searched if point.expected.mean_cost <= 1.0 + ROUNDING]
    better = [point for point in affordable if is_better(replay(table, point.policy).prediction_N == table.labels_N)]
    if table.cost_E[0] <= 1.0:
        fold_N = stratified_folds(table.labels_N, FOLDS, seed=0)
        right = right_when_held_out(table, lambda part: {"": thresholds_for_budget(compute(part), 1.0)}, fold_N)
        if is_better(right[""]):
            confidences = compute(table)
            better.append(measured_point(confidences, thresholds_for_budget(confidences, 1.0), rule="budget"))
    return most_accurate([full, *better])


def losses_to_choose_by(
    table: ExitTable, compute: Callable[[ExitTable], ExitConfidences], limits: Sequence[Limit]
) -> dict[Limit, float | None]:
    """Return, for each limit, the loss that thresholds may have where they are chosen, to keep to the limit elsewhere.

    The cheapest thresholds within a loss are lucky on the examples that choose them, and lose more on others. So they
    are chosen by the permitted loss and by less, and held-out examples judge them. The largest candidate that keeps to
    the limit there is returned; None if none does, and full depth is the answer.

    Args:
        table: exit table of the calibration split.
        compute: computes the confidences that thresholds compare.
        limits: losses of accuracy against full depth, as fractions, with the examples that they apply to.
    """
    weight_N, group_N = table.example_weights(), table.group_of_class[table.labels_N]

    def accuracy(right_N: NDArray[np.bool_], group: str | None) -> float:
        parts = [group_N == one for one in np.unique(group_N)] if group == "worst" else [np.ones_like(right_N)]
        return min(float(np.average(right_N[part_N], weights=weight_N[part_N])) for part_N in parts)

    def fit(part: ExitTable) -> dict[str, Policy]:
        confidences = compute(part)
        search = ThresholdSearch(confidences, expected_NE=expected_correct(confidences), cells=JUDGED_CELLS)
        policies = {"full": confidences.uniform("full", NEVER)}
        for lost, group in limits:
            reached = float(AboveFloor(0.0, group, search.size_G).accuracy(search.full_depth())[0])
            for share in SHARES:
                goal = AboveFloor(max(0.0, reached - share * lost), group, search.size_G)
                name = _candidate(lost, group, share)
                policies[name] = confidences.policy(name, search.best(goal, refine=False))
        return policies

    if table.examples < 2 * FOLDS:
        return dict.fromkeys(limits)
    right = right_when_held_out(table, fit, stratified_folds(table.labels_N, FOLDS, seed=0))
    found: dict[Limit, float | None] = {}
    for lost, group in limits:
        least = accuracy(right["full"], group) - lost - ROUNDING
        kept = [share for share in SHARES if accuracy(right[_candidate(lost, group, share)], group) >= least]
        found[lost, group] = kept[0] * lost if kept else None
    return found


def _candidate(lost: float, group: str | None, share: float) -> str:
    return f"{lost} {group} {share}"


def interval(right_N: NDArray[np.bool_], table: ExitTable, network_N: NDArray[np.int64] | None = None) -> HeldOut:
    """Return the accuracy at the table's class mix with its 95 % interval, stratified by class.

    The variance is the sum over classes of share^2 p (1 - p) / n. In p, two examples are added to each class, one right
    and one wrong, so that a class with few examples never gives certainty. If the examples are of K networks, and the
    accuracy of another one is estimated, (1 + 1/K) s^2 is added, where s^2 is the variance of the accuracies of the
    networks on their examples. That includes the noise of these few examples, which makes the interval rather too wide:
    K is too small to separate the two. The other network is trained on all examples, and each of the K on a share of
    (K - 1) / K, so it is more accurate. Its error is taken to fall at most with the square root of the number of
    examples, and the upper end is raised by that.
    """
    weight_N = table.example_weights() / table.examples
    size_C = np.bincount(table.labels_N, minlength=table.classes)
    share_C = np.bincount(table.labels_N, weights=weight_N, minlength=table.classes)
    right_C = np.bincount(table.labels_N, weights=right_N.astype(np.float64), minlength=table.classes)
    careful_C = (right_C + 1) / (size_C + 2)
    variance = float((share_C**2 * careful_C * (1 - careful_C) / np.maximum(size_C, 1)).sum())
    remaining_error = 1.0
    if network_N is not None:
        accuracies = [_accuracy(right_N, table, np.flatnonzero(network_N == one)) for one in np.unique(network_N)]
        variance += (1 + 1 / len(accuracies)) * float(np.var(accuracies, ddof=1))
        remaining_error = sqrt(1 - 1 / len(accuracies))
    accuracy, margin = float(weight_N @ right_N), NORMAL_95 * sqrt(variance)
    return HeldOut(
        accuracy=accuracy,
        low=max(0.0, accuracy - margin),
        high=1 - remaining_error * (1 - min(1.0, accuracy + margin)),
        n=table.examples,
    )


def _accuracy(right_N: NDArray[np.bool_], table: ExitTable, rows: NDArray[np.int64]) -> float:
    """Accuracy on some examples, at the class mix of the table."""
    return float(np.average(right_N[rows], weights=take_rows(table, rows).example_weights()))
