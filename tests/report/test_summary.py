"""The summary says what the files say."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.report.record import read_run
from elfnet.report.summary import increasing_loss_verdict, summary


def test_numbers_in_words(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    paragraphs = summary(record)
    assert paragraphs["Data"] == (
        "cifar10, imbalance ratio 100: 6 classes with 500 down to 20 training images (2 many, 4 medium, 0 few; "
        "many > 100, medium 20..100, few < 20). 811 images for training, 240 for calibration, 240 for test."
    )
    assert paragraphs["Network"] == "resnet32 with 4 exits, trained with ELF(CE)+DRW for 5 epochs."
    full, economic = record.at("full"), record.at("economic")
    assert (
        f"{100 * full.accuracy:.1f} % of the 240 test images and costs 1.000 times" in paragraphs["Accuracy and cost"]
    )
    assert "% less than full depth;" in paragraphs["Accuracy and cost"]
    assert f"{100 * economic.accuracy:.1f} % and costs {economic.mean_cost:.3f}" in paragraphs["Accuracy and cost"]
    assert "“medium” (n = 160)" in paragraphs["Rare classes"]


def test_another_unit_of_cost_is_named(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    timed = replace(record, results=replace(record.results, cost_unit="time relative to the plain backbone (here)"))
    text = summary(timed)["Accuracy and cost"]
    assert "costs 1.000 in time relative to the plain backbone (here)" in text
    assert "multiply-adds" not in text


def test_plain_network_has_no_exits_to_speak_of(plain_run: RunDirectory) -> None:
    paragraphs = summary(read_run(plain_run))
    assert list(paragraphs) == ["Data", "Network", "Accuracy and cost"]
    assert "without early exits" in paragraphs["Network"]


@pytest.mark.parametrize(
    ("loss", "logged", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.4], "holds", "this holds."),
        ([0.1, 0.3, 0.2, 0.4], "does not hold", "this does not hold."),
        ([None, 0.3, 0.2, 0.4], "undefined", "this is undefined, because nobody left at exit 1."),
        ([None, None, None, 1.0], "undefined", "this is undefined, because nobody left at exits 1, 2 and 3."),
    ],
)
def test_increasing_loss(
    make_run: Callable[..., RunDirectory], loss: list[float | None], logged: str, expected: str
) -> None:
    record = read_run(make_run())
    last = replace(record.epochs[-1], loss_by_exit=tuple(loss), increasing_loss=logged)
    assert increasing_loss_verdict(replace(record, epochs=(*record.epochs[:-1], last))).endswith(expected)


def test_joint_training_is_the_reason(make_run: Callable[..., RunDirectory]) -> None:
    log: list[dict[str, Any]] = [
        {
            "epoch": 0,
            "learning_rate": 0.1,
            "weights": "none",
            "loss": 1.0,
            "exit_share": [0.0, 0.0, 0.0, 1.0],
            "loss_by_exit": [None, None, None, 1.0],
            "increasing_loss": "undefined",
        }
    ]
    record = read_run(make_run(recipe="cifar10-lt/joint-ce-drw", log=log))
    assert "as in joint training every example visits every exit" in summary(record)["Increasing loss"]
    assert "for 1 of 5 epochs" in summary(record)["Network"]
