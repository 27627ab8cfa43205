"""Frequency groups: classes with many, a medium number of, or few training examples."""

# Shapes: C classes

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError

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
