"""Stages computed by torch, without autograd."""

# Shapes: B examples still here, K channels, H height, W width, C classes

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elfnet.deploy.image_check import checked_images
from elfnet.deploy.precision import Precision
from elfnet.models.staged import StagedNetwork


class TorchBackend:
    """A staged network on the device where its parameters are.

    The network itself is used, not a copy: it is put into evaluation mode and its weights into the channels_last
    layout, in which ResNet-32 takes 0.77 of the time at batch 8; their values stay.

    Args:
        network: what computes.
        precision: with bfloat16 the backbone and the heads' convolutions are computed in it, as in evaluation; pooling
            and classifier stay float32.
        threads: threads of torch, for the whole process; None leaves them as they are.
        image_shape: (K, H, W); where it is known, other images are refused before anything is computed.
    """

    def __init__(
        self,
        network: StagedNetwork,
        *,
        precision: Precision = "float32",
        threads: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> None:
        network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._pairs = list(network.pairs())
        self._device = next(network.parameters()).device
        self._image_shape = image_shape
        self._low_precision = precision == "bfloat16"
        if threads is not None:
            torch.set_num_threads(threads)

    @property
    def exits(self) -> int:
        return len(self._pairs)

    @torch.inference_mode()
    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        images = torch.from_numpy(checked_images(images_BKHW, self._image_shape)).to(self._device)
        return images.contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._low_precision):
            features, logits_BC = self._stage_and_head(k, features)
        return features, logits_BC.cpu().numpy()

    @torch.inference_mode()
    def run_without_head(self, k: int, features: Any) -> Any:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._low_precision):
            return self._stage_alone(k, features)

    @torch.inference_mode()
    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        positions = torch.from_numpy(stay).to(self._device)
        # Indexing, unlike index_select, keeps the channels_last layout.
        if isinstance(features, tuple):
            return tuple(tensor[positions] for tensor in features)
        return features[positions]

    def _stage_and_head(self, k: int, features: Any) -> tuple[Any, Tensor]:
        stage, head = self._pairs[k]
        features = stage(features)
        return features, head(features)

    def _stage_alone(self, k: int, features: Any) -> Any:
        stage, _ = self._pairs[k]
        return stage(features)
