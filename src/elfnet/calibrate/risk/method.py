"""The two ways to bound a mean from finitely many losses, under one interface."""

# Shapes: P candidates, N examples

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.risk import betting, hoeffding_bentkus
from elfnet.registry import Registry


@dataclass(frozen=True)
class Method:
    """Tests and bounds for the mean of losses in [0, 1]; time and memory grow linearly with P x N.

    Attributes:
        p_values: (loss_PN, limit, delta) -> p-values of "the mean is above limit", shape (P,).
        upper_bounds: (loss_PN, delta) -> the smallest limits rejected at level delta, shape (P,).
        prefers_signed: whether the signed form of the accuracy loss gives the tighter promise (see `losses`).
    """

    p_values: Callable[[NDArray[np.float64], float, float], NDArray[np.float64]]
    upper_bounds: Callable[[NDArray[np.float64], float], NDArray[np.float64]]
    prefers_signed: bool


METHODS: Registry[Method] = Registry("risk control method")
METHODS.register("betting")(Method(betting.p_values, betting.upper_bounds, prefers_signed=True))
METHODS.register("hoeffding-bentkus")(
    Method(
        lambda loss_PN, limit, _delta: hoeffding_bentkus.p_values(loss_PN, limit),
        hoeffding_bentkus.upper_bounds,
        prefers_signed=False,
    )
)
