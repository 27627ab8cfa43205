"""Losses of risk control: the loss of every example against full depth, and the groups that a guarantee holds for.

`accuracy`: (full depth correct) - (policy correct), in {-1, 0, 1}. Its mean is the accuracy that a policy loses. It is
negative if early exit is *better*. Two forms bound this mean:

- `signed`: the loss itself, rescaled from [-1, 1] to [0, 1]. Gains of early exit offset its losses.
- `clipped`: max(loss, 0). Its mean is never below the signed one, so a bound on it also bounds the accuracy lost.

Betting uses the signed form: for the same stake every factor of the capital is at least as large as with the clipped
form, so the bound is tighter. Hoeffding-Bentkus uses the clipped form: it only depends on the mean, and a signed loss
that is mostly 0 has a rescaled mean near 1/2, where that bound is widest.

`agreement`: whether the prediction differs from that of full depth, in {0, 1}. It needs no labels, and its mean is
never below the accuracy lost.
"""

# Shapes: P policies, N examples, C classes

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import CHUNK_BYTES, ExitConfidences, confidences_for_policy, replay
from elfnet.exits.policy import ConfidenceSpec, Policy

LOSSES = ("accuracy", "agreement")
GROUPINGS = ("none", "true", "predicted")


@dataclass(frozen=True)
class LossForm:
    """The form of a loss with values in [low, 1], and its linear map to [0, 1].

    Attributes:
        name: `signed`, `clipped` or `agreement`.
        low: the smallest value of the loss.
    """

    name: str
    low: float

    def to_unit(self, loss: float) -> float:
        return (loss - self.low) / (1.0 - self.low)

    def from_unit(self, unit: float) -> float:
        return self.low + unit * (1.0 - self.low)

    def unit_losses(self, loss_PN: NDArray[Any]) -> NDArray[np.float64]:
        """Return the losses of `outcomes_of` in this form, rescaled to [0, 1]."""
        clipped_PN = np.maximum(loss_PN, self.low)
        unit_PN: NDArray[np.float64] = (clipped_PN - self.low) / (1.0 - self.low)
        return unit_PN


def loss_form(loss: str, *, prefers_signed: bool) -> LossForm:
    """Return the form in which a method bounds this loss."""
    if loss == "agreement":
        return LossForm("agreement", 0.0)
    return LossForm("signed", -1.0) if prefers_signed else LossForm("clipped", 0.0)


class Outcomes(NamedTuple):
    """Loss of each example under P policies, and mean cost of each policy."""

    loss_PN: NDArray[np.int8]
    mean_cost_P: NDArray[np.float64]


def outcomes_of(table: ExitTable, policies: Sequence[Policy], loss: str) -> Outcomes:
    """Replay policies on a table and return their losses against full depth and their mean costs.

    Losses are in {-1, 0, 1} for `accuracy` and in {0, 1} for `agreement`. Full depth is the last exit alone, even for a
    policy that combines exits. Its logits have the adjustment of the table.

    Args:
        table: the examples.
        policies: they may differ in their confidence scales.
        loss: one of `LOSSES`.
    """
    by_scale: dict[ConfidenceSpec, ExitConfidences] = {}
    full_N = full_depth_prediction(table)
    loss_PN = np.empty((len(policies), table.examples), dtype=np.int8)
    mean_cost_P = np.empty(len(policies), dtype=np.float64)
    for p, policy in enumerate(policies):
        key = policy.reading
        if key not in by_scale:
            by_scale[key] = confidences_for_policy(table, policy)
        replayed = replay(by_scale[key], policy)
        early_N = replayed.prediction_N
        if loss == "agreement":
            loss_PN[p] = early_N != full_N
        else:
            loss_PN[p] = (full_N == table.labels_N).astype(np.int8) - (early_N == table.labels_N)
        mean_cost_P[p] = np.average(replayed.cost_N, weights=table.example_weights())
    return Outcomes(loss_PN, mean_cost_P)


def full_depth_prediction(table: ExitTable) -> NDArray[np.int64]:
    """Return the class predicted by the last exit, shape (N,)."""
    prediction_N = np.empty(table.examples, dtype=np.int64)
    chunk = max(1, CHUNK_BYTES // (8 * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        prediction_N[rows] = table.logits_at(table.exits - 1, rows).argmax(axis=1)
    return prediction_N


def members_by_group(table: ExitTable, groups: str) -> dict[str, NDArray[np.bool_]]:
    """Return the mask of the examples of each group, shape (N,), by the name of the group.

    Args:
        table: the examples.
        groups: `none` for one group `all`; `true` for frequency groups by label; `predicted` for frequency groups by
            the prediction of full depth, which needs no labels. Frequency groups without classes are omitted.
    """
    if groups == "none":
        return {"all": np.ones(table.examples, dtype=np.bool_)}
    class_N = table.labels_N if groups == "true" else full_depth_prediction(table)
    group_C = table.group_of_class
    group_N = group_C[class_N]
    return {name: group_N == g for g, name in enumerate(GROUP_NAMES) if (group_C == g).any()}
