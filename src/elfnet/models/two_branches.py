"""A residual network whose last block and classifier exist twice, as BBN has it."""

# Shapes: B batch, C classes

from copy import deepcopy

from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.architecture import Backbone
from elfnet.models.heads import CLASSIFIERS, Head
from elfnet.models.staged import StagedNetwork


class TwoBranchHead(nn.Module):
    """Two heads, each a block, a pool and a classifier; the answer is the mean of their logits."""

    def __init__(self, frequent: Head, rare: Head) -> None:
        super().__init__()
        self.frequent = frequent
        self.rare = rare

    def forward(self, features: Tensor) -> Tensor:
        logits_BC: Tensor = (self.frequent(features) + self.rare(features)) / 2
        return logits_BC


def two_branch_network(name: str, cut: Backbone, *, classes: int, kind: str) -> StagedNetwork:
    """The plain network up to its last residual block, and that block and the classifier twice.

    Args:
        name: of the backbone, for messages.
        kind: of the classifiers.
    """
    *before, last = cut.stages
    if not name.startswith("resne") or not isinstance(last, nn.Sequential):
        raise RequestError(f"model.branches=2 doubles the last residual block, and {name} has none; use a resnet")
    *shared, block = last.children()
    heads = [Head(trunk, CLASSIFIERS[kind](cut.channels[-1], classes)) for trunk in (block, deepcopy(block))]
    return StagedNetwork([nn.Sequential(*before, *shared)], [TwoBranchHead(*heads)], classes=classes)
