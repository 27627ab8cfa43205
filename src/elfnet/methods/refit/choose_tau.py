"""Choosing the tau of each exit by that exit's balanced accuracy on the calibration split.

Every exit has a tau of its own: early classifiers read weaker features, lean more on how frequent classes are, and
want more of a correction than the last one. So the last exit's is the choice by accuracy at full depth.
"""

# Shapes: N examples, C classes

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from elfnet.data.examples import Ints
from elfnet.evaluate.accuracy import balanced_accuracy


@dataclass(frozen=True)
class TauChoice:
    """The tau that was chosen for an exit, and what all gave.

    Attributes:
        scores: (tau, balanced accuracy) of every candidate and of what is reported besides, by tau.
        before: balanced accuracy of the run as it was.
    """

    tau: float
    scores: tuple[tuple[float, float], ...]
    before: float

    def record(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "tau": self.tau,
            "score_before": self.before,
            "scores": [{"tau": tau, "balanced_accuracy": score} for tau, score in self.scores],
        }


def taus_record(choice_E: Sequence[TauChoice]) -> dict[str, Any]:
    """Of full depth, and of every exit."""
    return {**choice_E[-1].record(), "exits": [choice.record() for choice in choice_E]}


def tau_remarks(choice_E: Sequence[TauChoice], taus: Sequence[float]) -> list[str]:
    """What a user should see of it; also where the best may lie beyond the candidates."""
    last = choice_E[-1]
    chosen = ", ".join(f"{choice.tau:g}" for choice in choice_E)
    before, now = 100 * last.before, 100 * dict(last.scores)[last.tau]
    remarks = [f"tau by exit {chosen} (calibration accuracy {before:.1f} -> {now:.1f} %)"]
    if len(set(taus)) > 1 and any(choice.tau == max(taus) for choice in choice_E):
        remarks.append(f"{max(taus):g} is the largest candidate and was chosen: refit.taus may end too early")
    return remarks


def choose_tau(
    logits_NC: Tensor,
    labels_N: Ints,
    taus: Sequence[float],
    *,
    changed: Callable[[float], Tensor],
    also_reported: Sequence[float] = (),
) -> TauChoice:
    """The candidate with the best balanced accuracy; of several the smallest, which changes least.

    Args:
        logits_NC: of the run as it was.
        changed: what these logits become with a tau.
        also_reported: scored, but not chosen unless they are candidates.
    """
    scores = {tau: _score(changed(tau), labels_N) for tau in sorted({*taus, *also_reported})}
    # Sorted by tau, and max keeps the first of equals.
    tau = max(sorted(set(taus)), key=lambda candidate: scores[candidate])
    return TauChoice(tau, tuple(scores.items()), _score(logits_NC, labels_N))


def _score(logits_NC: Tensor, labels_N: Ints) -> float:
    return balanced_accuracy(logits_NC.argmax(dim=1).numpy(), labels_N)
