"""The Hoeffding-Bentkus p-value and bound for the mean of losses in [0, 1].

For n independent losses with sample mean r and a true mean above m (Bates et al. 2021, Angelopoulos et al. 2021),

    p = min( exp(-n kl(min(r, m), m)),  e P(Binomial(n, m) <= ceil(n r)) )

is at most u with probability at most u. The first part is Hoeffding's in its relative-entropy form, the second
Bentkus's. Both need only the sum of the losses, and hold where the losses are independent but not alike, such as in a
sample with a fixed number of examples per class.
"""

# Shapes: P candidates, N examples

import math

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.risk.bisection import smallest_rejected


def p_values(loss_PN: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """The p-value of "the mean loss is above `limit`" for each candidate, shape (P,)."""
    total_P, examples = loss_PN.sum(axis=1), loss_PN.shape[1]
    log_factorial = _log_factorials(examples)
    return np.array([math.exp(_log_p(float(total), examples, limit, log_factorial)) for total in total_P])


def upper_bounds(loss_PN: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """The smallest limit whose p-value is at most `delta`, shape (P,): above the mean with probability 1 - delta."""
    examples = loss_PN.shape[1]
    log_factorial = _log_factorials(examples)
    # Candidates next to each other often have the same sum of losses, and the bound depends on nothing else.
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
    """kl(a, b) = a log(a / b) + (1 - a) log((1 - a) / (1 - b)) of two coins, for 0 <= a <= b < 1; 0 log 0 is 0."""
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
