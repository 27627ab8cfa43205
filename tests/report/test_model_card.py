"""The model card: the points a user would choose, their intervals, confused classes, and rare classes by name."""

from dataclasses import replace
from math import sqrt
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from elfnet.report.model_card import balanced_error, model_card, write_model_card
from elfnet.report.record import read_run
from elfnet.run.directory import RunDirectory
from elfnet.run.results import Metrics


def metrics(**fields: Any) -> Metrics:
    return cast("Metrics", SimpleNamespace(**fields))


def test_the_interval_of_the_balanced_accuracy_follows_from_each_class() -> None:
    confusion_CC = np.array([[90, 10], [5, 5]])
    expected = 1.96 * sqrt(0.9 * 0.1 / 100 + 0.5 * 0.5 / 10) / 2
    assert balanced_error(metrics(), confusion_CC) == pytest.approx(expected)
    # Ten of ten right is no certainty.
    assert balanced_error(metrics(), np.diag([10, 10])) > 0.05
    assert balanced_error(metrics(accuracy=0.5, n=100), None) == pytest.approx(0.098)


def test_the_card_states_data_accuracy_and_confusions(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    text = model_card(record)
    full = record.at("full")
    assert f"| full: full depth | {100 * full.balanced_accuracy:.1f} ±" in text
    assert "500 to 20 training examples per class" in text
    assert text.count(" taken for ") == 5
    assert "<script>" not in text


def test_a_default_point_other_than_full_is_listed(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    assert record.family.default.name == "accurate"
    assert (
        "accurate: used where no point is named: more accurate than full depth, by the calibration split"
        in model_card(record)
    )
    accurate = record.family.point("accurate")
    worse = replace(accurate, expected=accurate.expected.model_copy(update={"balanced_accuracy": 0.0}))
    points = tuple(worse if point.name == "accurate" else point for point in record.family.points)
    text = model_card(replace(record, family=replace(record.family, points=points)))
    assert "where no point is named" not in text


def test_a_plain_network_has_a_card_too(plain_run: RunDirectory) -> None:
    assert "with 1 exits" in model_card(read_run(plain_run))


def test_the_card_is_a_file_of_the_run(make_run: Any) -> None:
    path = write_model_card(make_run("mine"))
    assert path.name == "MODEL_CARD.md"
    assert path.read_text().startswith("# mine\n")
