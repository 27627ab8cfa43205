"""Sample size of risk control: the smallest number of examples that can certify a guarantee."""

# Shapes: N examples

import math

import numpy as np

from elfnet.calibrate.risk.bounds import Method
from elfnet.calibrate.risk.losses import LossForm
from elfnet.errors import RequestError

MAX_SEARCH = 2**22
"""Largest number of examples that the search tries; more take too much memory."""


class TooFewExamplesError(RequestError):
    """The examples are too few to certify a guarantee for any policy.

    Attributes:
        epsilon: the risk of the guarantee.
    """

    def __init__(self, message: str, *, epsilon: float) -> None:
        super().__init__(message)
        self.epsilon = epsilon


def enough_examples(examples: int, *, epsilon: float, delta: float, method: Method, form: LossForm) -> bool:
    """Whether a policy without any loss on this many examples would be certified."""
    if examples < 1:
        return False
    no_loss_1N = form.unit_losses(np.zeros((1, examples), dtype=np.int8))
    return bool(method.p_values(no_loss_1N, form.to_unit(epsilon), delta)[0] <= delta)


def fewest_examples(*, epsilon: float, delta: float, method: Method, form: LossForm) -> int:
    """Return the smallest number of examples at which a policy without any loss is certified.

    No method needs fewer than log(delta) / log(1 - epsilon): with fewer examples, a policy that has a loss of 1 with
    probability epsilon shows none of them with a probability above delta. If this lower bound is above `MAX_SEARCH`,
    it is returned itself.
    """
    least = max(1, math.ceil(math.log(delta) / math.log1p(-epsilon) - 1e-9))
    if least > MAX_SEARCH:
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
