"""Folds for cross-fitting: every example is held out once, groups stay whole, and no class is left without training."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pytest

from elfnet.data.build import load_splits
from elfnet.data.folds import held_out_in_fold
from elfnet.data.types import Digest, Examples, Ints
from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.recipe.schema import DataRecipe

DATA = DataRecipe(largest=30, ratio=10, calibration_per_class=0, test_per_class=5, cross_fitting=3)


@dataclass
class Rows(Examples):
    """Examples that are known by their labels alone."""

    labels_N: Ints
    groups_N: Ints | None = None

    @property
    def example_shape(self) -> tuple[int, int, int]:
        return 1, 1, 1

    def take(self, indices: Ints) -> Self:
        return replace(self, labels_N=self.labels_N[indices])

    def update_fingerprint(self, digest: Digest) -> None:
        digest.update(self.labels_N.tobytes())


def test_every_example_is_held_out_once_and_classes_are_divided_evenly() -> None:
    labels_N = np.repeat(np.arange(3), (30, 7, 4))
    fold_N = held_out_in_fold(Rows(labels_N), classes=3, folds=3, seed=1)
    sizes = [sorted(np.bincount(fold_N[labels_N == label], minlength=4)[1:].tolist()) for label in range(3)]
    assert sizes == [[10, 10, 10], [2, 2, 3], [1, 1, 2]]
    assert not np.array_equal(fold_N, held_out_in_fold(Rows(labels_N), classes=3, folds=3, seed=2))


def test_the_only_example_of_a_class_is_never_held_out() -> None:
    labels_N = np.repeat(np.arange(3), (9, 1, 2))
    fold_N = held_out_in_fold(Rows(labels_N), classes=3, folds=3, seed=0)
    assert fold_N[9] == 0
    assert sorted(fold_N[10:].tolist())[0] > 0, "of two examples each is held out while the other is trained on"
    assert fold_N[10] != fold_N[11]


def test_groups_are_not_divided_and_a_class_in_one_group_is_never_held_out() -> None:
    rng = np.random.default_rng(0)
    groups_N = np.sort(rng.integers(0, 20, 120))
    labels_N = rng.integers(0, 3, 120)
    labels_N[groups_N == 7] = 3
    fold_N = held_out_in_fold(Rows(labels_N, groups_N), classes=4, folds=3, seed=0)
    assert all(len(np.unique(fold_N[groups_N == group])) == 1 for group in range(20))
    assert set(fold_N[groups_N == 7]) == {0}
    sizes = np.bincount(fold_N, minlength=4)[1:]
    assert sizes.min() > 0.7 * sizes.max()


def test_the_splits_of_the_folds_divide_the_training_split() -> None:
    whole = load_splits(DATA)
    assert len(whole.calibration) == 0
    assert whole.class_counts_C.max() == 30, "nothing is held out"
    held_out = []
    for fold in (1, 2, 3):
        part = load_splits(DATA.model_copy(update={"fold": fold}))
        assert part.calibration_indices is not None
        both = np.concatenate([part.train_indices, part.calibration_indices])
        assert np.array_equal(np.sort(both), whole.train_indices)
        assert part.class_counts_C.min() >= 1
        assert np.array_equal(part.test.labels_N, whole.test.labels_N)
        assert part.fingerprint != whole.fingerprint
        held_out.append(part.calibration_indices)
    assert np.array_equal(np.sort(np.concatenate(held_out)), whole.train_indices)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data.cross_fitting": 1}, "cross_fitting=1 leaves no fold to train on"),
        ({"data.cross_fitting": 3, "data.fold": 4}, "fold=4 is not one of cross_fitting=3 folds"),
        ({"data.cross_fitting": 3, "data.calibration_per_class": 5}, "set data.calibration_per_class=0"),
        ({"data.cross_fitting": 3, "train.patience": 5}, "train.patience=5 needs a calibration split"),
        ({"data.cross_fitting": 3, "refit.method": "crt", "refit.run": "runs/x"}, "starts from a finished run"),
    ],
)
def test_settings_that_contradict_cross_fitting(settings: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        load_recipe("digits/ce", {"data.calibration_per_class": 0, **settings})
