"""tau-norm (Kang et al. 2020): every class's weights divided by their length to the power of tau; nothing is trained.

Networks give frequent classes longer weights, and with them larger logits. At tau 0 the lengths stay, at 1 all are
equal. The bias is dropped, as the authors drop it: it was learnt beside the old lengths, and its part of the advantage
of frequent classes would stay whatever tau is. (So tau 0 is the run without its bias, not the run.)

Each exit has its own tau, see `choose_tau`.
"""

# Shapes: N examples, F features, C classes
# Shapes: N examples, C classes

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elfnet.data.types import Ints
from elfnet.evaluate.metrics import balanced_accuracy
from elfnet.losses.logit_adjusted import log_prior
from elfnet.methods.refit.classifiers import LabelledFeed, linear_classifiers, logits_and_labels
from elfnet.models.heads import LinearClassifier
from elfnet.models.staged import StagedNetwork


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


@torch.no_grad()
def normalise_weights(network: StagedNetwork, calibration: LabelledFeed, *, taus: Sequence[float]) -> list[TauChoice]:
    """W_c / |W_c|^tau and no bias at every exit, with the best of the taus; changes the network."""
    logits_E, labels_N = logits_and_labels(network, calibration)
    choices = []
    for classifier, logits_NC in zip(linear_classifiers(network), logits_E, strict=True):
        choices.append(_choose_length_tau(classifier, logits_NC, labels_N, taus))
        classifier.weight.div_(_length(classifier.weight).pow(choices[-1].tau).unsqueeze(1))
        classifier.bias.zero_()
    return choices


def _choose_length_tau(
    classifier: LinearClassifier, logits_NC: Tensor, labels_N: Ints, taus: Sequence[float]
) -> TauChoice:
    """Dividing the weights divides what is left of the logits without the bias."""
    length_C, bias_C = _length(classifier.weight).cpu(), classifier.bias.double().cpu()
    return choose_tau(logits_NC, labels_N, taus, changed=lambda tau: (logits_NC - bias_C) / length_C.pow(tau))


def _length(weight_CF: Tensor) -> Tensor:
    """|W_c| in float64, shape (C,); weights of zero stay zero."""
    length_C = weight_CF.double().norm(dim=1)
    return torch.where(length_C == 0, torch.ones_like(length_C), length_C)


THEORY = 1.0


@torch.no_grad()
def adjust_biases(
    network: StagedNetwork, calibration: LabelledFeed, *, taus: Sequence[float], class_counts: Sequence[int]
) -> list[TauChoice]:
    """b_c - tau log prior_c at every exit, with the best of the taus; changes the network.

    Args:
        class_counts: training examples of each class.
    """
    log_prior_C = log_prior(class_counts)
    logits_E, labels_N = logits_and_labels(network, calibration)
    choices = []
    for classifier, logits_NC in zip(linear_classifiers(network), logits_E, strict=True):
        choices.append(_choose_adjustment_tau(logits_NC, labels_N, taus, log_prior_C))
        classifier.bias.sub_((choices[-1].tau * log_prior_C).to(classifier.bias))
    return choices


def _choose_adjustment_tau(logits_NC: Tensor, labels_N: Ints, taus: Sequence[float], log_prior_C: Tensor) -> TauChoice:
    def changed(tau: float) -> Tensor:
        return logits_NC - tau * log_prior_C

    return choose_tau(logits_NC, labels_N, taus, changed=changed, also_reported=[THEORY])
