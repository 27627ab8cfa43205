"""Batches and normalisation of feature rows in memory, as images of one pixel: (r, F, 1, 1)."""

# Shapes: N rows of the split, r rows of a request, F features

import numpy as np
import torch
from torch import Tensor

from elfnet.data.loading.feed import InMemorySource, Request
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.sources.features import FeatureRows


def measured_normalisation(rows: FeatureRows) -> Normalisation:
    """Measure mean and standard deviation per feature; the deviation of a constant feature is 1."""
    mean_F = rows.features_NF.mean(axis=0, dtype=np.float64)
    std_F = rows.features_NF.std(axis=0, dtype=np.float64)
    return Normalisation(tuple(mean_F.tolist()), tuple(np.where(std_F > 0, std_F, 1.0).tolist()))


class FeatureSource(InMemorySource):
    """Normalised feature rows for training and evaluation, without augmentation."""

    def __init__(self, rows: FeatureRows, normalisation: Normalisation, *, device: torch.device) -> None:
        self._features_NF = torch.from_numpy(rows.features_NF).to(device)
        self._mean_F, self._std_F = normalisation.tensors(device)

    def gather(self, epoch: int, request: Request) -> Tensor:  # noqa: ARG002 (a row is the same in every epoch)
        """The normalised rows of a request, float32 (r, F, 1, 1)."""
        rows_r = torch.from_numpy(request.rows_r).to(self._features_NF.device, non_blocking=True)
        return ((self._features_NF[rows_r] - self._mean_F) / self._std_F)[:, :, None, None]
