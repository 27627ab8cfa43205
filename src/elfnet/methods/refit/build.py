"""Refits as recipes configure them: computes those that need no training, and prepares networks for the others.

`FITTED` refits (tau-norm, logit adjustment, re-sampling) need no training loop. `TRAINED` refits (cRT, LWS, balanced)
start from the weights of a finished run and train the classifiers, or their scales, only.
"""

# Shapes: E exits, C classes

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.data.types import Examples
from elfnet.methods.refit.classifiers import LabelledFeed, classifier_tensor
from elfnet.methods.refit.post_hoc import adjust_biases, normalise_weights, tau_remarks, taus_record
from elfnet.methods.refit.resample import RESAMPLERS, refit_on_resampled
from elfnet.methods.refit.source_run import open_source
from elfnet.models.layers import freeze_all_but
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe
from elfnet.run.info import FitInfo, RefitInfo

FITTED = ("tau-norm", "logit-adjustment", *RESAMPLERS)
"""Refits that need no training loop, by `refit.method`."""


def learns_in_crt(name: str) -> bool:
    """Whether cRT trains this tensor, from new initial weights: every tensor of a classifier."""
    return bool(classifier_tensor(name))


def learns_in_lws(name: str) -> bool:
    """Whether LWS trains this tensor, from new initial weights: the scales of the classifiers."""
    return classifier_tensor(name) == "scale"


TRAINED: dict[str, tuple[Callable[[str], bool], str]] = {
    "balanced": (learns_in_crt, "classifiers"),
    "crt": (learns_in_crt, "classifiers"),
    "lws": (learns_in_lws, "scales of the classifiers"),
}
"""Refits that are trained, by `refit.method`: a predicate of tensors that are trained, and their description."""


def fit_classifiers(
    recipe: Recipe, network: StagedNetwork, splits: Splits, normalisation: Normalisation
) -> tuple[FitInfo, list[str]]:
    """Refit the classifiers of a trained network in place, with a method of `FITTED`.

    Only the training and the calibration split are read.

    Returns:
        The record for run.json, and remarks for the log.
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


def start_from_run(recipe: Recipe, network: StagedNetwork, splits: Splits, *, out: Path) -> RefitInfo | None:
    """Load the weights of the run that the recipe starts from.

    Args:
        network: a newly built network. Tensors that the refit trains keep their initial weights.
        out: the directory of the new run.

    Returns:
        The record for run.json; None if the recipe does not start from a run.

    Raises:
        RequestError: the run does not fit the recipe, or is not finished.
        WorkError: the data has changed since the run was trained.
    """
    if recipe.refit.method not in TRAINED or is_second_stage(recipe):
        return None
    source = open_source(recipe, out=out)
    source.require_same_examples(recipe.data, splits)
    what = take_over(recipe.refit.method, network, source.checkpoint.weights)
    summary = f"started from {source.named} ({source.checkpoint.epochs_done} epochs); only the {what} learn"
    return source.record(recipe.refit.method, summary)


def is_second_stage(recipe: Recipe) -> bool:
    """Whether the refit is the second stage of the same run, instead of starting from another run."""
    return recipe.refit.method == "balanced" and not recipe.refit.run


def take_over(method: str, network: StagedNetwork, weights: Mapping[str, Tensor]) -> str:
    """Load all weights except those that the refit trains, which keep their initial values.

    Returns:
        A description of the tensors that are trained.
    """
    learns, what = TRAINED[method]
    own = network.state_dict()
    network.load_state_dict({name: tensor if learns(name) else weights[name] for name, tensor in own.items()})
    return what


def freeze_what_stays(method: str, network: StagedNetwork) -> None:
    """Freeze every tensor that the refit `method` does not train; do nothing for a method that is not trained."""
    if method in TRAINED:
        freeze_all_but(network, TRAINED[method][0])
