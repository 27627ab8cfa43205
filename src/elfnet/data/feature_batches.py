"""Batches from feature rows; as images of one pixel, (B, F, 1, 1)."""

# Shapes: N rows, B batch, F features

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from elfnet.data.batches import Normalisation, epoch_generator
from elfnet.data.epoch_order import EpochOrder
from elfnet.data.examples import Ints
from elfnet.data.feature_rows import FeatureRows
from elfnet.data.share import WHOLE, Share


def measured_normalisation(rows: FeatureRows) -> Normalisation:
    """Mean and deviation of each feature, in float64; a constant feature is only shifted."""
    mean_F = rows.features_NF.mean(axis=0, dtype=np.float64)
    std_F = rows.features_NF.std(axis=0, dtype=np.float64)
    return Normalisation(tuple(mean_F.tolist()), tuple(np.where(std_F > 0, std_F, 1.0).tolist()))


class _Normalised:
    def __init__(self, rows: FeatureRows, normalisation: Normalisation, device: torch.device) -> None:
        self._features_NF = torch.from_numpy(rows.features_NF).to(device)
        self._mean_F, self._std_F = normalisation.tensors(device)

    def __call__(self, chosen_B: Tensor | slice) -> Tensor:
        return ((self._features_NF[chosen_B] - self._mean_F) / self._std_F)[:, :, None, None]


class FeatureTrainingBatches:
    """Shuffled batches; there is nothing to augment."""

    def __init__(
        self,
        rows: FeatureRows,
        normalisation: Normalisation,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        sampler: str = "shuffle",
        share: Share = WHOLE,
    ) -> None:
        self.batch_size = min(batch_size, len(rows))
        self._order, self._share = EpochOrder(rows.labels_N, sampler), share
        self._rows = _Normalised(rows, normalisation, device)
        self._labels_N = torch.from_numpy(rows.labels_N).to(device)
        self._seed = seed

    def __len__(self) -> int:
        """Steps in an epoch."""
        return -(-len(self._labels_N) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(features, labels) of each step of an epoch."""
        order_N = self._order.draw(epoch_generator(self._seed, epoch)).rows_N
        for batch_B in torch.split(order_N.to(self._labels_N.device), self.batch_size):
            chosen_B = self._share.of(batch_B)
            yield self._rows(chosen_B), self._labels_N[chosen_B]

    def close(self) -> None:
        """Nothing was opened."""

    def skipped(self) -> int:
        """What is in memory was read."""
        return 0


class FeatureEvaluationBatches:
    """Every row once, in order."""

    def __init__(
        self,
        rows: FeatureRows,
        normalisation: Normalisation,
        *,
        batch_size: int,
        device: torch.device,
        share: Share = WHOLE,
    ) -> None:
        self._rows, self._batch_size = _Normalised(rows, normalisation, device), batch_size
        self._first, self._end = share.bounds(len(rows))

    def __len__(self) -> int:
        return -(-(self._end - self._first) // self._batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        for start in range(self._first, self._end, self._batch_size):
            yield self._rows(slice(start, min(start + self._batch_size, self._end)))

    def rows(self) -> Ints:
        """All of them, or this process's share."""
        return np.arange(self._first, self._end)
