"""Logit adjustment for the training prior: whether it is used, and its strength tau at each exit.

Each tau maximises the balanced accuracy of its exit on the calibration split. Cross-validation on the same split
decides whether adjusted logits are used: plain logits are kept unless the adjusted ones are better by more than two
standard errors of the paired difference.
"""

# Shapes: N examples, E exits, C classes, T candidates for tau, B examples of one chunk

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import require_calibration, stratified_part
from elfnet.calibrate.confidence import MIN_EXAMPLES
from elfnet.calibrate.confidence_scale import MAX_LOGITS
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import CHUNK_BYTES
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.registry import unknown_name

ADJUST = ("auto", "on", "off")
STANDARD_ERRORS = 2.0
"""Adjusted logits are used if they are better by more than this number of standard errors."""


@dataclass(frozen=True)
class AdjustmentChoice:
    """The chosen logit adjustment and the reason for it.

    Attributes:
        adjustment: None for plain logits.
        why: the choice and the measurements behind it, in words; empty for `adjust="off"`.
    """

    adjustment: LogitAdjustment | None
    why: str


def choose_adjustment(
    table: ExitTable, *, adjust: str, taus: Sequence[float], loss_scale: float = 1.0, seed: int = 0
) -> AdjustmentChoice:
    """Choose between plain and adjusted logits, and fit the strength of the adjustment.

    Args:
        table: exit table of the calibration split; a table of the test split is refused.
        adjust: `off`, `on`, or `auto` (the one with the better balanced accuracy, averaged over the exits).
        taus: candidates for tau, for logits multiplied by `loss_scale`; 0 is always a candidate.
        loss_scale: factor of the logits in the training loss.
        seed: seed of the split into two halves for the cross-validation.

    Raises:
        RequestError: `adjust` is unknown, or `on` with a class that has no training example.
    """
    if adjust not in ADJUST:
        raise unknown_name("adjust", adjust, list(ADJUST))
    if adjust == "off":
        return AdjustmentChoice(None, "")
    require_calibration(table)
    if (table.class_counts_C <= 0).any():
        empty = table.class_names[int(np.argmin(table.class_counts_C))]
        if adjust == "on":
            raise RequestError(
                f"logits cannot be adjusted: class {empty!r} has no training example, so it has no prior; "
                "turn the adjustment off"
            )
        return AdjustmentChoice(None, f"plain logits: class {empty!r} has no training example, so it has no prior")
    fit = TauFit.of(table, taus, loss_scale)
    if adjust == "on":
        tau_E = fit.best(np.ones(len(fit.labels_N), dtype=np.bool_))
        return AdjustmentChoice(fit.adjustment(tau_E), f"adjusted, {_describe(fit, tau_E)}: as requested")
    if len(fit.labels_N) < MIN_EXAMPLES:
        return AdjustmentChoice(None, f"plain logits: {len(fit.labels_N)} examples are too few to compare")
    return _cross_validate(fit, seed)


