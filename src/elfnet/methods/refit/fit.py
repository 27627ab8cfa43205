"""Refits that are not trained, as a recipe asks for them."""

from typing import Any

from elfnet.data.examples import Examples
from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.methods.refit.choose_tau import tau_remarks, taus_record
from elfnet.methods.refit.classifiers import LabelledFeed
from elfnet.methods.refit.logit_adjustment import adjust_biases
from elfnet.methods.refit.resampling import RESAMPLERS, refit_on_resampled
from elfnet.methods.refit.tau_norm import normalise_weights
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe

FITTED = ("tau-norm", "logit-adjustment", *RESAMPLERS)
"""Values of `refit.method` that need no training."""


def fit_classifiers(
    recipe: Recipe, network: StagedNetwork, splits: Splits, normalisation: Normalisation
) -> tuple[dict[str, Any], list[str]]:
    """Change the classifiers of a finished run's network; the training and the calibration split are read only.

    Returns:
        What run.json keeps of it, and remarks for the log.
    """
    refit = recipe.refit
    device = next(network.parameters()).device

    def feed(examples: Examples) -> LabelledFeed:
        return LabelledFeed(evaluation_batches(recipe.data, examples, normalisation, device=device), examples)

    counts = splits.class_counts_C.tolist()
    if refit.method == "tau-norm":
        choice_E = normalise_weights(network, feed(splits.calibration), taus=refit.taus)
        return taus_record(choice_E), tau_remarks(choice_E, refit.taus)
    if refit.method == "logit-adjustment":
        choice_E = adjust_biases(network, feed(splits.calibration), taus=refit.taus, class_counts=counts)
        return taus_record(choice_E), tau_remarks(choice_E, refit.taus)
    return refit_on_resampled(
        network,
        feed(splits.train),
        resample=RESAMPLERS[refit.method],
        neighbours=refit.neighbours,
        seed=recipe.train.seed,
        weight_decay=recipe.train.weight_decay,
        class_names=splits.class_names,
    )
