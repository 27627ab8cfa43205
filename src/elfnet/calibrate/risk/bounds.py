"""P-values, upper confidence bounds and sample sizes for the mean of losses in [0, 1]: betting, Hoeffding-Bentkus.

Betting (Waudby-Smith and Ramdas 2024). To test whether the mean is below m, start with capital 1 and bet on each loss
z_i in turn:

    K_t(m) = prod_{i <= t} (1 + l_i (m - z_i)),   l_i = min( sqrt(2 log(1/delta) / (n s_{i-1})), c / (1 - m) )

where s_{i-1} is the variance of the losses before i (with one prior observation at 1/2, of variance 1/4). If the mean
is m or more, the capital is a nonnegative supermartingale, so it ever reaches 1/delta with probability at most delta
(Ville's inequality): 1 / max_t K_t(m) is a p-value. K_t(m) grows with m, so the rejected limits reach from the bound
to 1. The stakes adapt to the variance of the losses, which is small if early exit rarely changes the prediction. The
losses must be in random order, since they are read one by one and a table may be sorted by class.

Hoeffding-Bentkus (Bates et al. 2021). With n losses of mean a, the p-value of "the mean is above m" is the smaller of
exp(-n kl(a, m)) and e P(Binomial(n, m) <= ceil(n a)). It only depends on the mean of the losses.
"""

# Shapes: P candidates, N examples, U distinct sums of losses

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.risk.losses import LossForm
from elfnet.errors import RequestError
from elfnet.registry import Registry

HALVINGS = 26
"""Steps of the bisection for bounds: they are exact to 2 ** -26 and never too small."""

LARGEST_STAKE = 0.75
"""c: the share of the capital that one loss of 1 can take. It is below 1, so that the capital never becomes 0."""


def smallest_rejected(
    rejected: Callable[[NDArray[np.float64]], NDArray[np.bool_]], candidates: int
) -> NDArray[np.float64]:
    """Return the smallest limit in [0, 1] at which "the mean is above the limit" is rejected, shape (P,); 1 if none is.

    The test must be monotone: if it rejects a limit, it rejects every larger one.

    Args:
        rejected: maps one limit per candidate, shape (P,), to whether the test rejects it, shape (P,).
        candidates: P, the number of candidates.
    """
    low_P, high_P = np.zeros(candidates), np.ones(candidates)
    for _ in range(HALVINGS):
        middle_P = (low_P + high_P) / 2
        is_rejected_P = rejected(middle_P)
        high_P = np.where(is_rejected_P, middle_P, high_P)
        low_P = np.where(is_rejected_P, low_P, middle_P)
    return high_P


def betting_p_values(loss_PN: NDArray[np.float64], limit: float, delta: float) -> NDArray[np.float64]:
    """Return the betting p-value of "the mean loss is above `limit`" for each candidate, shape (P,).

    It is valid for every `delta`; the stakes are optimised for a test at this level.
    """
    limit_P = np.full(len(loss_PN), limit)
    p_P: NDArray[np.float64] = np.exp(-_log_largest_capital(loss_PN, _stakes(loss_PN, delta), limit_P))
    return p_P


