"""Class-count profiles: how many training examples each class gets, by rank, the most frequent class first.

Pure functions of numbers; which class takes which rank, and which examples are kept, is decided in `subset`.
"""

# Shapes: C classes (as ranks 0..C-1)
# Shapes: N examples, C classes (by label, or by rank where said)
# Shapes: C classes

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.registry import unknown_name

PROFILES = ("exponential", "pareto", "step", "counts", "none")

# `300 * (1 / 3)` or `49 * (1 / 49)` may fall a hair short of the integer that is meant; a plain int() would then lose
# an example. The relative error of these formulas is some 1e-15, so this can only repair, never add.
_ROUNDING = 1e-12


def exponential_counts(*, largest: int, ratio: float, classes: int) -> list[int]:
    """`int(largest * (1 / ratio) ** (i / (C - 1)))` for ranks i = 0..C-1: the paper's long tail.

    Example:
        >>> exponential_counts(largest=5000, ratio=100, classes=10)
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    _check(largest=largest, classes=classes, ratio=ratio)
    steps = max(classes - 1, 1)
    return _nonempty("exponential", [_floor(largest * (1 / ratio) ** (i / steps)) for i in range(classes)], ratio)


def pareto_counts(*, largest: int, smallest: int, alpha: float, classes: int) -> list[int]:
    """Quantiles of a Pareto distribution with shape `alpha`, stretched to run from `largest` to `smallest` exactly.

    With q_i = (C / (i + 1)) ** (1 / alpha) - 1, the quantile of rank i of a Pareto variable that starts at 0:
    n_i = int(smallest + (largest - smallest) * q_i / q_0).

    ImageNet-LT was drawn at random from such a distribution with alpha = 6, between 5 and 1,280 images in 1,000
    classes; these are its quantiles without the noise, within 6 % of the real sorted counts on average.
    """
    _check(largest=largest, classes=classes)
    if not 1 <= smallest <= largest:
        raise RequestError(f"smallest={smallest} must be between 1 and largest={largest}; a smaller ratio raises it")
    if not (math.isfinite(alpha) and alpha > 0):
        raise RequestError(f"pareto_alpha={alpha} must be a positive number; ImageNet-LT uses 6")
    if classes == 1:
        return [largest]
    full = math.log(classes)

    def share(i: int) -> float:
        """q_i / q_0, written with exponents that are never positive, so that no alpha overflows."""
        x = math.log(classes / (i + 1))
        return math.exp((x - full) / alpha) * math.expm1(-x / alpha) / math.expm1(-full / alpha)

    return [_floor(smallest + (largest - smallest) * share(i)) for i in range(classes)]


def step_counts(*, largest: int, ratio: float, classes: int, tail_fraction: float = 0.5) -> list[int]:
    """`largest` for the head, `int(largest / ratio)` for the last `C * tail_fraction` ranks (halves rounded up).

    Head and tail have at least one class each, whatever the rounding says; a single class is head.
    """
    _check(largest=largest, classes=classes, ratio=ratio)
    if not 0 < tail_fraction < 1:
        raise RequestError(f"step_tail_fraction={tail_fraction} must lie between 0 and 1, both excluded")
    tail = min(max(math.floor(classes * tail_fraction + 0.5), 1), classes - 1)
    return _nonempty("step", [largest] * (classes - tail) + [_floor(largest / ratio)] * tail, ratio)


def explicit_counts(counts: Sequence[int], *, classes: int) -> list[int]:
    """The counts as given, checked: one positive whole number a class."""
    if len(counts) != classes:
        raise RequestError(f"counts has {len(counts)} numbers for {classes} classes; give one a class")
    for rank, count in enumerate(counts):
        if count != int(count) or count < 1:
            raise RequestError(f"counts[{rank}]={count} must be a whole number of at least 1: no class may be empty")
    return [int(count) for count in counts]


def class_counts(
    profile: str,
    *,
    classes: int,
    largest: int,
    ratio: float = 1.0,
    pareto_alpha: float = 6.0,
    step_tail_fraction: float = 0.5,
    counts: Sequence[int] | None = None,
) -> list[int]:
    """Examples by rank under the named profile.

    Args:
        profile: One of `PROFILES`. "none" thins nothing out: every class may keep up to `largest`.
        ratio: Largest count over smallest count; "pareto" derives its smallest count from it.
        counts: Read by the profile "counts", and refused with any other.
    """
    if profile not in PROFILES:
        raise unknown_name("profile", profile, list(PROFILES))
    if (counts is not None) != (profile == "counts"):
        wrong = f"profile='counts' needs counts, {classes} numbers" if counts is None else _unread(profile)
        raise RequestError(wrong)
    if counts is not None:
        return explicit_counts(counts, classes=classes)
    if profile == "exponential":
        return exponential_counts(largest=largest, ratio=ratio, classes=classes)
    if profile == "step":
        return step_counts(largest=largest, ratio=ratio, classes=classes, tail_fraction=step_tail_fraction)
    _check(largest=largest, classes=classes, ratio=ratio)
    if profile == "none":
        return [largest] * classes
    smallest = _nonempty("pareto", [_floor(largest / ratio)], ratio, largest=largest)[0]
    return pareto_counts(largest=largest, smallest=smallest, alpha=pareto_alpha, classes=classes)


def _unread(profile: str) -> str:
    return f"counts is given but profile={profile!r} does not read it; set profile='counts' or leave counts out"


def _floor(value: float) -> int:
    return math.floor(value * (1 + _ROUNDING))


def _check(*, largest: int, classes: int, ratio: float = 1.0) -> None:
    if classes < 1:
        raise RequestError(f"classes={classes} must be at least 1")
    if largest < 1:
        raise RequestError(f"largest={largest} must be at least 1")
    if not (math.isfinite(ratio) and ratio >= 1):
        raise RequestError(f"ratio={ratio} must be a number of at least 1 (largest class over smallest class)")


def _nonempty(profile: str, counts: list[int], ratio: float, *, largest: int | None = None) -> list[int]:
    if min(counts) > 0:
        return counts
    size = largest or counts[0]
    raise RequestError(
        f"profile={profile!r} with largest={size} and ratio={ratio:g} leaves the rarest class without an example; "
        f"use a ratio of at most {size} or a larger class size"
    )


Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Subset:
    """Sorted positions of the chosen examples, and how many each class has, by label."""

    indices: Ints
    class_counts_C: Ints


def class_of_rank(classes: int, class_order_seed: int | None) -> Ints:
    """The class that takes each frequency rank, shape (C,): label order as in the paper, or shuffled by the seed."""
    if class_order_seed is None:
        return np.arange(classes, dtype=np.int64)
    return _generator(class_order_seed, "class_order_seed").permutation(classes).astype(np.int64)


def take_from_each_class(labels_N: Ints, *, skip_C: Ints, take_C: Ints, subset_seed: int) -> Ints:
    """Sorted positions of `take_C[c]` examples of each class c, after the first `skip_C[c]` in the seed's order."""
    sizes_C = np.bincount(labels_N, minlength=len(take_C))
    shuffled_N = _generator(subset_seed, "subset_seed").permutation(len(labels_N))
    by_class_N = shuffled_N[np.argsort(labels_N[shuffled_N], kind="stable")]
    place_in_class_N = np.arange(len(labels_N)) - np.repeat(np.cumsum(sizes_C) - sizes_C, sizes_C)
    first_N = np.repeat(skip_C, sizes_C)
    end_N = np.repeat(skip_C + take_C, sizes_C)
    return np.sort(by_class_N[(place_in_class_N >= first_N) & (place_in_class_N < end_N)]).astype(np.int64)


