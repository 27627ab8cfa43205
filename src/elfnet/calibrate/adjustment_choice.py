"""Whether logits are adjusted for the training prior, and how strongly at each exit.

The taus are fitted on the calibration split, by the balanced accuracy of each exit. Whether the adjusted logits are
used is decided there, too, by cross-validation: the plain logits stay unless the adjusted ones are better by more than
two standard errors of the paired difference.
"""

# Shapes: N examples, E exits, C classes, T candidates for tau, B examples of one chunk

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elfnet.calibrate.calibration_table import require_calibration, stratified_part
from elfnet.calibrate.confidence import MAX_LOGITS
from elfnet.errors import RequestError
from elfnet.evaluate.confidence import CHUNK_BYTES
from elfnet.evaluate.exit_table import ExitTable
from elfnet.exits.logit_adjustment import LogitAdjustment
from elfnet.registry import unknown_name

ADJUST = ("auto", "on", "off")
FEWEST_EXAMPLES = 50
"""With fewer examples than this the plain logits are used without a comparison."""
STANDARD_ERRORS = 2.0
"""How many standard errors better the adjusted logits have to be."""


@dataclass(frozen=True)
class AdjustmentChoice:
    """What was chosen.

    Attributes:
        adjustment: None for the plain logits.
        why: the choice in words, with what was measured; empty where nothing was asked for.
    """

    adjustment: LogitAdjustment | None
    why: str


def choose_adjustment(
    table: ExitTable, *, adjust: str, taus: Sequence[float], loss_scale: float = 1.0, seed: int = 0
) -> AdjustmentChoice:
    """The plain logits or the adjusted ones.

    Args:
        table: of the calibration split; a table of the test split is refused.
        adjust: `off`, `on`, or `auto`: what has the better balanced accuracy, as a mean over the exits.
        taus: candidates, for logits times `loss_scale`; 0 is always one of them.
        loss_scale: what the training loss multiplied logits by.
        seed: of the two halves of the cross-validation.

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
                f"logits cannot be adjusted: class {empty!r} has no training example, so it has no prior; choose off"
            )
        return AdjustmentChoice(None, f"plain logits: class {empty!r} has no training example, so it has no prior")
    fit = _TauFit.of(table, taus, loss_scale)
    if adjust == "on":
        tau_E = fit.best(np.ones(len(fit.labels_N), dtype=np.bool_))
        return AdjustmentChoice(fit.adjustment(tau_E), f"adjusted, {_words(fit, tau_E)}: as asked")
    if len(fit.labels_N) < FEWEST_EXAMPLES:
        return AdjustmentChoice(None, f"plain logits: {len(fit.labels_N)} examples are too few to compare")
    return _better(fit, seed)


@dataclass(frozen=True, eq=False)
class _TauFit:
    """Which examples each candidate answers right at each exit; the first candidate is 0."""

    taus: tuple[float, ...]
    loss_scale: float
    log_prior_C: NDArray[np.float64]
    labels_N: NDArray[np.int64]
    right_TEN: NDArray[np.bool_]

    @classmethod
    def of(cls, table: ExitTable, taus: Sequence[float], loss_scale: float) -> "_TauFit":
        counts_C = table.class_counts_C.astype(np.float64)
        log_prior_C = np.log(counts_C / counts_C.sum())
        candidates = tuple(sorted({0.0, *map(float, taus)}))
        # As for the scales: a few numbers need no more, and with thousands of classes more takes minutes.
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
        """Position of the best candidate of each exit, shape (E,), by the examples chosen; of equals the smallest."""
        weight_N = _class_weights(self.labels_N[chosen_N])
        score_TE = self.right_TEN[:, :, chosen_N] @ weight_N
        # The same right answers added up in another order differ in the last bits only.
        best_E: NDArray[np.int64] = np.argmax(score_TE >= score_TE.max(axis=0) - 1e-12, axis=0)
        return best_E

    def right(self, tau_E: NDArray[np.int64], chosen_N: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Share of the exits at which each of the chosen examples is answered right."""
        right_EN = self.right_TEN[tau_E, np.arange(len(tau_E))]
        share_N: NDArray[np.float64] = right_EN[:, chosen_N].mean(axis=0)
        return share_N

    def adjustment(self, tau_E: NDArray[np.int64]) -> LogitAdjustment | None:
        """None where every exit keeps its logits."""
        if not tau_E.any():
            return None
        taus = tuple(self.taus[t] / self.loss_scale for t in tau_E)
        return LogitAdjustment(taus, tuple(self.log_prior_C.tolist()))


def _better(fit: _TauFit, seed: int) -> AdjustmentChoice:
    first_N = stratified_part(fit.labels_N, 0.5, seed)
    plain_E = np.zeros(fit.right_TEN.shape[1], dtype=np.int64)
    plain_N, adjusted_N = np.empty(len(first_N)), np.empty(len(first_N))
    for fitting_N in (first_N, ~first_N):
        judged_N = ~fitting_N
        plain_N[judged_N] = fit.right(plain_E, judged_N)
        adjusted_N[judged_N] = fit.right(fit.best(fitting_N), judged_N)
    weight_N = _class_weights(fit.labels_N)
    gain_N = adjusted_N - plain_N
    gain = float(weight_N @ gain_N)
    error = float(np.sqrt(np.square(weight_N * (gain_N - gain)).sum()))
    tau_E = fit.best(np.ones(len(first_N), dtype=np.bool_))
    measured = (
        f"cross-validated balanced accuracy, mean over exits: plain {100 * float(weight_N @ plain_N):.2f} %, adjusted "
        f"{100 * float(weight_N @ adjusted_N):.2f} %, difference {100 * gain:+.2f} with a standard error of "
        f"{100 * error:.2f}"
    )
    if gain > STANDARD_ERRORS * error and tau_E.any():
        return AdjustmentChoice(fit.adjustment(tau_E), f"adjusted, {_words(fit, tau_E)} ({measured})")
    return AdjustmentChoice(None, f"plain logits ({measured})")


def _class_weights(labels_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights that sum to 1 and give every class that has examples the same share, shape (N,)."""
    size_C = np.bincount(labels_N)
    weights_N: NDArray[np.float64] = 1.0 / (size_C[labels_N] * np.count_nonzero(size_C))
    return weights_N


def _words(fit: _TauFit, tau_E: NDArray[np.int64]) -> str:
    words = f"tau by exit {', '.join(f'{fit.taus[t]:g}' for t in tau_E)}"
    largest = len(fit.taus) - 1
    return f"{words} (the largest candidate was chosen; refit.taus may end too early)" if largest in tau_E else words
