"""How many examples a promise needs at the least."""

# Shapes: N examples

import math

import numpy as np

from elfnet.calibrate.risk.bounds import Method
from elfnet.calibrate.risk.losses import LossForm
from elfnet.errors import RequestError

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
