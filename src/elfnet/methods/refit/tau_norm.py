"""tau-norm (Kang et al. 2020): every class's weights divided by their length to the power of tau; nothing is trained.

Networks give frequent classes longer weights, and with them larger logits. At tau 0 the lengths stay, at 1 all are
equal. The bias is dropped, as the authors drop it: it was learnt beside the old lengths, and its part of the advantage
of frequent classes would stay whatever tau is. (So tau 0 is the run without its bias, not the run.)

Each exit has its own tau, see `choose_tau`.
"""

# Shapes: N examples, F features, C classes

from collections.abc import Sequence

import torch
from torch import Tensor

from elfnet.data.examples import Ints
from elfnet.methods.refit.choose_tau import TauChoice, choose_tau
from elfnet.methods.refit.classifiers import LabelledFeed, linear_classifiers, logits_and_labels
from elfnet.models.heads import LinearClassifier
from elfnet.models.staged import StagedNetwork


@torch.no_grad()
def normalise_weights(network: StagedNetwork, calibration: LabelledFeed, *, taus: Sequence[float]) -> list[TauChoice]:
    """W_c / |W_c|^tau and no bias at every exit, with the best of the taus; changes the network."""
    logits_E, labels_N = logits_and_labels(network, calibration)
    choices = []
    for classifier, logits_NC in zip(linear_classifiers(network), logits_E, strict=True):
        choices.append(_choice(classifier, logits_NC, labels_N, taus))
        classifier.weight.div_(_length(classifier.weight).pow(choices[-1].tau).unsqueeze(1))
        classifier.bias.zero_()
    return choices


def _choice(classifier: LinearClassifier, logits_NC: Tensor, labels_N: Ints, taus: Sequence[float]) -> TauChoice:
    """Dividing the weights divides what is left of the logits without the bias."""
    length_C, bias_C = _length(classifier.weight).cpu(), classifier.bias.double().cpu()
    return choose_tau(logits_NC, labels_N, taus, changed=lambda tau: (logits_NC - bias_C) / length_C.pow(tau))


def _length(weight_CF: Tensor) -> Tensor:
    """|W_c| in float64, shape (C,); weights of zero stay zero."""
    length_C = weight_CF.double().norm(dim=1)
    return torch.where(length_C == 0, torch.ones_like(length_C), length_C)
