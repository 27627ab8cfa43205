"""Batch normalisation that a single example cannot break."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.staged import StagedNetwork


class BatchNorm2d(nn.BatchNorm2d):
    """As torch's, but one value per channel in training is normalised by the running statistics.

    When examples leave during training, one example may remain on a 1 x 1 map. Its batch variance is zero, so torch
    raises; normalising with what is known so far, and learning no statistics from it, lets the step go on.
    """

    def forward(self, input: Tensor) -> Tensor:
        one_value_a_channel = self.training and input.shape[0] * input.shape[2] * input.shape[3] == 1
        if one_value_a_channel and self.running_mean is not None:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)


@torch.no_grad()
def reset_statistics(network: nn.Module) -> None:
    """Forget the running statistics of every batch norm, and average the coming batches equally."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = None


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


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Parts that were frozen in evaluation mode on purpose stay so afterwards, whatever happens in between."""
    before = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
