"""Each exit taken by everybody."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import by_exit, calibration_error, measure
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.exits.policy import Policy

TableFactory = Callable[..., ExitTable]


def test_equals_a_policy_that_sends_everybody_there(make_table: TableFactory) -> None:
    table = make_table(class_counts_C=np.array([500, 500, 500, 5, 5, 5]))
    derived = compute_confidences(table)
    qualities = by_exit(derived)
    assert [quality.exit for quality in qualities] == [1, 2, 3, 4]
    for k, quality in enumerate(qualities):
        thresholds = tuple(0.0 if j == k else 1.0 for j in range(3))
        metrics = measure(table, replay(derived, Policy("p", thresholds, (1.0,) * 4)))
        assert quality.accuracy == pytest.approx(metrics.accuracy)
        assert quality.cost == pytest.approx(metrics.mean_cost)
        assert quality.accuracy_by_group == pytest.approx(metrics.accuracy_by_group)
        assert quality.accuracy_by_group["medium"] is None
        assert quality.mean_confidence == pytest.approx(derived.confidence_NE[:, k].mean())
        assert quality.calibration_error == calibration_error(derived.confidence_NE[:, k], derived.correct_NE[:, k])
        assert json.loads(json.dumps(quality.to_json())) == quality.to_json()


def test_no_examples(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="no examples"):
        by_exit(compute_confidences(make_table(examples=0)))


def _answers(classes: int, sharpness: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities and labels. Six of ten are right, however sure: too modest in some bins, too sure in others."""
    rng = np.random.default_rng(classes)
    logits_NC = rng.normal(scale=sharpness, size=(2000, classes))
    probability_NC = np.exp(logits_NC) / np.exp(logits_NC).sum(axis=1, keepdims=True)
    labels_N = (probability_NC.argmax(axis=1) + (rng.random(2000) < 0.4)) % classes
    return probability_NC, labels_N


def _naive_calibration_error(confidence_N: NDArray[np.float64], correct_N: NDArray[np.bool_], bins: int) -> float:
    """Bin by bin, example by example: |accuracy - mean confidence|, weighted by the share of examples."""
    error = 0.0
    for number in range(bins):
        rows = [
            row
            for row, confidence in enumerate(confidence_N)
            if number / bins < confidence <= (number + 1) / bins or (number == 0 and confidence == 0)
        ]
        error += abs(sum(float(correct_N[row]) - confidence_N[row] for row in rows)) / len(confidence_N)
    return error


CASES = pytest.mark.parametrize(("classes", "sharpness"), [(2, 0.5), (2, 5.0), (10, 0.5), (10, 2.0), (10, 5.0)])


@CASES
def test_against_a_loop_over_bins(classes: int, sharpness: float) -> None:
    probability_NC, labels_N = _answers(classes, sharpness)
    confidence_N, correct_N = probability_NC.max(axis=1), probability_NC.argmax(axis=1) == labels_N
    expected = _naive_calibration_error(confidence_N, correct_N, bins=15)
    assert calibration_error(confidence_N, correct_N) == pytest.approx(expected)


@pytest.mark.slow
@CASES
def test_against_torchmetrics(classes: int, sharpness: float) -> None:
    # Not installed for the fast tests: lightning-fabric imports it where it is found, and that takes seconds.
    torchmetrics = pytest.importorskip("torchmetrics")
    probability_NC, labels_N = _answers(classes, sharpness)
    oracle = torchmetrics.classification.MulticlassCalibrationError(num_classes=classes, n_bins=15, norm="l1")
    expected = float(oracle(torch.from_numpy(probability_NC), torch.from_numpy(labels_N)))
    ours = calibration_error(probability_NC.max(axis=1), probability_NC.argmax(axis=1) == labels_N)
    assert ours == pytest.approx(expected, abs=1e-6)


def test_by_hand() -> None:
    # Bins of one half: the first has confidence 0.4 and one right of one, the second 0.5 + 1.0 and one right of two.
    confidence_N = np.array([0.4, 0.5, 1.0])
    assert calibration_error(confidence_N, np.array([True, False, True]), bins=2) == pytest.approx((0.6 + 0.5) / 3)


def test_certain_and_right_is_perfect() -> None:
    assert calibration_error(np.ones(5), np.ones(5, dtype=np.bool_)) == 0.0
    assert calibration_error(np.ones(5), np.zeros(5, dtype=np.bool_)) == 1.0


def test_calibration_error_of_no_examples() -> None:
    with pytest.raises(RequestError, match="undefined"):
        calibration_error(np.zeros(0), np.zeros(0, dtype=np.bool_))
