"""Group boundaries, with the published group sizes of CIFAR."""

import numpy as np
import pytest

from elfnet.data.long_tail import GROUP_NAMES, FrequencyGroups, exponential_counts, head_classes
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
