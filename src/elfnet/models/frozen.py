"""Parts of a network that are not trained: what is behind them learns on features that stay as they are."""

from collections.abc import Callable

from torch import nn

from elfnet.models.staged import StagedNetwork


def freeze_backbone(network: StagedNetwork) -> None:
    """The stages take no gradient and their batch norms learn no statistics; every head is still trained."""
    network.stages.requires_grad_(False)
    network.stages.eval()


def freeze_all_but(network: StagedNetwork, learns: Callable[[str], bool]) -> None:
    """Only parameters of which `learns(name)` take a gradient; batch norms of all the rest learn no statistics."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(learns(name))
    training_mode(network)


def training_mode(network: StagedNetwork, around: nn.Module | None = None) -> None:
    """As `.train()`, but stages and parts of heads that were frozen stay in evaluation mode.

    Args:
        around: a module that holds the network and is put into training mode with it.
    """
    (around or network).train()
    for part in [*network.stages, *(child for head in network.heads for child in head.children())]:
        parameters = list(part.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            part.eval()
