"""Finished runs without training: exit tables from random numbers, everything else as the package writes it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup
from numpy.typing import NDArray
from run_files import data_info, run_info
from safetensors.numpy import save_file

from elfnet.calibrate.line_search import line_search
from elfnet.calibrate.run import results_on
from elfnet.data.build import load_splits
from elfnet.evaluate.exit_table import ExitTable
from elfnet.recipe.load import DEFAULT_RECIPE, load_recipe
from elfnet.report.figures import catalogue as catalogue
from elfnet.report.figures.base import RunFigure
from elfnet.report.figures.classes import class_distribution
from elfnet.report.figures.exits import reliability_by_exit
from elfnet.report.html import DrawnFigure
from elfnet.run.directory import RunDirectory
from elfnet.run.info import MultiplyAdds
from elfnet.run.log import EpochRecord, write_log

RunFactory = Callable[..., RunDirectory]

NAMES = ("<script>alert(1)</script>", "$x_1$", "橙 & \\$orange\\$", "d", "e", "f")
COUNTS = (500, 101, 100, 60, 30, 20)
"""No class has fewer than 20 training images: the group "few" is empty."""
MARGINS = {4: (0.5, 1.2, 1.9, 2.5), 1: (2.3,)}
STAGES = {4: (50_000, 430_000, 360_000, 384_000), 1: (1_224_000,)}
HEADS = {4: (70_000, 60_000, 30_000, 10_000), 1: (10_000,)}
PLAIN = 1_234_000
"""Multiply-adds; all stages and the last head make the plain backbone."""


def exit_table(
    split: str,
    examples: int,
    exits: int,
    names: Sequence[str],
    counts: Sequence[int],
    seed: int,
    labels: NDArray[np.int64] | None = None,
) -> ExitTable:
    rng = np.random.default_rng(seed)
    classes = len(names)
    labels_N = np.arange(examples) % classes if labels is None else labels
    logits_NEC = rng.normal(size=(examples, exits, classes)).astype(np.float32)
    logits_NEC[np.arange(examples), :, labels_N] += np.array(MARGINS[exits], dtype=np.float32)
    return ExitTable(
        logits_NEC=logits_NEC,
        labels_N=labels_N,
        cost_E=np.cumsum(np.array(STAGES[exits]) + np.array(HEADS[exits])) / PLAIN,
        head_cost_E=np.array(HEADS[exits]) / PLAIN,
        plain_multiply_adds=PLAIN,
        class_counts_C=np.array(counts),
        class_names=tuple(names),
        split=split,
        checkpoint_sha256=f"{seed:x}" * 64,
        confidence_scale=1.0,
        many_above=100,
        few_below=20,
    )


def log_records(exits: int, epochs: int = 5) -> list[EpochRecord]:
    """Weights from epoch 3 on; in the first epoch no example takes the first of several exits."""
    records = []
    for epoch in range(epochs):
        loss: list[float | None] = [0.1 * 3**k + 0.05 * (epochs - epoch) for k in range(exits)]
        if epoch == 0 and exits > 1:
            loss[0] = None
        records.append(
            EpochRecord(
                epoch=epoch,
                learning_rate=0.1 if epoch < 3 else 0.001,
                weights="effective" if epoch >= 3 else "none",
                loss=2.0 / (epoch + 1),
                exit_share=(1.0 / exits,) * exits,
                loss_by_exit=tuple(loss),
                increasing_loss="undefined" if None in loss or exits == 1 else "holds",
                low_confidence_head_loss_share=0.2,
                high_confidence_tail_loss_share=None,
                calibration_balanced_accuracy=0.1 * epoch if epoch != 1 else None,
                seconds=1.5,
            )
        )
    return records


def write_checkpoint(path: Path, exits: int, classes: int) -> None:
    """Tensors with the names and shapes of a small CIFAR ResNet: a stem and groups of one block, heads of 8 filters."""
    channels = (16, 16, 32, 64) if exits == 4 else (64,)
    shapes: dict[str, tuple[int, ...]] = {}
    for k, number in enumerate(channels):
        shapes[f"stages.{k}.0.conv1.weight"] = (number, 3 if k == 0 else channels[k - 1], 3, 3)
        shapes[f"stages.{k}.0.bn1.weight"] = (number,)
        shapes[f"stages.{k}.0.bn1.running_mean"] = (number,)
        if k < exits - 1:
            shapes |= {f"heads.{k}.trunk.0.weight": (8, number, 3, 3), f"heads.{k}.trunk.3.weight": (8, 8, 3, 3)}
        shapes[f"heads.{k}.classifier.weight"] = (classes, 8 if k < exits - 1 else number)
        shapes[f"heads.{k}.classifier.bias"] = (classes,)
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {f"weights.{name}": np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
    save_file(tensors | {"optimiser.stages.0.0.conv1.weight": np.zeros((99, 99, 3, 3), dtype=np.float32)}, path)


def write_run(
    root: Path,
    *,
    exits: int = 4,
    names: Sequence[str] = NAMES,
    counts: Sequence[int] = COUNTS,
    examples: int = 240,
    seed: int = 1,
    recipe: str | None = None,
    log: list[EpochRecord] | None = None,
    search: Sequence[str] = ("0.5", "0.7", "0.9"),
    overrides: dict[str, Any] | None = None,
    labels: NDArray[np.int64] | None = None,
    fingerprint: str = "f00d" * 16,
) -> RunDirectory:
    run = RunDirectory(root)
    calibration = exit_table("calibration", examples, exits, names, counts, seed)
    test = exit_table("test", examples if labels is None else len(labels), exits, names, counts, seed, labels)
    family = line_search(calibration, search)
    data = data_info(
        fingerprint=fingerprint,
        class_names=tuple(names),
        class_counts=tuple(counts),
        train=sum(counts),
        calibration=examples,
        test=examples,
        image_shape=(32, 32, 3),
    )
    costs = MultiplyAdds(plain=PLAIN, stages=tuple(STAGES[exits]), heads=tuple(HEADS[exits]))
    info = run_info(data=data, multiply_adds=costs)
    settings = {"train.epochs": 5, "data.many_above": 100, "data.few_below": 20, **(overrides or {})}
    run.create(load_recipe(recipe or ("cifar10-lt/elf-ce-drw" if exits > 1 else "cifar10-lt/ce-drw"), settings), info)
    write_checkpoint(run.checkpoint("last"), exits, len(names))
    records = log_records(exits) if log is None else log
    write_log(run.log_file, records)
    calibration.save(run.table("calibration"))
    test.save(run.table("test"))
    family.save(run.policy_file)
    run.save_results(results_on(test, family))
    return run


@pytest.fixture(scope="session")
def elf_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Four exits, awkward class names, an empty group. Not to be written into."""
    return write_run(tmp_path_factory.mktemp("runs") / "elf")


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One exit. Not to be written into."""
    return write_run(tmp_path_factory.mktemp("runs") / "plain", exits=1, seed=2)


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Answers from random numbers to the real test images of the embedded data. Not to be written into."""
    splits = load_splits(load_recipe(DEFAULT_RECIPE).data)
    names, counts = splits.class_names, splits.class_counts_C.tolist()
    return write_run(
        tmp_path_factory.mktemp("runs") / "digits",
        names=names,
        counts=counts,
        recipe=DEFAULT_RECIPE,
        labels=splits.test.labels_N,
        fingerprint=splits.fingerprint,
    )


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with captions but without drawings, which take most of the time."""

    def caption_only(figure: RunFigure, key: str) -> DrawnFigure:
        return DrawnFigure(figure.title, figure.caption, Markup(f'<svg id="{key}-{figure.name}"></svg>'))

    monkeypatch.setattr("elfnet.report.svg.draw_figure", caption_only)


@pytest.fixture
def two_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that can be drawn of a run, two figures."""
    monkeypatch.setattr(catalogue, "RUN_FIGURES", (class_distribution, reliability_by_exit))
    monkeypatch.setattr(catalogue, "EXIT_FIGURES", ())


@pytest.fixture
def make_run(tmp_path: Path) -> RunFactory:
    """A run of one's own, with any argument of `write_run`."""

    def make(name: str = "run", **arguments: Any) -> RunDirectory:
        return write_run(tmp_path / name, **arguments)

    return make
