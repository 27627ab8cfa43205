"""Long-tailed class counts: profiles, the subset of examples that follows a profile, and frequency groups.

A profile gives the number of training examples by frequency rank, most frequent class first. A seed assigns classes to
ranks, and another one selects the examples of each class. Frequency groups (many, medium, few) follow from the counts.
"""

# Shapes: N examples, C classes (by label, or by rank where stated)

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.data.types import Ints
from elfnet.errors import RequestError
from elfnet.registry import unknown_name

PROFILES = ("exponential", "pareto", "step", "counts", "none")

GROUP_NAMES = ("many", "medium", "few")

# `300 * (1 / 3)` or `49 * (1 / 49)` may be slightly below the exact integer, and int() would then lose an example. The
# relative error of the formulas is about 1e-15, so that this tolerance repairs such cases and never adds an example.
_ROUNDING = 1e-12


def exponential_counts(*, largest: int, ratio: float, classes: int) -> list[int]:
    """The exponential long tail of the paper: `int(largest * (1 / ratio) ** (i / (C - 1)))` for ranks i = 0..C-1.

    Example:
        >>> exponential_counts(largest=5000, ratio=100, classes=10)
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    _check(largest=largest, classes=classes, ratio=ratio)
    steps = max(classes - 1, 1)
    return _nonempty("exponential", [_floor(largest * (1 / ratio) ** (i / steps)) for i in range(classes)], ratio)


def pareto_counts(*, largest: int, smallest: int, alpha: float, classes: int) -> list[int]:
    """Quantiles of a Pareto distribution with shape `alpha`, scaled to the range from `largest` to `smallest`.

    With q_i = (C / (i + 1)) ** (1 / alpha) - 1, the quantile of rank i of a Pareto variable that starts at 0:
    n_i = int(smallest + (largest - smallest) * q_i / q_0).

    ImageNet-LT was drawn at random from such a distribution with alpha = 6, with 5 to 1,280 images per class in 1,000
    classes. The quantiles are within 6 % of its sorted counts on average.
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
        """q_i / q_0, with exponents that are never positive, so that no alpha overflows."""
        x = math.log(classes / (i + 1))
        return math.exp((x - full) / alpha) * math.expm1(-x / alpha) / math.expm1(-full / alpha)

    return [_floor(smallest + (largest - smallest) * share(i)) for i in range(classes)]


def step_counts(*, largest: int, ratio: float, classes: int, tail_fraction: float = 0.5) -> list[int]:
    """A step: `largest` for the first ranks, `int(largest / ratio)` for the last `C * tail_fraction` ranks.

    The number of rare classes is rounded, halves up. There is at least one frequent class and, with two or more
    classes, at least one rare class.
    """
    _check(largest=largest, classes=classes, ratio=ratio)
    if not 0 < tail_fraction < 1:
        raise RequestError(f"step_tail_fraction={tail_fraction} must be between 0 and 1, both excluded")
    tail = min(max(math.floor(classes * tail_fraction + 0.5), 1), classes - 1)
    return _nonempty("step", [largest] * (classes - tail) + [_floor(largest / ratio)] * tail, ratio)


def explicit_counts(counts: Sequence[int], *, classes: int) -> list[int]:
    """Check counts given by the user: one positive integer per class."""
    if len(counts) != classes:
        raise RequestError(f"counts has {len(counts)} numbers for {classes} classes; give one number per class")
    for rank, count in enumerate(counts):
        if count != int(count) or count < 1:
            raise RequestError(f"counts[{rank}]={count} must be an integer of at least 1: no class may be empty")
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
    """Training examples by frequency rank under a profile.

    Args:
        profile: One of `PROFILES`. "none" allows every class up to `largest` examples.
        ratio: Largest count over smallest count; "pareto" derives its smallest count from it.
        counts: The counts of the profile "counts"; refused with any other profile.
    """
    if profile not in PROFILES:
        raise unknown_name("profile", profile, list(PROFILES))
    if (counts is not None) != (profile == "counts"):
        wrong = f"profile='counts' needs counts: {classes} numbers" if counts is None else _unused_counts(profile)
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


