"""Confidence, answer and correctness of every example at every exit."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.errors import RequestError, WorkError
from elfnet.evaluate import policy_replay
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences

TableFactory = Callable[..., ExitTable]


def test_against_a_loop(make_table: TableFactory) -> None:
    table = make_table(examples=40)
    scale = (0.5, 1.0, 2.0, 30.0)
    derived = compute_confidences(table, scale)
    for n in range(40):
        for k in range(4):
            weights = np.exp(scale[k] * table.logits_NEC[n, k].astype(np.float64))
            assert derived.confidence_NE[n, k] == pytest.approx(weights.max() / weights.sum(), rel=1e-12)
            assert derived.prediction_NE[n, k] == table.logits_NEC[n, k].argmax()
            assert derived.correct_NE[n, k] == (table.logits_NEC[n, k].argmax() == table.labels_N[n])


def test_the_table_s_own_scale_is_the_default(make_table: TableFactory) -> None:
    table = make_table(confidence_scale=3.0)
    assert compute_confidences(table).confidence_scale == (3.0, 3.0, 3.0, 3.0)
    np.testing.assert_array_equal(
        compute_confidences(table).confidence_NE, compute_confidences(table, 3.0).confidence_NE
    )


def test_chunks_change_nothing(make_table: TableFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(examples=101)
    whole = compute_confidences(table)
    monkeypatch.setattr(policy_replay, "CHUNK_BYTES", 7 * 8 * 4 * 6)
    parts = compute_confidences(table)
    np.testing.assert_array_equal(whole.confidence_NE, parts.confidence_NE)
    np.testing.assert_array_equal(whole.prediction_NE, parts.prediction_NE)
    monkeypatch.setattr(policy_replay, "CHUNK_BYTES", 1)
    np.testing.assert_array_equal(whole.confidence_NE, compute_confidences(table).confidence_NE)


def test_logits_that_are_not_finite(make_table: TableFactory) -> None:
    table = make_table(examples=10)
    table.logits_NEC[7, 2, 1] = np.nan
    with pytest.raises(WorkError, match=r"test exit table .* not finite .*example 7, exit 3"):
        compute_confidences(table)


def test_wrong_number_of_scales(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="2 confidence scales given for 4 exits"):
        compute_confidences(make_table(), (1.0, 1.0))
