"""How many examples a promise needs at the least."""

# Shapes: N examples

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.risk.bounds import Method
from elfnet.calibrate.risk.losses import LossForm
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable

LARGEST_SEARCH = 2**22


class TooFewExamplesError(RequestError):
    """A promise that these examples cannot certify, whatever the policy."""

    def __init__(self, message: str, *, epsilon: float) -> None:
        super().__init__(message)
        self.epsilon = epsilon


def enough_examples(examples: int, *, epsilon: float, delta: float, method: Method, form: LossForm) -> bool:
    """Whether a policy that changes no answer of this many examples would be certified."""
    if examples < 1:
        return False
    no_loss_1N = form.unit_losses(np.zeros((1, examples), dtype=np.int8))
    return bool(method.p_values(no_loss_1N, form.to_unit(epsilon), delta)[0] <= delta)


def fewest_examples(*, epsilon: float, delta: float, method: Method, form: LossForm) -> int:
    """The smallest number of examples at which a policy that changes no answer is certified.

    No method needs fewer than log(delta) / log(1 - epsilon), which is how rarely losses of 1 could have stayed unseen.
    Beyond four million examples this number itself is the answer: nobody has so many, and trying them takes memory.
    """
    least = max(1, math.ceil(math.log(delta) / math.log1p(-epsilon) - 1e-9))
    if least > LARGEST_SEARCH:
        return least

    def enough(examples: int) -> bool:
        return enough_examples(examples, epsilon=epsilon, delta=delta, method=method, form=form)

    high = least
    while not enough(high):
        high *= 2
    low = least - 1
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


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
