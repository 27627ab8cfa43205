"""The trained network's stages and heads, from the shapes of the tensors in its checkpoint; nothing is built or run."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError, safe_open

from elfnet.report.run_record import RunRecord

Shapes = dict[str, tuple[int, ...]]
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class PartShape:
    """A stage or a head.

    Attributes:
        convolutions: how many.
        channels: of the feature map that a stage gives; the filters of a head's convolutions, or what its classifier
            reads where it has none.
        parameters: trainable numbers.
        multiply_adds: for one image.
    """

    convolutions: int
    channels: int
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class NetworkShape:
    """Stages in order, each with the head behind it.

    Attributes:
        image_shape: height, width, colour channels.
        plain: multiply-adds of the plain backbone.
        experts: how many of the last stages are experts, which all read the last stage before them; 1: none.
    """

    image_shape: tuple[int, ...]
    classes: int
    stages: tuple[PartShape, ...]
    heads: tuple[PartShape, ...]
    plain: int
    experts: int = 1


def network_shape(record: RunRecord) -> NetworkShape | str:
    """What the run's last checkpoint holds, or one line that says why it cannot be told."""
    file = record.directory.checkpoint("last")
    counted = record.info.get("multiply_adds")
    if not isinstance(counted, Mapping):
        return f"{record.directory.info_file} does not say what the stages of {record.name} cost"
    if not file.is_file():
        return f"{record.name} has no checkpoint to read the network from"
    try:
        with safe_open(file, framework="numpy") as content:
            shapes = {
                name.removeprefix("weights."): tuple(content.get_slice(name).get_shape())
                for name in content.keys()  # noqa: SIM118 (not a mapping)
                if name.startswith("weights.") and not name.endswith(_BUFFERS)
            }
    except (SafetensorError, OSError) as error:
        return f"the checkpoint of {record.name} is damaged ({' '.join(str(error).split())})"
    try:
        return _network(record, shapes, counted)
    except (KeyError, IndexError, TypeError, ValueError):
        return f"the checkpoint of {record.name} is not built of stages and heads that this figure knows"


def _network(record: RunRecord, shapes: Shapes, counted: Mapping[str, Any]) -> NetworkShape:
    stage_costs, head_costs = [int(cost) for cost in counted["stages"]], [int(cost) for cost in counted["heads"]]
    stages, heads = [], []
    for k, (stage_cost, head_cost) in enumerate(zip(stage_costs, head_costs, strict=True)):
        stage, head = _part(shapes, f"stages.{k}."), _part(shapes, f"heads.{k}.")
        # A stage may branch inside; what it gives is what the head behind it reads.
        stages.append(PartShape(len(_convolutions(stage)), _channels_read(head), _parameters(stage), stage_cost))
        filters = [shape[0] for shape in _convolutions(head)] or [_classifier(head)[1]]
        heads.append(PartShape(len(_convolutions(head)), filters[-1], _parameters(head), head_cost))
    return NetworkShape(
        image_shape=tuple(int(side) for side in record.info["data"]["image_shape"]),
        classes=_classifier(_part(shapes, f"heads.{len(heads) - 1}."))[0],
        stages=tuple(stages),
        heads=tuple(heads),
        plain=int(counted["plain"]),
        experts=record.recipe.model.experts,
    )


def _part(shapes: Shapes, prefix: str) -> Shapes:
    """The tensors of one module in the order of its parts: `trunk.2` before `trunk.10`."""
    names = sorted((name for name in shapes if name.startswith(prefix)), key=_natural)
    return {name: shapes[name] for name in names}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"\.", name)]


def _convolutions(part: Shapes) -> list[tuple[int, ...]]:
    return [shape for shape in part.values() if len(shape) == 4]


def _classifier(head: Shapes) -> tuple[int, ...]:
    """(classes, features) of the one matrix of a head."""
    (matrix,) = [shape for shape in head.values() if len(shape) == 2]
    return matrix


def _channels_read(head: Shapes) -> int:
    convolutions: Sequence[tuple[int, ...]] = _convolutions(head)
    if not convolutions:
        return _classifier(head)[1]
    filters, channels_a_filter = convolutions[0][:2]
    # A depthwise convolution has one filter for each channel it reads.
    return filters if channels_a_filter == 1 else channels_a_filter


def _parameters(part: Shapes) -> int:
    return sum(math.prod(shape) for shape in part.values())
