"""Expected calibration error, against torchmetrics and by hand."""

import numpy as np
import pytest
import torch
from torchmetrics.classification import MulticlassCalibrationError

from elfnet.errors import RequestError
from elfnet.evaluate.exit_quality import calibration_error


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("sharpness", [0.5, 2.0, 5.0])
def test_against_torchmetrics(classes: int, sharpness: float) -> None:
    rng = np.random.default_rng(classes)
    logits_NC = rng.normal(scale=sharpness, size=(2000, classes))
    probability_NC = np.exp(logits_NC) / np.exp(logits_NC).sum(axis=1, keepdims=True)
    # Right in six of ten cases however sure: too modest in some bins, too sure in others.
    labels_N = (probability_NC.argmax(axis=1) + (rng.random(2000) < 0.4)) % classes
    oracle = MulticlassCalibrationError(num_classes=classes, n_bins=15, norm="l1")
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


def test_no_examples() -> None:
    with pytest.raises(RequestError, match="undefined"):
        calibration_error(np.zeros(0), np.zeros(0, dtype=np.bool_))
