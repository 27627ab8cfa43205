"""Many operating points at once must equal each of them replayed on its own."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate import curve as sweep_module
from elfnet.evaluate.confidence import ExitConfidences, compute_confidences
from elfnet.evaluate.curve import Sweep, sweep, sweep_uniform
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.metrics import measure
from elfnet.evaluate.replay import replay
from elfnet.exits.policy import Policy

TableFactory = Callable[..., ExitTable]


def assert_equals_replays(derived: ExitConfidences, result: Sweep) -> None:
    for p, thresholds_T in enumerate(result.thresholds_PT):
        policy = Policy("p", tuple(thresholds_T.tolist()), derived.confidence_scale)
        metrics = measure(derived.table, replay(derived, policy))
        assert result.accuracy_P[p] == metrics.accuracy
        assert result.mean_cost_P[p] == pytest.approx(metrics.mean_cost, rel=1e-14)
        assert tuple(result.exit_share_PE[p].tolist()) == metrics.exit_share
        for name, accuracy in zip(GROUP_NAMES, result.accuracy_PG[p].tolist(), strict=True):
            expected = metrics.accuracy_by_group[name]
            assert np.isnan(accuracy) if expected is None else accuracy == expected


def thresholds_with_ties(derived: ExitConfidences, rng: np.random.Generator, points: int) -> np.ndarray:
    """Random thresholds, some of them exactly an observed confidence, some 0 or 1."""
    thresholds_PT = rng.uniform(0.1, 1.0, size=(points, 3))
    observed = rng.choice(derived.confidence_NE[:, :-1].ravel(), size=(points, 3))
    thresholds_PT = np.where(rng.random((points, 3)) < 0.4, observed, thresholds_PT)
    thresholds_PT[:3] = [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.5]]
    return thresholds_PT


def test_per_exit_thresholds(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(), (1.0, 2.0, 1.0, 3.0))
    thresholds_PT = thresholds_with_ties(derived, np.random.default_rng(0), 60)
    result = sweep(derived, thresholds_PT)
    np.testing.assert_array_equal(result.thresholds_PT, thresholds_PT)
    assert_equals_replays(derived, result)


def test_uniform_thresholds_in_any_order(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(), 2.0)
    threshold_P = thresholds_with_ties(derived, np.random.default_rng(1), 60).ravel()
    result = sweep_uniform(derived, threshold_P)
    assert_equals_replays(derived, result)
    np.testing.assert_array_equal(result.thresholds_PT[:, 0], threshold_P)
    general = sweep(derived, np.repeat(threshold_P[:, None], 3, axis=1))
    np.testing.assert_array_equal(general.accuracy_P, result.accuracy_P)
    np.testing.assert_array_equal(general.exit_share_PE, result.exit_share_PE)


def test_chunks_change_nothing(make_table: TableFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    derived = compute_confidences(make_table(examples=50))
    thresholds_PT = np.random.default_rng(2).uniform(size=(17, 3))
    whole = sweep(derived, thresholds_PT)
    for cells in (1, 50 * 5):
        monkeypatch.setattr(sweep_module, "CHUNK_CELLS", cells)
        np.testing.assert_array_equal(whole.accuracy_PG, sweep(derived, thresholds_PT).accuracy_PG)
        np.testing.assert_array_equal(whole.mean_cost_P, sweep(derived, thresholds_PT).mean_cost_P)


def test_a_group_without_examples_is_nan(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(class_counts_C=np.array([500, 500, 500, 50, 50, 50])))
    assert np.isnan(sweep(derived, np.full((2, 3), 0.5)).accuracy_PG[:, 2]).all()
    assert np.isnan(sweep_uniform(derived, np.array([0.5])).accuracy_PG[:, 2]).all()


def test_single_exit(make_table: TableFactory) -> None:
    derived = compute_confidences(make_table(exits=1))
    assert_equals_replays(derived, sweep(derived, np.zeros((2, 0))))
    assert_equals_replays(derived, sweep_uniform(derived, np.array([0.5, 1.0])))


def test_wrong_shapes_and_empty_tables_are_refused(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match=r"give \(points, 3\)"):
        sweep(compute_confidences(make_table()), np.zeros((5, 4)))
    with pytest.raises(RequestError, match="no examples"):
        sweep(compute_confidences(make_table(examples=0)), np.zeros((5, 3)))
    with pytest.raises(RequestError, match="no examples"):
        sweep_uniform(compute_confidences(make_table(examples=0)), np.zeros(5))
