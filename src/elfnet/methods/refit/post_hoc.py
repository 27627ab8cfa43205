"""Post-hoc corrections of classifiers, without training: tau-norm and logit adjustment, with tau chosen per exit.

tau-norm (Kang et al. 2020) divides the weights of each class by their norm to the power of tau. Networks give frequent
classes weights of larger norm, and so larger logits. At tau 0 the norms stay the same, at tau 1 all are 1. The bias is
set to zero, as in the authors' code: it was learnt with the old norms and favours frequent classes at every tau. So
tau 0 is the run without its bias.

Logit adjustment (Menon et al. 2021) subtracts tau log prior from the bias.

Each exit has the tau with the best balanced accuracy on the calibration split, see `choose_tau`.
"""

# Shapes: N examples, E exits, F features, C classes

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elfnet.data.types import Ints
from elfnet.evaluate.metrics import balanced_accuracy
from elfnet.losses.logit_adjusted import log_prior
from elfnet.methods.refit.classifiers import LabelledFeed, linear_classifiers, logits_and_labels
from elfnet.models.heads import LinearClassifier
from elfnet.models.staged import StagedNetwork
from elfnet.run.info import FitInfo, TauInfo, TauScore

CONSISTENT_TAU = 1.0
"""The tau of logit adjustment that is optimal in theory. It is always reported."""


@dataclass(frozen=True)
class TauChoice:
    """The tau that was chosen for an exit, with the scores of all candidates.

    Attributes:
        tau: the chosen tau.
        scores: (tau, balanced accuracy) of every tau that was scored, sorted by tau.
        before: the balanced accuracy of the run before the correction; None if tau was given, not chosen.
    """

    tau: float
    scores: tuple[tuple[float, float], ...]
    before: float | None

    def record(self) -> TauInfo:
        """The entry of run.json."""
        scores = tuple(TauScore(tau=tau, balanced_accuracy=score) for tau, score in self.scores)
        return TauInfo(tau=self.tau, score_before=self.before, scores=scores)


def taus_record(choice_E: Sequence[TauChoice]) -> FitInfo:
    """The record for run.json: the choice at the last exit, and the choices at all exits under `exits`."""
    exits = tuple(choice.record() for choice in choice_E)
    last = exits[-1]
    return FitInfo(tau=last.tau, score_before=last.score_before, scores=last.scores, exits=exits)


def tau_remarks(choice_E: Sequence[TauChoice], taus: Sequence[float]) -> list[str]:
    """Remarks for the log: the chosen taus, and a warning if the largest candidate was chosen."""
    last = choice_E[-1]
    chosen = ", ".join(f"{choice.tau:g}" for choice in choice_E)
    if last.before is None:
        return [f"tau by exit {chosen} (given, not chosen)"]
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
    corrected: Callable[[float], Tensor],
    also_reported: Sequence[float] = (),
) -> TauChoice:
    """Choose the tau with the best balanced accuracy; among equals the smallest, which changes the logits least.

    Args:
        logits_NC: the logits before the correction. Without examples there must be one candidate, which is taken.
        taus: the candidates.
        corrected: maps a tau to the corrected logits.
        also_reported: further taus that are scored but not chosen.
    """
    if not len(labels_N):
        (tau,) = taus
        return TauChoice(tau, (), None)
    scores = {tau: _balanced_accuracy(corrected(tau), labels_N) for tau in sorted({*taus, *also_reported})}
    # max returns the first of equals, so the taus are sorted.
    tau = max(sorted(set(taus)), key=lambda candidate: scores[candidate])
    return TauChoice(tau, tuple(scores.items()), _balanced_accuracy(logits_NC, labels_N))


def _balanced_accuracy(logits_NC: Tensor, labels_N: Ints) -> float:
    return balanced_accuracy(logits_NC.argmax(dim=1).numpy(), labels_N)


@torch.no_grad()
def normalise_weights(network: StagedNetwork, calibration: LabelledFeed, *, taus: Sequence[float]) -> list[TauChoice]:
    """Apply tau-norm in place at every exit: W_c / |W_c|^tau and no bias, with the best of the taus."""
    logits_E, labels_N = logits_and_labels(network, calibration)
    choices = []
    for classifier, logits_NC in zip(linear_classifiers(network), logits_E, strict=True):
        choices.append(_choose_norm_tau(classifier, logits_NC, labels_N, taus))
        classifier.weight.div_(_weight_norms(classifier.weight).pow(choices[-1].tau).unsqueeze(1))
        classifier.bias.zero_()
    return choices


def _choose_norm_tau(
    classifier: LinearClassifier, logits_NC: Tensor, labels_N: Ints, taus: Sequence[float]
) -> TauChoice:
    norm_C, bias_C = _weight_norms(classifier.weight).cpu(), classifier.bias.double().cpu()
    # Logits without bias are linear in the weights, so dividing the weights divides them.
    return choose_tau(logits_NC, labels_N, taus, corrected=lambda tau: (logits_NC - bias_C) / norm_C.pow(tau))


def _weight_norms(weight_CF: Tensor) -> Tensor:
    """|W_c| in float64, shape (C,); 1 where it is zero, so that zero weights stay zero."""
    norm_C = weight_CF.double().norm(dim=1)
    return torch.where(norm_C == 0, torch.ones_like(norm_C), norm_C)


@torch.no_grad()
def adjust_biases(
    network: StagedNetwork, calibration: LabelledFeed, *, taus: Sequence[float], class_counts: Sequence[int]
) -> list[TauChoice]:
    """Apply logit adjustment in place at every exit: b_c - tau log prior_c, with the best of the taus.

    Args:
        class_counts: the number of training examples per class.
    """
    log_prior_C = log_prior(class_counts)
    logits_E, labels_N = logits_and_labels(network, calibration)
    choices = []
    for classifier, logits_NC in zip(linear_classifiers(network), logits_E, strict=True):
        choices.append(_choose_adjustment_tau(logits_NC, labels_N, taus, log_prior_C))
        classifier.bias.sub_((choices[-1].tau * log_prior_C).to(classifier.bias))
    return choices


def _choose_adjustment_tau(logits_NC: Tensor, labels_N: Ints, taus: Sequence[float], log_prior_C: Tensor) -> TauChoice:
    def corrected(tau: float) -> Tensor:
        return logits_NC - tau * log_prior_C

    return choose_tau(logits_NC, labels_N, taus, corrected=corrected, also_reported=[CONSISTENT_TAU])


UNTUNED_TAU = 1.0
"""The tau that both methods have without a calibration split."""


def at_untuned_tau(method: str, logits_NC: Tensor, *, tau: float, weight_CF: Tensor, log_prior_C: Tensor) -> Tensor:
    """Compute the logits that an exit would have at tau 1 from those at the tau that was chosen; float64.

    Args:
        method: `tau-norm` or `logit-adjustment`.
        logits_NC: logits of the refitted run.
        weight_CF: weights of its classifier. After tau-norm their norms are |W_c|^(1 - tau).
    """
    if method == "tau-norm":
        return logits_NC.double() / _weight_norms(weight_CF)
    return logits_NC.double() + (tau - UNTUNED_TAU) * log_prior_C
