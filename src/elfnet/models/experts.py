"""Networks with experts: the last group of a backbone exists several times, and each copy is a late exit.

All experts read the same shared features and have a classifier of their own. The answer of an expert's exit is the mean
of the logits of the experts that have run so far. The first expert's exit is the plain backbone's answer; every further
expert costs one more group, which only the images pay that are still undecided. Experts are trained apart: the loss of
an expert's exit reads the expert's own logits (`own_logits`), not the mean.
"""

# Shapes: E exits, B batch, C classes

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from elfnet.models.staged import StagedNetwork


class ExpertNetwork(StagedNetwork):
    """Shared stages with early exits, then experts as late exits.

    `stages[k]` and `heads[k]` hold the weights of exit k; of an expert these are its group and its classifier.
    `pairs()` gives what is run. There an expert's classifier belongs to the stage, since the next expert adds its
    logits to the sum. From expert to expert two tensors are passed on: the shared features and the sum of the logits.

    Args:
        shared: the stages before the experts.
        early_heads: the heads behind them.
        groups: the experts' copies of the last group.
        classifiers: the head behind each group.
        classes: number of classes.
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
                f"shared stages and early heads go together ({len(shared)} and {len(early_heads)}), and there are at "
                f"least two experts ({len(groups)})"
            )
        self.experts = len(groups)
        experts = zip(groups, classifiers, strict=True)
        # In a tuple, so that torch does not register the weights a second time. Made once: a compiled training step
        # knows a module by its identity.
        self._run: tuple[tuple[nn.Module, nn.Module], ...] = (
            *zip(shared, early_heads, strict=True),
            *((_Expert(*expert), _MeanOfExperts(number)) for number, expert in enumerate(experts, 1)),
        )

    def pairs(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """What is run for each exit: a stage and the head behind it."""
        return iter(self._run)


class _Expert(nn.Module):
    """The stage of an expert: (shared features, sum of logits so far) to the same with its own logits added."""

    def __init__(self, group: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.group = group
        self.classifier = classifier

    def forward(self, features: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The first expert reads the shared features alone: there is no sum yet."""
        if isinstance(features, tuple):
            shared, sum_BC = features
            return shared, sum_BC + self._logits(shared)
        return features, self._logits(features)

    def _logits(self, shared: Tensor) -> Tensor:
        logits_BC: Tensor = self.classifier(self.group(shared))
        return logits_BC


class _MeanOfExperts(nn.Module):
    """The head of an expert's exit: the mean of the logits so far."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        _, sum_BC = features
        return sum_BC / self.experts


def own_logits(answers_EBC: Tensor, experts: int) -> Tensor:
    """The logits that each exit's own classifier gave, from the answers of all exits; shape (E, B, C).

    An early exit's answer is its own logits. Expert j's own logits are j mean_j - (j - 1) mean_(j-1). The map is linear
    and constant, so gradients reach each expert from its own loss only.

    Args:
        answers_EBC: of all exits, those of the experts last.
        experts: number of experts; 1: a network without.

    Example:
        >>> own_logits(torch.tensor([5.0, 1.0, 2.0, 4.0]).reshape(4, 1, 1), experts=3).flatten().tolist()
        [5.0, 1.0, 3.0, 8.0]
    """
    if experts == 1:
        return answers_EBC
    first = len(answers_EBC) - experts
    number_E = torch.arange(1, experts + 1, dtype=answers_EBC.dtype, device=answers_EBC.device)
    sum_EBC = answers_EBC[first:] * number_E[:, None, None]
    return torch.cat([answers_EBC[: first + 1], sum_EBC[1:] - sum_EBC[:-1]])


def repeated(group: nn.Module, experts: int) -> list[nn.Module]:
    """The group and copies of it; every one is initialised by itself later."""
    return [group, *(copy.deepcopy(group) for _ in range(experts - 1))]
