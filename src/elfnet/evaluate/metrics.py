"""Accuracy and cost: of one replayed policy (overall, by frequency group and by class), and of each exit alone."""

# Shapes: N examples, E exits, C classes, G frequency groups, B bins of confidence

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import ExitConfidences, Replay
from elfnet.run.results import ExitQuality, Metrics


def measure(table: ExitTable, replayed: Replay, *, with_confusion: bool = True) -> Metrics:
    """Compute the metrics of a replayed policy.

    Args:
        table: exit table with labels, class counts and costs.
        replayed: result of `replay` on this table.
        with_confusion: include the C x C confusion matrix, which is large with thousands of classes.

    Raises:
        RequestError: the table has no examples.

    Example:
        >>> from elfnet import Family, evaluate_run, measure, open_run, replay
        >>> run = open_run("runs/first")
        >>> table, family = evaluate_run(run, "test"), Family.open(run.policy_file)
        >>> metrics = measure(table, replay(table, family.points[0].policy))
        >>> 0 <= metrics.accuracy <= 1
        True
    """
    if table.examples == 0:
        raise RequestError(f"the {table.split} exit table has no examples; evaluate a split that has some")
    labels_N, prediction_N = table.labels_N, replayed.prediction_N
    right_N = prediction_N == labels_N
    size_C = np.bincount(labels_N, minlength=table.classes)
    right_C = np.bincount(labels_N[right_N], minlength=table.classes)
    predicted_C = np.bincount(prediction_N, minlength=table.classes)

    group_of_class_C = table.group_of_class
    n_G = _sum_by_group(size_C, group_of_class_C)
    weight_N = table.example_weights()
    weight_C = np.bincount(labels_N, weights=weight_N, minlength=table.classes)
    weight_right_C = np.bincount(labels_N, weights=weight_N * right_N, minlength=table.classes)
    size_G = _sum_by_group(weight_C, group_of_class_C)
    right_G = _sum_by_group(weight_right_C, group_of_class_C)
    leaving_GE = _leaving(group_of_class_C[labels_N], replayed.exit_N, weight_N, table.exits)
    leaving_E = leaving_GE.sum(axis=0)

    present_C = size_C > 0
    # F1 = 2 right / (labelled + predicted) needs no separate precision and recall, which may divide by zero.
    f1_C = 2 * right_C / np.maximum(size_C + predicted_C, 1)
    reachable_E = np.array(replayed.policy.reachable(table.classes))
    cost_E = table.cost_under(replayed.policy)
    return Metrics(
        n=table.examples,
        n_by_group={name: int(size) for name, size in zip(GROUP_NAMES, n_G, strict=True)},
        accuracy=_share(weight_right_C.sum(), table.examples) or 0.0,
        accuracy_by_group={
            name: _share(right, size) for name, right, size in zip(GROUP_NAMES, right_G, size_G, strict=True)
        },
        accuracy_by_class=tuple(_share(right, size) for right, size in zip(right_C, size_C, strict=True)),
        balanced_accuracy=float((right_C[present_C] / size_C[present_C]).mean()),
        macro_f1=float(f1_C.mean()),
        mean_cost=float(leaving_E @ cost_E / table.examples),
        worst_cost=float(cost_E[reachable_E].max()),
        exit_share=tuple((leaving_E / table.examples).tolist()),
        exit_share_by_group={
            name: tuple((leaving_E / size).tolist()) if size else None
            for name, leaving_E, size in zip(GROUP_NAMES, leaving_GE, size_G, strict=True)
        },
        confusion=_rows(confusion_matrix(labels_N, prediction_N, table.classes)) if with_confusion else None,
    )


def balanced_accuracy(prediction_N: NDArray[np.int64], labels_N: NDArray[np.int64]) -> float:
    """Mean accuracy over the classes that have examples."""
    size_C = np.bincount(labels_N)
    right_C = np.bincount(labels_N[prediction_N == labels_N], minlength=len(size_C))
    present_C = size_C > 0
    return float((right_C[present_C] / size_C[present_C]).mean())


