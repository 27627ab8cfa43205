"""The network as it was trained: stages downwards, the head behind each to the right, with channels and cost."""

from typing import TYPE_CHECKING, Any

from elfnet.report import number_text as say
from elfnet.report.figures.style import BLUE, GRID, MUTED, PAPER, in_house_style, new_figure
from elfnet.report.network_shape import NetworkShape, PartShape, network_shape
from elfnet.report.run_figure import FigureOrReason, NoFigure, RunFigure
from elfnet.report.run_record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        axes.text(_COST_AT, below, say.cost(cost), ha="center", va="center", fontsize=10)
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
    cost = f"{say.multiply_adds(part.multiply_adds)} · {say.small_percent(share)} %"
    axes.text(middle, top + 0.42, cost, ha="center", va="center", fontsize=8, color=MUTED)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)
