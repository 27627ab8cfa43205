"""The inputs of the one-file graph that hold an operating point, and their values.

Every graph has `thresholds` and `abstain_below`. The other numbers of a policy are constants of the graph where all
operating points of a family agree, and inputs where they differ.
"""

# Shapes: E exits, W width of an input

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.exits.policy import NEVER, Policy

IMAGES = "images"
THRESHOLDS = "thresholds"
ABSTAIN_BELOW = "abstain_below"
CONFIDENCE_SCALE = "confidence_scale"
ADJUST_TAU = "adjust_tau"
COMBINE = "combine"
ENTROPY = "entropy"
ROWS = "rows"
"""Name of the first dimension of every input below: 1, or the number of images."""
ALL_LEAVE = -1.0
"""The threshold at which every image stops, for a cap on depth."""
_LARGEST_BELOW_NEVER = float(np.nextafter(np.float32(NEVER), np.float32(0)))


@dataclass(frozen=True)
class PointInputs:
    """The inputs of a graph besides images.

    Attributes:
        exits: Number of exits.
        varying: Width of the inputs in which operating points differ, by name.
        fixed: What all operating points agree on in the other fields; its thresholds mean nothing.
    """

    exits: int
    varying: dict[str, int]
    fixed: Policy

    @classmethod
    def of(cls, family: Family) -> Self:
        """Return the inputs of a family's graph."""
        found = [_fields(point.policy) for point in family.points]
        varying = {
            name: len(values) for name, values in found[0].items() if any(other[name] != values for other in found)
        }
        return cls(family.exits, varying, family.points[0].policy)

    @property
    def widths(self) -> dict[str, int]:
        """Width of every input by name."""
        thresholds = {THRESHOLDS: self.exits - 1} if self.exits > 1 else {}
        return {**thresholds, ABSTAIN_BELOW: 1, **self.varying}

    def values(
        self, policy: Policy, abstain_below: float = 0.0, deepest_exit: int | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """Return the values of a policy, each float32 (1, W).

        Args:
            policy: A policy of the family.
            abstain_below: The confidence below which the model abstains.
            deepest_exit: Index of the exit (from 0) at which all remaining images leave; None for the last.
        """
        thresholds = [rounded_threshold(threshold) for threshold in policy.thresholds]
        if deepest_exit is not None and deepest_exit < self.exits - 1:
            thresholds[deepest_exit] = ALL_LEAVE
        fields = {**_fields(policy), THRESHOLDS: tuple(thresholds), ABSTAIN_BELOW: (abstain_below,)}
        return {name: np.array([fields[name]], dtype=np.float32) for name in self.widths}


def rounded_threshold(threshold: float) -> float:
    """Round a threshold to float32, but never one below 1 to 1, at which no image stops."""
    return min(float(np.float32(threshold)), _LARGEST_BELOW_NEVER) if threshold < NEVER else NEVER


def checked_thresholds(thresholds: NDArray[Any], images: int, exits: int) -> NDArray[np.float32]:
    """Check thresholds that a caller gives, and return them as the graph reads them.

    Args:
        thresholds: Probabilities, (1, E - 1) or (N, E - 1).
        images: Number of images of the call.
        exits: Number of exits.

    Raises:
        RequestError: The shape is another one, or a threshold is not between 0 and 1.
    """
    try:
        given = np.asarray(thresholds)
    except ValueError as error:
        raise RequestError(f"the rows of thresholds differ in length; each needs {exits - 1}") from error
    if given.ndim != 2 or given.shape[1] != exits - 1 or given.shape[0] not in (1, images):
        raise RequestError(
            f"thresholds of shape {given.shape} are refused; the network needs (1, {exits - 1}), "
            f"or (examples, {exits - 1}) with one row for each of {images} images"
        )
    if given.dtype.kind not in "fiu" or not ((given >= 0) & (given <= 1)).all():
        raise RequestError("a threshold is not between 0 and 1; give probabilities; at 1 no image stops")
    rounded = np.minimum(given.astype(np.float32), np.float32(_LARGEST_BELOW_NEVER))
    return np.where(given < NEVER, rounded, np.float32(NEVER))


def _fields(policy: Policy) -> dict[str, tuple[float, ...]]:
    taus = (0.0,) * policy.exits if policy.adjustment is None else policy.adjustment.taus
    return {
        CONFIDENCE_SCALE: policy.confidence_scale,
        ADJUST_TAU: taus,
        COMBINE: (float(policy.combine),),
        ENTROPY: (float(policy.measure == "entropy"),),
    }
