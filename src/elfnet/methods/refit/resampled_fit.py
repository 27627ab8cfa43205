"""Classifiers fitted anew on features of the training split that were made less unequal in number by class."""

# Shapes: N examples, M after re-sampling, F features, C classes

from collections.abc import Sequence
from typing import Any

import torch

from elfnet.methods.refit.classifiers import (
    SMALL_GRADIENT,
    LabelledFeed,
    classifier_features,
    fit_softmax_regression,
    linear_classifiers,
)
from elfnet.methods.refit.resample import (
    Resampled,
    Resampler,
    adasyn,
    borderline_smote,
    cluster_under_sample,
    edit_nearest_neighbours,
    over_sample,
    require_imbalanced_learn,
    smote,
    under_sample,
)
from elfnet.models.heads import LinearClassifier
from elfnet.models.staged import StagedNetwork

RESAMPLERS: dict[str, Resampler] = {
    "over-sampling": over_sample,
    "under-sampling": under_sample,
    "smote": smote,
    "borderline-smote": borderline_smote,
    "adasyn": adasyn,
    "edited-nearest-neighbours": edit_nearest_neighbours,
    "cluster-under-sampling": cluster_under_sample,
}
"""By `refit.method`."""
CLASSES_SHOWN = 5


def refit_on_resampled(
    network: StagedNetwork,
    train: LabelledFeed,
    *,
    resample: Resampler,
    neighbours: int,
    seed: int,
    weight_decay: float,
    class_names: Sequence[str],
) -> tuple[dict[str, Any], list[str]]:
    """Re-sample the features of every exit, each for itself, and fit its classifier on them; changes the network.

    Returns:
        What run.json keeps of it, and remarks for the log.
    """
    require_imbalanced_learn()
    features_E, labels_N = classifier_features(network, train)
    exits: list[dict[str, Any]] = []
    smaller: dict[int, int] = {}
    remarks = []
    for number, (classifier, features_NF) in enumerate(zip(linear_classifiers(network), features_E, strict=True), 1):
        resampled = resample(features_NF.numpy(), labels_N, neighbours=neighbours, seed=seed)
        exits.append(_refit(classifier, resampled, weight_decay))
        exits[-1]["classes_as_they_were"] = [class_names[c] for c in resampled.as_they_were]
        # Decided by the sizes of the classes, so the same at every exit.
        smaller = resampled.smaller
        if exits[-1]["largest_derivative"] > SMALL_GRADIENT:
            remarks.append(f"the fit at exit {number} stopped after {exits[-1]['steps']} steps")
    if smaller:
        remarks.insert(0, _say_smaller(smaller, neighbours, class_names))
    left = [f"{len(one['classes_as_they_were'])} at exit {number}" for number, one in enumerate(exits, 1)]
    if any(one["classes_as_they_were"] for one in exits):
        remarks.append(f"classes left as they were: {', '.join(left)}")
    record = {"exits": exits, "smaller_neighbourhoods": {class_names[c]: near for c, near in smaller.items()}}
    return record, remarks


@torch.no_grad()
def _refit(classifier: LinearClassifier, resampled: Resampled, weight_decay: float) -> dict[str, Any]:
    fit = fit_softmax_regression(
        torch.from_numpy(resampled.features_MF),
        torch.from_numpy(resampled.labels_M),
        classifier.weight,
        classifier.bias,
        weight_decay=weight_decay,
    )
    classifier.weight.copy_(fit.weight_CF)
    classifier.bias.copy_(fit.bias_C)
    return {"examples": len(resampled.labels_M), "steps": fit.steps, "largest_derivative": fit.gradient}


def _say_smaller(smaller: dict[int, int], neighbours: int, class_names: Sequence[str]) -> str:
    shown = ", ".join(f"{class_names[c]} {near}" for c, near in list(smaller.items())[:CLASSES_SHOWN])
    more = ", ..." if len(smaller) > CLASSES_SHOWN else ""
    return f"smaller neighbourhoods than {neighbours} in {len(smaller)} small classes ({shown}{more})"
