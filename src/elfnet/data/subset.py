"""Which examples make up a long-tailed subset. No loop over examples: a set of half a million takes milliseconds.

The subset seed puts the examples of every class into one order; a split takes a run of that order. So splits that take
different runs are disjoint by construction, and a subset with a higher ratio lies within one with a lower ratio.
"""

# Shapes: N examples, C classes (by label, or by rank where said)

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError

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