@dataclass(frozen=True, eq=False)
class TauFit:
    """The examples that each candidate for tau predicts correctly at each exit; the first candidate is 0."""

    taus: tuple[float, ...]
    loss_scale: float
    log_prior_C: NDArray[np.float64]
    labels_N: NDArray[np.int64]
    right_TEN: NDArray[np.bool_]

    @classmethod
    def of(cls, table: ExitTable, taus: Sequence[float], loss_scale: float) -> "TauFit":
        counts_C = table.class_counts_C.astype(np.float64)
        log_prior_C = np.log(counts_C / counts_C.sum())
        candidates = tuple(sorted({0.0, *map(float, taus)}))
        # A subset of the examples, as for fitted scales: see MAX_LOGITS.
        rows_N = np.arange(table.examples)[:: max(1, -(-table.examples * table.classes // MAX_LOGITS))]
        labels_N = table.labels_N[rows_N]
        right_TEN = np.empty((len(candidates), table.exits, len(rows_N)), dtype=np.bool_)
        chunk = max(1, CHUNK_BYTES // (8 * table.classes))
        for start in range(0, len(rows_N), chunk):
            part = slice(start, start + chunk)
            for k in range(table.exits):
                logits_BC = np.asarray(table.logits_NEC[rows_N[part], k]).astype(np.float64)
                for t, tau in enumerate(candidates):
                    adjusted_BC = logits_BC - (tau / loss_scale) * log_prior_C
                    right_TEN[t, k, part] = adjusted_BC.argmax(axis=1) == labels_N[part]
        return cls(candidates, loss_scale, log_prior_C, labels_N, right_TEN)

    def best(self, chosen_N: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Index of the best candidate per exit on the chosen examples, shape (E,); of equals the smallest."""
        weight_N = _class_weights(self.labels_N[chosen_N])
        score_TE = self.right_TEN[:, :, chosen_N] @ weight_N
        # Sums of the same terms in another order differ in the last bits only.
        best_E: NDArray[np.int64] = np.argmax(score_TE >= score_TE.max(axis=0) - 1e-12, axis=0)
        return best_E

    def right(self, tau_E: NDArray[np.int64], chosen_N: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Share of the exits at which each of the chosen examples is correct."""
        right_EN = self.right_TEN[tau_E, np.arange(len(tau_E))]
        share_N: NDArray[np.float64] = right_EN[:, chosen_N].mean(axis=0)
        return share_N

    def adjustment(self, tau_E: NDArray[np.int64]) -> LogitAdjustment | None:
        """Return the adjustment with these candidates; None if tau is 0 at every exit."""
        if not tau_E.any():
            return None
        taus = tuple(self.taus[t] / self.loss_scale for t in tau_E)
        return LogitAdjustment(taus, tuple(self.log_prior_C.tolist()))

    def cross_validated(self, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Share of the exits at which each example is correct, with plain and with adjusted logits, shape (N,) each.

        Each half of the examples has the taus that were fitted on the other half.
        """
        first_N = stratified_part(self.labels_N, 0.5, seed)
        plain_E = np.zeros(self.right_TEN.shape[1], dtype=np.int64)
        plain_N, adjusted_N = np.empty(len(first_N)), np.empty(len(first_N))
        for fitting_N in (first_N, ~first_N):
            held_out_N = ~fitting_N
            plain_N[held_out_N] = self.right(plain_E, held_out_N)
            adjusted_N[held_out_N] = self.right(self.best(fitting_N), held_out_N)
        return plain_N, adjusted_N


@dataclass(frozen=True, eq=False)
class PairedComparison:
    """The balanced accuracy of two classifiers on the same examples.

    Attributes:
        first, second: balanced accuracy of each.
        error: standard error of their difference.
    """

    first: float
    second: float
    error: float

    @classmethod
    def of(
        cls, right_first_N: NDArray[np.float64], right_second_N: NDArray[np.float64], labels_N: NDArray[np.int64]
    ) -> "PairedComparison":
        """Compare how right two classifiers are on each example."""
        weight_N = _class_weights(labels_N)
        gain_N = right_second_N - right_first_N
        error = float(np.sqrt(np.square(weight_N * (gain_N - weight_N @ gain_N)).sum()))
        return cls(float(weight_N @ right_first_N), float(weight_N @ right_second_N), error)

    @property
    def second_is_better(self) -> bool:
        """Whether the second is better by more than `STANDARD_ERRORS`."""
        return self.second - self.first > STANDARD_ERRORS * self.error

    def describe(self, first: str, second: str) -> str:
        """The measurements in words, with names for the two."""
        return (
            f"cross-validated balanced accuracy, mean over exits: {first} {100 * self.first:.2f} %, {second} "
            f"{100 * self.second:.2f} %, difference {100 * (self.second - self.first):+.2f} with a standard error of "
            f"{100 * self.error:.2f}"
        )


def _cross_validate(fit: TauFit, seed: int) -> AdjustmentChoice:
    """Compare plain and adjusted logits on examples that the taus were not fitted on."""
    compared = PairedComparison.of(*fit.cross_validated(seed), fit.labels_N)
    measured = compared.describe("plain", "adjusted")
    tau_E = fit.best(np.ones(len(fit.labels_N), dtype=np.bool_))
    if compared.second_is_better and tau_E.any():
        return AdjustmentChoice(fit.adjustment(tau_E), f"adjusted, {_describe(fit, tau_E)} ({measured})")
    return AdjustmentChoice(None, f"plain logits ({measured})")


def _class_weights(labels_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights of the examples, shape (N,): they sum to 1, and all classes with examples have the same total."""
    size_C = np.bincount(labels_N)
    weights_N: NDArray[np.float64] = 1.0 / (size_C[labels_N] * np.count_nonzero(size_C))
    return weights_N


def _describe(fit: TauFit, tau_E: NDArray[np.int64]) -> str:
    text = f"tau by exit {', '.join(f'{fit.taus[t]:g}' for t in tau_E)}"
    largest = len(fit.taus) - 1
    return f"{text} (the largest candidate was chosen; refit.taus may end too early)" if largest in tau_E else text