def class_mean_by_group(
    accuracy_by_class: Sequence[float | None], group_of_class_C: NDArray[np.int64]
) -> dict[str, float | None]:
    """Mean accuracy over the classes of each frequency group, as the field's `shot_acc`; None for an empty group.

    `Metrics.accuracy_by_group` pools the examples of a group instead. They are equal on a balanced test set, and differ
    on others. Classes without test examples are left out.

    Args:
        group_of_class_C: group of each class, as an index into `GROUP_NAMES`.
    """
    means: dict[str, float | None] = {}
    for group, name in enumerate(GROUP_NAMES):
        known = [accuracy_by_class[label] for label in np.flatnonzero(group_of_class_C == group).tolist()]
        values = [value for value in known if value is not None]
        means[name] = sum(values) / len(values) if values else None
    return means


def confusion_matrix(labels_N: NDArray[np.int64], prediction_N: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Number of examples by label (row) and prediction (column), shape (C, C)."""
    return np.bincount(labels_N * classes + prediction_N, minlength=classes * classes).reshape(classes, classes)


def _rows(count_CC: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, count_CC.tolist()))


def _sum_by_group(count_C: NDArray[Any], group_of_class_C: NDArray[np.int64]) -> list[float]:
    return [float(count_C[group_of_class_C == group].sum()) for group in range(len(GROUP_NAMES))]


def _leaving(
    group_N: NDArray[np.int64], exit_N: NDArray[np.int64], weight_N: NDArray[np.float64], exits: int
) -> NDArray[np.float64]:
    """Weight of the examples by group and exit, shape (G, E)."""
    flat = np.bincount(group_N * exits + exit_N, weights=weight_N, minlength=len(GROUP_NAMES) * exits)
    return flat.reshape(len(GROUP_NAMES), exits).astype(np.float64)


def _share(part: float, whole: float) -> float | None:
    # Rounding may lift a weighted share above 1.
    return min(1.0, float(part / whole)) if whole else None


BINS = 15


def calibration_error(confidence_N: NDArray[np.float64], correct_N: NDArray[np.bool_], *, bins: int = BINS) -> float:
    """Top-label expected calibration error: sum over bins of |correct predictions - summed confidence| / N.

    The bins are equally wide and closed on the left; a confidence of exactly 1 belongs to the last one.
    """
    if len(confidence_N) == 0:
        raise RequestError("the calibration error of no examples is undefined; evaluate a split that has some")
    edges = np.linspace(0.0, 1.0, bins + 1)
    bin_N = np.searchsorted(edges[1:-1], confidence_N, side="right")
    confidence_B = np.bincount(bin_N, weights=confidence_N, minlength=bins)
    right_B = np.bincount(bin_N, weights=correct_N.astype(np.float64), minlength=bins)
    return float(np.abs(right_B - confidence_B).sum() / len(confidence_N))


def by_exit(confidences: ExitConfidences) -> tuple[ExitQuality, ...]:
    """The quality of every exit, in order."""
    table = confidences.table
    if table.examples == 0:
        raise RequestError(f"the {table.split} exit table has no examples; evaluate a split that has some")
    group_N = table.group_of_class[table.labels_N]
    members = {name: group_N == index for index, name in enumerate(GROUP_NAMES)}
    qualities = []
    for k in range(table.exits):
        correct_N, confidence_N = confidences.correct_NE[:, k], confidences.confidence_NE[:, k]
        qualities.append(
            ExitQuality(
                exit=k + 1,
                cost=float(table.cost_E[k]),
                accuracy=float(np.mean(correct_N)),
                accuracy_by_group={
                    name: float(np.mean(correct_N[member_N])) if member_N.any() else None
                    for name, member_N in members.items()
                },
                mean_confidence=float(np.mean(confidence_N)),
                calibration_error=calibration_error(confidence_N, correct_N),
            )
        )
    return tuple(qualities)
