"""The fitted confidence scale, against a fine grid and where it has no inner optimum."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate import confidence_scale
from elfnet.calibrate.confidence_scale import (
    LARGEST_SCALE,
    PRIOR_EXAMPLES,
    SMALLEST_SCALE,
    expected_correct,
    fit_scales,
)
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences

TableFactory = Callable[..., ExitTable]


def _loss(table: ExitTable, exit_index: int, scale: float) -> float:
    logits_NC = scale * table.logits_NEC[:, exit_index].astype(np.float64)
    label_N = logits_NC[np.arange(table.examples), table.labels_N]
    return float(np.mean(np.logaddexp.reduce(logits_NC, axis=1) - label_N))


def _drawn_labels(logits_NC: NDArray[np.float32], scale: float, seed: int) -> NDArray[np.int64]:
    """Labels that follow softmax(scale * logits): the true scale is known."""
    gumbel_NC = np.random.default_rng(seed).gumbel(size=logits_NC.shape)
    labels_N: NDArray[np.int64] = np.argmax(scale * logits_NC + gumbel_NC, axis=1)
    return labels_N


def test_nothing_on_a_fine_grid_is_better(make_table: TableFactory) -> None:
    table = make_table()
    scales = fit_scales(table)
    assert len(scales) == 4
    for k, scale in enumerate(scales):
        step = 1e-3
        grid = scale * np.exp(step * np.arange(-100, 101))
        losses = [_loss(table, k, value) for value in grid]
        best = int(np.argmin(losses))
        assert abs(best - 100) <= 1
        assert _loss(table, k, scale) <= min(losses) + 1e-12
        # Far away too: the minimum is the only one.
        assert _loss(table, k, scale) < min(_loss(table, k, value) for value in np.geomspace(1e-3, 1e3, 50))
    # Noise of standard deviation 1 around 0.5 .. 2.5: the right scale is the shift itself.
    np.testing.assert_allclose(scales, np.linspace(0.5, 2.5, 4), rtol=0.2)


@pytest.mark.parametrize("start", [1e-6, 0.01, 1.0, 30.0, 1e6])
def test_cosines_get_their_scale_back_from_any_start(make_table: TableFactory, start: float) -> None:
    rng = np.random.default_rng(3)
    logits_NEC = np.clip(rng.normal(0, 0.1, size=(4000, 2, 6)), -1, 1).astype(np.float32)
    logits_NEC[:, 1] = logits_NEC[:, 0] / 3
    labels_N = _drawn_labels(logits_NEC[:, 0], 30.0, seed=4)
    table = make_table(logits_NEC=logits_NEC, labels_N=labels_N, cost_E=np.array([0.5, 1.0]), confidence_scale=start)
    first, second = fit_scales(table)
    assert first == pytest.approx(30.0, rel=0.05)
    assert second == pytest.approx(3 * first, rel=1e-5)


def test_answers_stay_as_they_are(make_table: TableFactory) -> None:
    table = make_table()
    fitted, before = compute_confidences(table, fit_scales(table)), compute_confidences(table)
    np.testing.assert_array_equal(fitted.prediction_NE, before.prediction_NE)
    assert not np.allclose(fitted.confidence_NE, before.confidence_NE)


def test_chunks_make_no_difference(make_table: TableFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_scales(make_table())
    monkeypatch.setattr(confidence_scale, "CHUNK_BYTES", 8 * 6 * 7)
    np.testing.assert_allclose(fit_scales(make_table()), whole, rtol=1e-8)


def test_always_right_and_always_wrong_stay_finite(make_table: TableFactory) -> None:
    for size in (0.01, 1.0, 1000.0):
        table = make_table()
        table.logits_NEC[:] = 0
        table.logits_NEC[np.arange(600), :2, table.labels_N] = size
        table.logits_NEC[np.arange(600), 2:, (table.labels_N + 1) % 6] = size
        assert fit_scales(table) == (LARGEST_SCALE, LARGEST_SCALE, SMALLEST_SCALE, SMALLEST_SCALE)


def test_one_example(make_table: TableFactory) -> None:
    table = make_table(examples=1)
    for right, end in ((True, LARGEST_SCALE), (False, SMALLEST_SCALE)):
        table.logits_NEC[:] = [[[1, 0, 0, 0, 0, 0]]] if right else [[[0, 0, 0, 1, 0, 0]]]
        assert fit_scales(table) == (end,) * 4


def test_logits_that_say_nothing_keep_the_scale(make_table: TableFactory) -> None:
    table = make_table()
    table.logits_NEC[:] = 3.0
    assert fit_scales(table) == (2.0,) * 4


def test_huge_logits_do_not_overflow(make_table: TableFactory) -> None:
    table = make_table()
    scales = np.array(fit_scales(table))
    scaled = make_table(logits_NEC=(table.logits_NEC * 100).astype(np.float32) + 1e4)
    # float32 keeps three decimals of numbers this large.
    np.testing.assert_allclose(np.array(fit_scales(scaled)) * 100, scales, rtol=1e-3)


def test_refusals(make_table: TableFactory) -> None:
    with pytest.raises(RequestError, match="calibrating on the test split is refused"):
        fit_scales(make_table(split="test"))
    with pytest.raises(RequestError, match="no examples to calibrate on"):
        fit_scales(make_table(examples=0))
    table = make_table()
    table.logits_NEC[5, 2, 1] = np.nan
    with pytest.raises(WorkError, match="not finite at exit 3"):
        fit_scales(table)


def test_of_a_very_large_table_examples_are_left_out_evenly(
    make_table: TableFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table()
    whole = fit_scales(table)
    thinned = make_table(logits_NEC=table.logits_NEC[::3], labels_N=table.labels_N[::3])
    monkeypatch.setattr(confidence_scale, "MAX_LOGITS", 600 * 6 // 3)
    assert fit_scales(table) == fit_scales(thinned) != whole
    monkeypatch.setattr(confidence_scale, "MAX_LOGITS", 600 * 6)
    assert fit_scales(table) == whole


def test_expected_correct_is_between_counts_and_probabilities(make_table: TableFactory) -> None:
    table = make_table(examples=PRIOR_EXAMPLES // 6 * 6)
    confidences = compute_confidences(table)
    probability_NE = compute_confidences(table, fit_scales(table)).confidence_NE
    weight = table.examples / (table.examples + PRIOR_EXAMPLES)
    between_NE = weight * confidences.correct_NE + (1 - weight) * probability_NE
    level_NE = expected_correct(confidences) - between_NE
    np.testing.assert_allclose(level_NE, level_NE[0, 0], atol=1e-12)
    assert expected_correct(confidences)[:, -1].mean() == pytest.approx(confidences.correct_NE[:, -1].mean())


def test_uneven_weights_count_as_fewer_examples(make_table: TableFactory) -> None:
    table = make_table(target_C=np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]))
    confidences = compute_confidences(table)
    expected_NE, weight_N = expected_correct(confidences), table.example_weights()
    # Between an example that is right and one that is wrong there is the weight of the counts, at equal probability.
    probability_NE = compute_confidences(table, fit_scales(table)).confidence_NE
    counted_NE = expected_NE - probability_NE * PRIOR_EXAMPLES / (PRIOR_EXAMPLES + 600 / 1.8)
    right, wrong = (counted_NE[confidences.correct_NE == is_right] for is_right in (True, False))
    assert right.std() < 1e-12
    assert wrong.std() < 1e-12
    assert right.mean() - wrong.mean() == pytest.approx(600 / 1.8 / (PRIOR_EXAMPLES + 600 / 1.8))
    last = np.average(confidences.correct_NE[:, -1], weights=weight_N)
    assert np.average(expected_NE[:, -1], weights=weight_N) == pytest.approx(last)


@pytest.mark.parametrize("combine", [False, True])
def test_expected_correct_does_not_depend_on_the_measure(make_table: TableFactory, combine: bool) -> None:
    table = make_table()
    by_probability, by_entropy = (
        expected_correct(compute_confidences(table, combine=combine, measure=measure))
        for measure in ("probability", "entropy")
    )
    np.testing.assert_array_equal(by_probability, by_entropy)


def test_the_probability_of_combined_exits_is_that_of_their_joint_answer(
    make_table: TableFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confidence_scale, "PRIOR_EXAMPLES", 10**9)  # no counts
    # The first exit, which is the worst, dominates all others.
    confidences = compute_confidences(make_table(examples=6000), (20.0, 1.0, 1.0, 1.0), combine=True)
    right_E = confidences.correct_NE.mean(axis=0)
    assert right_E[2] < compute_confidences(make_table(examples=6000)).correct_NE.mean(axis=0)[2] - 0.2
    np.testing.assert_allclose(expected_correct(confidences).mean(axis=0), right_E, atol=0.03)
