"""Pruning by exit history: examples that took the first exit for several epochs are shown less often.

The exit that an example takes in training (eq. 1) shows how easy it is, at no extra cost. An example is easy if it took
the first exit in each of the last epochs that showed it. An epoch shows only a random part of the easy examples of a
class, with weights that keep the expected gradient unchanged. The last epochs show all examples.
"""

# Shapes: N examples of the training split, b examples of a step

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.data.types import Ints
from elfnet.errors import RequestError

RANDOM_STREAM = 1
"""Separates these random numbers from others with the same seed and epoch."""


@dataclass(frozen=True)
class PruningSettings:
    """Settings of pruning.

    Attributes:
        share: fraction of the easy examples of a class that an epoch leaves out, in (0, 1).
        patience: epochs in a row with the first exit taken, from which an example is easy.
        floor: minimum number of examples per class that every epoch shows.
        until: fraction of the epochs after which all examples are shown again.
    """

    share: float
    patience: int
    floor: int
    until: float


def require_floor(floor: int, class_counts_C: Ints, class_names: Sequence[str]) -> None:
    """Refuse a floor above the number of examples of the smallest class; classes without examples do not count."""
    smallest = int(np.where(class_counts_C > 0, class_counts_C, class_counts_C.max()).argmin())
    if floor > class_counts_C[smallest]:
        raise RequestError(
            f"train.prune_floor={floor} is more than the {class_counts_C[smallest]} training examples of class "
            f"{class_names[smallest]}; set it to {class_counts_C[smallest]} or less"
        )


class ExitHistory:
    """Counts for each training example the epochs in a row in which it took the first exit.

    Args:
        examples: size of the training split.
        device: of the training steps, so that they write without host synchronisation.
        all_reduce: sums a tensor over all processes, in place.

    Attributes:
        streak_N: epochs in a row with the first exit taken.
    """

    def __init__(
        self, examples: int, device: torch.device, all_reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor
    ) -> None:
        self.streak_N = torch.zeros(examples, dtype=torch.int32, device=device)
        self._all_reduce = all_reduce
        # In the current epoch: how often each example was shown, and how often it took the first exit.
        self._count_2N = torch.zeros(2, examples, dtype=torch.int32, device=device)

    @torch.no_grad()
    def add(self, rows_b: Tensor, exit_b: Tensor) -> None:
        """Add a step: the exit (0-based) that each example took. Mixed examples must not be added."""
        ones_b = torch.ones_like(rows_b, dtype=torch.int32)
        self._count_2N[0].index_add_(0, rows_b, ones_b)
        self._count_2N[1].index_add_(0, rows_b, (exit_b == 0).to(torch.int32))

    def end_epoch(self) -> None:
        """Update the streaks, equally in every process. An example that was not shown keeps its streak."""
        shown_N, easy_N = self._all_reduce(self._count_2N)
        longer_N = torch.where(shown_N == easy_N, self.streak_N + 1, torch.zeros_like(self.streak_N))
        self.streak_N = torch.where(shown_N > 0, longer_N, self.streak_N)
        self._count_2N.zero_()


class Pruning:
    """Selects the examples that an epoch shows, and their weights in the loss.

    Both are pure functions of the history before the epoch, the seed and the epoch. It is the `Selection` of the feed.

    Args:
        labels_N: labels of the training split.
        epochs: length of the run.
    """

    def __init__(
        self,
        settings: PruningSettings,
        history: ExitHistory,
        labels_N: Ints,
        *,
        seed: int,
        epochs: int,
    ) -> None:
        self.history = history
        self._settings, self._labels_N = settings, labels_N
        self._seed, self._epochs = seed, epochs
        self._epoch, self._weight_N = -1, torch.ones(len(labels_N))

    def begin_epoch(self, epoch: int) -> None:
        """Draw the examples of an epoch."""
        self._epoch = epoch
        self._weight_N = torch.from_numpy(self.draw(epoch)).to(self.history.streak_N.device)

    def shown(self, epoch: int) -> NDArray[np.bool_]:
        """Whether each example is shown in the current epoch, shape (N,)."""
        assert epoch == self._epoch, "an epoch is drawn when it begins, from the history before it"
        return self._weight_N.cpu().numpy() > 0

    def weight(self, rows_b: Tensor) -> Tensor:
        """The loss weight of each of these examples in the current epoch, shape (b,)."""
        return self._weight_N[rows_b]

    def draw(self, epoch: int) -> NDArray[np.float32]:
        """The loss weight of every example in an epoch, shape (N,); 0: not shown."""
        weight_N = np.ones(len(self._labels_N), dtype=np.float32)
        # The last epoch shows everything, however short the run is.
        if epoch >= min(self._epochs * self._settings.until, self._epochs - 1):
            return weight_N
        easy_N = self.history.streak_N.cpu().numpy() >= self._settings.patience
        order_N = np.random.default_rng([self._seed, epoch, RANDOM_STREAM]).permutation(len(weight_N))
        for label in np.unique(self._labels_N[easy_N]):
            easy = order_N[(easy_N & (self._labels_N == label))[order_N]]
            hard = int((self._labels_N == label).sum()) - len(easy)
            kept = max(round((1 - self._settings.share) * len(easy)), self._settings.floor - hard, 1)
            weight_N[easy[kept:]] = 0.0
            weight_N[easy[:kept]] = len(easy) / min(kept, len(easy))
        return weight_N
