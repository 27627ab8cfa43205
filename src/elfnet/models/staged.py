"""Staged networks: an ordered list of stages with one head (exit) per stage, their modes, and what backbones share.

Training runs all stages and heads. Adaptive inference may stop after any of them. Costs are counted per stage and per
head. A network without early exits has one stage and one head.
"""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Fork = Callable[[int, Any], tuple[Any, Any]]
"""A function from k (counted from 0) and the output of stage k to the inputs of head k and of stage k + 1."""


def same_features(k: int, features: Any) -> tuple[Any, Any]:  # noqa: ARG001 (part of the interface of forks)
    """The default fork: head k and stage k + 1 both read the output of stage k."""
    return features, features


def reset_compiler(*, graphs: int) -> None:
    """Drop all compiled graphs of this process, and raise torch's limit of graphs per function to `graphs`.

    Graphs compiled before count against the limit. Above the limit, torch runs functions uncompiled.
    """
    torch.compiler.reset()
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, graphs)


class StagedNetwork(nn.Module):
    """A network of stages that run one after the other, with a head after each.

    Args:
        stages: stage k maps the features of stage k - 1 (the images, for the first stage) to features.
        heads: head k maps the features of stage k to logits, shape (B, C), float32.
        classes: the number of classes, equal for all heads.

    Attributes:
        experts: how many of the last exits are experts (see `ExpertNetwork`); 1 for a network without experts.

    Raises:
        ValueError: the numbers of stages and heads differ, or are zero.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from elfnet import StagedNetwork
        >>> net = StagedNetwork([nn.Flatten(), nn.Linear(12, 8)], [nn.Linear(12, 3), nn.Linear(8, 3)], classes=3)
        >>> net(torch.zeros(5, 3, 2, 2)).shape
        torch.Size([2, 5, 3])
    """

    experts: int = 1

    def __init__(self, stages: list[nn.Module], heads: list[nn.Module], *, classes: int) -> None:
        super().__init__()
        if not stages or len(stages) != len(heads):
            raise ValueError(f"every stage needs one head: got {len(stages)} stages and {len(heads)} heads")
        self.stages = nn.ModuleList(stages)
        self.heads = nn.ModuleList(heads)
        self.classes = classes

    @property
    def exits(self) -> int:
        """The number of exits, including the last one."""
        return len(self.heads)

    def pairs(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """The stage and the head that are run for each exit."""
        return zip(self.stages, self.heads, strict=True)

    def forward(self, images: Tensor, fork: Fork = same_features) -> Tensor:
        """Return the logits of every exit, shape (E, B, C), in training and in evaluation mode.

        Args:
            images: shape (B, channels, height, width).
            fork: applied to the output of every stage, before its head and the next stage; see `GradientEquilibrium`.
        """
        features: Any = images
        logits_E = []
        for k, (stage, head) in enumerate(self.pairs()):
            to_head, features = fork(k, stage(features))
            logits_E.append(head(to_head))
        return torch.stack(logits_E)

    def logits(self, images: Tensor) -> Tensor:
        """Call the network; unlike a call of a module, this has a type (`Tensor`)."""
        logits_EBC: Tensor = self(images)
        return logits_EBC


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


Trunk = Literal["conv", "separable", "grid", "none"]
TRUNKS: tuple[Trunk, ...] = ("conv", "separable", "grid", "none")
"""The kinds of trunks of early exits; see `exit_head`."""


@dataclass(frozen=True)
class Backbone:
    """A backbone, divided into stages where exits can be attached.

    Attributes:
        stages: the stages in order.
        channels: the number of output channels of each stage.
    """

    stages: list[nn.Module]
    channels: list[int]


@dataclass(frozen=True)
class Architecture:
    """How to build and initialise a backbone, and the defaults of its exits.

    Attributes:
        build: builds the backbone for a number of image channels.
        exit_trunk: the kind of trunk of early exits; see `exit_head`.
        exit_filters: the number of filters of these convolutions; 0 for the number of input channels.
        initialise: initialises the weights of a stage.
        initialise_classifier: initialises a linear classifier; None to keep the weights of its constructor.
        smallest_image: the smallest height and width of images, in pixels.
        repeats_last_group: whether the last stage is a group of blocks that experts can copy.
    """

    build: Callable[[int], Backbone]
    exit_trunk: Trunk
    exit_filters: int
    initialise: Callable[[nn.Module], None]
    initialise_classifier: Callable[[nn.Linear], None] | None = None
    smallest_image: int = 1
    repeats_last_group: bool = True
