"""A backbone that is not trained: its heads learn on features that stay as they are."""

from torch import nn

from elfnet.models.staged import StagedNetwork


def freeze_backbone(network: StagedNetwork) -> None:
    """The stages take no gradient and their batch norms learn no statistics; every head is still trained."""
    network.stages.requires_grad_(False)
    network.stages.eval()


def training_mode(network: StagedNetwork, around: nn.Module | None = None) -> None:
    """As `.train()`, but stages that were frozen stay in evaluation mode.

    Args:
        around: a module that holds the network and is put into training mode with it.
    """
    (around or network).train()
    for stage in network.stages:
        parameters = list(stage.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            stage.eval()
