"""Logit adjustment after training (Menon et al. 2021): tau log prior is taken from every class's bias.

A network trained on unequal classes answers with p(class | image), in which the training prior is a factor; without it
the answers are best where classes are equally frequent. Tau 1 is the theory; others are candidates since networks are
not calibrated. Each exit has its own tau, see `choose_tau`.
"""

# Shapes: N examples, C classes

from collections.abc import Sequence

import torch
from torch import Tensor

from elfnet.criterion.logit_adjusted import log_prior
from elfnet.data.examples import Ints
from elfnet.methods.refit.choose_tau import TauChoice, choose_tau
from elfnet.methods.refit.classifiers import LabelledFeed, linear_classifiers, logits_and_labels
from elfnet.models.staged import StagedNetwork

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
        choices.append(_choice(logits_NC, labels_N, taus, log_prior_C))
        classifier.bias.sub_((choices[-1].tau * log_prior_C).to(classifier.bias))
    return choices


def _choice(logits_NC: Tensor, labels_N: Ints, taus: Sequence[float], log_prior_C: Tensor) -> TauChoice:
    def changed(tau: float) -> Tensor:
        return logits_NC - tau * log_prior_C

    return choose_tau(logits_NC, labels_N, taus, changed=changed, also_reported=[THEORY])
