"""Finished runs without training: exit tables from random numbers, everything else as the package writes it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet import atomic
from elfnet.calibrate.line_search import line_search
from elfnet.calibrate.run_family import results_on
from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.evaluate.exit_table import ExitTable
from elfnet.recipe.load import load_recipe

RunFactory = Callable[..., RunDirectory]

NAMES = ("<script>alert(1)</script>", "$x_1$", "橙 & \\$orange\\$", "d", "e", "f")
COUNTS = (500, 101, 100, 60, 30, 20)
"""No class has fewer than 20 training images: the group "few" is empty."""
MARGINS = {4: (0.5, 1.2, 1.9, 2.5), 1: (2.3,)}


def exit_table(
    split: str, examples: int, exits: int, names: Sequence[str], counts: Sequence[int], seed: int
) -> ExitTable:
    rng = np.random.default_rng(seed)
    classes = len(names)
    labels_N = np.arange(examples) % classes
    logits_NEC = rng.normal(size=(examples, exits, classes)).astype(np.float32)
    logits_NEC[np.arange(examples), :, labels_N] += np.array(MARGINS[exits], dtype=np.float32)
    return ExitTable(
        logits_NEC=logits_NEC,
        labels_N=labels_N,
        cost_E=np.array([0.1, 0.5, 0.8, 1.2]) if exits == 4 else np.array([1.0]),
        plain_multiply_adds=1_234_567,
        class_counts_C=np.array(counts),
        class_names=tuple(names),
        split=split,
        checkpoint_sha256=f"{seed:x}" * 64,
        confidence_scale=1.0,
        many_above=100,
        few_below=20,
    )


def log_records(exits: int, epochs: int = 5) -> list[dict[str, Any]]:
    """Weights from epoch 3 on; in the first epoch nobody leaves at the first of several exits."""
    records = []
    for epoch in range(epochs):
        loss: list[float | None] = [0.1 * 3**k + 0.05 * (epochs - epoch) for k in range(exits)]
        if epoch == 0 and exits > 1:
            loss[0] = None
        records.append(
            {
                "epoch": epoch,
                "learning_rate": 0.1 if epoch < 3 else 0.001,
                "weights": "effective" if epoch >= 3 else "none",
                "loss": 2.0 / (epoch + 1),
                "exit_share": [1.0 / exits] * exits,
                "loss_by_exit": loss,
                "increasing_loss": "undefined" if None in loss or exits == 1 else "holds",
                "low_confidence_head_loss_share": 0.2,
                "high_confidence_tail_loss_share": None,
                "calibration_balanced_accuracy": 0.1 * epoch if epoch != 1 else None,
                "seconds": 1.5,
            }
        )
    return records


def write_run(
    root: Path,
    *,
    exits: int = 4,
    names: Sequence[str] = NAMES,
    counts: Sequence[int] = COUNTS,
    examples: int = 240,
    seed: int = 1,
    recipe: str | None = None,
    log: list[dict[str, Any]] | None = None,
) -> RunDirectory:
    run = RunDirectory(root)
    calibration = exit_table("calibration", examples, exits, names, counts, seed)
    test = exit_table("test", examples, exits, names, counts, seed)
    family = line_search(calibration, ["0.5", "0.7", "0.9"])
    info = {
        "versions": {"elfnet": "0.1.0", "numpy": "2.0"},
        "hardware": {"processor": "A & B <fast>", "cores": 2},
        "command": "elfnet train --out <here>",
        "machine": {"device": "cpu", "compile": False},
        "seeds": {"subset": 0, "training": 7},
        "data": {
            "fingerprint": "f00d" * 16,
            "class_names": list(names),
            "class_counts": list(counts),
            "train": sum(counts),
            "calibration": examples,
            "test": examples,
            "image_shape": [32, 32, 3],
        },
    }
    overrides = {"train.epochs": 5, "data.many_above": 100, "data.few_below": 20}
    run.create(load_recipe(recipe or ("cifar10-lt/elf-ce-drw" if exits > 1 else "cifar10-lt/ce-drw"), overrides), info)
    records = log_records(exits) if log is None else log
    atomic.write_text(run.log_file, "".join(json.dumps(record) + "\n" for record in records))
    calibration.save(run.table("calibration"))
    test.save(run.table("test"))
    family.save(run.policy_file)
    atomic.write_json(run.metrics_file, results_on(test, family))
    return run


@pytest.fixture(scope="session")
def elf_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Four exits, awkward class names, an empty group. Not to be written into."""
    return write_run(tmp_path_factory.mktemp("runs") / "elf")


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """One exit. Not to be written into."""
    return write_run(tmp_path_factory.mktemp("runs") / "plain", exits=1, seed=2)


@pytest.fixture
def make_run(tmp_path: Path) -> RunFactory:
    """A run of one's own, with any argument of `write_run`."""

    def make(name: str = "run", **arguments: Any) -> RunDirectory:
        return write_run(tmp_path / name, **arguments)

    return make
