"""Stages computed by torch, without autograd."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.models.staged import StagedNetwork


class TorchBackend:
    """A staged network in evaluation mode, on the device where its parameters are."""

    def __init__(self, network: StagedNetwork) -> None:
        self._pairs = list(network.eval().pairs())
        self._device = next(network.parameters()).device

    @property
    def exits(self) -> int:
        return len(self._pairs)

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        images = torch.from_numpy(np.ascontiguousarray(images_BKHW)).to(self._device)
        return images.contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        stage, head = self._pairs[k]
        features = stage(features)
        logits: NDArray[np.float32] = head(features).cpu().numpy()
        return features, logits

    @torch.inference_mode()
    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        # Indexing, unlike index_select, keeps the channels_last layout.
        return features[torch.from_numpy(stay).to(self._device)]
