"""Two feeds side by side: every step has a batch of each, one after the other in one tensor."""

# Shapes: B batch of each feed

from collections.abc import Iterator

import torch
from torch import Tensor

from elfnet.data.batches import TrainingFeed


class PairedFeed:
    """A feed whose batches are twice as long; the first half comes from one feed, the second from the other."""

    def __init__(self, first: TrainingFeed, second: TrainingFeed) -> None:
        assert len(first) == len(second), "both draw as many examples as there are"
        self._first, self._second = first, second

    @property
    def batch_size(self) -> int:
        """Of each half."""
        return self._first.batch_size

    def __len__(self) -> int:
        return len(self._first)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        for (images, labels_B), (other, other_B) in zip(
            self._first.epoch(epoch), self._second.epoch(epoch), strict=True
        ):
            # Where an image could not be read and was left out, the halves would differ: the shorter one counts.
            both = min(len(labels_B), len(other_B))
            yield torch.cat([images[:both], other[:both]]), torch.cat([labels_B[:both], other_B[:both]])

    def close(self) -> None:
        self._first.close()
        self._second.close()

    def skipped(self) -> int:
        return max(self._first.skipped(), self._second.skipped())
