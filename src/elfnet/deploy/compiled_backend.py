"""Stages compiled by torch, in three forms for all batch sizes."""

from collections.abc import Callable
from threading import Lock
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from elfnet.deploy.precision import Precision
from elfnet.deploy.torch_backend import TorchBackend
from elfnet.models.staged import StagedNetwork

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
