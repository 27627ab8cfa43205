"""One ONNX graph for every stage with the head behind it.

The stages are traced together, each with inputs of its own, and the traced graph is cut into stages afterwards: most
of the exporter's time does not depend on the network, and would otherwise be spent once a stage. Since the stages
share no input, nothing in one of them can depend on another.
"""

# Shapes: E exits

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.export.onnx_graph import cut, shortcuts_as_convolutions
from elfnet.inference.backends.onnxruntime import FEATURES, LOGITS, NEXT_FEATURES, in_stage, numbered
from elfnet.models.staged import StagedNetwork

OPSET = 18
"""What the exporter itself writes; every ONNX Runtime from 1.14 on reads it, also those of other languages."""
LARGEST_GRAPH = 2**31 - 1
"""Bytes that a protobuf message can have."""


def export_stages(network: StagedNetwork, image_shape: tuple[int, int, int]) -> list[bytes]:
    """Graphs of the stages in order: float32, any batch size, weights inside, batch norm folded into convolutions.

    Stage k reads `features` and gives `next_features` and `logits`; the last one gives `logits` only. A stage that
    passes on several tensors gives `next_features_0`, `next_features_1` and so on. The same network gives the same
    bytes, on any machine with the same torch and onnxscript.

    Args:
        network: stays as it is, with its mode and device.
        image_shape: channels, height and width of the images.
    """
    _refuse_too_large(network)
    stages = _SideBySide(copy.deepcopy(network)).cpu().float().eval()
    # A backend may have changed the layout of the weights.
    stages.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    shortcuts_as_convolutions(stages)
    features_E = stages.inputs_of_every_stage(image_shape)
    inputs_E = [numbered(FEATURES, len(features)) for features in features_E]
    passed_on_E = [*(numbered(NEXT_FEATURES, len(following)) for following in features_E[1:]), []]
    outputs_E = [[*passed_on, LOGITS] for passed_on in passed_on_E]
    any_batch = {0: torch.export.Dim.DYNAMIC}
    with _without_the_exporters_own_warnings():
        program = torch.onnx.export(
            stages,
            tuple(chain.from_iterable(features_E)),
            dynamo=True,
            opset_version=OPSET,
            input_names=_of_all_stages(inputs_E),
            output_names=_of_all_stages(outputs_E),
            dynamic_shapes=(tuple(any_batch for _ in chain.from_iterable(inputs_E)),),
            external_data=False,
            verbose=False,
        )
    assert program is not None
    together = program.model_proto
    return [cut(together, k, inputs_E[k], passed_on_E[k]) for k in range(network.exits)]


class _SideBySide(nn.Module):
    """All stages in one call, each on inputs of its own and none on the output of another."""

    def __init__(self, network: StagedNetwork) -> None:
        super().__init__()
        self.network = network
        self.inputs_of = [1] * network.exits

    @torch.no_grad()
    def inputs_of_every_stage(self, image_shape: tuple[int, int, int]) -> list[tuple[Tensor, ...]]:
        # Two examples: the exporter takes a size of 0 or 1 for a constant.
        features: Any = torch.zeros(2, *image_shape)
        inputs_E = []
        for stage, _ in self.network.pairs():
            tensors = features if isinstance(features, tuple) else (features,)
            # Copies: a stage may pass on what it reads, and the exporter takes one tensor in two places for one input.
            inputs_E.append(tuple(tensor.clone() for tensor in tensors))
            features = stage(features)
        self.inputs_of = [len(inputs) for inputs in inputs_E]
        return inputs_E

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        rest = list(inputs)
        outputs: list[Tensor] = []
        for k, (stage, head) in enumerate(self.network.pairs()):
            mine, rest = rest[: self.inputs_of[k]], rest[self.inputs_of[k] :]
            features = stage(mine[0] if len(mine) == 1 else tuple(mine))
            if k < self.network.exits - 1:
                outputs += features if isinstance(features, tuple) else (features,)
            outputs.append(head(features))
        return tuple(outputs)


def _of_all_stages(names_E: Sequence[Sequence[str]]) -> list[str]:
    return [in_stage(k, name) for k, names in enumerate(names_E) for name in names]


def _refuse_too_large(network: StagedNetwork) -> None:
    for k, pair in enumerate(network.pairs()):
        # Four bytes each, whatever the precision of the network: the graphs are float32.
        size = 4 * sum(tensor.numel() for part in pair for tensor in part.state_dict().values())
        if size > LARGEST_GRAPH:
            raise RequestError(
                f"stage {k} and its head have {size / 2**30:.1f} GB of weights and an ONNX graph can hold 2 GB; "
                f"cut the network into more stages"
            )


@contextmanager
def _without_the_exporters_own_warnings() -> Iterator[None]:
    """torch's exporter uses what torch has deprecated, and reports that torchvision is missing, which we do not use."""

    def is_news(record: logging.LogRecord) -> bool:
        return "torchvision is not installed" not in record.getMessage()

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(is_news)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        logger.removeFilter(is_news)