def long_tailed_subset(
    labels_N: Ints,
    counts_by_rank: Sequence[int] | Ints,
    *,
    classes: int,
    subset_seed: int,
    class_order_seed: int | None = None,
    skip_C: Ints | None = None,
) -> Subset:
    """Choose `counts_by_rank[r]` examples of the class that takes rank r.

    Args:
        subset_seed: Decides which examples of a class are taken.
        class_order_seed: Decides which class takes which rank; None is label order.
        skip_C: Examples of each class, by label, that the seed's order gives to other splits; they come first.
    """
    if len(counts_by_rank) != classes:
        raise RequestError(f"{len(counts_by_rank)} class counts for {classes} classes; give one a class")
    wanted_C = np.empty(classes, dtype=np.int64)
    wanted_C[class_of_rank(classes, class_order_seed)] = counts_by_rank
    skip_C = np.zeros(classes, dtype=np.int64) if skip_C is None else skip_C
    available_C = np.bincount(labels_N, minlength=classes) - skip_C
    short_C = wanted_C > available_C
    if short_C.any():
        label = int(short_C.argmax())
        raise RequestError(
            f"class {label} has {available_C[label]} examples available, {wanted_C[label]} were asked for; "
            "ask for a smaller largest class or explicit counts that fit"
        )
    return Subset(take_from_each_class(labels_N, skip_C=skip_C, take_C=wanted_C, subset_seed=subset_seed), wanted_C)


def _generator(seed: int, setting: str) -> np.random.Generator:
    if seed < 0:
        raise RequestError(f"{setting}={seed} must not be negative")
    return np.random.default_rng(seed)


GROUP_NAMES = ("many", "medium", "few")


@dataclass(frozen=True, kw_only=True)
class FrequencyGroups:
    """The boundaries: many has more than `many_above` training examples, few has fewer than `few_below`.

    Both boundary values themselves are medium (20..100 as published). The rule matters: iNaturalist'18 has 375 classes
    with exactly 20 images, so tables say which one they use (`rule`).
    """

    many_above: int = 100
    few_below: int = 20

    def __post_init__(self) -> None:
        if self.many_above < 0 or self.few_below < 0:
            raise RequestError(f"many_above={self.many_above} and few_below={self.few_below} must not be negative")
        if self.few_below > self.many_above + 1:
            raise RequestError(
                f"few_below={self.few_below} overlaps many_above={self.many_above}; "
                f"few_below may be at most {self.many_above + 1}"
            )

    @property
    def rule(self) -> str:
        """The boundaries in words, for captions."""
        return f"many > {self.many_above}, medium {self.few_below}..{self.many_above}, few < {self.few_below}"

    def of_classes(self, counts_C: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
        """Each class's group as an index into `GROUP_NAMES`, shape (C,)."""
        counts = np.asarray(counts_C)
        return np.where(counts > self.many_above, 0, np.where(counts < self.few_below, 2, 1)).astype(np.int64)

    def sizes(self, counts_C: Sequence[int] | NDArray[np.integer]) -> tuple[int, int, int]:
        """How many classes are many, medium and few."""
        many, medium, few = np.bincount(self.of_classes(counts_C), minlength=len(GROUP_NAMES)).tolist()
        return many, medium, few
