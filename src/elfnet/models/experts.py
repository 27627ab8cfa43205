"""Networks with experts: several copies of the last block group of a backbone, each of them a late exit.

All experts read the same shared features, and each has its own classifier. An expert's exit returns the mean of the
logits of all experts that have run so far. The exit of the first expert is that of the plain backbone. Every further
expert costs one more block group, but only for images that did not stop before. Experts are trained separately: the
loss of an expert's exit uses the expert's own logits (`own_logits`), not the mean.
"""

# Shapes: E exits, B batch, C classes

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from elfnet.models.staged import StagedNetwork


class ExpertNetwork(StagedNetwork):
    """A staged network whose last exits are experts.

    `stages[k]` and `heads[k]` hold the weights of exit k: for an expert, its block group and its classifier. `pairs()`
    returns what is run. There an expert's classifier is part of the stage, since the next expert adds its logits to the
    sum. Each expert passes two tensors to the next: the shared features and the sum of the logits.

    Args:
        shared: the stages before the experts.
        early_heads: the heads of these stages.
        groups: the block group of each expert.
        classifiers: the head of each expert.
        classes: the number of classes.

    Raises:
        ValueError: the numbers of stages and heads differ, or there are fewer than two experts.
    """

    def __init__(
        self,
        shared: Sequence[nn.Module],
        early_heads: Sequence[nn.Module],
        groups: Sequence[nn.Module],
        classifiers: Sequence[nn.Module],
        *,
        classes: int,
    ) -> None:
        super().__init__([*shared, *groups], [*early_heads, *classifiers], classes=classes)
        if len(shared) != len(early_heads) or len(groups) < 2:
            raise ValueError(
                f"every shared stage needs one early head (got {len(shared)} stages and {len(early_heads)} heads), "
                f"and there must be at least two experts (got {len(groups)})"
            )
        self.experts = len(groups)
        experts = zip(groups, classifiers, strict=True)
        # A tuple, so that torch does not register the weights twice. Built once, since a compiled training step
        # identifies modules by identity.
        self._pairs: tuple[tuple[nn.Module, nn.Module], ...] = (
            *zip(shared, early_heads, strict=True),
            *((_Expert(*expert), _ExpertMean(number)) for number, expert in enumerate(experts, 1)),
        )

    def pairs(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """The stage and the head that are run for each exit."""
        return iter(self._pairs)


class _Expert(nn.Module):
    """The stage of an expert: adds its logits to the second of (shared features, sum of logits so far)."""

    def __init__(self, group: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.group = group
        self.classifier = classifier

    def forward(self, features: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Run the expert. The first expert gets the shared features alone, since there is no sum yet."""
        if isinstance(features, tuple):
            shared, sum_BC = features
            return shared, sum_BC + self._logits(shared)
        return features, self._logits(features)

    def _logits(self, shared: Tensor) -> Tensor:
        logits_BC: Tensor = self.classifier(self.group(shared))
        return logits_BC


class _ExpertMean(nn.Module):
    """The head of an expert's exit: the mean of the logits so far."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        _, sum_BC = features
        return sum_BC / self.experts


def own_logits(outputs_EBC: Tensor, experts: int) -> Tensor:
    """Compute the logits of each exit's own classifier from the outputs of all exits; shape (E, B, C).

    The output of an early exit is its own logits. Expert j's own logits are j mean_j - (j - 1) mean_(j-1). The map is
    linear, and each expert gets gradients from its own loss only.

    Args:
        outputs_EBC: the outputs of all exits, with the experts last.
        experts: the number of experts; 1 for a network without experts.

    Example:
        >>> own_logits(torch.tensor([5.0, 1.0, 2.0, 4.0]).reshape(4, 1, 1), experts=3).flatten().tolist()
        [5.0, 1.0, 3.0, 8.0]
    """
    if experts == 1:
        return outputs_EBC
    first = len(outputs_EBC) - experts
    number_E = torch.arange(1, experts + 1, dtype=outputs_EBC.dtype, device=outputs_EBC.device)
    sum_EBC = outputs_EBC[first:] * number_E[:, None, None]
    return torch.cat([outputs_EBC[: first + 1], sum_EBC[1:] - sum_EBC[:-1]])


def copy_group(group: nn.Module, experts: int) -> list[nn.Module]:
    """Return the group and `experts - 1` copies of it; the caller initialises each."""
    return [group, *(copy.deepcopy(group) for _ in range(experts - 1))]
