"""What early exit costs in answers: the loss of every example against full depth.

`accuracy`: (full depth right) - (early answer right), in {-1, 0, 1}. Its mean is the accuracy that a policy loses,
which is what users ask about; where leaving early is *better* it is negative. Two forms bound this mean:

- `signed`: the loss itself, rescaled from [-1, 1] to [0, 1]. Examples that early exit gains pay for those it loses.
- `clipped`: max(loss, 0), whose mean is never below the signed one: a bound on it is a bound on the accuracy lost.

Betting uses the signed form: for the same stake every factor of the capital is at least as large as for the clipped
form, so the bound is tighter and nothing is given away. Hoeffding-Bentkus uses the clipped one: it sees only the range
and the mean, and in [0, 1] a loss that is nearly always "no change" would sit at 1/2, where that bound is widest.

`agreement`: whether the early answer differs from the full-depth one, in {0, 1}. It needs no labels, and its mean is
never below the accuracy lost.
"""

# Shapes: P candidates, N examples, E exits
# Shapes: N examples

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import GROUP_NAMES
from elfnet.evaluate.confidence import CHUNK_BYTES, ExitConfidences
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.replay import confidences_for_policy, replay
from elfnet.exits.policy import ConfidenceSpec, Policy

LOSSES = ("accuracy", "agreement")


@dataclass(frozen=True)
class LossForm:
    """A loss in [low, 1] and its way to [0, 1], which keeps order and means.

    Attributes:
        name: `signed`, `clipped` or `agreement`.
        low: the smallest value.
    """

    name: str
    low: float

    def to_unit(self, loss: float) -> float:
        return (loss - self.low) / (1.0 - self.low)

    def from_unit(self, unit: float) -> float:
        return self.low + unit * (1.0 - self.low)

    def unit_losses(self, loss_PN: NDArray[np.int8]) -> NDArray[np.float64]:
        """The losses of `outcomes_of`, in this form and rescaled to [0, 1]."""
        clipped_PN = np.maximum(loss_PN, self.low)
        unit_PN: NDArray[np.float64] = (clipped_PN - self.low) / (1.0 - self.low)
        return unit_PN


def loss_form(loss: str, *, prefers_signed: bool) -> LossForm:
    """The form in which a method bounds this loss."""
    if loss == "agreement":
        return LossForm("agreement", 0.0)
    return LossForm("signed", -1.0) if prefers_signed else LossForm("clipped", 0.0)


class Outcomes(NamedTuple):
    """What P policies do with N examples: the loss of each example, and the mean cost of each policy."""

    loss_PN: NDArray[np.int8]
    mean_cost_P: NDArray[np.float64]


def outcomes_of(table: ExitTable, policies: Sequence[Policy], loss: str) -> Outcomes:
    """Losses in {-1, 0, 1} for `accuracy`, {0, 1} for `agreement`; policies may differ in their confidence scales.

    Full depth is the last exit on its own, also for a policy that combines exits. Its logits are adjusted as the table
    says.
    """
    by_scale: dict[ConfidenceSpec, ExitConfidences] = {}
    full_N = full_depth_answer(table)
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
        mean_cost_P[p] = replayed.cost_N.mean()
    return Outcomes(loss_PN, mean_cost_P)


def full_depth_answer(table: ExitTable) -> NDArray[np.int64]:
    """The answer of the last exit, shape (N,)."""
    answer_N = np.empty(table.examples, dtype=np.int64)
    chunk = max(1, CHUNK_BYTES // (8 * table.classes))
    for start in range(0, table.examples, chunk):
        rows = slice(start, start + chunk)
        answer_N[rows] = table.logits_at(table.exits - 1, rows).argmax(axis=1)
    return answer_N


GROUPINGS = ("none", "true", "predicted")


def members_by_group(table: ExitTable, groups: str) -> dict[str, NDArray[np.bool_]]:
    """Who belongs to each group, shape (N,); a frequency group without classes is left out.

    `none` is one group, `all`; `true` goes by the frequency group of the label, `predicted` by that of the full-depth
    answer, which needs no labels.
    """
    if groups == "none":
        return {"all": np.ones(table.examples, dtype=np.bool_)}
    class_N = table.labels_N if groups == "true" else full_depth_answer(table)
    group_C = table.group_of_class
    group_N = group_C[class_N]
    return {name: group_N == g for g, name in enumerate(GROUP_NAMES) if (group_C == g).any()}
