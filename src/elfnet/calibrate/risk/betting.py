"""The betting p-value and bound for the mean of losses in [0, 1] (Waudby-Smith and Ramdas 2024).

A gambler who believes that the mean is below m starts with capital 1 and stakes on every loss z_i in turn:

    K_t(m) = prod_{i <= t} (1 + l_i (m - z_i)),   l_i = min( sqrt(2 log(1/delta) / (n s_{i-1})), c / (1 - m) )

where s_{i-1} is the variance of the losses before i (with one pretended observation at 1/2, variance 1/4). If the mean
is m or more, the capital is a nonnegative supermartingale, so it ever reaches 1/delta with probability at most delta
(Ville): 1 / max_t K_t(m) is a p-value. K_t(m) grows with m, so the limits that are rejected reach from the bound to 1.
The stakes fit themselves to the variance of the losses, which is small where early exit rarely changes anything.

The losses must come in random order: the gambler sees them one by one, and a table may be sorted by class.
"""

# Shapes: P candidates, N examples

import math

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.risk.bisection import smallest_rejected

LARGEST_STAKE = 0.75
"""c: the share of the capital that one loss of 1 can take. Below 1, so that the capital never becomes 0."""


def p_values(loss_PN: NDArray[np.float64], limit: float, delta: float) -> NDArray[np.float64]:
    """The p-value of "the mean loss is above `limit`" for each candidate, shape (P,).

    It is valid whatever `delta` is; the stakes are chosen to reach exactly this level soon.
    """
    limit_P = np.full(len(loss_PN), limit)
    p_P: NDArray[np.float64] = np.exp(-_log_largest_capital(loss_PN, _stakes(loss_PN, delta), limit_P))
    return p_P


def upper_bounds(loss_PN: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """The smallest limit whose p-value is at most `delta`, shape (P,): above the mean with probability 1 - delta."""
    stake_PN = _stakes(loss_PN, delta)
    enough = math.log(1.0 / delta)
    return smallest_rejected(
        lambda limit_P: _log_largest_capital(loss_PN, stake_PN, limit_P) >= enough, candidates=len(loss_PN)
    )


def _stakes(loss_PN: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """l_i before its cap, shape (P, N); row entries depend on the losses before them only."""
    examples = loss_PN.shape[1]
    seen_N = np.arange(2, examples + 2)  # the losses so far and the pretended one
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
    """log max_t K_t, at least that of the starting capital: 0."""
    cap_P1 = LARGEST_STAKE / np.maximum(1.0 - limit_P, np.finfo(np.float64).tiny)[:, None]
    gain_PN = np.minimum(stake_PN, cap_P1)
    gain_PN *= limit_P[:, None] - loss_PN
    np.log1p(gain_PN, out=gain_PN)
    np.cumsum(gain_PN, axis=1, out=gain_PN)
    largest_P: NDArray[np.float64] = np.maximum(gain_PN.max(axis=1), 0.0)
    return largest_P
