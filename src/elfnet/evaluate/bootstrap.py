"""A paired bootstrap: confidence intervals for the difference in accuracy between two runs on the same examples.

An example contributes its class, and whether only the second run is right (gained), only the first (lost), or both or
neither (same). Drawing N examples with replacement is therefore equivalent to drawing the counts of these kinds from a
multinomial distribution, at a cost that does not depend on N.
"""

# Shapes: N examples, C classes that have examples, R resamples, 3 = gained / lost / same

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import Replay

CONFIDENCE_LEVEL = 0.95
MIN_RESAMPLES = 100
CHUNK_CELLS = 2**20
"""Counts that are drawn at a time."""


@dataclass(frozen=True)
class Difference:
    """Accuracy of the second run minus that of the first, with its 95 % percentile interval.

    Attributes:
        estimate: the difference, as a fraction of 1.
        low, high: ends of the interval.
        n: number of examples.
    """

    estimate: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Comparison:
    """Differences in accuracy between two runs; None for a group without examples.

    `differences` has the keys `all`, one per frequency group, and `balanced` (mean of the classes' differences).
    """

    differences: dict[str, Difference | None]
    n: int
    resamples: int
    seed: int
    stratified: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired_bootstrap(
    first: tuple[ExitTable, Replay],
    second: tuple[ExitTable, Replay],
    *,
    resamples: int = 10_000,
    seed: int = 0,
    stratified: bool = False,
) -> Comparison:
    """Compare the accuracy of two runs on the same examples in the same order: second minus first.

    Args:
        first: exit table and replay of the first run.
        second: exit table and replay of the second run; a difference above 0 is in its favour.
        resamples: number of bootstrap samples.
        seed: of the random numbers; equal seeds give equal intervals.
        stratified: keep the number of examples per class fixed in every bootstrap sample.

    Raises:
        RequestError: the tables have different examples or groups, or there are too few resamples.
    """
    (table, replay_first), (table_second, replay_second) = first, second
    _require_comparable(table, table_second, resamples)
    differences = paired_differences(
        replay_first.prediction_N == table.labels_N,
        replay_second.prediction_N == table.labels_N,
        table.labels_N,
        table.group_of_class,
        resamples=resamples,
        seed=seed,
        stratified=stratified,
    )
    return Comparison(differences, table.examples, resamples, seed, stratified)


def paired_differences(
    right_first_N: NDArray[np.bool_],
    right_second_N: NDArray[np.bool_],
    labels_N: NDArray[np.int64],
    group_of_class: NDArray[np.int64],
    *,
    resamples: int,
    seed: int = 0,
    stratified: bool = False,
) -> dict[str, Difference | None]:
    """The differences of `paired_bootstrap`, computed from whether each run is right on each example.

    Returns:
        Differences with the keys of `Comparison`.
    """
    kind_N = np.where(right_second_N == right_first_N, 2, np.where(right_second_N, 0, 1))
    count_C3 = np.bincount(labels_N * 3 + kind_N, minlength=len(group_of_class) * 3).reshape(-1, 3)
    present = count_C3.sum(axis=1) > 0
    count_C3, group_C = count_C3[present], group_of_class[present]

    estimate = _statistics(count_C3[None], group_C)
    drawn = [
        _statistics(count_RC3, group_C)
        for count_RC3 in _resample(count_C3, resamples, stratified, np.random.default_rng(seed))
    ]
    tail = 100 * (1 - CONFIDENCE_LEVEL) / 2
    differences: dict[str, Difference | None] = {}
    for name, (value,) in estimate.items():
        n = int(count_C3[group_C == GROUP_NAMES.index(name)].sum() if name in GROUP_NAMES else len(labels_N))
        if n == 0:
            differences[name] = None
            continue
        # A bootstrap sample may have no example of a small group; the difference is undefined there.
        low, high = np.nanpercentile(np.concatenate([part[name] for part in drawn]), [tail, 100 - tail])
        differences[name] = Difference(float(value), float(low), float(high), n)
    return differences


def _require_comparable(first: ExitTable, second: ExitTable, resamples: int) -> None:
    """Refuse tables of different splits, examples or frequency groups."""
    if first.split != second.split:
        raise RequestError(
            f"cannot compare the {first.split} split with the {second.split} split; evaluate both on one"
        )
    if first.examples == 0:
        raise RequestError(f"the {first.split} exit tables have no examples; evaluate a split that has some")
    if first.classes != second.classes or not np.array_equal(first.labels_N, second.labels_N):
        raise RequestError(
            f"the two runs ({first.examples} and {second.examples} examples) have different labels; "
            f"evaluate both on the same data in the same order"
        )
    if not np.array_equal(first.group_of_class, second.group_of_class):
        raise RequestError(
            "the two runs sort their classes into different frequency groups (other training counts or boundaries); "
            "compare runs trained on the same class counts"
        )
    if resamples < MIN_RESAMPLES:
        raise RequestError(f"{resamples} resamples give no usable interval; use {MIN_RESAMPLES} or more")


def _resample(
    count_C3: NDArray[np.int64], resamples: int, stratified: bool, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Counts of each kind in `resamples` bootstrap samples, in chunks of shape (R, C, 3)."""
    size_C = count_C3.sum(axis=1)
    # "Same" is the last kind: numpy's multinomial assigns the rounding error to the last one, where it has no effect.
    chunk = max(1, CHUNK_CELLS // count_C3.size)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        if stratified:
            yield rng.multinomial(size_C, count_C3 / size_C[:, None], size=(size, len(size_C)))
        else:
            flat = rng.multinomial(int(size_C.sum()), (count_C3.T / size_C.sum()).ravel(), size=size)
            yield flat.reshape(size, 3, -1).transpose(0, 2, 1)


def _statistics(count_RC3: NDArray[np.int64], group_C: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Each difference in each resample, shape (R,); NaN where there is nothing to divide by."""
    size_RC = count_RC3.sum(axis=2)
    gain_RC = count_RC3[..., 0] - count_RC3[..., 1]
    with np.errstate(invalid="ignore"):
        answer = {"all": gain_RC.sum(axis=1) / size_RC.sum(axis=1)}
        for index, name in enumerate(GROUP_NAMES):
            member_C = group_C == index
            answer[name] = gain_RC[:, member_C].sum(axis=1) / size_RC[:, member_C].sum(axis=1)
    answer["balanced"] = (gain_RC / np.maximum(size_RC, 1)).sum(axis=1) / (size_RC > 0).sum(axis=1)
    return answer
