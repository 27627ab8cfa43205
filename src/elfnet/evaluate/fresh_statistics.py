"""Batch-norm statistics anew, for networks that were trained with `drop`.

There, later layers learn the statistics of the examples that stayed. One pass over all training images gives them those
of everybody, which is what inference at full depth sees.
"""

import torch

from elfnet.data.batches import Normalisation, TrainingBatches
from elfnet.data.splits import Splits
from elfnet.models.batch_norm import reset_statistics
from elfnet.models.staged import StagedNetwork


@torch.no_grad()
def estimate_statistics(network: StagedNetwork, splits: Splits, *, flip: bool, pad: int, batch_size: int = 128) -> None:
    """Replace the running statistics of a network, in place, by averages over one augmented epoch."""
    reset_statistics(network)
    network.train()
    batches = TrainingBatches(
        splits.train,
        Normalisation.of(splits.train),
        batch_size=batch_size,
        seed=0,
        pad=pad,
        flip=flip,
        device=next(network.parameters()).device,
    )
    for images, _ in batches.epoch(0):
        network.forward(images)
    network.eval()
