"""The network of a run: described by its recipe, or passed as `network=` when the run was trained.

The signature of a network passed as `network=` is kept in run.json. Only a network with the same signature fits the
weights of the run.
"""

import copy
import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.models.build import network_of, network_signature
from elfnet.models.layers import evaluation_mode
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import ModelRecipe
from elfnet.run.info import RunInfo

GIVEN = "given network"
"""The beginning of the signature of a network that was passed as `network=`."""


@torch.no_grad()
def signature_of(network: StagedNetwork, image_shape: tuple[int, ...]) -> str:
    """One line that identifies the architecture of any network; checkpoints with another signature do not fit it.

    It depends on the names, shapes and dtypes of all tensors and on the shapes of the features of every stage, but not
    on values.

    Args:
        image_shape: (channels, height, width).

    Raises:
        RequestError: the network does not run on images of this shape, or does not return logits.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    with evaluation_mode(network):
        for shape in _feature_shapes(network, image_shape):
            digest.update(f"{shape}\n".encode())
    return f"{GIVEN}, {network.exits} exits, {network.classes} classes, {digest.hexdigest()[:16]}"


def _feature_shapes(network: StagedNetwork, image_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes of the output of every stage for one image of zeros."""
    features: Any = torch.zeros(1, *image_shape, device=next(network.parameters()).device)
    shapes = []
    for number, (stage, head) in enumerate(network.pairs()):
        try:
            features = stage(features)
            logits = head(features)
        except RuntimeError as error:
            size = " x ".join(map(str, image_shape))
            reason = str(error).strip().partition("\n")[0][:200]
            raise RequestError(
                f"network= does not run on the data's images of {size} (stage {number + 1}: {reason}); "
                "pass a network that was built with an example of that shape"
            ) from error
        if not isinstance(features, Tensor) or tuple(logits.shape) != (1, network.classes):
            raise RequestError(
                f"stage {number + 1} of network= must return one tensor, and its head must return logits "
                f"(B, {network.classes})"
            )
        shapes.append(tuple(features.shape))
    return shapes


def signature_of_run(model: ModelRecipe, info: RunInfo) -> str:
    """The signature of the network of a run, read from its recipe and run.json; the network is not built."""
    if info.network is not None:
        return info.network.signature
    return network_signature(model, classes=info.data.classes, image_channels=info.data.image_shape[-1])


def network_of_run(model: ModelRecipe, info: RunInfo, given: StagedNetwork | None, *, where: Path) -> StagedNetwork:
    """Return a network to load the weights of a run into.

    Args:
        info: the content of run.json.
        given: the network passed by the caller, which is copied; None to build the network of the recipe.
        where: the directory of the run, for messages.

    Raises:
        RequestError: `given` does not fit the run, or is None although no recipe describes the network.
    """
    if given is not None:
        require_fits(info, given, where=where)
        return copy.deepcopy(given)
    if info.network is None:
        return network_of(model, classes=info.data.classes, image_channels=info.data.image_shape[-1])
    raise RequestError(
        f"the run in {where} trained a network passed as network=, which no recipe describes; "
        "do this from Python with network= built in the same way, or use a bundle of the run"
    )


def require_fits(info: RunInfo, given: StagedNetwork, *, where: Path) -> None:
    """Check that the weights of a run fit a network passed by the caller.

    Raises:
        RequestError: they do not.
    """
    height, width, channels = info.data.image_shape
    require_same_signature(info, signature_of(given, (channels, height, width)), where=where)


def require_same_signature(info: RunInfo, found: str, *, where: Path) -> None:
    """Check that the run trained a network passed as `network=` with the signature `found`.

    Raises:
        RequestError: it did not.
    """
    if info.network is None:
        raise RequestError(f"the run in {where} has the network of its recipe; leave network= out")
    expected = info.network.signature
    if found != expected:
        raise RequestError(
            f"network= is another network than the run in {where} trained ({found}, not {expected}); "
            "build it in the same way: the same model and the same cuts"
        )
