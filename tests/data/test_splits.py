"""Disjoint splits, the counts that remain, and what each seed decides."""

from collections.abc import Callable

import numpy as np
import pytest

from elfnet.data.long_tail import class_of_rank
from elfnet.data.splits import Splits, held_out_counts, hold_out_groups, make_splits
from elfnet.data.types import Ints, LabelledImages, Source
from elfnet.errors import RequestError

MakeSource = Callable[..., Source]


def numbers(images: LabelledImages) -> list[int]:
    """The number each made-up image spells, see conftest."""
    spelled = np.ascontiguousarray(images.images_NHWC).reshape(len(images), 4).view("<u4")[:, 0]
    return [int(number) for number in spelled]


def assert_disjoint_and_consistent(splits: Splits, source: Source) -> None:
    assert numbers(splits.train) == splits.train_indices.tolist()
    assert splits.calibration_indices is not None
    assert numbers(splits.calibration) == splits.calibration_indices.tolist()
    parts = [set(numbers(part)) for part in (splits.train, splits.calibration, splits.test)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert sum(map(len, parts)) == len(splits.train) + len(splits.calibration) + len(splits.test)
    if splits.test_indices is not None:
        assert numbers(splits.test) == splits.test_indices.tolist()
    classes = len(source.class_names)
    for part, counts in [
        (splits.train, splits.class_counts_C),
        (splits.calibration, splits.calibration_counts_C),
        (splits.test, splits.test_counts_C),
    ]:
        assert part.class_counts(classes).tolist() == counts.tolist()
    for indices, part in [(splits.train_indices, splits.train), (splits.calibration_indices, splits.calibration)]:
        assert source.train.labels_N[indices].tolist() == part.labels_N.tolist()


def test_only_the_largest_class_loses_to_calibration_as_on_cifar10(make_source: MakeSource) -> None:
    source = make_source([5000] * 10, own_test=True)
    splits = make_splits(source, profile="exponential", ratio=100, calibration_per_class=200)
    assert splits.class_counts_C.tolist() == [4800, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert splits.calibration_counts_C.tolist() == [200] * 10
    assert splits.imbalance_ratio == 96
    assert splits.missing_from_calibration == ()
    assert splits.test is source.test
    assert splits.test_indices is None
    assert_disjoint_and_consistent(splits, source)


def test_only_the_largest_class_loses_to_calibration_as_on_cifar100(make_source: MakeSource) -> None:
    splits = make_splits(make_source([500] * 100, own_test=True), ratio=100, calibration_per_class=20)
    assert splits.class_counts_C[:5].tolist() == [480, 477, 455, 434, 415]
    assert len(splits.train) == 10_847 - 20


def test_a_test_split_is_cut_where_the_source_has_none(make_source: MakeSource) -> None:
    source = make_source([60, 50, 40])
    splits = make_splits(source, profile="step", ratio=5, calibration_per_class=5, test_per_class=10)
    assert splits.test_counts_C.tolist() == [10, 10, 10]
    # The profile starts from 60 - 10, the largest class of the training set as it would have been published.
    assert splits.class_counts_C.tolist() == [45, 10, 10]
    assert_disjoint_and_consistent(splits, source)


def test_natural_data_keeps_everything_and_lists_classes_without_calibration(make_source: MakeSource) -> None:
    source = make_source([40, 2, 10, 1, 3], own_test=True)
    splits = make_splits(source, profile="none", calibration_per_class=None)
    assert splits.calibration_counts_C.tolist() == [4, 0, 1, 0, 1]
    assert splits.class_counts_C.tolist() == [36, 2, 9, 1, 2]
    assert splits.missing_from_calibration == (1, 3)
    assert_disjoint_and_consistent(splits, source)


@pytest.mark.parametrize("seeds", [{"class_order_seed": 4}, {"ratio": 3.0}, {"profile": "none"}, {"largest": 20}])
def test_what_is_held_out_depends_on_the_subset_seed_only(make_source: MakeSource, seeds: dict[str, float]) -> None:
    source = make_source([40] * 5)

    def held_out(subset_seed: int, **settings: object) -> tuple[list[int], list[int], list[int]]:
        splits = make_splits(
            source,
            calibration_per_class=4,
            test_per_class=6,
            subset_seed=subset_seed,
            **{"ratio": 10.0} | settings,  # type: ignore[arg-type]
        )
        assert_disjoint_and_consistent(splits, source)
        return numbers(splits.calibration), numbers(splits.test), numbers(splits.train)

    plain, changed, other = held_out(0), held_out(0, **seeds), held_out(1)
    assert plain[:2] == changed[:2]
    assert plain[2] != changed[2]
    assert plain[0] != other[0]
    assert plain[1] != other[1]


def test_explicit_counts_and_largest(make_source: MakeSource) -> None:
    source = make_source([40, 30, 20], own_test=True)
    splits = make_splits(source, profile="counts", counts=[7, 30, 20], calibration_per_class=2)
    assert splits.class_counts_C.tolist() == [7, 28, 18]
    splits = make_splits(source, largest=16, ratio=4, calibration_per_class=2)
    assert splits.class_counts_C.tolist() == [16, 8, 4]
    splits = make_splits(source, profile="none", largest=25, calibration_per_class=2)
    assert splits.class_counts_C.tolist() == [25, 25, 18]


def test_a_size_that_was_written_down_must_exist(make_source: MakeSource) -> None:
    source = make_source([40, 30, 20], own_test=True)
    with pytest.raises(RequestError, match=r"class 1 \(class 1\) has 30 training examples, but 31 are required"):
        make_splits(source, profile="counts", counts=[7, 31, 20], calibration_per_class=2)
    with pytest.raises(RequestError, match=r"class 0 \(class 0\) has 40 training examples, but 41 are required"):
        make_splits(source, largest=41, ratio=4, calibration_per_class=2)


def test_a_class_gives_no_more_than_it_has_whatever_its_rank(make_source: MakeSource) -> None:
    source = make_source([40, 12, 30], own_test=True)
    for class_order_seed in range(6):
        splits = make_splits(source, ratio=2, calibration_per_class=2, class_order_seed=class_order_seed)
        ranked = class_of_rank(3, class_order_seed)
        expected = [min(count, left) for count, left in zip([40, 28, 20], np.array([38, 10, 28])[ranked], strict=True)]
        assert splits.class_counts_C[ranked].tolist() == expected
        assert_disjoint_and_consistent(splits, source)


def test_the_fingerprint_knows_data_and_seeds(make_source: MakeSource) -> None:
    source = make_source([40] * 4, own_test=True)
    altered_images = source.train.images_NHWC.copy()
    altered_images[make_splits(source, ratio=4).train_indices[5], 0, 0, 0] ^= 1
    altered = Source(
        source.name, source.class_names, LabelledImages(altered_images, source.train.labels_N), source.test, True
    )
    renamed = Source(source.name, ("a", "b", "c", "d"), source.train, source.test, True)
    assert make_splits(source, ratio=4).fingerprint == make_splits(source, ratio=4).fingerprint
    prints = [
        make_splits(source, ratio=4).fingerprint,
        make_splits(source, ratio=5).fingerprint,
        make_splits(source, ratio=4, subset_seed=1).fingerprint,
        make_splits(source, ratio=4, class_order_seed=0).fingerprint,
        make_splits(source, ratio=4, calibration_per_class=5).fingerprint,
        make_splits(altered, ratio=4).fingerprint,
        make_splits(renamed, ratio=4).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert all(len(value) == 64 for value in prints)


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


def made_up(groups: int, classes: int, seed: int) -> tuple[Ints, Ints]:
    """Groups of 1 to 6 examples; some have several classes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, groups)
    group_N = np.repeat(np.arange(groups), sizes)
    labels_N = np.where(rng.random(len(group_N)) < 0.7, group_N % classes, rng.integers(0, classes, len(group_N)))
    order = rng.permutation(len(group_N))
    return labels_N[order].astype(np.int64), group_N[order].astype(np.int64)


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together_and_numbers_are_nearly_met(seed: int) -> None:
    labels_N, groups_N = made_up(200, 4, seed)
    wanted = (np.full(4, 12), np.full(4, 25))
    parts = hold_out_groups(labels_N, groups_N, wanted=wanted, subset_seed=seed)
    rest = np.setdiff1d(np.arange(len(labels_N)), np.concatenate(parts))
    owners = [set(groups_N[part].tolist()) for part in (*parts, rest)]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 200
    for part, number_C in zip(parts, wanted, strict=True):
        assert np.abs(np.bincount(labels_N[part], minlength=4) - number_C).max() <= 5
        assert part.tolist() == sorted(part.tolist())


def test_every_class_keeps_examples_to_train_on() -> None:
    # Class 0 lies in one group; class 1 in two, of which one must stay.
    labels_N, groups_N = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 2, 2])
    calibration, test = hold_out_groups(labels_N, groups_N, wanted=(np.array([1, 1]), np.array([1, 1])), subset_seed=0)
    assert set(groups_N[calibration].tolist()) <= {1, 2}
    assert len(set(groups_N[calibration].tolist())) == 1
    assert len(test) == 0


def test_a_split_gets_the_best_group_if_none_fits_well() -> None:
    labels_N, groups_N = np.zeros(60, dtype=np.int64), np.repeat(np.arange(3), 20)
    calibration, test = hold_out_groups(labels_N, groups_N, wanted=(np.array([3]), np.array([6])), subset_seed=0)
    assert [len(calibration), len(test)] == [20, 20]


def grouped(labels_N: Ints, groups_N: Ints) -> Source[LabelledImages]:
    numbers = np.arange(len(labels_N), dtype="<u4").view(np.uint8).reshape(-1, 2, 2, 1)
    names = tuple(str(label) for label in range(int(labels_N.max()) + 1))
    return Source("made-up", names, LabelledImages(numbers, labels_N, groups_N), None, horizontal_flip=False)


@pytest.mark.parametrize("profile", ["none", "exponential"])
def test_splits_of_grouped_data(profile: str) -> None:
    labels_N, groups_N = made_up(150, 3, 1)
    splits = make_splits(grouped(labels_N, groups_N), profile=profile, ratio=4, calibration_per_class=None)
    parts = [splits.train, splits.calibration, splits.test]
    assert all(part.groups_N is not None for part in parts)
    owners = [set(part.groups_N.tolist()) for part in parts if part.groups_N is not None]
    assert not owners[0] & owners[1]
    assert not owners[0] & owners[2]
    assert not owners[1] & owners[2]
    assert splits.train.class_counts(3).tolist() == splits.class_counts_C.tolist()
    assert splits.calibration_indices is not None
    assert groups_N[splits.calibration_indices].tolist() == splits.calibration.groups_N.tolist()  # type: ignore[union-attr]
    if profile == "none":
        assert sum(map(len, parts)) == len(labels_N)
    else:
        assert splits.class_counts_C[0] > splits.class_counts_C[1] > splits.class_counts_C[2]


def test_data_of_one_group_cannot_be_divided() -> None:
    source = grouped(np.array([0, 0, 1, 1, 1, 1]), np.zeros(6, dtype=np.int64))
    with pytest.raises(RequestError, match=r"calibration and the test split: .*data\.calibration and data\.test"):
        make_splits(source, profile="none", calibration_per_class=None)
