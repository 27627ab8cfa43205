"""Three disjoint splits of a source: a long-tailed training split, a calibration split and a test split."""

# Shapes: N examples (of one split), C classes by label

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.data.fingerprint import fingerprint
from elfnet.data.holdout import class_label, held_out_counts
from elfnet.data.profiles import class_counts
from elfnet.data.source import LabelledImages, Source
from elfnet.data.subset import class_of_rank, long_tailed_subset, take_from_each_class
from elfnet.errors import RequestError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Splits:
    """What a run trains on, chooses thresholds on, and is measured on.

    Attributes:
        class_counts_C: Training examples of each class; weights, margins and groups are made from these.
        fingerprint: sha256 of everything in the splits: another data set, seed or profile has another one.
        train_indices, calibration_indices: Sorted positions in the source's training split.
        test_indices: The same if the test split was cut from it, None if it is the source's own.
    """

    source_name: str
    class_names: tuple[str, ...]
    train: LabelledImages
    calibration: LabelledImages
    test: LabelledImages
    train_indices: Ints
    calibration_indices: Ints
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
    source: Source,
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
) -> Splits:
    """Hold out calibration (and test, if the source has none), then take the long tail from the rest.

    The profile is computed on the size of the training set before calibration examples are held out, and a class takes
    its count or what is left of it. On CIFAR-10 with 200 calibration images a class, the counts at ratio 100 are
    4800, 2997, 1796 ... 50: only the largest class is smaller than in the paper.

    Args:
        counts: Training examples by rank, for `profile="counts"`.
        largest: Size of the largest class under the profile; None takes that of the source's largest class.
        calibration_per_class: Calibration examples of every class; None takes 10 % of each class instead, at least
            one, but never leaves fewer than two for training.
        test_per_class: The same for the test split, with 20 %. Only for a source without a test split of its own.
        subset_seed: Decides which examples are held out and which are kept, and nothing else does.
        class_order_seed: Decides which class takes which frequency rank; None is label order.
    """
    train, classes = source.train, len(source.class_names)
    calibration_C, test_C = held_out_counts(
        source, calibration_per_class=calibration_per_class, test_per_class=test_per_class
    )
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
    subset = long_tailed_subset(
        train.labels_N,
        np.minimum(counts_by_rank, left_C[rank_class_C]),
        classes=classes,
        subset_seed=subset_seed,
        class_order_seed=class_order_seed,
        skip_C=calibration_C + test_C,
    )

    def take(skip_C: Ints, take_C: Ints) -> Ints:
        return take_from_each_class(train.labels_N, skip_C=skip_C, take_C=take_C, subset_seed=subset_seed)

    calibration_indices = take(np.zeros_like(calibration_C), calibration_C)
    test, test_indices = source.test, None
    if test is None:
        test_indices = take(calibration_C, test_C)
        test = train.take(test_indices)
    chosen, calibration = train.take(subset.indices), train.take(calibration_indices)
    return Splits(
        source_name=source.name,
        class_names=source.class_names,
        train=chosen,
        calibration=calibration,
        test=test,
        train_indices=subset.indices,
        calibration_indices=calibration_indices,
        test_indices=test_indices,
        class_counts_C=subset.class_counts_C,
        calibration_counts_C=calibration_C,
        test_counts_C=test.class_counts(classes),
        horizontal_flip=source.horizontal_flip,
        fingerprint=fingerprint(source.class_names, chosen, calibration, test),
    )


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
