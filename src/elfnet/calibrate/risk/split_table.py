"""The calibration split in two: one part to fit candidates on, the other to certify them."""

# Shapes: N examples

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable


def split_table(
    table: ExitTable, fraction: float, seed: int, *, strata_N: NDArray[np.int64] | None = None
) -> tuple[ExitTable, ExitTable]:
    """Two tables of the same split name: a `fraction` of the examples to fit on, and the rest to certify with.

    Stratified: each class gives `fraction` of its examples to the first part, up to one. Which way that rounds is drawn
    at random such that every example has the same chance; rounding small classes always to the same side would certify
    another mix of classes than the one promised.

    The betting bound is proven for examples drawn freely. Stratifying takes spread away and should only help; that the
    promises hold after it is shown by simulation, not by proof.

    Args:
        table: any table; the examples of both parts keep its order.
        fraction: share of the first part, between 0 and 1.
        seed: of the draw.
        strata_N: what to stratify by; the labels by default.
    """
    if not 0.0 < fraction < 1.0:
        raise RequestError(f"fraction={fraction!r} leaves one part empty; give a share between 0 and 1, such as 0.5")
    is_first_N = stratified_part(table.labels_N if strata_N is None else strata_N, fraction, seed)
    first, second = int(is_first_N.sum()), int((~is_first_N).sum())
    if not (first and second):
        raise RequestError(
            f"the {table.split} exit table with {table.examples} examples cannot be split at fraction={fraction:g} "
            f"into two parts that have some; hold out a larger calibration split"
        )
    return _take(table, np.flatnonzero(is_first_N)), _take(table, np.flatnonzero(~is_first_N))


def stratified_part(strata_N: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which examples belong to the first part, shape (N,); see `split_table`."""
    rng = np.random.default_rng(seed)
    examples = len(strata_N)
    shuffled_N = rng.permutation(examples)
    by_stratum_N = shuffled_N[np.argsort(strata_N[shuffled_N], kind="stable")]
    # Systematic sampling: walk along the strata in steps of `fraction` and take an example at every whole number.
    passed = np.floor(rng.random() + fraction * np.arange(examples + 1))
    is_first_N = np.zeros(examples, dtype=np.bool_)
    is_first_N[by_stratum_N] = np.diff(passed) > 0
    return is_first_N


def _take(table: ExitTable, rows: NDArray[np.int64]) -> ExitTable:
    return replace(table, logits_NEC=np.asarray(table.logits_NEC[rows]), labels_N=table.labels_N[rows])
