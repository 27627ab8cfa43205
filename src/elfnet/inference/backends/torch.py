"""Stages computed by torch, without autograd."""

# Shapes: B examples still here, K channels, H height, W width, C classes

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
from elfnet.models.build import network_of
from elfnet.models.run_network import GIVEN
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.stages import final_model_of_stored
from elfnet.run.checkpoint import tensors_sha256


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


FORMS = (1, 15)
"""The largest batch of each form but the last, which takes the rest.

torch takes a batch of 1 for a constant (padding it to 2 would avoid that, and takes 1.35x the time), and chooses its
convolutions for batches below 16 and from 16 on. Telling it not to look at the batch at all, by `mark_unbacked`, fails
in torch 2.13 on convolutions in the channels_last layout.
"""


class CompiledTorchBackend(TorchBackend):
    """As `TorchBackend`, with every stage compiled when it is first run, once for each of `FORMS`.

    The first calls take seconds to minutes: run the sizes that will come before there is a hurry.

    Args:
        network: what computes, see `TorchBackend`.
        precision: see `TorchBackend`.
        threads: see `TorchBackend`.
        image_shape: see `TorchBackend`.
        compiler: the backend of `torch.compile`.
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
                # The batch is a variable from the first call on; every other size is a constant.
                torch._dynamo.mark_dynamic(tensor, 0)
        form = (k, head, sum(examples > largest for largest in FORMS))
        compiled = self._compiled.get(form)
        if compiled is not None:
            return compiled(features)
        # One at a time: threads that come meanwhile would only compile the same again.
        with self._compiling:
            if form not in self._compiled:
                self._compiled[form] = torch.compile(self._part(k, head=head), fullgraph=True, backend=self._compiler)
            return self._compiled[form](features)

    def _part(self, k: int, *, head: bool) -> Callable[[Any], Any]:
        stage, exit_head = self._pairs[k]

        def stage_and_head(features: Any) -> tuple[Any, Tensor]:
            features = stage(features)
            return features, exit_head(features)

        def stage_alone(features: Any) -> Any:
            return stage(features)

        return _with_code_of_its_own(stage_and_head if head else stage_alone)


def _with_code_of_its_own(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that torch tells apart from the others.

    It files what it compiled under the code object, which all stages would share: every form of every stage would count
    as a recompile of one function, of which torch allows eight before it gives up compiling.
    """
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__
    )


def network_of_bundle(bundle: Bundle) -> StagedNetwork:
    """Built by the recipe in the manifest, with the weights of the bundle, in evaluation mode."""
    manifest = bundle.manifest
    if manifest.provenance.network.startswith(GIVEN):
        raise RequestError(
            f"{bundle.path} holds a network that was handed in, which no recipe describes: torch cannot rebuild it; "
            "choose backend onnxruntime or openvino"
        )
    *_, channels = manifest.preprocessing.preprocess().shape
    try:
        weights = safetensors.torch.load(read_file(bundle, WEIGHTS))
        model = final_model_of_stored(manifest.provenance.recipe)
        network = network_of(model, classes=len(manifest.class_names), image_channels=channels)
        network.load_state_dict(weights)
    except (SafetensorError, ValidationError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WorkError(f"{bundle.path}: weights and recipe do not fit ({reason}); export the run again") from error
    if tensors_sha256(weights) != manifest.provenance.checkpoint_sha256:
        raise WorkError(f"{bundle.path}: the weights are not those of its checkpoint; export the run again")
    return network.eval()
