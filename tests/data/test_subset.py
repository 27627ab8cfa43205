"""Long-tailed subsets against a naive loop; seeds; the sizes of the large data sets."""

import numpy as np
import pytest

from elfnet.data.long_tail import (
    class_of_rank,
    exponential_counts,
    long_tailed_subset,
    pareto_counts,
    take_from_each_class,
)
from elfnet.errors import RequestError

LABELS = np.random.default_rng(3).integers(0, 6, 600)


def test_every_class_gets_its_count_of_different_examples() -> None:
    counts = [50, 30, 20, 9, 4, 1]
    subset = long_tailed_subset(LABELS, counts, classes=6, subset_seed=0)
    assert subset.class_counts_C.tolist() == counts
    assert np.bincount(LABELS[subset.indices]).tolist() == counts
    assert (np.diff(subset.indices) > 0).all()  # sorted, none twice


def test_runs_of_the_order_equal_a_naive_loop() -> None:
    skip, take = np.array([3, 0, 5, 1, 0, 2]), np.array([10, 4, 1, 0, 7, 20])
    order = np.random.default_rng(11).permutation(len(LABELS))
    expected: list[int] = []
    for label in range(6):
        of_class = [int(index) for index in order if LABELS[index] == label]
        expected += of_class[skip[label] : skip[label] + take[label]]
    found = take_from_each_class(LABELS, skip_C=skip, take_C=take, subset_seed=11)
    assert found.tolist() == sorted(expected)


def test_a_higher_ratio_lies_within_a_lower_one() -> None:
    low, high = (
        long_tailed_subset(LABELS, exponential_counts(largest=80, ratio=ratio, classes=6), classes=6, subset_seed=5)
        for ratio in (10, 40)
    )
    assert set(high.indices) < set(low.indices)


def test_the_subset_seed_changes_the_examples_and_not_the_counts() -> None:
    one, same, other = (long_tailed_subset(LABELS, [20] * 6, classes=6, subset_seed=seed) for seed in (1, 1, 2))
    assert one.indices.tolist() == same.indices.tolist()
    assert one.indices.tolist() != other.indices.tolist()
    assert one.class_counts_C.tolist() == other.class_counts_C.tolist()


def test_the_class_order_seed_changes_who_is_frequent_and_keeps_the_profile() -> None:
    counts = [60, 40, 20, 10, 5, 2]
    shuffled = long_tailed_subset(LABELS, counts, classes=6, subset_seed=1, class_order_seed=0)
    assert sorted(shuffled.class_counts_C.tolist(), reverse=True) == counts
    assert shuffled.class_counts_C.tolist() != counts
    assert shuffled.class_counts_C[class_of_rank(6, 0)].tolist() == counts


def test_without_a_class_order_seed_label_order_is_frequency_order() -> None:
    assert class_of_rank(4, None).tolist() == [0, 1, 2, 3]


def test_a_class_that_is_too_small_is_named() -> None:
    labels = np.array([0, 0, 0, 1, 1])
    with pytest.raises(RequestError, match="class 1 has 2 examples available, but 3 are required"):
        long_tailed_subset(labels, [3, 3], classes=2, subset_seed=0)
    with pytest.raises(RequestError, match="class 0 has 2 examples available, but 3 are required"):
        long_tailed_subset(labels, [3, 1], classes=2, subset_seed=0, skip_C=np.array([1, 0]))


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(RequestError, match="1 class counts for 2 classes"):
        long_tailed_subset(np.array([0, 1]), [1], classes=2, subset_seed=0)
    with pytest.raises(RequestError, match="subset_seed=-1"):
        long_tailed_subset(np.array([0, 1]), [1, 1], classes=2, subset_seed=-1)
    with pytest.raises(RequestError, match="class_order_seed=-2"):
        class_of_rank(3, -2)


@pytest.mark.parametrize(("classes", "largest", "smallest"), [(1000, 1280, 5), (8142, 1000, 2)])
def test_large_data_sets(classes: int, largest: int, smallest: int) -> None:
    counts = pareto_counts(largest=largest, smallest=smallest, alpha=6, classes=classes)
    labels = np.repeat(np.arange(classes), np.array(counts) + 10)
    subset = long_tailed_subset(labels, counts, classes=classes, subset_seed=0, class_order_seed=None)
    assert np.bincount(labels[subset.indices]).tolist() == counts
