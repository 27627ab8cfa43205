"""The trained network, drawn from the tensor shapes in its checkpoint; no network is built or run."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from elfnet.interrupts import deferred_interrupts
from elfnet.report import formatting as fmt
from elfnet.report.figures.base import (
    BLUE,
    GRID,
    MUTED,
    PAPER,
    FigureOrReason,
    NoFigure,
    RunFigure,
    new_figure,
    styled,
)
from elfnet.report.record import RunRecord
from elfnet.run.info import MultiplyAdds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shapes = dict[str, tuple[int, ...]]
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True)
class PartShape:
    """A stage or a head.

    Attributes:
        convolutions: number of convolutions.
        channels: output channels of a stage; filters of a head's last convolution, or the input features of its
            classifier if it has no convolution.
        parameters: number of trainable parameters.
        multiply_adds: per image.
    """

    convolutions: int
    channels: int
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class NetworkShape:
    """Stages in order, each with its head.

    Attributes:
        image_shape: height, width, channels.
        plain: multiply-adds of the plain backbone.
        experts: number of last stages that are experts, which all read the last stage before them; 1 for none.
    """

    image_shape: tuple[int, ...]
    classes: int
    stages: tuple[PartShape, ...]
    heads: tuple[PartShape, ...]
    plain: int
    experts: int = 1


def network_shape(record: RunRecord) -> NetworkShape | str:
    """Return the network of a run with the classifiers that are used, or one line that says why it is unknown."""
    file = record.directory.checkpoint(record.family.checkpoint)
    if not file.is_file():
        return f"{record.name} has no checkpoint to read the network from"
    try:
        with deferred_interrupts(), safe_open(file, framework="numpy") as content:
            shapes = {
                name.removeprefix("weights."): tuple(content.get_slice(name).get_shape())
                for name in content.keys()  # noqa: SIM118 (not a mapping)
                if name.startswith("weights.") and not name.endswith(_BUFFERS)
            }
    except (SafetensorError, OSError) as error:
        return f"the checkpoint of {record.name} is damaged ({' '.join(str(error).split())})"
    try:
        return _network(record, record.info.multiply_adds, shapes)
    except (KeyError, IndexError, TypeError, ValueError):
        return f"the checkpoint of {record.name} has no stages and heads that this figure can show"


def _network(record: RunRecord, costs: MultiplyAdds, shapes: Shapes) -> NetworkShape:
    stages, heads = [], []
    for k, (stage_cost, head_cost) in enumerate(zip(costs.stages, costs.heads, strict=True)):
        stage, head = _part(shapes, f"stages.{k}."), _part(shapes, f"heads.{k}.")
        # A stage may have branches; its output channels are the input channels of its head.
        stages.append(PartShape(len(_convolutions(stage)), _input_channels(head), _parameters(stage), stage_cost))
        filters = [shape[0] for shape in _convolutions(head)] or [_classifier(head)[1]]
        heads.append(PartShape(len(_convolutions(head)), filters[-1], _parameters(head), head_cost))
    return NetworkShape(
        image_shape=record.info.data.image_shape,
        classes=_classifier(_part(shapes, f"heads.{len(heads) - 1}."))[0],
        stages=tuple(stages),
        heads=tuple(heads),
        plain=costs.plain,
        experts=record.recipe.model.experts,
    )


def _part(shapes: Shapes, prefix: str) -> Shapes:
    """Return the tensors of one module in natural order: `trunk.2` before `trunk.10`."""
    names = sorted((name for name in shapes if name.startswith(prefix)), key=_natural)
    return {name: shapes[name] for name in names}


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"\.", name)]


def _convolutions(part: Shapes) -> list[tuple[int, ...]]:
    return [shape for shape in part.values() if len(shape) == 4]


def _classifier(head: Shapes) -> tuple[int, ...]:
    """Return (classes, features) of the only matrix of a head."""
    (matrix,) = [shape for shape in head.values() if len(shape) == 2]
    return matrix


def _input_channels(head: Shapes) -> int:
    convolutions: Sequence[tuple[int, ...]] = _convolutions(head)
    if not convolutions:
        return _classifier(head)[1]
    filters, channels_per_filter = convolutions[0][:2]
    # A depthwise convolution has one filter per input channel.
    return filters if channels_per_filter == 1 else channels_per_filter


def _parameters(part: Shapes) -> int:
    return sum(math.prod(shape) for shape in part.values())


_STAGE_LEFT, _HEAD_LEFT, _BOX_WIDTH, _BOX_HEIGHT = 0.0, 1.28, 1.06, 0.68
_COST_AT, _BAR_HEIGHT = 2.55, 0.09


def architecture(record: RunRecord) -> FigureOrReason:
    """Stages downwards and their heads to the right, with channels and cost."""
    name, shape = "architecture", network_shape(record)
    if isinstance(shape, str):
        return NoFigure(name, shape)
    parameters = sum(part.parameters for part in (*shape.stages, *shape.heads))
    return RunFigure(
        name,
        f"Network: {record.network}",
        f"{parameters:,} parameters, read from the checkpoint. Each box: convolutions, channels, multiply-adds per "
        f"image, and a bar for their share of the plain backbone's {fmt.multiply_adds(shape.plain)}. On the right: "
        f"cost of all stages and heads up to each exit, relative to the plain backbone. Counted, not timed, for one "
        f"image of the {record.results.split} split (n = 1).",
        lambda: draw_architecture(shape),
    )


def cumulative_cost(shape: NetworkShape) -> tuple[float, ...]:
    """Return the cost of stages and heads up to each exit, relative to the plain backbone, shape (E,)."""
    total, answer = 0, []
    for stage, head in zip(shape.stages, shape.heads, strict=True):
        total += stage.multiply_adds + head.multiply_adds
        answer.append(total / shape.plain)
    return tuple(answer)


@styled
def draw_architecture(shape: NetworkShape) -> "Figure":
    """Draw one row per stage."""
    rows = len(shape.stages)
    figure = new_figure(0.62 * rows + 0.5)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-0.02, 2.75)
    axes.set_ylim(rows - 0.05, -0.55)
    size = " × ".join(str(side) for side in shape.image_shape)
    axes.text(_STAGE_LEFT + _BOX_WIDTH / 2, -0.44, f"image {size}", ha="center", va="center", fontsize=8.5)
    axes.text(_COST_AT, -0.44, "cost up to here", ha="center", va="center", fontsize=8, color=MUTED)
    for k, (stage, head, cost) in enumerate(zip(shape.stages, shape.heads, cumulative_cost(shape), strict=True)):
        middle, below = _STAGE_LEFT + _BOX_WIDTH / 2, k + _BOX_HEIGHT / 2
        _arrow(axes, (middle, k - (0.34 if k == 0 else 1 - _BOX_HEIGHT)), (middle, k))
        _box(axes, _STAGE_LEFT, k, _stage_name(shape, k), stage, shape.plain, BLUE, "-")
        _arrow(axes, (_STAGE_LEFT + _BOX_WIDTH, below), (_HEAD_LEFT, below))
        _box(
            axes,
            _HEAD_LEFT,
            k,
            "last exit" if k == rows - 1 else f"exit {k + 1}",
            head,
            shape.plain,
            MUTED,
            (0, (4, 2)),
        )
        axes.text(_COST_AT, below, fmt.cost(cost), ha="center", va="center", fontsize=10)
    return figure


def _stage_name(shape: NetworkShape, k: int) -> str:
    first_expert = len(shape.stages) - shape.experts
    return f"stage {k + 1}" if shape.experts == 1 or k < first_expert else f"expert {k - first_expert + 1}"


def _box(axes: Any, left: float, top: float, name: str, part: PartShape, plain: int, colour: str, line: Any) -> None:
    from matplotlib.patches import Rectangle

    place = (left, top)
    axes.add_patch(
        Rectangle(place, _BOX_WIDTH, _BOX_HEIGHT, facecolor=PAPER, edgecolor=colour, linewidth=1.2, linestyle=line)
    )
    share = part.multiply_adds / plain
    bar = (left, top + _BOX_HEIGHT - _BAR_HEIGHT)
    axes.add_patch(Rectangle(bar, _BOX_WIDTH, _BAR_HEIGHT, facecolor=GRID, zorder=2))
    axes.add_patch(Rectangle(bar, _BOX_WIDTH * min(share, 1), _BAR_HEIGHT, facecolor=colour, zorder=3))
    convolutions = f"{part.convolutions} conv · {part.channels}" if part.convolutions else f"reads {part.channels}"
    middle = left + _BOX_WIDTH / 2
    axes.text(middle, top + 0.17, f"{name}: {convolutions} ch", ha="center", va="center", fontsize=8.2)
    cost = f"{fmt.multiply_adds(part.multiply_adds)} · {fmt.small_percent(share)} %"
    axes.text(middle, top + 0.42, cost, ha="center", va="center", fontsize=8, color=MUTED)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)
