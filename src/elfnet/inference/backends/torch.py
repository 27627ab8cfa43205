"""The torch backends, eager and compiled, and the torch network of a bundle.

This is the only module of `elfnet.inference` that imports torch.
"""

# Shapes: B examples that have not exited, K channels, H height, W width, C classes

from collections.abc import Callable
from threading import Lock
from types import FunctionType
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor

from elfnet.errors import RequestError, WorkError
from elfnet.inference.backends.build import Precision
from elfnet.inference.bundle.manifest import WEIGHTS
from elfnet.inference.bundle.read import Bundle, read_file
from elfnet.inference.engine import checked_images
from elfnet.interrupts import deferred_interrupts
from elfnet.models.build import network_of
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.stages import final_model_of_stored
from elfnet.run.checkpoint import GIVEN, tensors_sha256


class TorchBackend:
    """Runs a staged network with torch, on the device of its parameters.

    The network is not copied: it is put into evaluation mode, and its weights into the channels_last layout, which
    takes 0.77 times as long for ResNet-32 at batch 8. The values of the weights do not change.

    Args:
        network: The network to run.
        precision: With bfloat16, backbone and convolutions of the heads run under autocast, as in evaluation; pooling
            and classifier stay float32.
        threads: Number of torch threads, for the whole process; None does not change it.
        image_shape: (K, H, W) if known; images of another shape are then refused.
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


BATCH_RANGES = (1, 15)
"""Upper ends of the batch size ranges that are compiled separately; the last range, from 16 on, has no upper end.

torch specialises on a batch of 1 (padding it to 2 avoids that but takes 1.35 times as long), and chooses other
convolutions below 16 than from 16 on. `mark_unbacked`, which would prevent this, fails in torch 2.13 for convolutions
in the channels_last layout.
"""


class CompiledTorchBackend(TorchBackend):
    """A `TorchBackend` that compiles every stage on first use, once per range of batch sizes (`BATCH_RANGES`).

    The first calls take seconds to minutes: warm up with the batch sizes that will occur.

    Args:
        network: See `TorchBackend`.
        precision: See `TorchBackend`.
        threads: See `TorchBackend`.
        image_shape: See `TorchBackend`.
        compiler: The backend of `torch.compile`.
    """

    def __init__(
        self,
        network: StagedNetwork,
        *,
        precision: Precision = "float32",
        threads: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        compiler: str = "inductor",
    ) -> None:
        super().__init__(network, precision=precision, threads=threads, image_shape=image_shape)
        self._compiler = compiler
        self._compiled: dict[tuple[int, bool, int], Callable[[Any], Any]] = {}
        self._compiling = Lock()

    def _stage_and_head(self, k: int, features: Any) -> tuple[Any, Tensor]:
        features, logits_BC = self._run_compiled(k, features, head=True)
        return features, logits_BC

    def _stage_alone(self, k: int, features: Any) -> Any:
        return self._run_compiled(k, features, head=False)

    def _run_compiled(self, k: int, features: Any, *, head: bool) -> Any:
        tensors: tuple[Tensor, ...] = features if isinstance(features, tuple) else (features,)
        examples = len(tensors[0])
        if examples > 1:
            for tensor in tensors:
                # Only the batch dimension is dynamic, from the first call on.
                torch._dynamo.mark_dynamic(tensor, 0)
        key = (k, head, sum(examples > largest for largest in BATCH_RANGES))
        compiled = self._compiled.get(key)
        if compiled is not None:
            return compiled(features)
        # One thread compiles; others wait instead of compiling the same function again.
        with self._compiling:
            if key not in self._compiled:
                function = self._stage_function(k, head=head)
                self._compiled[key] = torch.compile(function, fullgraph=True, backend=self._compiler)
            return self._compiled[key](features)

    def _stage_function(self, k: int, *, head: bool) -> Callable[[Any], Any]:
        stage, exit_head = self._pairs[k]

        def stage_and_head(features: Any) -> tuple[Any, Tensor]:
            features = stage(features)
            return features, exit_head(features)

        def stage_alone(features: Any) -> Any:
            return stage(features)

        return _with_own_code_object(stage_and_head if head else stage_alone)


def _with_own_code_object(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Copy a function with its code object, so that torch.compile caches it separately.

    torch.compile caches by code object, which all stages would share. Every stage and batch range would count as a
    recompilation of one function, and torch stops compiling a function after eight of them.
    """
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__
    )


def network_of_bundle(bundle: Bundle) -> StagedNetwork:
    """Build the torch network of a bundle from its recipe and weights, in evaluation mode.

    Raises:
        RequestError: The bundle holds a custom network, which no recipe describes.
        WorkError: Weights and recipe do not match.
    """
    manifest = bundle.manifest
    if manifest.provenance.network.startswith(GIVEN):
        raise RequestError(
            f"{bundle.path} holds a custom network, which torch cannot rebuild from a recipe; "
            "choose backend onnxruntime or openvino"
        )
    *_, channels = manifest.preprocessing.preprocess().shape
    try:
        with deferred_interrupts():
            weights = safetensors.torch.load(read_file(bundle, WEIGHTS))
        model = final_model_of_stored(manifest.provenance.recipe)
        network = network_of(model, classes=len(manifest.class_names), image_channels=channels)
        network.load_state_dict(weights)
    except (SafetensorError, ValidationError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WorkError(f"{bundle.path}: weights and recipe do not match ({reason}); export the run again") from error
    if tensors_sha256(weights) != manifest.provenance.checkpoint_sha256:
        raise WorkError(f"{bundle.path}: the weights are not those of its checkpoint; export the run again")
    return network.eval()
