"""Batch norm that accepts single examples, frozen parts of networks, and training and evaluation mode."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from elfnet.models.staged import StagedNetwork


class BatchNorm2d(nn.BatchNorm2d):
    """torch's `BatchNorm2d`, but a single value per channel in training is normalised by the running statistics.

    If examples stop at early exits during training, one example may remain on a 1 x 1 map. Its batch variance is zero,
    and torch raises an error. Here it is normalised by the running statistics, which do not change.
    """

    def forward(self, input: Tensor) -> Tensor:
        one_value_per_channel = self.training and input.shape[0] * input.shape[2] * input.shape[3] == 1
        if one_value_per_channel and self.running_mean is not None:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)


@torch.no_grad()
def reset_statistics(network: nn.Module) -> None:
    """Reset the running statistics of every batch norm, and give all following batches equal weight."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = None


def freeze_backbone(network: StagedNetwork) -> None:
    """Freeze all stages, weights and batch-norm statistics; heads are still trained."""
    network.stages.requires_grad_(False)
    network.stages.eval()


def freeze_all_but(network: StagedNetwork, learns: Callable[[str], bool]) -> None:
    """Freeze all parameters for which `learns(name)` is false, and the batch norms of fully frozen parts."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(learns(name))
    training_mode(network)


def training_mode(
    network: StagedNetwork, around: nn.Module | None = None, *, frozen: Literal["eval", "train"] = "eval"
) -> None:
    """Call `.train()`, but keep frozen stages and frozen parts of heads in evaluation mode.

    Args:
        around: a module that contains the network and is set to training mode, too.
        frozen: `train` sets frozen parts to training mode, too. Their batch norms then use and follow the statistics of
            the batches.
    """
    (around or network).train()
    if frozen == "train":
        return
    for part in [*network.stages, *(child for head in network.heads for child in head.children())]:
        parameters = list(part.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            part.eval()


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Set the network to evaluation mode, and restore the mode of every module on exit."""
    before = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
