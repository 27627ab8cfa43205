"""Three disjoint splits of a source: a long-tailed training split, a calibration split and a test split.

Calibration and test examples are held out from the training examples if the source has no such split; examples of one
group always stay in one split.
"""

# Shapes: N examples, C classes by label, G groups, S held-out splits, K classes of one group

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np

from elfnet.data.long_tail import class_counts, class_of_rank, long_tailed_subset, take_from_each_class
from elfnet.data.types import E, Examples, Ints, Source
from elfnet.errors import RequestError

CALIBRATION_SHARE = 0.1
TEST_SHARE = 0.2
KEPT_FOR_TRAINING = 2  # examples per class that holding out a share leaves for training, if there are as many


@dataclass(frozen=True, eq=False, kw_only=True)
class Splits(Generic[E]):
    """The training, calibration and test split of a run.

    Attributes:
        train_indices: Sorted positions of the training examples in the source's training split.
        calibration_indices, test_indices: Sorted positions of the held-out examples there; None if the source has such
            a split.
        class_counts_C: Training examples per class; class weights, margins and frequency groups follow from them.
        calibration_counts_C, test_counts_C: Examples per class in the other splits.
        horizontal_flip: Whether a mirror image keeps its label.
        fingerprint: Hex sha256 of the content of all splits; it depends on data set, seed and profile.
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
        """Labels of the classes without a calibration example."""
        return tuple(np.flatnonzero(self.calibration_counts_C == 0).tolist())

    @property
    def imbalance_ratio(self) -> float:
        """Size of the largest training class divided by the size of the smallest."""
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
    hold_out_calibration: bool = True,
    calibration_per_class: int | None = None,
    test_per_class: int | None = None,
    subset_seed: int = 0,
    class_order_seed: int | None = None,
) -> Splits[E]:
    """Make a long-tailed training split, a calibration split and a test split.

    Calibration and test examples are held out first, unless the source has such a split. The training split is then
    selected from the remaining examples. The class counts of the profile are computed before calibration examples are
    held out, and a class keeps fewer examples if not enough remain. On CIFAR-10 with 200 calibration images per class
    and ratio 100 the counts are 4800, 2997, 1796 ... 50: only the largest class is smaller than in the paper.

    If examples have groups, whole groups are held out, and the numbers per class are met as nearly as the groups allow.

    Args:
        source: The data set.
        profile: Shape of the class counts: exponential, pareto, step, counts or none.
        ratio: Size of the largest class divided by the size of the smallest.
        pareto_alpha: Shape of the profile pareto.
        step_tail_fraction: Fraction of rare classes of the profile step.
        counts: Training examples by frequency rank, for the profile counts.
        largest: Size of the largest class under the profile; None takes that of the source.
        hold_out_calibration: False leaves the calibration split empty, for cross-fitting.
        calibration_per_class: Calibration examples per class; None holds out 10 % of each class: at least one example,
            but two stay for training. Must be None if the source has a calibration split.
        test_per_class: Test examples per class; None holds out 20 % by the same rules. Must be None if the source has
            a test split.
        subset_seed: Selects the examples that are held out and kept; independent of all other seeds.
        class_order_seed: Assigns classes to frequency ranks; None is label order.

    Raises:
        RequestError: If a class is too small for these numbers.
    """
    train, classes = source.train, len(source.class_names)
    if not hold_out_calibration and source.calibration is not None:
        raise RequestError(
            f"cross_fitting is for data without a calibration split, and {source.name} has its own; leave "
            "data.cross_fitting out"
        )
    wanted_C, wanted_test_C = held_out_counts(
        source,
        hold_out_calibration=hold_out_calibration,
        calibration_per_class=calibration_per_class,
        test_per_class=test_per_class,
    )
    calibration_indices, test_indices = _hold_out(source, wanted_C, wanted_test_C, subset_seed=subset_seed)
    before_calibration_C = train.class_counts(classes) - _counts(train, test_indices, classes)
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
        _check_requested_sizes(source, counts_by_rank, rank_class_C, before_calibration_C)
    left_C = before_calibration_C - _counts(train, calibration_indices, classes)
    counts_by_rank = np.minimum(counts_by_rank, left_C[rank_class_C])
    train_indices, class_counts_C = _training_rows(
        source,
        counts_by_rank,
        (calibration_indices, test_indices),
        subset_seed=subset_seed,
        class_order_seed=class_order_seed,
    )
    chosen = train.take(train_indices)
    calibration = train.take(calibration_indices) if source.calibration is None else source.calibration
    test = train.take(test_indices) if source.test is None else source.test
    _refuse_empty(source.name, **({"calibration": calibration} if hold_out_calibration else {}), test=test)
    return Splits(
        source_name=source.name,
        class_names=source.class_names,
        train=chosen,
        calibration=calibration,
        test=test,
        train_indices=train_indices,
        calibration_indices=calibration_indices if source.calibration is None else None,
        test_indices=test_indices if source.test is None else None,
        class_counts_C=class_counts_C,
        calibration_counts_C=calibration.class_counts(classes),
        test_counts_C=test.class_counts(classes),
        horizontal_flip=source.horizontal_flip,
        fingerprint=fingerprint(source.class_names, chosen, calibration, test),
    )


def _refuse_empty(source_name: str, **held_out: Examples) -> None:
    """Refuse a split without examples; `held_out` are the splits by name."""
    empty = [name for name, split in held_out.items() if not len(split)]
    if empty:
        named = " and ".join(f"data.{name}" for name in empty)
        raise RequestError(
            f"no example of {source_name} is left for the {' and the '.join(empty)} split: its classes or groups are "
            f"too small; add examples, or name separate data with {named}"
        )


def _training_rows(
    source: Source,
    counts_by_rank: Ints,
    held_out: tuple[Ints, Ints],
    *,
    subset_seed: int,
    class_order_seed: int | None,
) -> tuple[Ints, Ints]:
    """Positions of the training examples in the source's training split, and their number per class.

    Args:
        held_out: positions of the calibration and the test examples.
    """
    train, classes = source.train, len(source.class_names)
    if train.groups_N is None:
        # The first examples of each class in the seed's order are in the other splits; skip them.
        subset = long_tailed_subset(
            train.labels_N,
            counts_by_rank,
            classes=classes,
            subset_seed=subset_seed,
            class_order_seed=class_order_seed,
            skip_C=_counts(train, np.concatenate(held_out), classes),
        )
        return subset.indices, subset.class_counts_C
    rest = np.setdiff1d(np.arange(len(train)), np.concatenate(held_out))
    subset = long_tailed_subset(
        train.labels_N[rest],
        counts_by_rank,
        classes=classes,
        subset_seed=subset_seed,
        class_order_seed=class_order_seed,
    )
    return rest[subset.indices], subset.class_counts_C


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


def _check_requested_sizes(source: Source, counts_by_rank: Ints, rank_class_C: Ints, size_C: Ints) -> None:
    """Refuse explicit class sizes that the source does not have, before calibration examples are held out."""
    short = counts_by_rank > size_C[rank_class_C]
    if short.any():
        rank = int(short.argmax())
        label = int(rank_class_C[rank])
        raise RequestError(
            f"class {class_label(source, label)} has {size_C[label]} training examples, but "
            f"{counts_by_rank[rank]} are required; lower largest or counts"
        )


def held_out_counts(
    source: Source,
    *,
    calibration_per_class: int | None,
    test_per_class: int | None,
    hold_out_calibration: bool = True,
) -> tuple[Ints, Ints]:
    """Number of calibration and test examples to hold out per class, each of shape (C,).

    Args:
        hold_out_calibration: False holds out none for calibration.
        calibration_per_class: Calibration examples per class. None holds out a share of each class
            (`CALIBRATION_SHARE`): at least one example, but two stay for training. Must be None if the source has a
            calibration split.
        test_per_class: The number of test examples, by the same rules (`TEST_SHARE`).

    Raises:
        RequestError: If a class would have no training example left.
    """
    total_C = source.train.class_counts(len(source.class_names))
    if not total_C.all():
        name = class_label(source, int((total_C == 0).argmax()))
        raise RequestError(f"class {name} has no training example in {source.name}; remove the class")
    calibration_C, test_C = np.zeros_like(total_C), np.zeros_like(total_C)
    if source.calibration is None and hold_out_calibration:
        calibration_C = _held_out(total_C, total_C, calibration_per_class, CALIBRATION_SHARE, "calibration_per_class")
    elif source.calibration is not None and calibration_per_class is not None:
        raise _has_own_split("calibration", calibration_per_class, source)
    if source.test is None:
        test_C = _held_out(total_C, total_C - calibration_C, test_per_class, TEST_SHARE, "test_per_class")
    elif test_per_class is not None:
        raise _has_own_split("test", test_per_class, source)
    empty_C = total_C - calibration_C - test_C < 1
    if empty_C.any():
        label = int(empty_C.argmax())
        raise RequestError(
            f"class {class_label(source, label)} has {total_C[label]} examples: holding out {calibration_C[label]} for "
            f"calibration and {test_C[label]} for test leaves none to train on; hold out fewer"
        )
    return calibration_C, test_C


def held_out_by_default(total_C: Ints, *, calibration: bool, test: bool) -> dict[str, Ints]:
    """Examples per class and split, each of shape (C,), if shares of each class are held out (see `held_out_counts`).

    Args:
        total_C: Examples per class before anything is held out.
        calibration, test: Whether this split is held out; otherwise it has its own files and is not in the result.
    """
    counts: dict[str, Ints] = {"train": total_C}
    for split, wanted, share in (("calibration", calibration, CALIBRATION_SHARE), ("test", test, TEST_SHARE)):
        if wanted:
            counts[split] = _held_out(total_C, counts["train"], None, share, f"{split}_per_class")
            counts["train"] = counts["train"] - counts[split]
    return counts


def _has_own_split(split: str, value: int, source: Source) -> RequestError:
    setting = f"{split}_per_class"
    return RequestError(f"{setting}={value}, but {source.name} has its own {split} split; leave {setting} unset")


def class_label(source: Source, label: int) -> str:
    """Label and name of a class, for messages."""
    return f"{label} ({source.class_names[label]})"


def _held_out(total_C: Ints, left_C: Ints, per_class: int | None, share: float, setting: str) -> Ints:
    if per_class is None:
        wanted_C: Ints = np.maximum(np.floor(total_C * share + 0.5), 1).astype(np.int64)
        spare_C: Ints = np.maximum(left_C - KEPT_FOR_TRAINING, 0)
        return np.asarray(np.minimum(wanted_C, spare_C))
    if per_class < 1:
        raise RequestError(f"{setting}={per_class} must be at least 1, or unset to hold out a share of each class")
    return np.full_like(total_C, per_class)


def hold_out_groups(labels_N: Ints, groups_N: Ints, *, wanted: Sequence[Ints], subset_seed: int) -> list[Ints]:
    """Hold out whole groups of examples.

    Groups are visited in the seed's order. A group is assigned to the first split that still needs at least half of its
    examples, if every class in it keeps an example for training (two, if it has more than two). So the wanted numbers
    are met as nearly as the groups allow, and a class whose examples are all in one group stays in training. A split
    without any group after that gets the group with the largest share of needed examples.

    Args:
        wanted: Number of examples per class, shape (C,), for each held-out split.

    Returns:
        Sorted positions of the examples of each held-out split.
    """
    order_N = np.argsort(groups_N, kind="stable")
    _, first_G = np.unique(groups_N[order_N], return_index=True)
    groups = [_Group(members, labels_N) for members in np.split(order_N, first_G[1:])]
    left_C = np.bincount(labels_N, minlength=len(wanted[0])).astype(np.int64)
    keep_C = np.minimum(left_C, np.where(left_C > 2, 2, 1))
    need_SC = [np.array(one, dtype=np.int64) for one in wanted]
    chosen: list[list[_Group]] = [[] for _ in wanted]

    def is_spare(group: _Group) -> bool:
        return bool((left_C[group.label_K] - group.count_K >= keep_C[group.label_K]).all())

    def assign(group: _Group, split: int) -> None:
        chosen[split].append(group)
        need_SC[split][group.label_K] -= group.count_K
        left_C[group.label_K] -= group.count_K

    others = []
    for place in np.random.default_rng(subset_seed).permutation(len(groups)):
        group = groups[place]
        fits = [split for split, need_C in enumerate(need_SC) if 2 * group.fills(need_C) >= group.size]
        if fits and is_spare(group):
            assign(group, fits[0])
        else:
            others.append(group)
    for split, need_C in enumerate(need_SC):
        if not chosen[split]:
            suited = [group for group in others if group.fills(need_C) and is_spare(group)]
            if suited:
                best = max(suited, key=lambda group: group.fills(need_C) / group.size)
                assign(best, split)
                others.remove(best)
    none = np.zeros(0, dtype=np.int64)
    return [np.sort(np.concatenate([none, *(group.members for group in part)])) for part in chosen]


class _Group:
    """The positions of the examples of a group, and their number per class."""

    def __init__(self, members: Ints, labels_N: Ints) -> None:
        self.members, self.size = members, len(members)
        self.label_K, self.count_K = np.unique(labels_N[members], return_counts=True)

    def fills(self, need_C: Ints) -> int:
        """Number of its examples that a split still needs."""
        return int(np.minimum(need_C[self.label_K].clip(0), self.count_K).sum())


def fingerprint(class_names: Sequence[str], *splits: Examples) -> str:
    """Hex sha256 of the class names and of the content of every split, in order."""
    digest = hashlib.sha256(repr(tuple(class_names)).encode())
    for split in splits:
        split.update_fingerprint(digest)
    return digest.hexdigest()
