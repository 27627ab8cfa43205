"""Accuracy and cost of one replayed policy: overall, by class-frequency group and by class."""

# Shapes: N examples, E exits, C classes, G frequency groups

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import Replay


@dataclass(frozen=True, eq=False)
class Metrics:
    """Metrics of a replayed policy. Figures are fractions of 1; None means that there are no examples.

    On a table with a target mix (`target_C`), all figures but `macro_f1` and the numbers of examples refer to that mix.

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
        confusion_CC: number of examples by label (row) and prediction (column); None if not computed.
    """

    n: int
    n_by_group: dict[str, int]
    accuracy: float
    accuracy_by_group: dict[str, float | None]
    accuracy_by_class: tuple[float | None, ...]
    balanced_accuracy: float
    macro_f1: float
    mean_cost: float
    worst_cost: float
    exit_share: tuple[float, ...]
    exit_share_by_group: dict[str, tuple[float, ...] | None]
    confusion_CC: NDArray[np.int64] | None

    def to_dict(self) -> dict[str, Any]:
        """The metrics as JSON-compatible types."""
        return {
            "n": self.n,
            "n_by_group": dict(self.n_by_group),
            "accuracy": self.accuracy,
            "accuracy_by_group": dict(self.accuracy_by_group),
            "accuracy_by_class": list(self.accuracy_by_class),
            "balanced_accuracy": self.balanced_accuracy,
            "macro_f1": self.macro_f1,
            "mean_cost": self.mean_cost,
            "worst_cost": self.worst_cost,
            "exit_share": list(self.exit_share),
            "exit_share_by_group": {
                name: None if share is None else list(share) for name, share in self.exit_share_by_group.items()
            },
            "confusion": None if self.confusion_CC is None else self.confusion_CC.tolist(),
        }


def measure(table: ExitTable, replayed: Replay, *, with_confusion: bool = True) -> Metrics:
    """Compute the metrics of a replayed policy.

    Args:
        table: exit table with labels, class counts and costs.
        replayed: result of `replay` on this table.
        with_confusion: include the C x C confusion matrix, which is large with thousands of classes.

    Raises:
        RequestError: the table has no examples.
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
        accuracy=float(weight_right_C.sum() / table.examples),
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
        confusion_CC=confusion_matrix(labels_N, prediction_N, table.classes) if with_confusion else None,
    )


def balanced_accuracy(prediction_N: NDArray[np.int64], labels_N: NDArray[np.int64]) -> float:
    """Mean accuracy over the classes that have examples."""
    size_C = np.bincount(labels_N)
    right_C = np.bincount(labels_N[prediction_N == labels_N], minlength=len(size_C))
    present_C = size_C > 0
    return float((right_C[present_C] / size_C[present_C]).mean())


def confusion_matrix(labels_N: NDArray[np.int64], prediction_N: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Number of examples by label (row) and prediction (column), shape (C, C)."""
    return np.bincount(labels_N * classes + prediction_N, minlength=classes * classes).reshape(classes, classes)


def _sum_by_group(count_C: NDArray[Any], group_of_class_C: NDArray[np.int64]) -> list[float]:
    return [float(count_C[group_of_class_C == group].sum()) for group in range(len(GROUP_NAMES))]


def _leaving(
    group_N: NDArray[np.int64], exit_N: NDArray[np.int64], weight_N: NDArray[np.float64], exits: int
) -> NDArray[np.float64]:
    """Weight of the examples by group and exit, shape (G, E)."""
    flat = np.bincount(group_N * exits + exit_N, weights=weight_N, minlength=len(GROUP_NAMES) * exits)
    return flat.reshape(len(GROUP_NAMES), exits).astype(np.float64)


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
