"""Batch-norm statistics anew, for networks that were trained with `drop`.

There, later layers learn the statistics of the examples that stayed. One pass over all training images gives them those
of everybody, which is what inference at full depth sees.
"""

import torch

from elfnet.data.loading.feed import TrainingFeed
from elfnet.models.batch_norm import reset_statistics
from elfnet.models.staged import StagedNetwork


@torch.no_grad()
def estimate_statistics(network: StagedNetwork, batches: TrainingFeed) -> None:
    """Replace the running statistics of a network, in place, by averages over one augmented epoch."""
    reset_statistics(network)
    network.train()
    try:
        for batch in batches.epoch(0):
            network.forward(batch.images)
    finally:
        batches.close()
    network.eval()
