"""Train a network that the caller passes (`network=`) instead of the recipe's own: checks and its record."""

from collections.abc import Sequence

import torch

from elfnet.errors import RequestError
from elfnet.models.heads import LinearClassifier
from elfnet.models.staged import StagedNetwork, evaluation_mode
from elfnet.recipe.schema import Recipe
from elfnet.run.checkpoint import require_same_signature, signature_of, tensors_sha256
from elfnet.run.directory import RunDirectory
from elfnet.run.info import NetworkInfo, RunInfo
from elfnet.train.distributed import DistributedContext


def describe_network(
    given: StagedNetwork,
    recipe: Recipe,
    *,
    classes: int,
    image_shape: tuple[int, int, int],
    processes: DistributedContext,
) -> NetworkInfo:
    """Check the network that the caller passed, in all processes, and return its section of run.json.

    Args:
        recipe: of the stage.
        image_shape: channels, height, width.

    Raises:
        RequestError: the network cannot be trained by this recipe on this data.
    """
    described = processes.fail_together(lambda: _describe(given, recipe, classes=classes, image_shape=image_shape))
    everywhere = processes.all_gather(described.to_json())
    processes.fail_together(lambda: _require_equal(everywhere))
    return described


def _describe(
    network: StagedNetwork, recipe: Recipe, *, classes: int, image_shape: tuple[int, int, int]
) -> NetworkInfo:
    """Check that the recipe can train the network, and return its section of run.json."""
    if network.classes != classes:
        raise RequestError(
            f"the network given has {network.classes} classes and the data {classes}; give the model a classifier of "
            f"{classes} first"
        )
    if recipe.model.weights:
        raise RequestError(
            f"model.weights={recipe.model.weights} is for the recipe's own network; load them into the network given"
        )
    if not recipe.model.exits and network.exits > 1:
        raise RequestError(
            f"model.exits=false contradicts the network given, which has {network.exits} exits; choose another recipe"
        )
    if recipe.train.mix == "manifold" or recipe.model.branches == 2:
        raise RequestError(
            "Manifold Mixup and BBN look into the recipe's own network; for a network given choose another recipe"
        )
    if recipe.train.resize_start < 1:
        raise RequestError(
            f"train.resize_start={recipe.train.resize_start:g} shows images of several sizes, which the network given "
            "may not take; set it to 1"
        )
    if recipe.model.experts > 1:
        raise RequestError(
            f"model.experts={recipe.model.experts} repeats a group of the recipe's own network; "
            "for a network given set model.experts=1"
        )
    signature = signature_of(network, image_shape)
    if recipe.model.head == "cosine":
        _require_cosines(network, image_shape)
    weights_sha256 = tensors_sha256(network.state_dict())
    return NetworkInfo(given=True, signature=signature, first_weights_sha256=weights_sha256)


def require_same_network(run: RunDirectory, info: RunInfo, described: NetworkInfo | None) -> None:
    """Refuse to resume a run with another network than it started with."""
    if described is None:
        raise RequestError(
            f"the run in {run.root} trains a network passed as network=; resume it from Python: "
            "train_recipe(..., resume=True, network=...)"
        )
    require_same_signature(info, described.signature, where=run.root)
    # A resumed run loads its weights from the checkpoint, so the initial weights only matter without one.
    same_weights = info.network is not None and info.network.first_weights_sha256 == described.first_weights_sha256
    if not run.checkpoint("last").is_file() and not same_weights:
        raise RequestError(
            f"the run in {run.root} has no checkpoint yet and started with other weights than network= has; "
            "build the network with the same seed as then, or give overwrite=True"
        )


def _require_equal(descriptions: Sequence[object]) -> None:
    """Refuse processes whose networks differ; each process builds its own."""
    if any(description != descriptions[0] for description in descriptions):
        raise RequestError(
            "network= is not the same in every process of the run; seed torch before it is made, "
            "such as torch.manual_seed(0)"
        )


@torch.no_grad()
def _require_cosines(network: StagedNetwork, image_shape: tuple[int, int, int]) -> None:
    """Refuse heads that do not return cosines.

    Linear classifiers of elfnet are recognised by their class. Any other head is run on large inputs, for which an
    unbounded output exceeds 1.
    """
    way_out = "use elfnet.models.CosineClassifier and attach_exits(..., classifier='cosine'), or set model.head=linear"
    needs = "model.head=cosine (which criterion.loss=ldam needs) expects cosines"
    for number, head in enumerate(network.heads, start=1):
        if any(isinstance(module, LinearClassifier) for module in head.modules()):
            raise RequestError(f"{needs}, and exit {number} of the network given has a linear classifier; {way_out}")
    device = next(network.parameters()).device
    generator = torch.Generator().manual_seed(0)
    images = 100 * torch.randn(8, *image_shape, generator=generator).to(device)
    with evaluation_mode(network):
        largest_E = network.logits(images).abs().amax(dim=(1, 2))
    for number, largest in enumerate(largest_E.tolist(), start=1):
        if largest > 1 + 1e-3:
            raise RequestError(f"{needs}, and exit {number} of the network given gives {largest:.3g}; {way_out}")
