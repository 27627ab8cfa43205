"""Metrics of a replay, against scikit-learn and loops."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import balanced_accuracy, class_mean_by_group, measure
from elfnet.evaluate.policy_replay import replay
from elfnet.exits.policy import Policy, full_depth, uniform_policy

TableFactory = Callable[..., ExitTable]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_against_scikit_learn(make_table: TableFactory, seed: int) -> None:
    table = make_table(seed=seed)
    result = replay(table, uniform_policy("s", 0.5, 4, 1.0))
    metrics = measure(table, result)
    truth, answer = table.labels_N, result.prediction_N
    assert metrics.balanced_accuracy == pytest.approx(balanced_accuracy_score(truth, answer))
    assert metrics.macro_f1 == pytest.approx(f1_score(truth, answer, average="macro"))
    assert metrics.confusion is not None
    np.testing.assert_array_equal(metrics.confusion, confusion_matrix(truth, answer))
    assert metrics.accuracy == np.mean(truth == answer)


def test_classes_without_examples(make_table: TableFactory) -> None:
    labels_N = np.random.default_rng(0).integers(2, size=100)  # classes 2..5 have none
    table = make_table(examples=100, labels_N=labels_N)
    table.logits_NEC[:, :, 5] = -100.0  # and class 5 is never answered either
    result = replay(table, full_depth(4, 1.0))
    metrics = measure(table, result)
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        assert metrics.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels_N, result.prediction_N))
    assert metrics.macro_f1 == pytest.approx(
        f1_score(labels_N, result.prediction_N, average="macro", labels=range(6), zero_division=0)
    )
    assert metrics.accuracy_by_class[2:] == (None, None, None, None)
    assert metrics.accuracy_by_group == {"many": metrics.accuracy, "medium": None, "few": None}
    assert metrics.exit_share_by_group["medium"] is None
    assert metrics.n_by_group == {"many": 100, "medium": 0, "few": 0}


def test_in_balanced_accuracy_every_class_counts_alike_and_absent_ones_do_not() -> None:
    labels_N = np.array([0, 0, 0, 1])
    assert balanced_accuracy(np.array([0, 0, 0, 0]), labels_N) == 0.5
    assert balanced_accuracy(np.array([0, 0, 0, 1]), labels_N) == 1.0
    assert balanced_accuracy(np.array([0, 0, 0, 4]), np.array([0, 0, 0, 4])) == 1.0
    # Answers beyond all labels are wrong, and no class of their own.
    assert balanced_accuracy(np.array([0, 7, 0, 1]), labels_N) == pytest.approx((2 / 3 + 1) / 2)


def test_groups_classes_exits_and_costs_against_loops(make_table: TableFactory) -> None:
    table = make_table()
    result = replay(table, Policy("p", (0.7, 0.5, 0.6), (1.0, 1.0, 1.0, 1.0)))
    metrics = measure(table, result)
    right = (result.prediction_N == table.labels_N).tolist()
    for name, members in (("many", {0, 1}), ("medium", {2, 3}), ("few", {4, 5})):
        rows = [n for n, label in enumerate(table.labels_N.tolist()) if label in members]
        assert metrics.n_by_group[name] == len(rows)
        assert metrics.accuracy_by_group[name] == pytest.approx(sum(right[n] for n in rows) / len(rows))
        shares = metrics.exit_share_by_group[name]
        assert shares is not None
        assert shares == pytest.approx([sum(result.exit_N[n] == k for n in rows) / len(rows) for k in range(4)])
    for label in range(6):
        rows = [n for n in range(table.examples) if table.labels_N[n] == label]
        assert metrics.accuracy_by_class[label] == pytest.approx(sum(right[n] for n in rows) / len(rows))
    assert metrics.exit_share == pytest.approx([np.mean(result.exit_N == k) for k in range(4)])
    assert metrics.mean_cost == pytest.approx(result.cost_N.mean())
    assert metrics.n == 300


@pytest.mark.parametrize(
    ("thresholds", "deepest"), [((0.5, 0.5, 0.5), 3), ((0.1, 0.5, 0.5), 0), ((1.0, 0.0, 0.5), 1), ((1.0, 1.0, 1.0), 3)]
)
def test_worst_cost_is_that_of_the_deepest_exit_within_reach(
    make_table: TableFactory, thresholds: tuple[float, ...], deepest: int
) -> None:
    table = make_table()
    metrics = measure(table, replay(table, Policy("p", thresholds, (1.0,) * 4)))
    assert metrics.worst_cost == table.cost_E[deepest]


def test_worst_cost_counts_exits_that_nobody_happened_to_reach(make_table: TableFactory) -> None:
    table = make_table(examples=3)
    table.logits_NEC[:, 0, 0] = 50.0
    metrics = measure(table, replay(table, uniform_policy("s", 0.9, 4, 1.0)))
    assert metrics.mean_cost == pytest.approx(table.cost_E[0])
    assert metrics.worst_cost == table.cost_E[3]


def test_metrics_are_json(make_table: TableFactory) -> None:
    table = make_table(class_counts_C=np.full(6, 50))
    content = measure(table, replay(table, full_depth(4, 1.0))).to_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["accuracy_by_group"]["few"] is None
    assert np.array(content["confusion"]).sum() == 300


def test_confusion_can_be_left_out(make_table: TableFactory) -> None:
    table = make_table()
    assert measure(table, replay(table, full_depth(4, 1.0)), with_confusion=False).confusion is None


def test_no_examples(make_table: TableFactory) -> None:
    table = make_table(examples=0)
    with pytest.raises(RequestError, match="test exit table has no examples"):
        measure(table, replay(table, full_depth(4, 1.0)))


def test_the_mean_over_classes_differs_from_pooling_on_unbalanced_tests(make_table: TableFactory) -> None:
    table = make_table()
    result = replay(table, full_depth(4, 1.0))
    metrics = measure(table, result)
    found = class_mean_by_group(metrics.accuracy_by_class, table.group_of_class)
    for group, name in enumerate(("many", "medium", "few")):
        accuracies = []
        for label in range(table.classes):
            of_class = table.labels_N == label
            if table.group_of_class[label] == group and of_class.any():
                accuracies.append(np.mean(result.prediction_N[of_class] == label))
        assert found[name] == (pytest.approx(np.mean(accuracies)) if accuracies else None)
    # Ten images of one class and one of the other.
    group_C = np.zeros(2, dtype=np.int64)
    assert class_mean_by_group([1.0, 0.0], group_C) == {"many": 0.5, "medium": None, "few": None}
    assert class_mean_by_group([1.0, None], group_C)["many"] == 1.0
