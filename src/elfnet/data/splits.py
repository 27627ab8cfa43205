"""Three disjoint splits of a source: a long-tailed training split, a calibration split and a test split."""

# Shapes: N examples (of one split), C classes by label

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from elfnet.data.examples import Examples, Ints
from elfnet.data.fingerprint import fingerprint
from elfnet.data.group_holdout import hold_out_groups
from elfnet.data.holdout import class_label, held_out_counts
from elfnet.data.profiles import class_counts
from elfnet.data.source import E, Source
from elfnet.data.subset import class_of_rank, long_tailed_subset, take_from_each_class
from elfnet.errors import RequestError


@dataclass(frozen=True, eq=False, kw_only=True)
class Splits(Generic[E]):
    """What a run trains on, chooses thresholds on, and is measured on.

    Attributes:
        class_counts_C: Training examples of each class; weights, margins and groups are made from these.
        fingerprint: sha256 of everything in the splits: another data set, seed or profile has another one.
        train_indices: Sorted positions in the source's training split.
        calibration_indices, test_indices: The same if the split was cut from it, None if it is the source's own.
    """

    source_name: str
    class_names: tuple[str, ...]
    train: E
    calibration: E
    test: E
    train_indices: Ints
    calibration_indices: Ints | None
    test_indices: Ints | None
    class_counts_C: Ints
    calibration_counts_C: Ints
    test_counts_C: Ints
    horizontal_flip: bool
    fingerprint: str

    @property
    def missing_from_calibration(self) -> tuple[int, ...]:
        """Classes without a calibration example: no statement about them can be made there."""
        return tuple(np.flatnonzero(self.calibration_counts_C == 0).tolist())

    @property
    def imbalance_ratio(self) -> float:
        """Largest over smallest training class."""
        return float(self.class_counts_C.max() / self.class_counts_C.min())


def make_splits(
    source: Source[E],
    *,
    profile: str = "exponential",
    ratio: float = 100.0,
    pareto_alpha: float = 6.0,
    step_tail_fraction: float = 0.5,
    counts: Sequence[int] | None = None,
    largest: int | None = None,
    calibration_per_class: int | None = None,
    test_per_class: int | None = None,
    subset_seed: int = 0,
    class_order_seed: int | None = None,
) -> Splits[E]:
    """Hold out calibration and test (where the source has none of its own), then take the long tail from the rest.

    The profile is computed on the size of the training set before calibration examples are held out, and a class takes
    its count or what is left of it. On CIFAR-10 with 200 calibration images a class, the counts at ratio 100 are
    4800, 2997, 1796 ... 50: only the largest class is smaller than in the paper.

    Args:
        counts: Training examples by rank, for `profile="counts"`.
        largest: Size of the largest class under the profile; None takes that of the source's largest class.
        calibration_per_class: Calibration examples of every class; None takes 10 % of each class instead, at least
            one, but never leaves fewer than two for training. Only for a source without calibration data of its own.
        test_per_class: The same for the test split, with 20 %. Where examples have groups, whole groups are held out,
            so that these numbers are met as nearly as the groups allow.
        subset_seed: Decides which examples are held out and which are kept, and nothing else does.
        class_order_seed: Decides which class takes which frequency rank; None is label order.
    """
    train, classes = source.train, len(source.class_names)
    wanted_C, wanted_test_C = held_out_counts(
        source, calibration_per_class=calibration_per_class, test_per_class=test_per_class
    )
    calibration_indices, test_indices = _hold_out(source, wanted_C, wanted_test_C, subset_seed=subset_seed)
    calibration_C, test_C = (_counts(train, indices, classes) for indices in (calibration_indices, test_indices))
    before_calibration_C = train.class_counts(classes) - test_C
    counts_by_rank = np.asarray(
        class_counts(
            profile,
            classes=classes,
            largest=int(before_calibration_C.max()) if largest is None else largest,
            ratio=ratio,
            pareto_alpha=pareto_alpha,
            step_tail_fraction=step_tail_fraction,
            counts=counts,
        )
    )
    rank_class_C = class_of_rank(classes, class_order_seed)
    if profile == "counts" or (largest is not None and profile != "none"):
        _check_asked_sizes(source, counts_by_rank, rank_class_C, before_calibration_C)
    left_C = before_calibration_C - calibration_C
    counts_by_rank = np.minimum(counts_by_rank, left_C[rank_class_C])
    if train.groups_N is None:
        # The seed's order gives the first of each class to the other splits, so the same ones are skipped here.
        subset = long_tailed_subset(
            train.labels_N,
            counts_by_rank,
            classes=classes,
            subset_seed=subset_seed,
            class_order_seed=class_order_seed,
            skip_C=calibration_C + test_C,
        )
        train_indices = subset.indices
    else:
        rest = np.setdiff1d(np.arange(len(train)), np.concatenate([calibration_indices, test_indices]))
        subset = long_tailed_subset(
            train.labels_N[rest],
            counts_by_rank,
            classes=classes,
            subset_seed=subset_seed,
            class_order_seed=class_order_seed,
        )
        train_indices = rest[subset.indices]
    chosen = train.take(train_indices)
    calibration = train.take(calibration_indices) if source.calibration is None else source.calibration
    test = train.take(test_indices) if source.test is None else source.test
    for name, split in (("calibration", calibration), ("test", test)):
        if not len(split):
            raise RequestError(
                f"no example of {source.name} is left for {name}: its classes or groups are too small to divide; "
                f"add examples, or name separate data with data.{name}"
            )
    return Splits(
        source_name=source.name,
        class_names=source.class_names,
        train=chosen,
        calibration=calibration,
        test=test,
        train_indices=train_indices,
        calibration_indices=calibration_indices if source.calibration is None else None,
        test_indices=test_indices if source.test is None else None,
        class_counts_C=subset.class_counts_C,
        calibration_counts_C=calibration.class_counts(classes),
        test_counts_C=test.class_counts(classes),
        horizontal_flip=source.horizontal_flip,
        fingerprint=fingerprint(source.class_names, chosen, calibration, test),
    )


def _hold_out(source: Source, calibration_C: Ints, test_C: Ints, *, subset_seed: int) -> tuple[Ints, Ints]:
    """Sorted positions of the calibration and the test examples in the source's training split."""
    train = source.train
    if train.groups_N is not None:
        calibration, test = hold_out_groups(
            train.labels_N, train.groups_N, wanted=(calibration_C, test_C), subset_seed=subset_seed
        )
        return calibration, test

    def take(skip_C: Ints, take_C: Ints) -> Ints:
        return take_from_each_class(train.labels_N, skip_C=skip_C, take_C=take_C, subset_seed=subset_seed)

    return take(np.zeros_like(calibration_C), calibration_C), take(calibration_C, test_C)


def _counts(train: Examples, indices: Ints, classes: int) -> Ints:
    return np.bincount(train.labels_N[indices], minlength=classes).astype(np.int64)


def _check_asked_sizes(source: Source, counts_by_rank: Ints, rank_class_C: Ints, size_C: Ints) -> None:
    """A size the user wrote down must exist; only what calibration takes away may be missing from it."""
    short = counts_by_rank > size_C[rank_class_C]
    if short.any():
        rank = int(short.argmax())
        label = int(rank_class_C[rank])
        raise RequestError(
            f"class {class_label(source, label)} has {size_C[label]} training examples, "
            f"{counts_by_rank[rank]} were asked for; lower largest or counts"
        )
