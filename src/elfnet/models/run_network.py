"""The network of a run: the one that its recipe describes, or the one that was handed in when it was trained."""

import copy
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.models.build import network_of, network_signature
from elfnet.models.layers import evaluation_mode
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import ModelRecipe

GIVEN = "given network"
"""What the signatures of such networks begin with."""


@torch.no_grad()
def signature_of(network: StagedNetwork, image_shape: tuple[int, ...]) -> str:
    """One line for a network that was handed in: a checkpoint that carries another does not fit it.

    It covers names, shapes and types of all tensors and the shape of every stage's features, not their values. A
    network that cannot run on images of `image_shape` (channels, height, width) is refused.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    with evaluation_mode(network):
        for shape in _feature_shapes(network, image_shape):
            digest.update(f"{shape}\n".encode())
    return f"{GIVEN}, {network.exits} exits, {network.classes} classes, {digest.hexdigest()[:16]}"


def _feature_shapes(network: StagedNetwork, image_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Of one image of zeros behind every stage."""
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
                f"the network given does not run on the data's images of {size} (stage {number + 1}: {reason}); "
                "give one that was made with an example of that shape"
            ) from error
        if not isinstance(features, Tensor) or tuple(logits.shape) != (1, network.classes):
            raise RequestError(
                f"stage {number + 1} of the network given must hand on one tensor and its head must give logits "
                f"(B, {network.classes})"
            )
        shapes.append(tuple(features.shape))
    return shapes


def signature_of_run(model: ModelRecipe, info: Mapping[str, Any]) -> str:
    """What the run's checkpoints are for. The network itself is not needed to know.

    Args:
        info: of run.json; `info["network"]` is there if the network was handed in.
    """
    if "network" in info:
        return str(info["network"]["signature"])
    data = info["data"]
    return network_signature(model, classes=len(data["class_names"]), image_channels=data["image_shape"][-1])


def network_of_run(
    model: ModelRecipe, info: Mapping[str, Any], given: StagedNetwork | None, *, where: Path
) -> StagedNetwork:
    """A network to load the run's weights into; one that is handed in is copied and stays as it is.

    Args:
        where: the run's directory, for what may be refused.
    """
    data = info["data"]
    if given is not None:
        require_fits(info, given, where=where)
        return copy.deepcopy(given)
    if "network" not in info:
        return network_of(model, classes=len(data["class_names"]), image_channels=data["image_shape"][-1])
    raise RequestError(
        f"the run in {where} trained a network that was handed in, which no recipe describes; "
        "do this from Python with network= built as it was then, or use a bundle of the run"
    )


def require_fits(info: Mapping[str, Any], given: StagedNetwork, *, where: Path) -> None:
    """Refuse a network that the run's weights are not for."""
    height, width, channels = info["data"]["image_shape"]
    require_same_signature(info, signature_of(given, (channels, height, width)), where=where)


def require_same_signature(info: Mapping[str, Any], found: str, *, where: Path) -> None:
    if "network" not in info:
        raise RequestError(f"the run in {where} has the network of its recipe; leave network= out")
    there = info["network"]["signature"]
    if found != there:
        raise RequestError(
            f"network= is another network than the run in {where} trained ({found}, not {there}); "
            "build it as it was then: the same model and the same cuts"
        )
