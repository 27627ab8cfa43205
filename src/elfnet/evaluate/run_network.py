"""One pass over a split: logits of every exit for every example, or only the answers at full depth."""

# Shapes: N examples, E exits, B batch, C classes

from collections.abc import Iterable
from typing import Any

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


@torch.inference_mode()
def answers_at_full_depth(
    network: StagedNetwork, batches: Iterable[Tensor], *, precision: str = "float32"
) -> NDArray[np.int64]:
    """Class of every example, shape (N,), by the last exit; nothing larger is kept, and no other head is run.

    With thousands of classes the logits of all exits are gigabytes.
    """
    parts = []
    with evaluation_mode(network):
        for images in batches:
            with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
                features: Any = images
                stages, heads = zip(*network.pairs(), strict=True)
                for stage in stages:
                    features = stage(features)
                logits_BC = heads[-1](features)
            parts.append(logits_BC.float().argmax(dim=1).cpu())
    answers_N: NDArray[np.int64] = torch.cat(parts).numpy()
    return answers_N
