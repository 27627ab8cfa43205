"""Fit the classifiers of a trained network again, on re-sampled features of the training split."""

# Shapes: N examples, M examples after re-sampling, E exits, F features, C classes

from collections.abc import Sequence

import torch

from elfnet.methods.refit.classifiers import (
    SMALL_GRADIENT,
    LabelledFeed,
    classifier_features,
    fit_softmax_regression,
    linear_classifiers,
)
from elfnet.methods.refit.resample import Resampled, Resampler, require_imbalanced_learn
from elfnet.models.heads import LinearClassifier
from elfnet.models.staged import StagedNetwork
from elfnet.run.info import FitInfo, ResampledInfo

CLASSES_SHOWN = 5
"""The number of class names in a remark."""


def refit_on_resampled(
    network: StagedNetwork,
    train: LabelledFeed,
    *,
    resample: Resampler,
    neighbours: int,
    seed: int,
    weight_decay: float,
    class_names: Sequence[str],
) -> tuple[FitInfo, list[str]]:
    """Re-sample the features of every exit separately, and fit its classifier on them in place.

    Args:
        train: the training split.
        neighbours: the number of neighbours, for resamplers that use them.

    Returns:
        The record for run.json, and remarks for the log.
    """
    require_imbalanced_learn()
    features_E, labels_N = classifier_features(network, train)
    exits: list[ResampledInfo] = []
    smaller_neighbourhoods: dict[int, int] = {}
    remarks = []
    for number, (classifier, features_NF) in enumerate(zip(linear_classifiers(network), features_E, strict=True), 1):
        resampled = resample(features_NF.numpy(), labels_N, neighbours=neighbours, seed=seed)
        fitted = _fit_in_place(classifier, resampled, weight_decay, class_names)
        exits.append(fitted)
        # It depends on the sizes of the classes only, so it is equal at every exit.
        smaller_neighbourhoods = resampled.smaller_neighbourhoods
        if fitted.largest_derivative > SMALL_GRADIENT:
            remarks.append(f"the fit at exit {number} did not converge in {fitted.steps} steps")
    if smaller_neighbourhoods:
        remarks.insert(0, _smaller_remark(smaller_neighbourhoods, neighbours, class_names))
    unchanged = [f"{len(one.classes_as_they_were)} at exit {number}" for number, one in enumerate(exits, 1)]
    if any(one.classes_as_they_were for one in exits):
        remarks.append(f"classes without a change: {', '.join(unchanged)}")
    by_name = {class_names[c]: number for c, number in smaller_neighbourhoods.items()}
    return FitInfo(exits=tuple(exits), smaller_neighbourhoods=by_name), remarks


@torch.no_grad()
def _fit_in_place(
    classifier: LinearClassifier, resampled: Resampled, weight_decay: float, class_names: Sequence[str]
) -> ResampledInfo:
    fit = fit_softmax_regression(
        torch.from_numpy(resampled.features_MF),
        torch.from_numpy(resampled.labels_M),
        classifier.weight,
        classifier.bias,
        weight_decay=weight_decay,
    )
    classifier.weight.copy_(fit.weight_CF)
    classifier.bias.copy_(fit.bias_C)
    return ResampledInfo(
        examples=len(resampled.labels_M),
        steps=fit.steps,
        largest_derivative=fit.gradient,
        classes_as_they_were=tuple(class_names[c] for c in resampled.unchanged_classes),
    )


def _smaller_remark(smaller: dict[int, int], neighbours: int, class_names: Sequence[str]) -> str:
    shown = ", ".join(f"{class_names[c]} {number}" for c, number in list(smaller.items())[:CLASSES_SHOWN])
    more = ", ..." if len(smaller) > CLASSES_SHOWN else ""
    return f"smaller neighbourhoods than {neighbours} in {len(smaller)} small classes ({shown}{more})"
