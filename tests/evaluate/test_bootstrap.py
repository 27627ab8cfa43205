"""The paired bootstrap of two runs."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from elfnet.errors import RequestError
from elfnet.evaluate.bootstrap import Comparison, Difference, paired_bootstrap
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import Replay, replay
from elfnet.exits.policy import full_depth

TableFactory = Callable[..., ExitTable]


def answered(table: ExitTable, accuracy: float, seed: int) -> tuple[ExitTable, Replay]:
    """A run that is right with the given probability, independently for each example."""
    rng = np.random.default_rng(seed)
    right_N = rng.random(table.examples) < accuracy
    prediction_N = np.where(right_N, table.labels_N, (table.labels_N + 1) % table.classes)
    return table, replace(replay(table, full_depth(table.exits, 1.0)), prediction_N=prediction_N)


def difference(comparison: Comparison, name: str) -> Difference:
    found = comparison.differences[name]
    assert found is not None
    return found


@pytest.mark.parametrize("stratified", [False, True])
def test_identical_runs_differ_by_nothing(make_table: TableFactory, stratified: bool) -> None:
    run = answered(make_table(), 0.7, seed=0)
    comparison = paired_bootstrap(run, run, resamples=500, stratified=stratified)
    assert set(comparison.differences) == {"all", "many", "medium", "few", "balanced"}
    for name in comparison.differences:
        found = difference(comparison, name)
        assert (found.estimate, found.low, found.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("stratified", [False, True])
def test_a_known_difference_is_covered_and_signed(make_table: TableFactory, stratified: bool) -> None:
    table = make_table(examples=4000)
    comparison = paired_bootstrap(
        answered(table, 0.70, seed=1), answered(table, 0.80, seed=2), resamples=1000, stratified=stratified
    )
    for name in ("all", "balanced", "many", "medium", "few"):
        found = difference(comparison, name)
        assert found.low < 0.10 < found.high
        assert found.low > 0.0
        assert found.low < found.estimate < found.high
    assert difference(comparison, "all").n == 4000
    assert difference(comparison, "many").n == np.isin(table.labels_N, [0, 1]).sum()


def test_estimates_are_the_plain_differences(make_table: TableFactory) -> None:
    table = make_table()
    first, second = answered(table, 0.6, seed=1), answered(table, 0.7, seed=2)
    comparison = paired_bootstrap(first, second, resamples=100)
    gain_N = (second[1].prediction_N == table.labels_N).astype(float) - (first[1].prediction_N == table.labels_N)
    assert difference(comparison, "all").estimate == pytest.approx(gain_N.mean())
    assert difference(comparison, "few").estimate == pytest.approx(gain_N[table.labels_N >= 4].mean())
    per_class = [gain_N[table.labels_N == label].mean() for label in range(6)]
    assert difference(comparison, "balanced").estimate == pytest.approx(np.mean(per_class))


@pytest.mark.parametrize("stratified", [False, True])
def test_the_interval_is_that_of_resampling_examples_one_by_one(make_table: TableFactory, stratified: bool) -> None:
    table = make_table(examples=120)
    first, second = answered(table, 0.5, seed=1), answered(table, 0.7, seed=2)
    gain_N = (second[1].prediction_N == table.labels_N).astype(float) - (first[1].prediction_N == table.labels_N)
    rng = np.random.default_rng(3)
    naive: dict[str, list[float]] = {"all": [], "few": [], "balanced": []}
    for _ in range(3000):
        if stratified:
            rows = np.concatenate(
                [rng.choice(np.flatnonzero(table.labels_N == c), (table.labels_N == c).sum()) for c in range(6)]
            )
        else:
            rows = rng.integers(120, size=120)
        labels, gain = table.labels_N[rows], gain_N[rows]
        naive["all"].append(gain.mean())
        naive["few"].append(gain[labels >= 4].mean())
        naive["balanced"].append(np.mean([gain[labels == c].mean() for c in np.unique(labels)]))
    comparison = paired_bootstrap(first, second, resamples=20_000, stratified=stratified)
    for name, values in naive.items():
        low, high = np.percentile(values, [2.5, 97.5])
        # Both ends are themselves estimates; their spread here is far below a tenth of the interval's width.
        assert difference(comparison, name).low == pytest.approx(low, abs=0.1 * (high - low))
        assert difference(comparison, name).high == pytest.approx(high, abs=0.1 * (high - low))


def test_stratified_keeps_the_class_sizes(make_table: TableFactory) -> None:
    # The second run is right on class 0 only, the first never: only the number of class 0 drawn can vary.
    table = make_table()
    first = answered(table, 0.0, seed=0)
    answers_N = np.where(table.labels_N == 0, 0, first[1].prediction_N)
    second = (table, replace(first[1], prediction_N=answers_N))
    fixed = difference(paired_bootstrap(first, second, resamples=200, stratified=True), "all")
    free = difference(paired_bootstrap(first, second, resamples=200, stratified=False), "all")
    assert fixed.low == fixed.high == fixed.estimate
    assert free.low < free.estimate < free.high


def test_deterministic_in_the_seed(make_table: TableFactory) -> None:
    table = make_table()
    first, second = answered(table, 0.6, seed=1), answered(table, 0.7, seed=2)
    comparisons = [paired_bootstrap(first, second, resamples=300, seed=seed) for seed in (5, 5, 6)]
    assert comparisons[0] == comparisons[1]
    assert comparisons[0].differences != comparisons[2].differences


def test_classes_missing_from_a_resample_do_not_count(make_table: TableFactory) -> None:
    table = make_table(examples=12, labels_N=np.arange(12) % 6)
    comparison = paired_bootstrap(answered(table, 0.0, seed=1), answered(table, 1.0, seed=2), resamples=200)
    for name in comparison.differences:
        found = difference(comparison, name)
        assert (found.estimate, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_groups_without_examples_are_none_and_json(make_table: TableFactory) -> None:
    table = make_table(class_counts_C=np.full(6, 50))
    comparison = paired_bootstrap(answered(table, 0.6, seed=1), answered(table, 0.7, seed=2), resamples=100, seed=4)
    assert comparison.differences["many"] is None
    assert comparison.differences["few"] is None
    content = comparison.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert (content["n"], content["resamples"], content["seed"], content["stratified"]) == (300, 100, 4, False)


def test_classes_absent_from_the_test_split(make_table: TableFactory) -> None:
    table = make_table(labels_N=np.random.default_rng(0).integers(3, size=300))
    comparison = paired_bootstrap(
        answered(table, 0.6, seed=1), answered(table, 0.7, seed=2), resamples=100, stratified=True
    )
    assert difference(comparison, "balanced").low < difference(comparison, "balanced").high


def test_runs_that_cannot_be_compared(make_table: TableFactory) -> None:
    table = make_table()
    run = answered(table, 0.7, seed=0)
    other_labels = answered(make_table(seed=1), 0.7, seed=0)
    with pytest.raises(RequestError, match="different labels"):
        paired_bootstrap(run, other_labels)
    with pytest.raises(RequestError, match="different labels"):
        paired_bootstrap(run, answered(make_table(examples=299), 0.7, seed=0))
    with pytest.raises(RequestError, match="test split with the calibration split"):
        paired_bootstrap(run, answered(make_table(split="calibration"), 0.7, seed=0))
    with pytest.raises(RequestError, match="different frequency groups"):
        paired_bootstrap(run, answered(make_table(many_above=600), 0.7, seed=0))
    with pytest.raises(RequestError, match="10 resamples"):
        paired_bootstrap(run, run, resamples=10)
