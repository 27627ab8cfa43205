"""Telling networks apart that no recipe describes."""

import hashlib

import torch

from elfnet.models.evaluation_mode import evaluation_mode
from elfnet.models.staged import StagedNetwork


@torch.no_grad()
def signature_of(network: StagedNetwork, image_shape: tuple[int, ...]) -> str:
    """One line for a network that was handed in: a checkpoint that carries another does not fit it.

    It covers names, shapes and types of all tensors and the shape of every stage's features, not their values.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    features = torch.zeros(1, *image_shape, device=next(network.parameters()).device)
    with evaluation_mode(network):
        for stage in network.stages:
            features = stage(features)
            digest.update(f"{tuple(features.shape)}\n".encode())
    return f"given network, {network.exits} exits, {network.classes} classes, {digest.hexdigest()[:16]}"
