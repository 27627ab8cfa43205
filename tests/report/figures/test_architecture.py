"""The network drawn from its checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from elfnet.report.figures.architecture import NetworkShape, architecture, cumulative_cost, network_shape
from elfnet.report.figures.base import NoFigure, RunFigure
from elfnet.report.record import RunRecord, read_run
from elfnet.run.directory import RunDirectory


def axes_of(figure: Any) -> Any:
    return figure.axes


def shape_of(record: RunRecord) -> NetworkShape:
    shape = network_shape(record)
    assert isinstance(shape, NetworkShape), shape
    return shape


def test_channels_filters_parameters_and_cost(elf_run: RunDirectory) -> None:
    shape = shape_of(read_run(elf_run))
    assert [stage.channels for stage in shape.stages] == [16, 16, 32, 64]
    assert [head.channels for head in shape.heads] == [8, 8, 8, 64]
    assert [head.convolutions for head in shape.heads] == [2, 2, 2, 0]
    assert [stage.multiply_adds for stage in shape.stages] == [50_000, 430_000, 360_000, 384_000]
    # Trainable only: no running mean. And weights only: nothing of the optimiser.
    assert shape.stages[0].parameters == 16 * 3 * 9 + 16
    assert shape.heads[1].parameters == 8 * 16 * 9 + 8 * 8 * 9 + 6 * 8 + 6
    assert (shape.classes, shape.image_shape) == (6, (32, 32, 3))


def test_cost_up_to_an_exit_is_that_of_the_table(elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    for run in (elf_run, plain_run):
        record = read_run(run)
        assert record.table is not None
        assert cumulative_cost(shape_of(record)) == pytest.approx(record.table.cost_E.tolist())


def test_what_is_written_in_the_boxes(elf_run: RunDirectory) -> None:
    figure = architecture(read_run(elf_run))
    assert isinstance(figure, RunFigure)
    texts = [text.get_text() for text in axes_of(figure.draw())[0].texts]
    assert {"stage 3: 1 conv · 32 ch", "360 k · 29 %", "exit 1: 2 conv · 8 ch", "last exit: reads 64 ch"} <= set(texts)
    assert "1.130" in texts


def test_a_depthwise_head_reads_as_many_channels_as_it_has_filters(make_run: Callable[..., RunDirectory]) -> None:
    run = make_run("plain", exits=1)
    shapes: dict[str, tuple[int, ...]] = {"stages.0.0.weight": (40, 3, 3, 3), "heads.0.trunk.0.weight": (40, 1, 3, 3)}
    shapes |= {"heads.0.trunk.1.weight": (24, 40, 1, 1), "heads.0.classifier.weight": (6, 24)}
    save_file(
        {f"weights.{name}": np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()},
        run.checkpoint("last"),
    )
    shape = shape_of(read_run(run))
    assert (shape.stages[0].channels, shape.heads[0].channels) == (40, 24)


def damage(file: Path) -> None:
    file.write_bytes(b"not a checkpoint")


def foreign(file: Path) -> None:
    save_file({"weights.somewhere": np.zeros(3, dtype=np.float32)}, file)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (Path.unlink, "no checkpoint"),
        (damage, "is damaged"),
        (foreign, "has no stages and heads that this figure can show"),
    ],
)
def test_one_line_where_it_cannot_be_drawn(
    make_run: Callable[..., RunDirectory], spoil: Callable[[Path], None], reason: str
) -> None:
    run = make_run()
    spoil(run.checkpoint("last"))
    figure = architecture(read_run(run))
    assert isinstance(figure, NoFigure)
    assert reason in figure.reason
    assert "\n" not in figure.reason
