"""Telling networks apart that no recipe describes."""

import hashlib
from typing import Any

import torch
from torch import Tensor

from elfnet.errors import RequestError
from elfnet.models.evaluation_mode import evaluation_mode
from elfnet.models.staged import StagedNetwork

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
