"""What a backbone is: stages cut where exits sit, the exit heads that suit it, and how its weights start."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

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