def _unused_counts(profile: str) -> str:
    return f"counts is given, but profile={profile!r} does not use it; set profile='counts' or leave counts out"


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
        f"use a ratio of at most {size}, or a larger class size"
    )


@dataclass(frozen=True, eq=False)
class Subset:
    """A selection of examples.

    Attributes:
        indices: Sorted positions of the selected examples.
        class_counts_C: Number of selected examples per class, by label.
    """

    indices: Ints
    class_counts_C: Ints


def class_of_rank(classes: int, class_order_seed: int | None) -> Ints:
    """The class of each frequency rank, shape (C,): in label order as in the paper, or shuffled by a seed."""
    if class_order_seed is None:
        return np.arange(classes, dtype=np.int64)
    return _generator(class_order_seed, "class_order_seed").permutation(classes).astype(np.int64)


def take_from_each_class(labels_N: Ints, *, skip_C: Ints, take_C: Ints, subset_seed: int) -> Ints:
    """Select examples of each class in an order given by a seed.

    Args:
        skip_C: Examples per class to skip at the start of the order.
        take_C: Examples per class to take after those.

    Returns:
        Sorted positions of the selected examples.
    """
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
    """Select `counts_by_rank[r]` examples of the class at frequency rank r.

    Args:
        subset_seed: Selects the examples of each class.
        class_order_seed: Assigns classes to ranks; None is label order.
        skip_C: Examples per class, by label, at the start of the seed's order that belong to other splits.
    """
    if len(counts_by_rank) != classes:
        raise RequestError(f"{len(counts_by_rank)} class counts for {classes} classes; give one per class")
    wanted_C = np.empty(classes, dtype=np.int64)
    wanted_C[class_of_rank(classes, class_order_seed)] = counts_by_rank
    skip_C = np.zeros(classes, dtype=np.int64) if skip_C is None else skip_C
    available_C = np.bincount(labels_N, minlength=classes) - skip_C
    short_C = wanted_C > available_C
    if short_C.any():
        label = int(short_C.argmax())
        raise RequestError(
            f"class {label} has {available_C[label]} examples available, but {wanted_C[label]} are required; "
            "use a smaller largest class, or counts that fit"
        )
    return Subset(take_from_each_class(labels_N, skip_C=skip_C, take_C=wanted_C, subset_seed=subset_seed), wanted_C)


def _generator(seed: int, setting: str) -> np.random.Generator:
    if seed < 0:
        raise RequestError(f"{setting}={seed} must not be negative")
    return np.random.default_rng(seed)


@dataclass(frozen=True, kw_only=True)
class FrequencyGroups:
    """Boundaries of the frequency groups many, medium and few.

    A class with exactly `many_above` or `few_below` training examples is medium (20..100 as published). This matters:
    iNaturalist'18 has 375 classes with exactly 20 images, so tables state their `rule`.

    Attributes:
        many_above: Classes with more training examples than this are many.
        few_below: Classes with fewer training examples than this are few.
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
        """The group of each class as an index into `GROUP_NAMES`, shape (C,)."""
        counts = np.asarray(counts_C)
        return np.where(counts > self.many_above, 0, np.where(counts < self.few_below, 2, 1)).astype(np.int64)

    def sizes(self, counts_C: Sequence[int] | NDArray[np.integer]) -> tuple[int, int, int]:
        """Number of classes in each group: many, medium, few."""
        many, medium, few = np.bincount(self.of_classes(counts_C), minlength=len(GROUP_NAMES)).tolist()
        return many, medium, few


def head_classes(class_counts_C: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for the more frequent half of the classes (head), shape (C,). Ties are broken by label."""
    order_C = np.argsort(-class_counts_C, kind="stable")
    is_head_C = np.zeros(len(class_counts_C), dtype=np.bool_)
    is_head_C[order_C[: (len(class_counts_C) + 1) // 2]] = True
    return is_head_C
