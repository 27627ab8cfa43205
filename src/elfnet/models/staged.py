"""A network is an ordered list of stages; behind every stage stands a head.

Training runs them all, adaptive inference stops between them, FLOPs are counted for each once, and a fixed-depth
model is a prefix of the list. The network without exits is the same thing with one stage and one head.
"""

# Shapes: E exits, B batch, C classes

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

Fork = Callable[[int, Any], tuple[Any, Any]]
"""Called with k (from 0) and the features of stage k; gives what head k reads and what stage k + 1 reads."""


def same_features(k: int, features: Any) -> tuple[Any, Any]:  # noqa: ARG001 (every fork takes k)
    """The ordinary fork: head k and stage k + 1 read the features of stage k."""
    return features, features


def reset_compiler(*, graphs: int) -> None:
    """Forget compiled graphs and make room for as many as will be needed.

    What this process compiled before counts against torch's limit of graphs per function; past it, torch runs
    uncompiled.
    """
    torch.compiler.reset()
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, graphs)


class StagedNetwork(nn.Module):
    """Stages and heads, run in order.

    Args:
        stages: stage k maps the features of stage k-1 (the images, for the first) to features.
        heads: head k maps the features of stage k to logits, shape (B, C), float32.
        classes: number of classes, the same for every head.

    Attributes:
        experts: how many of the last exits are experts (see `elfnet.models.experts`); 1: none, the last exit is the
            backbone's own classifier.

    Example:
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
        """Number of exits, the last classifier included."""
        return len(self.heads)

    def pairs(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """Each stage with the head behind it, as they are run."""
        return zip(self.stages, self.heads, strict=True)

    def forward(self, images: Tensor, fork: Fork = same_features) -> Tensor:
        """Logits of every exit, shape (E, B, C), in training and evaluation alike.

        Args:
            images: shape (B, channels, height, width).
            fork: applied behind every stage, before its head and the next stage; see `GradientEquilibrium`.
        """
        features: Any = images
        logits_E = []
        for k, (stage, head) in enumerate(self.pairs()):
            to_head, features = fork(k, stage(features))
            logits_E.append(head(to_head))
        return torch.stack(logits_E)

    # A typed name for the call, so that users of the network get a Tensor and not Any.
    def logits(self, images: Tensor) -> Tensor:
        logits_EBC: Tensor = self(images)
        return logits_EBC


Trunk = Literal["conv", "separable", "none"]
TRUNKS: tuple[Trunk, ...] = ("conv", "separable", "none")


@dataclass(frozen=True)
class Backbone:
    """A backbone cut where exits may sit: stage k's output has `channels[k]` channels."""

    stages: list[nn.Module]
    channels: list[int]


@dataclass(frozen=True)
class Architecture:
    """A backbone that can be built, with what the paper says about its exits.

    Attributes:
        build: from the number of image channels to the stages.
        exit_trunk: convolutions of an early exit, plain or depthwise-separable, or none: pool and classify.
        exit_filters: their filters; 0: as many as the exit reads channels.
        initialise: draws the first weights of a stage.
        initialise_classifier: draws the first weights of a linear classifier; None: as its own constructor does.
        smallest_image: the least height and width, in pixels, that leave something to see at the last stage.
        repeats_last_group: whether the last stage is a group of blocks, of which experts can have a copy each.
    """

    build: Callable[[int], Backbone]
    exit_trunk: Trunk
    exit_filters: int
    initialise: Callable[[nn.Module], None]
    initialise_classifier: Callable[[nn.Linear], None] | None = None
    smallest_image: int = 1
    repeats_last_group: bool = True
