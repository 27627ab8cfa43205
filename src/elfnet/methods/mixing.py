"""What is made of a batch before the network sees it."""

# Shapes: B batch

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from elfnet.criterion.labels import Labels


@dataclass(frozen=True)
class MixedBatch:
    """Images, what they are to be classified as, and what else the forward pass needs to know.

    Attributes:
        forward: arguments by name, for the forward pass that belongs to the mixing.
    """

    images: Tensor
    labels: Labels
    forward: dict[str, Tensor | int] = field(default_factory=dict)

    def parts(self, number: int) -> "list[MixedBatch]":
        """The batch in several parts; parts without an example are left out, unless all are."""
        if number == 1:
            return [self]
        assert not self.forward, "what is mixed inside the network is not cut; the recipe refuses it"
        first, second, share = self.labels.first_B, self.labels.second_B, self.labels.share
        seconds = [None] * number if second is None else second.tensor_split(number)
        cut = [
            MixedBatch(images, Labels(first_b, second_b, share))
            for images, first_b, second_b in zip(
                self.images.tensor_split(number), first.tensor_split(number), seconds, strict=True
            )
        ]
        return [part for part in cut if len(part.images)] or cut[:1]


class Mixing(Protocol):
    """Makes a batch out of images and labels; draws from torch's own generator, which each epoch seeds."""

    def __call__(self, images: Tensor, target_B: Tensor, epoch: int) -> MixedBatch: ...


def unmixed(images: Tensor, target_B: Tensor, epoch: int) -> MixedBatch:  # noqa: ARG001 (every mixing takes it)
    """The ordinary batch: every image is itself."""
    return MixedBatch(images, Labels(target_B))


def draw_share(alpha: float) -> float:
    """The share of the first image of all pairs of a batch, from Beta(alpha, alpha)."""
    # On the CPU whatever the device: the share decides which label leads, and nobody should wait for that.
    concentration = torch.tensor(alpha, dtype=torch.float64)
    return float(torch.distributions.Beta(concentration, concentration, validate_args=False).sample())


def draw_partners(target_B: Tensor) -> Tensor:
    """With which other image of the batch each is paired, shape (B,)."""
    return torch.randperm(len(target_B)).to(target_B.device)
