"""The trained network, drawn from the tensor shapes in its checkpoint; no network is built or run."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from elfnet.report import formatting as say
from elfnet.report.figures.base import (
    BLUE,
    GRID,
    MUTED,
    PAPER,
    FigureOrReason,
    NoFigure,
    RunFigure,
    in_house_style,
    new_figure,
)
from elfnet.report.record import RunRecord
from elfnet.report.run_files import StoredCosts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        plain: multiply-adds of all stages and the last head, which is the plain backbone.
    """

    image_shape: tuple[int, ...]
    classes: int
    stages: tuple[PartShape, ...]
    heads: tuple[PartShape, ...]
    plain: int


def network_shape(record: RunRecord) -> NetworkShape | str:
    """What the run's last checkpoint holds, or one line that says why it cannot be told."""
    file = record.directory.checkpoint("last")
    costs = record.info.multiply_adds
    if costs is None or not record.info.image_shape:
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
        return _network(record.info.image_shape, costs, shapes)
    except (KeyError, IndexError, TypeError, ValueError):
        return f"the checkpoint of {record.name} is not built of stages and heads that this figure knows"


def _network(image_shape: tuple[int, ...], costs: StoredCosts, shapes: Shapes) -> NetworkShape:
    stages, heads = [], []
    for k, (stage_cost, head_cost) in enumerate(zip(costs.stages, costs.heads, strict=True)):
        stage, head = _part(shapes, f"stages.{k}."), _part(shapes, f"heads.{k}.")
        # A stage may branch inside; what it gives is what the head behind it reads.
        stages.append(PartShape(len(_convolutions(stage)), _channels_read(head), _parameters(stage), stage_cost))
        filters = [shape[0] for shape in _convolutions(head)] or [_classifier(head)[1]]
        heads.append(PartShape(len(_convolutions(head)), filters[-1], _parameters(head), head_cost))
    return NetworkShape(
        image_shape=image_shape,
        classes=_classifier(_part(shapes, f"heads.{len(heads) - 1}."))[0],
        stages=tuple(stages),
        heads=tuple(heads),
        plain=costs.plain,
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


_STAGE_LEFT, _HEAD_LEFT, _BOX_WIDTH, _BOX_HEIGHT = 0.0, 1.28, 1.06, 0.68
_COST_AT, _BAR_HEIGHT = 2.55, 0.09


def architecture(record: RunRecord) -> FigureOrReason:
    name, shape = "architecture", network_shape(record)
    if isinstance(shape, str):
        return NoFigure(name, shape)
    parameters = sum(part.parameters for part in (*shape.stages, *shape.heads))
    return RunFigure(
        name,
        f"The network: {record.network}",
        f"Read from the checkpoint: {parameters:,} parameters. Each box: convolutions, channels, and multiply-adds for "
        f"one image, with a bar of their share of the plain backbone's {say.multiply_adds(shape.plain)}. On the right: "
        f"all that is run up to an exit, relative to the plain backbone. Counted, not timed, on one image of the "
        f"{record.results.split} split's size (n = 1).",
        lambda: draw_architecture(shape),
    )


def cost_up_to(shape: NetworkShape) -> tuple[float, ...]:
    """Stages and heads up to each exit relative to the plain backbone, shape (E,)."""
    total, answer = 0, []
    for stage, head in zip(shape.stages, shape.heads, strict=True):
        total += stage.multiply_adds + head.multiply_adds
        answer.append(total / shape.plain)
    return tuple(answer)


@in_house_style
def draw_architecture(shape: NetworkShape) -> "Figure":
    """A row a stage."""
    rows = len(shape.stages)
    figure = new_figure(0.62 * rows + 0.5)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-0.02, 2.75)
    axes.set_ylim(rows - 0.05, -0.55)
    size = " × ".join(str(side) for side in shape.image_shape)
    axes.text(_STAGE_LEFT + _BOX_WIDTH / 2, -0.44, f"image {size}", ha="center", va="center", fontsize=8.5)
    axes.text(_COST_AT, -0.44, "cost up to here", ha="center", va="center", fontsize=8, color=MUTED)
    for k, (stage, head, cost) in enumerate(zip(shape.stages, shape.heads, cost_up_to(shape), strict=True)):
        middle, below = _STAGE_LEFT + _BOX_WIDTH / 2, k + _BOX_HEIGHT / 2
        _arrow(axes, (middle, k - (0.34 if k == 0 else 1 - _BOX_HEIGHT)), (middle, k))
        _box(axes, _STAGE_LEFT, k, f"stage {k + 1}", stage, shape.plain, BLUE, "-")
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
        axes.text(_COST_AT, below, say.cost(cost), ha="center", va="center", fontsize=10)
    return figure


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
    cost = f"{say.multiply_adds(part.multiply_adds)} · {say.small_percent(share)} %"
    axes.text(middle, top + 0.42, cost, ha="center", va="center", fontsize=8, color=MUTED)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)
