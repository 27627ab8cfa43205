"""Accuracy to expect at an operating point, from calibration examples that did not choose its thresholds.

The accuracy of a fitted point on the examples that it was fitted on is too high. Here the calibration split is divided
into folds; each is judged by points that were fitted on the others, in the same way as the points of the family. With
cross-fitting, the folds are those of its networks.
"""

# Shapes: N examples, C classes

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import take_rows
from elfnet.data.folds import stratified_folds
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import replay
from elfnet.exits.policy import Policy
from elfnet.run.json_file import Strict

FOLDS = 5
NORMAL_95 = 1.96


class HeldOut(Strict):
    """Accuracy at the class mix of the calibration, and its 95 % interval.

    Attributes:
        accuracy: mean over the held-out examples, weighted to the class mix.
        low, high: ends of the interval.
        n: number of held-out examples.
    """

    accuracy: float
    low: float
    high: float
    n: int


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
            then those of the networks, and intervals include the spread between them.
    """
    fold_N = stratified_folds(table.labels_N, folds, seed) if network_N is None else network_N
    right: dict[str, NDArray[np.bool_]] = {}
    for fold in np.unique(fold_N):
        held_out = np.flatnonzero(fold_N == fold)
        policies = fit(take_rows(table, np.flatnonzero(fold_N != fold)))
        part = take_rows(table, held_out)
        for name, policy in policies.items():
            right_N = right.setdefault(name, np.zeros(table.examples, dtype=np.bool_))
            right_N[held_out] = replay(part, policy).prediction_N == part.labels_N
    return {name: interval(right_N, table, network_N) for name, right_N in right.items()}


def interval(right_N: NDArray[np.bool_], table: ExitTable, network_N: NDArray[np.int64] | None = None) -> HeldOut:
    """Return the accuracy at the table's class mix with its 95 % interval, stratified by class.

    The variance is the sum over classes of share^2 p (1 - p) / n. In p, two examples are added to each class, one right
    and one wrong, so that a class with few examples never gives certainty. If the examples are of K networks, and the
    accuracy of another one is estimated, (1 + 1/K) s^2 is added, where s^2 is the variance of the accuracies of the
    networks on their examples. That includes the noise of these few examples, which makes the interval rather too wide:
    K is too small to separate the two.
    """
    weight_N = table.example_weights() / table.examples
    size_C = np.bincount(table.labels_N, minlength=table.classes)
    share_C = np.bincount(table.labels_N, weights=weight_N, minlength=table.classes)
    right_C = np.bincount(table.labels_N, weights=right_N.astype(np.float64), minlength=table.classes)
    careful_C = (right_C + 1) / (size_C + 2)
    variance = float((share_C**2 * careful_C * (1 - careful_C) / np.maximum(size_C, 1)).sum())
    if network_N is not None:
        accuracies = [_accuracy(right_N, table, np.flatnonzero(network_N == one)) for one in np.unique(network_N)]
        variance += (1 + 1 / len(accuracies)) * float(np.var(accuracies, ddof=1))
    accuracy, margin = float(weight_N @ right_N), NORMAL_95 * sqrt(variance)
    return HeldOut(
        accuracy=accuracy, low=max(0.0, accuracy - margin), high=min(1.0, accuracy + margin), n=table.examples
    )


def _accuracy(right_N: NDArray[np.bool_], table: ExitTable, rows: NDArray[np.int64]) -> float:
    """Accuracy on some examples, at the class mix of the table."""
    return float(np.average(right_N[rows], weights=take_rows(table, rows).example_weights()))
