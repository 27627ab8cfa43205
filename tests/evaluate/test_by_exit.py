"""Each exit taken by everybody."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from elfnet.errors import RequestError
from elfnet.evaluate.confidence import compute_confidences
from elfnet.evaluate.exit_quality import by_exit, calibration_error
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.replay import replay
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
