"""What describe says, as data and as text."""

import io
import json
import re
from collections.abc import Callable

from rich.console import Console

from elfnet.data.describe import describe, render
from elfnet.data.long_tail import FrequencyGroups
from elfnet.data.splits import Splits, make_splits
from elfnet.data.types import Source

MakeSource = Callable[..., Source]


def text(splits: Splits, *, encoding: str = "utf-8", groups: FrequencyGroups | None = None) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=100).print(render(splits, groups or FrequencyGroups()))
    file.flush()
    buffer = file.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(encoding)


def test_the_dictionary_is_plain_json_and_adds_up(make_source: MakeSource) -> None:
    splits = make_splits(make_source([400] * 4, own_test=True), ratio=50, calibration_per_class=10)
    facts = json.loads(json.dumps(describe(splits, FrequencyGroups())))
    assert [entry["train"] for entry in facts["per_class"]] == [390, 108, 29, 8]
    assert [entry["group"] for entry in facts["per_class"]] == ["many", "many", "medium", "few"]
    assert facts["groups"] == {
        "many": {"classes": 2, "examples": 498},
        "medium": {"classes": 1, "examples": 29},
        "few": {"classes": 1, "examples": 8},
    }
    assert facts["imbalance_ratio"] == 390 / 8
    assert facts["examples"] == {"train": 535, "calibration": 40, "test": 12}
    assert facts["image_shape"] == [2, 2, 1]


def test_one_bar_a_class_as_long_as_its_count(make_source: MakeSource) -> None:
    splits = make_splits(make_source([400] * 4, own_test=True), ratio=8, calibration_per_class=10)
    lines = [line for line in text(splits).splitlines() if line.startswith("class ") and "█" in line]
    assert [line.split()[1] for line in lines] == ["0", "1", "2", "3"]
    lengths = [line.count("█") for line in lines]
    for length, count in zip(lengths, splits.class_counts_C, strict=True):
        assert abs(length - lengths[0] * count / splits.class_counts_C[0]) <= 1


def test_the_summary_says_counts_groups_and_ratio(make_source: MakeSource) -> None:
    shown = text(make_splits(make_source([400, 2, 400], own_test=True), profile="none"))
    assert "762 train, 80 calibration, 9 test" not in shown
    assert "722 train, 80 calibration, 9 test" in shown
    assert "imbalance ratio: 180 " in shown
    assert "medium -" in shown  # an empty group is a dash, never 0
    assert "without calibration examples: 1 classes (1)" in shown


def test_many_classes_are_drawn_as_a_curve(make_source: MakeSource) -> None:
    splits = make_splits(make_source([50] * 100, own_test=True), ratio=25, calibration_per_class=5, class_order_seed=1)
    shown = text(splits)
    assert "class 7" not in shown
    assert len(shown.splitlines()) < 60
    curve = [line for line in shown.splitlines() if re.match(r"\d+-\d+ ", line)]
    assert curve[0].startswith("1-3 ")
    assert curve[-1].startswith("99-100 ")
    means = [int(line.split()[1]) for line in curve]
    assert means == sorted(means, reverse=True)


def test_class_names_are_never_markup(make_source: MakeSource) -> None:
    source = make_source([30, 30], own_test=True)
    named = Source("[red]set", ("[bold]x[/bold]", "[/nothing]"), source.train, source.test, False)
    shown = text(make_splits(named, ratio=2))
    assert "[bold]x[/bold]" in shown
    assert "[/nothing]" in shown
    assert "[red]set" in shown


def test_a_terminal_without_unicode_gets_plain_characters(make_source: MakeSource) -> None:
    shown = text(make_splits(make_source([40] * 3, own_test=True), ratio=4), encoding="ascii")
    assert "####" in shown
