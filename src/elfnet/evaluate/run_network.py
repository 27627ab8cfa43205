"""One pass over a split: logits of every exit for every example."""

# Shapes: N examples, E exits, B batch, C classes

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.models.evaluation_mode import evaluation_mode
from elfnet.models.staged import StagedNetwork


@torch.inference_mode()
def logits_of(network: StagedNetwork, batches: Iterable[Tensor], *, precision: str = "float32") -> NDArray[np.float32]:
    """Logits (N, E, C), float32, in evaluation mode; the network's mode is left as it was."""
    parts = []
    with evaluation_mode(network):
        for images in batches:
            with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
                # Not through __call__: what was compiled for training steps would be compiled again for evaluation.
                logits_EBC = network.forward(images)
            parts.append(logits_EBC.transpose(0, 1).float().cpu())
    logits_NEC: NDArray[np.float32] = torch.cat(parts).numpy()
    return logits_NEC
