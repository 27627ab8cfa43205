"""Refits that are trained: what they take over from the run, and what of the network learns."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from elfnet.data.splits import Splits
from elfnet.methods.refit import crt, lws
from elfnet.methods.refit.source_run import open_source
from elfnet.models.frozen import freeze_all_but
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import Recipe

TRAINED: dict[str, tuple[Callable[[str], bool], str]] = {
    "balanced": (crt.learns, "classifiers"),
    "crt": (crt.learns, "classifiers"),
    "lws": (lws.learns, "scales of the classifiers"),
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