def betting_upper_bounds(loss_PN: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """Return upper bounds on the mean losses that hold with probability 1 - delta each, by betting; shape (P,)."""
    stake_PN = _stakes(loss_PN, delta)
    enough = math.log(1.0 / delta)
    return smallest_rejected(
        lambda limit_P: _log_largest_capital(loss_PN, stake_PN, limit_P) >= enough, candidates=len(loss_PN)
    )


def _stakes(loss_PN: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """l_i before its cap, shape (P, N); each entry depends only on the losses before it."""
    examples = loss_PN.shape[1]
    seen_N = np.arange(2, examples + 2)  # the losses so far and the prior observation
    mean_PN = (0.5 + np.cumsum(loss_PN, axis=1)) / seen_N
    variance_PN = (0.25 + np.cumsum((loss_PN - mean_PN) ** 2, axis=1)) / seen_N
    before_PN = np.empty_like(variance_PN)
    before_PN[:, 0] = 0.25
    before_PN[:, 1:] = variance_PN[:, :-1]
    stake_PN: NDArray[np.float64] = np.sqrt(2.0 * math.log(1.0 / delta) / (examples * before_PN))
    return stake_PN


def _log_largest_capital(
    loss_PN: NDArray[np.float64], stake_PN: NDArray[np.float64], limit_P: NDArray[np.float64]
) -> NDArray[np.float64]:
    """log max_t K_t, shape (P,); at least 0, the value of the starting capital."""
    cap_P1 = LARGEST_STAKE / np.maximum(1.0 - limit_P, np.finfo(np.float64).tiny)[:, None]
    gain_PN = np.minimum(stake_PN, cap_P1)
    gain_PN *= limit_P[:, None] - loss_PN
    np.log1p(gain_PN, out=gain_PN)
    np.cumsum(gain_PN, axis=1, out=gain_PN)
    largest_P: NDArray[np.float64] = np.maximum(gain_PN.max(axis=1), 0.0)
    return largest_P


def hoeffding_bentkus_p_values(loss_PN: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """Return the Hoeffding-Bentkus p-value of "the mean loss is above `limit`" for each candidate, shape (P,)."""
    total_P, examples = loss_PN.sum(axis=1), loss_PN.shape[1]
    log_factorial = _log_factorials(examples)
    return np.array([math.exp(_log_p(float(total), examples, limit, log_factorial)) for total in total_P])


def hoeffding_bentkus_upper_bounds(loss_PN: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """Return upper bounds on the mean losses that hold with probability 1 - delta each, shape (P,)."""
    examples = loss_PN.shape[1]
    log_factorial = _log_factorials(examples)
    # The bound depends on the sum of losses only, and neighbouring candidates often have the same sum.
    total_U, where_P = np.unique(loss_PN.sum(axis=1), return_inverse=True)

    def rejected(limit_U: NDArray[np.float64]) -> NDArray[np.bool_]:
        pairs = zip(total_U.tolist(), limit_U.tolist(), strict=True)
        log_p_U = np.array([_log_p(total, examples, limit, log_factorial) for total, limit in pairs])
        return log_p_U <= math.log(delta)

    return smallest_rejected(rejected, len(total_U))[where_P]


def _log_p(total: float, examples: int, limit: float, log_factorial: NDArray[np.float64]) -> float:
    if limit >= 1.0:  # no loss is above 1
        return -math.inf
    mean = min(total / examples, limit)
    hoeffding = -examples * _relative_entropy(mean, limit)
    count = min(examples, math.ceil(total))
    bentkus = 1.0 + _log_binomial_cdf(count, examples, limit, log_factorial)
    return min(0.0, hoeffding, bentkus)


def _relative_entropy(mean: float, limit: float) -> float:
    """kl(a, b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b)), for 0 <= a <= b < 1; 0 log 0 is 0."""
    first = mean * math.log(mean / limit) if mean > 0.0 else 0.0
    return first + (1.0 - mean) * (math.log1p(-mean) - math.log1p(-limit))


def _log_binomial_cdf(count: int, examples: int, chance: float, log_factorial: NDArray[np.float64]) -> float:
    """log P(Binomial(n, chance) <= count), summed in log space over count + 1 terms."""
    k = np.arange(count + 1)
    log_choose = log_factorial[examples] - log_factorial[k] - log_factorial[examples - k]
    terms = log_choose + k * math.log(chance) + (examples - k) * math.log1p(-chance)
    largest = float(terms.max())
    return min(0.0, largest + math.log(float(np.exp(terms - largest).sum())))


def _log_factorials(examples: int) -> NDArray[np.float64]:
    """log k! for k = 0..N."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, examples + 1)))])


@dataclass(frozen=True)
class Method:
    """Tests and bounds for the mean of losses in [0, 1]; time and memory are linear in P x N.

    Attributes:
        p_values: (loss_PN, limit, delta) -> p-values of "the mean is above limit", shape (P,).
        upper_bounds: (loss_PN, delta) -> upper bounds at level delta, shape (P,).
        prefers_signed: whether the signed form of the accuracy loss gives the tighter bound (see `losses`).
    """

    p_values: Callable[[NDArray[np.float64], float, float], NDArray[np.float64]]
    upper_bounds: Callable[[NDArray[np.float64], float], NDArray[np.float64]]
    prefers_signed: bool


METHODS: Registry[Method] = Registry("risk control method")
METHODS.register("betting")(Method(betting_p_values, betting_upper_bounds, prefers_signed=True))
METHODS.register("hoeffding-bentkus")(
    Method(
        lambda loss_PN, limit, _delta: hoeffding_bentkus_p_values(loss_PN, limit),
        hoeffding_bentkus_upper_bounds,
        prefers_signed=False,
    )
)


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
