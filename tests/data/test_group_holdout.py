"""No group is ever on two sides, and the numbers asked for are met as nearly as groups allow."""

import numpy as np
import pytest

from elfnet.data.splits import hold_out_groups, make_splits
from elfnet.data.types import Ints, LabelledImages, Source
from elfnet.errors import RequestError


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
    with pytest.raises(RequestError, match=r"left for the calibration split: .*name separate data"):
        make_splits(source, profile="none", calibration_per_class=None)
