"""What it costs to leave at each exit under a policy: a head that nobody can leave at is not run, and not paid for."""

# Shapes: E exits

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elfnet.exits.policy import Policy


def cost_to_exit(
    cost_E: Sequence[float] | NDArray[np.float64],
    head_cost_E: Sequence[float] | NDArray[np.float64] | None,
    policy: Policy,
) -> NDArray[np.float64]:
    """Cost up to and including each exit, shape (E,).

    Args:
        cost_E: the same with all heads run.
        head_cost_E: of each head alone; None where it is not known, and then nothing is taken off.
        policy: says which heads are run.
    """
    all_heads_E = np.asarray(cost_E, dtype=np.float64)
    if head_cost_E is None:
        return all_heads_E
    skipped_E = np.array([not policy.runs_head(k) for k in range(policy.exits)])
    saved_E: NDArray[np.float64] = np.cumsum(np.where(skipped_E, head_cost_E, 0.0))
    return all_heads_E - saved_E
