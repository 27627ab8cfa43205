"""Export a network to ONNX: one graph per stage with its head.

All stages are traced in one call, each with its own inputs, and the graph is cut into stages afterwards. Most of the
exporter's time does not depend on the network and would otherwise be spent once per stage. The stages share no input,
so that none can depend on another.
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
from elfnet.inference.bundle.stage_graph import FEATURES, LOGITS, NEXT_FEATURES, in_stage, numbered
from elfnet.models.staged import StagedNetwork

OPSET = 18
"""The exporter's own version; ONNX Runtime reads it from 1.14 on, in every language."""
MAX_GRAPH_BYTES = 2**31 - 1
"""Largest size of a protobuf message."""


def export_stages(network: StagedNetwork, image_shape: tuple[int, int, int]) -> list[bytes]:
    """Export the stages of a network as ONNX graphs.

    The graphs are float32, take any batch size and contain their weights; batch norm is folded into convolutions.
    Stage k has the input `features` and the outputs `next_features` and `logits`; the last stage has only `logits`.
    Several feature tensors are called `next_features_0`, `next_features_1` and so on. The same network gives the same
    bytes on every machine with the same versions of torch and onnxscript.

    Args:
        network: The network; it is not changed.
        image_shape: (channels, height, width) of the images.

    Returns:
        One graph per stage, in order.

    Raises:
        RequestError: A stage has more weights than a graph can hold.
    """
    _refuse_too_large(network)
    stages = _SideBySide(copy.deepcopy(network)).cpu().float().eval()
    # A backend may have changed the memory layout of the weights.
    stages.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    shortcuts_as_convolutions(stages)
    features_E = stages.stage_inputs(image_shape)
    inputs_E = [numbered(FEATURES, len(features)) for features in features_E]
    passed_on_E = [*(numbered(NEXT_FEATURES, len(following)) for following in features_E[1:]), []]
    outputs_E = [[*passed_on, LOGITS] for passed_on in passed_on_E]
    any_batch = {0: torch.export.Dim.DYNAMIC}
    with _without_exporter_warnings():
        program = torch.onnx.export(
            stages,
            tuple(chain.from_iterable(features_E)),
            dynamo=True,
            opset_version=OPSET,
            input_names=_names_of_all_stages(inputs_E),
            output_names=_names_of_all_stages(outputs_E),
            dynamic_shapes=(tuple(any_batch for _ in chain.from_iterable(inputs_E)),),
            external_data=False,
            verbose=False,
        )
    assert program is not None
    together = program.model_proto
    return [cut(together, k, inputs_E[k], passed_on_E[k]) for k in range(network.exits)]


class _SideBySide(nn.Module):
    """All stages in one forward call, each on its own inputs and none on the output of another."""

    def __init__(self, network: StagedNetwork) -> None:
        super().__init__()
        self.network = network
        self.inputs_per_stage = [1] * network.exits

    @torch.no_grad()
    def stage_inputs(self, image_shape: tuple[int, int, int]) -> list[tuple[Tensor, ...]]:
        """Return example inputs of every stage."""
        # Two examples: the exporter would treat a size of 0 or 1 as a constant.
        features: Any = torch.zeros(2, *image_shape)
        inputs_E = []
        for stage, _ in self.network.pairs():
            tensors = features if isinstance(features, tuple) else (features,)
            # Copies: a stage may return its input, and the exporter would merge equal tensors into one input.
            inputs_E.append(tuple(tensor.clone() for tensor in tensors))
            features = stage(features)
        self.inputs_per_stage = [len(inputs) for inputs in inputs_E]
        return inputs_E

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        rest = list(inputs)
        outputs: list[Tensor] = []
        for k, (stage, head) in enumerate(self.network.pairs()):
            mine, rest = rest[: self.inputs_per_stage[k]], rest[self.inputs_per_stage[k] :]
            features = stage(mine[0] if len(mine) == 1 else tuple(mine))
            if k < self.network.exits - 1:
                outputs += features if isinstance(features, tuple) else (features,)
            outputs.append(head(features))
        return tuple(outputs)


def _names_of_all_stages(names_E: Sequence[Sequence[str]]) -> list[str]:
    return [in_stage(k, name) for k, names in enumerate(names_E) for name in names]


def _refuse_too_large(network: StagedNetwork) -> None:
    for k, pair in enumerate(network.pairs()):
        # Four bytes per weight: the graphs are float32, whatever the precision of the network.
        size = 4 * sum(tensor.numel() for part in pair for tensor in part.state_dict().values())
        if size > MAX_GRAPH_BYTES:
            raise RequestError(
                f"stage {k} and its head have {size / 2**30:.1f} GB of weights, an ONNX graph can hold 2 GB; "
                f"divide the network into more stages"
            )


@contextmanager
def _without_exporter_warnings() -> Iterator[None]:
    """Suppress the exporter's warnings about its own deprecated calls, and about torchvision, which is not used."""

    def is_relevant(record: logging.LogRecord) -> bool:
        return "torchvision is not installed" not in record.getMessage()

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(is_relevant)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        logger.removeFilter(is_relevant)
