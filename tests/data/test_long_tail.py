"""Group boundaries, with the published group sizes of CIFAR."""

import math

import numpy as np
import pytest

from elfnet.data.long_tail import (
    GROUP_NAMES,
    PROFILES,
    FrequencyGroups,
    class_counts,
    class_of_rank,
    explicit_counts,
    exponential_counts,
    head_classes,
    long_tailed_subset,
    pareto_counts,
    step_counts,
    take_from_each_class,
)
from elfnet.errors import RequestError


def test_cifar_group_sizes_are_the_published_ones() -> None:
    groups = FrequencyGroups()
    assert groups.sizes(exponential_counts(largest=5000, ratio=100, classes=10)) == (8, 2, 0)
    assert groups.sizes(exponential_counts(largest=500, ratio=100, classes=100)) == (35, 35, 30)


def test_both_boundaries_are_medium() -> None:
    groups = FrequencyGroups(many_above=100, few_below=20).of_classes([101, 100, 20, 19])
    assert [GROUP_NAMES[group] for group in groups] == ["many", "medium", "medium", "few"]
    assert groups.dtype == np.int64


def test_few_as_at_most_twenty_is_another_setting() -> None:
    counts = np.array([20] * 375 + [21, 19])
    assert FrequencyGroups().sizes(counts) == (0, 376, 1)
    assert FrequencyGroups(few_below=21).sizes(counts) == (0, 1, 376)


def test_medium_may_be_empty_but_groups_may_not_overlap() -> None:
    assert FrequencyGroups(many_above=9, few_below=10).sizes([9, 10]) == (1, 0, 1)
    with pytest.raises(RequestError, match="few_below=11 overlaps many_above=9"):
        FrequencyGroups(many_above=9, few_below=11)
    with pytest.raises(RequestError, match="must not be negative"):
        FrequencyGroups(few_below=-1)


def test_the_rule_is_stated_in_words() -> None:
    assert FrequencyGroups().rule == "many > 100, medium 20..100, few < 20"


def test_cifar10_counts_are_the_published_ones() -> None:
    assert exponential_counts(largest=5000, ratio=100, classes=10) == [
        5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50,
    ]  # fmt: skip


def test_cifar100_counts_are_the_published_ones() -> None:
    counts = exponential_counts(largest=500, ratio=100, classes=100)
    assert counts[:5] == [500, 477, 455, 434, 415]
    assert counts[-5:] == [6, 5, 5, 5, 5]


@pytest.mark.parametrize(
    ("largest", "classes", "ratio", "total"),
    [
        (5000, 10, 100, 12_406),
        (5000, 10, 50, 13_996),
        (5000, 10, 10, 20_431),
        (500, 100, 100, 10_847),
        (500, 100, 50, 12_608),
        (500, 100, 10, 19_573),
    ],
)
def test_totals_are_the_published_ones(largest: int, classes: int, ratio: float, total: int) -> None:
    assert sum(exponential_counts(largest=largest, ratio=ratio, classes=classes)) == total


def test_float_rounding_loses_no_example() -> None:
    # int(49 * (1 / 49)) is 0: the last class would be empty.
    for ratio in range(1, 200):
        assert exponential_counts(largest=ratio, ratio=ratio, classes=5)[-1] == 1, ratio
    assert exponential_counts(largest=7 * ratio, ratio=ratio, classes=2) == [7 * ratio, 7]


def test_ratio_one_is_balanced() -> None:
    assert exponential_counts(largest=30, ratio=1, classes=4) == [30] * 4
    assert step_counts(largest=30, ratio=1, classes=4) == [30] * 4


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "counts"])
def test_one_class_keeps_all(profile: str) -> None:
    assert class_counts(profile, classes=1, largest=30, ratio=3) == [30]


def test_pareto_runs_exactly_from_largest_to_smallest_along_the_stated_quantiles() -> None:
    counts = pareto_counts(largest=1280, smallest=5, alpha=6, classes=1000)
    quantiles = [(1000 / (i + 1)) ** (1 / 6) - 1 for i in range(1000)]
    naive = [int(5 + 1275 * quantile / quantiles[0]) for quantile in quantiles]
    assert counts == naive
    assert (counts[0], counts[-1]) == (1280, 5)
    # The real ImageNet-LT has 115,846 images, with 268 in its 101st class and 73 in its 501st.
    assert sum(counts) == pytest.approx(115_846, rel=0.06)
    assert counts[100] == pytest.approx(268, rel=0.06)
    assert counts[500] == pytest.approx(73, rel=0.06)


