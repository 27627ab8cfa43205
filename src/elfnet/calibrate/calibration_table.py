"""The exit table that operating points are fitted on: its requirements, and stratified splits of it."""

# Shapes: N examples, E exits

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable

ROUNDING = 1e-9
"""Costs and accuracies that differ by less than this count as equal, so that rounding excludes no point at a limit."""


def require_calibration(table: ExitTable) -> None:
    """Check that a table may be calibrated on.

    Raises:
        RequestError: the table is of the test split, or it has no examples.
    """
    if table.split == "test":
        raise RequestError(
            "calibrating on the test split is refused: accuracies measured there would no longer be test results; "
            "use the exit table of the calibration split"
        )
    if table.examples == 0:
        raise RequestError(
            f"the {table.split} exit table has no examples to calibrate on; hold out a larger calibration split"
        )


def require_budget(table: ExitTable, budget: float) -> None:
    """Check that a mean cost is possible.

    Raises:
        RequestError: the budget is below the cost of the first exit.
    """
    cheapest = float(table.cost_E[0])
    if not budget >= cheapest - ROUNDING:
        # Rounded up, so that the number in the message is itself a valid budget.
        least = math.ceil(cheapest * 1e4 - ROUNDING) / 1e4
        raise RequestError(
            f"budget {budget:g} is below the cheapest exit; give {least:g} or more (1 is the plain backbone)"
        )


def split_table(
    table: ExitTable, fraction: float, seed: int, *, strata_N: NDArray[np.int64] | None = None
) -> tuple[ExitTable, ExitTable]:
    """Split a table at random into a `fraction` of its examples and the rest, stratified by class.

    The size of each class in the first part differs from `fraction` times its size by less than one example. The
    rounding is random, and every example has the same probability to be in the first part. If small classes were always
    rounded to the same side, the two parts would have different class distributions.

    The betting bound of risk control is proven for independent examples. Stratification reduces the variance and should
    only help. Simulations, not a proof, show that the guarantees hold after it.

    Args:
        table: any table; both parts keep the order of its examples.
        fraction: share of the first part, between 0 and 1.
        seed: seed of the random split.
        strata_N: what to stratify by; the labels by default.

    Returns:
        The two parts, with the split name of `table`.
    """
    if not 0.0 < fraction < 1.0:
        raise RequestError(f"fraction={fraction!r} leaves one part empty; give a share between 0 and 1, such as 0.5")
    is_first_N = stratified_part(table.labels_N if strata_N is None else strata_N, fraction, seed)
    first, second = int(is_first_N.sum()), int((~is_first_N).sum())
    if not (first and second):
        raise RequestError(
            f"the {table.split} exit table with {table.examples} examples cannot be split at fraction={fraction:g} "
            f"into two parts that are not empty; hold out a larger calibration split"
        )
    return take_rows(table, np.flatnonzero(is_first_N)), take_rows(table, np.flatnonzero(~is_first_N))


def stratified_part(strata_N: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Mask of the examples of the first part, shape (N,); see `split_table`."""
    rng = np.random.default_rng(seed)
    examples = len(strata_N)
    shuffled_N = rng.permutation(examples)
    by_stratum_N = shuffled_N[np.argsort(strata_N[shuffled_N], kind="stable")]
    # Systematic sampling: walk along the strata in steps of `fraction` and take an example at every whole number.
    passed = np.floor(rng.random() + fraction * np.arange(examples + 1))
    is_first_N = np.zeros(examples, dtype=np.bool_)
    is_first_N[by_stratum_N] = np.diff(passed) > 0
    return is_first_N


def take_rows(table: ExitTable, rows: NDArray[np.int64]) -> ExitTable:
    """Return the table of some of the examples, in this order."""
    return replace(table, logits_NEC=np.asarray(table.logits_NEC[rows]), labels_N=table.labels_N[rows])
