"""The network of BBN (Zhou et al. 2020): a shared backbone, its last block twice, and one classifier over both."""

# Shapes: B batch, F features of a branch, C classes

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.heads import CLASSIFIERS, Head
from elfnet.models.staged import Backbone, StagedNetwork


class TwoBranches(nn.Module):
    """The trunk of BBN's head: two blocks that read the same features, their outputs joined along the channels.

    Args:
        frequent: the branch for the original distribution.
        rare: the branch for rare classes.
    """

    def __init__(self, frequent: nn.Module, rare: nn.Module) -> None:
        super().__init__()
        self.frequent = frequent
        self.rare = rare

    def forward(self, features: Tensor) -> Tensor:
        """Run both branches with equal weight: `mix` at a share of 0.5, whose factor of 2 makes both weights 1."""
        return torch.cat([self.frequent(features), self.rare(features)], dim=1)

    def mix(self, frequent_features: Tensor, rare_features: Tensor, share: Tensor) -> Tensor:
        """Run each branch on its own batch, and join 2 share f and 2 (1 - share) g along the channels."""
        frequent, rare = self.frequent(frequent_features), self.rare(rare_features)
        share = share.to(frequent.dtype)
        return torch.cat([2 * share * frequent, 2 * (1 - share) * rare], dim=1)


class TwoBranchHead(Head):
    """The head of BBN: two branches, and one classifier with one bias over the features of both.

    The classifier has torch's initial weights, as in the authors' code. Weights stored by versions before 0.2, with one
    classifier per branch, are converted: their mean of two linear maps is one linear map of both branches' features.
    """

    trunk: TwoBranches

    def __init__(self, branches: TwoBranches, classifier: nn.Module) -> None:
        super().__init__(branches, classifier)
        if isinstance(classifier, nn.Linear):
            nn.Linear.reset_parameters(classifier)
        self.register_load_state_dict_pre_hook(_join_classifiers)  # type: ignore[no-untyped-call]


def _join_classifiers(head: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:  # noqa: ARG001
    """Convert a state dict with `frequent.trunk`, `frequent.classifier` and the same of `rare`, in place."""
    # Cosine classifiers have no bias. Two of them are not one, so such weights are refused as unknown.
    if f"{prefix}frequent.classifier.bias" not in state:
        return
    weights, biases = (
        [state.pop(f"{prefix}{branch}.classifier.{kind}") for branch in ("frequent", "rare")]
        for kind in ("weight", "bias")
    )
    state[f"{prefix}classifier.weight"] = torch.cat(weights, dim=1) / 2
    state[f"{prefix}classifier.bias"] = (biases[0] + biases[1]) / 2
    for name in [name for name in state if name.startswith((f"{prefix}frequent.trunk.", f"{prefix}rare.trunk."))]:
        branch, rest = name.removeprefix(prefix).split(".trunk.", 1)
        state[f"{prefix}trunk.{branch}.{rest}"] = state.pop(name)


def two_branch_network(name: str, cut: Backbone, *, classes: int, kind: str) -> StagedNetwork:
    """The network of BBN: shared up to the last residual block, which exists twice, and one classifier over both.

    Args:
        name: the name of the backbone, for messages.
        cut: the backbone.
        kind: the kind of the classifier.

    Raises:
        RequestError: the backbone has no residual blocks.
    """
    *before, last = cut.stages
    if not name.startswith("resne") or not isinstance(last, nn.Sequential):
        raise RequestError(f"model.branches=2 needs residual blocks, and {name} has none; use a resnet")
    *shared, block = last.children()
    head = TwoBranchHead(TwoBranches(block, deepcopy(block)), CLASSIFIERS[kind](2 * cut.channels[-1], classes))
    return StagedNetwork([nn.Sequential(*before, *shared)], [head], classes=classes)