@pytest.mark.parametrize("alpha", [1e-3, 0.5, 1.34, 6, 1e6])
def test_pareto_ends_are_exact_and_it_never_rises(alpha: float) -> None:
    counts = pareto_counts(largest=997, smallest=3, alpha=alpha, classes=50)
    assert (counts[0], counts[-1]) == (997, 3)
    assert counts == sorted(counts, reverse=True)


def test_a_larger_alpha_makes_a_heavier_middle() -> None:
    light, heavy = (sum(pareto_counts(largest=1000, smallest=10, alpha=alpha, classes=100)) for alpha in (1, 6))
    assert light < heavy


def test_pareto_by_name_takes_its_smallest_class_from_the_ratio() -> None:
    assert class_counts("pareto", classes=20, largest=500, ratio=100, pareto_alpha=2) == pareto_counts(
        largest=500, smallest=5, alpha=2, classes=20
    )


def test_step_has_two_levels() -> None:
    assert step_counts(largest=100, ratio=10, classes=5, tail_fraction=0.4) == [100, 100, 100, 10, 10]
    assert step_counts(largest=100, ratio=10, classes=5, tail_fraction=0.25) == [100, 100, 100, 100, 10]
    assert step_counts(largest=100, ratio=10, classes=5, tail_fraction=0.5) == [100, 100, 10, 10, 10]
    assert class_counts("step", classes=4, largest=100, ratio=3, step_tail_fraction=0.75) == [100, 33, 33, 33]


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_step_keeps_a_head_and_a_tail(fraction: float) -> None:
    counts = step_counts(largest=100, ratio=10, classes=3, tail_fraction=fraction)
    assert (counts[0], counts[-1]) == (100, 10)


def test_explicit_counts_pass_through_in_any_order() -> None:
    assert class_counts("counts", classes=3, largest=1, counts=[5, 9, 1]) == [5, 9, 1]


def test_none_thins_nothing_out() -> None:
    assert class_counts("none", classes=3, largest=40) == [40, 40, 40]


@pytest.mark.parametrize("profile", ["exponential", "pareto", "step"])
def test_an_empty_class_is_refused_with_the_way_out(profile: str) -> None:
    with pytest.raises(RequestError, match=r"largest=50 and ratio=100 .* a ratio of at most 50"):
        class_counts(profile, classes=10, largest=50, ratio=100)
    assert class_counts(profile, classes=10, largest=50, ratio=50)[-1] == 1


@pytest.mark.parametrize("ratio", [0.99, 0, -5, math.nan, math.inf])
@pytest.mark.parametrize("profile", ["exponential", "pareto", "step", "none"])
def test_a_ratio_below_one_is_refused(profile: str, ratio: float) -> None:
    with pytest.raises(RequestError, match="ratio="):
        class_counts(profile, classes=10, largest=50, ratio=ratio)


def test_other_wrong_requests_are_refused() -> None:
    with pytest.raises(RequestError, match="did you mean 'pareto'"):
        class_counts("paretto", classes=2, largest=5)
    with pytest.raises(RequestError, match="needs counts: 2 numbers"):
        class_counts("counts", classes=2, largest=5)
    with pytest.raises(RequestError, match="does not use it"):
        class_counts("step", classes=2, largest=5, counts=[1, 2])
    with pytest.raises(RequestError, match="3 numbers for 2 classes"):
        explicit_counts([1, 2, 3], classes=2)
    with pytest.raises(RequestError, match=r"counts\[1\]=0"):
        explicit_counts([1, 0], classes=2)
    with pytest.raises(RequestError, match="classes=0"):
        exponential_counts(largest=5, ratio=1, classes=0)
    with pytest.raises(RequestError, match="largest=0"):
        exponential_counts(largest=0, ratio=1, classes=2)
    with pytest.raises(RequestError, match="pareto_alpha=0"):
        pareto_counts(largest=5, smallest=1, alpha=0, classes=2)
    with pytest.raises(RequestError, match="smallest=6"):
        pareto_counts(largest=5, smallest=6, alpha=1, classes=2)
    with pytest.raises(RequestError, match="step_tail_fraction=1"):
        step_counts(largest=5, ratio=1, classes=2, tail_fraction=1)


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


@pytest.mark.parametrize(
    ("counts", "head"),
    [
        ([50, 40, 30, 20], [True, True, False, False]),
        ([20, 50, 30, 40], [False, True, False, True]),
        ([9, 8, 7], [True, True, False]),
        ([5, 5, 5, 5], [True, True, False, False]),
        ([1], [True]),
    ],
)
def test_head_is_the_more_frequent_half(counts: list[int], head: list[bool]) -> None:
    assert head_classes(np.array(counts)).tolist() == head
