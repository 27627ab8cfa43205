"""Pruning by exit history: examples that have left at the first exit for several epochs are shown less often.

The exit at which an example leaves in training (eq. 1) tells how easy it is, at no cost. An example is easy if it left
at the first exit in each of the last epochs in which it was shown. Of the easy examples of a class an epoch shows only
a part, drawn anew every time. This part is weighted so that it stands for all of them: the expected gradient stays what
it is with all examples. The last epochs show everything.
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

DRAWS = 1
"""Tells these random numbers from others with the same seed and epoch."""


@dataclass(frozen=True)
class PruningSettings:
    """What is pruned.

    Attributes:
        share: of a class's easy examples that an epoch leaves out, in (0, 1).
        patience: epochs in a row in which an example left at the first exit before it counts as easy.
        floor: examples of each class that every epoch shows at least.
        until: share of the epochs after which all examples are shown again.
    """

    share: float
    patience: int
    floor: int
    until: float


def require_floor(floor: int, class_counts_C: Ints, class_names: Sequence[str]) -> None:
    """Refuse a floor that a class does not reach even with all of its examples."""
    smallest = int(class_counts_C.argmin())
    if floor > class_counts_C[smallest]:
        raise RequestError(
            f"train.prune_floor={floor} is more than the {class_counts_C[smallest]} training examples of class "
            f"{class_names[smallest]}; set it to {class_counts_C[smallest]} or less"
        )


class ExitHistory:
    """For each training example, in how many epochs in a row it left at the first exit.

    Args:
        examples: size of the training split.
        device: on which the training steps run: they write without waiting for it.
        summed: adds a tensor up over all processes, in place.
    """

    def __init__(
        self, examples: int, device: torch.device, all_reduce: Callable[[Tensor], Tensor] = lambda tensor: tensor
    ) -> None:
        self.streak_N = torch.zeros(examples, dtype=torch.int32, device=device)
        self._summed = all_reduce
        # Of the epoch that runs: how often each example was shown, and how often it left at the first exit.
        self._met_2N = torch.zeros(2, examples, dtype=torch.int32, device=device)

    @torch.no_grad()
    def add(self, rows_b: Tensor, exit_b: Tensor) -> None:
        """Take in a step: the exit (from 0) at which each example left. Mixed examples do not belong here."""
        ones_b = torch.ones_like(rows_b, dtype=torch.int32)
        self._met_2N[0].index_add_(0, rows_b, ones_b)
        self._met_2N[1].index_add_(0, rows_b, (exit_b == 0).to(torch.int32))

    def end_epoch(self) -> None:
        """Bring the streaks up to date; the same in every process. What was not shown keeps its streak."""
        shown_N, easy_N = self._summed(self._met_2N)
        longer_N = torch.where(shown_N == easy_N, self.streak_N + 1, torch.zeros_like(self.streak_N))
        self.streak_N = torch.where(shown_N > 0, longer_N, self.streak_N)
        self._met_2N.zero_()


class Pruning:
    """Which examples an epoch shows, and what each of them counts.

    Everything is a pure function of the history before the epoch, the seed and the epoch. As a `Selection` it tells the
    feed which examples to read.

    Args:
        labels_N: of the training split.
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
        """Draw what the epoch shows."""
        self._epoch = epoch
        self._weight_N = torch.from_numpy(self.draw(epoch)).to(self.history.streak_N.device)

    def shown(self, epoch: int) -> NDArray[np.bool_]:
        """Whether each example is shown in the epoch that was begun, shape (N,)."""
        assert epoch == self._epoch, "an epoch is drawn when it begins, from the history before it"
        return self._weight_N.cpu().numpy() > 0

    def weight(self, rows_b: Tensor) -> Tensor:
        """What each of these examples counts in the epoch that was begun, shape (b,)."""
        return self._weight_N[rows_b]

    def draw(self, epoch: int) -> NDArray[np.float32]:
        """The weight of every example in an epoch, shape (N,); 0: it is not shown."""
        weight_N = np.ones(len(self._labels_N), dtype=np.float32)
        # The last epoch shows everything, however short the run is.
        if epoch >= min(self._epochs * self._settings.until, self._epochs - 1):
            return weight_N
        easy_N = self.history.streak_N.cpu().numpy() >= self._settings.patience
        order_N = np.random.default_rng([self._seed, epoch, DRAWS]).permutation(len(weight_N))
        for label in np.unique(self._labels_N[easy_N]):
            easy = order_N[(easy_N & (self._labels_N == label))[order_N]]
            hard = int((self._labels_N == label).sum()) - len(easy)
            kept = max(round((1 - self._settings.share) * len(easy)), self._settings.floor - hard, 1)
            weight_N[easy[kept:]] = 0.0
            weight_N[easy[:kept]] = len(easy) / min(kept, len(easy))
        return weight_N
