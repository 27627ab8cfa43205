"""Refits that are not trained, as a recipe asks for them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from elfnet.data.loading.build import evaluation_batches
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.splits import Splits
from elfnet.data.types import Examples
from elfnet.methods.refit.classifiers import LabelledFeed, classifier_tensor
from elfnet.methods.refit.post_hoc import adjust_biases, normalise_weights, tau_remarks, taus_record
from elfnet.methods.refit.resampled_fit import RESAMPLERS, refit_on_resampled
from elfnet.methods.refit.source_run import open_source
from elfnet.models.layers import freeze_all_but
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


def learns_in_crt(name: str) -> bool:
    """Whether a tensor of the network starts anew and is trained: all of every exit's classifier."""
    return bool(classifier_tensor(name))


def learns_in_lws(name: str) -> bool:
    """Whether a tensor of the network starts anew and is trained: the scales of every exit's classifier."""
    return classifier_tensor(name) == "scale"


TRAINED: dict[str, tuple[Callable[[str], bool], str]] = {
    "balanced": (learns_in_crt, "classifiers"),
    "crt": (learns_in_crt, "classifiers"),
    "lws": (learns_in_lws, "scales of the classifiers"),
}
"""By `refit.method`: which tensors start anew and learn, and what they are."""


def start_from_run(recipe: Recipe, network: StagedNetwork, splits: Splits, *, out: Path) -> dict[str, Any] | None:
    """Load the weights of the run that the recipe starts from; None for a recipe that starts from none.

    Args:
        network: newly built; what learns keeps the weights it was built with.
        out: where the new run goes.

    Returns:
        What run.json keeps of it.
    """
    if recipe.refit.method not in TRAINED or is_second_stage(recipe):
        return None
    source = open_source(recipe, out=out)
    source.require_same_examples(recipe.data, splits)
    what = take_over(recipe.refit.method, network, source.checkpoint.weights)
    summary = f"started from {source.named} ({source.checkpoint.epochs_done} epochs); only the {what} learn"
    return {**source.record(recipe.refit.method), "summary": summary}


def is_second_stage(recipe: Recipe) -> bool:
    """Whether the refit follows the training of the same run, and starts from no other."""
    return recipe.refit.method == "balanced" and not recipe.refit.run


def take_over(method: str, network: StagedNetwork, weights: Mapping[str, Tensor]) -> str:
    """Load all weights but those that the refit starts anew; these stay as the network was built.

    Returns:
        What starts anew, in words.
    """
    learns, what = TRAINED[method]
    own = network.state_dict()
    network.load_state_dict({name: tensor if learns(name) else weights[name] for name, tensor in own.items()})
    return what


def freeze_what_stays(method: str, network: StagedNetwork) -> None:
    """Freeze all that this refit does not train; nothing for a recipe without one."""
    if method in TRAINED:
        freeze_all_but(network, TRAINED[method][0])
