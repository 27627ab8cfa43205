"""How many examples are held out, class by class."""

from collections.abc import Callable

import pytest

from elfnet.data.splits import held_out_counts
from elfnet.data.types import Source
from elfnet.errors import RequestError

MakeSource = Callable[..., Source]


def test_a_tenth_of_each_class_at_least_one_and_two_stay(make_source: MakeSource) -> None:
    source = make_source([1, 2, 3, 4, 14, 15, 100, 1000], own_test=True)
    calibration, test = held_out_counts(source, calibration_per_class=None, test_per_class=None)
    assert calibration.tolist() == [0, 0, 1, 1, 1, 2, 10, 100]
    assert test.tolist() == [0] * 8


def test_a_test_share_is_cut_where_the_source_has_none(make_source: MakeSource) -> None:
    calibration, test = held_out_counts(make_source([2, 3, 4, 5, 100]), calibration_per_class=None, test_per_class=None)
    assert calibration.tolist() == [0, 1, 1, 1, 10]
    assert test.tolist() == [0, 0, 1, 1, 20]


def test_numbers_are_the_same_for_every_class(make_source: MakeSource) -> None:
    calibration, test = held_out_counts(make_source([30, 9]), calibration_per_class=5, test_per_class=3)
    assert (calibration.tolist(), test.tolist()) == ([5, 5], [3, 3])


def test_what_leaves_nothing_to_train_on_is_refused(make_source: MakeSource) -> None:
    with pytest.raises(RequestError, match=r"class 1 \(class 1\) has 8 examples: holding out 5 .* and 3 for test"):
        held_out_counts(make_source([30, 8]), calibration_per_class=5, test_per_class=3)


def test_an_empty_class_is_named(make_source: MakeSource) -> None:
    with pytest.raises(RequestError, match=r"class 1 \(class 1\) has no training example in made-up"):
        held_out_counts(make_source([5, 0, 5]), calibration_per_class=None, test_per_class=None)


def test_requests_that_make_no_sense_are_refused(make_source: MakeSource) -> None:
    with pytest.raises(RequestError, match="calibration_per_class=0"):
        held_out_counts(make_source([5]), calibration_per_class=0, test_per_class=None)
    with pytest.raises(RequestError, match="test_per_class=2, but made-up has its own test split"):
        held_out_counts(make_source([5], own_test=True), calibration_per_class=1, test_per_class=2)
