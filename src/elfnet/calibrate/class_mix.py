"""The class mix that operating points are chosen for: the share of each class among the images to come.

A calibration split that is held out from long-tailed data is long-tailed itself, and thresholds that are fitted on it
as it is favour frequent classes. Its examples are therefore weighted to a stated target. This assumes label shift: the
shares of the classes differ, but the images of a class look alike.
"""

# Shapes: C classes

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable

BALANCED, AS_IS, AUTO = "balanced", "as-is", "auto"
LONG_TAILED_FROM = 2.0
"""Ratio of the largest to the smallest training class from which `auto` means balanced."""
MAX_NAMED, MAX_SHOWN = 10, 60


@dataclass(frozen=True)
class MixedTable:
    """A calibration table with its target mix, and what the user should know about it."""

    table: ExitTable
    notes: tuple[str, ...] = ()


def parse_mix(text: str) -> str | tuple[float, ...]:
    """Read a class mix: `auto`, `balanced`, `as-is`, or one number per class such as `100,20,5`.

    Raises:
        RequestError: it is none of these.
    """
    if text in (AUTO, BALANCED, AS_IS):
        return text
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise RequestError(
            f"class mix {text!r} is unknown; give auto, balanced, as-is, or the expected images per class, such as "
            "100,20,5"
        ) from None


def check_mix(mix: str, classes: int) -> None:
    """Check that a class mix fits the number of classes.

    Raises:
        RequestError: it is unknown, or its counts do not fit.
    """
    if not isinstance(parsed := parse_mix(mix), str):
        _given(parsed, classes)


def weighted_to(table: ExitTable, mix: str | Sequence[float]) -> MixedTable:
    """Weight the examples of a table to a class mix.

    Args:
        table: exit table of the calibration split.
        mix: `balanced`; `as-is`, the mix of the split; `auto`, balanced if the training data are long-tailed; or the
            expected images per class, in the order of the labels.

    Raises:
        RequestError: the counts do not fit the classes.
    """
    counts_C = table.class_counts_C
    if mix == AUTO:
        mix = BALANCED if counts_C.max() >= LONG_TAILED_FROM * max(counts_C.min(), 1) else AS_IS
    if mix == AS_IS:
        return MixedTable(table)
    target_C = np.ones(table.classes) if mix == BALANCED else _given(mix, table.classes)
    size_C = np.bincount(table.labels_N, minlength=table.classes)
    observed_C = np.where(size_C > 0, target_C, 0.0)
    if observed_C.sum() == 0:
        raise RequestError("no class of the given class mix has calibration examples; give another mix")
    notes = []
    missing = np.flatnonzero((size_C == 0) & (target_C > 0))
    if len(missing):
        more = " ..." if len(missing) > MAX_NAMED else ""
        named = ", ".join(table.class_names[c] for c in missing[:MAX_NAMED]) + more
        notes.append(f"without calibration examples, so not in the figures: {named}")
    if np.allclose(observed_C / observed_C.sum(), size_C / size_C.sum()):
        # Without weights, figures are exactly those of the examples.
        return MixedTable(table, tuple(notes))
    what = "balanced" if mix == BALANCED else "as given"
    notes.insert(
        0,
        f"class mix: {what}; calibration examples are weighted to it, assuming that images of a class look alike "
        "whatever its share (label shift)",
    )
    return MixedTable(replace(table, target_C=target_C / target_C.sum()), tuple(notes))


def _given(mix: str | Sequence[float], classes: int) -> NDArray[np.float64]:
    counts_C = np.array(parse_mix(mix) if isinstance(mix, str) else mix, dtype=np.float64)
    text = ",".join(f"{count:g}" for count in counts_C)
    what = f"class mix {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + ' ...'}"
    if counts_C.shape != (classes,):
        raise RequestError(
            f"{what} has {counts_C.size} numbers, and the data have {classes} classes; give one number per class, in "
            "the order of the labels, as 'elfnet data describe' lists them"
        )
    if not (np.isfinite(counts_C).all() and (counts_C >= 0).all() and counts_C.any()):
        raise RequestError(f"{what} must be numbers of 0 or more, and not all 0")
    return counts_C


def exits_that_beat_the_last(correct_NE: NDArray[np.bool_], weight_N: NDArray[np.float64]) -> list[tuple[int, float]]:
    """Exits, counted from 1, that are more accurate alone than the last beyond noise, with the gain as a fraction."""
    found = []
    for k in range(correct_NE.shape[1] - 1):
        gain, error = mean_and_error(correct_NE[:, k].astype(float) - correct_NE[:, -1], weight_N)
        if gain > 2 * error and gain > 0:
            found.append((k + 1, gain))
    return found


def mean_and_error(value_N: NDArray[np.float64], weight_N: NDArray[np.float64]) -> tuple[float, float]:
    """Weighted mean and its standard error."""
    weight_N = weight_N / weight_N.sum()
    mean = float(weight_N @ value_N)
    return mean, float(np.sqrt((weight_N**2 * (value_N - mean) ** 2).sum()))
