"""The part of the page about one run."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from elfnet.report.html import Cell, Table
from elfnet.report.record import read_run
from elfnet.report.sections.run import RunSection, run_section
from elfnet.run.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def section(elf_run: RunDirectory) -> RunSection:
    return run_section(read_run(elf_run), "run-1", with_images=False)


def rows(table: Table) -> dict[str, str]:
    return {str(name): value.text if isinstance(value, Cell) else value for name, value in table.rows}


def test_cards_are_the_points_a_user_would_choose(
    section: RunSection, elf_run: RunDirectory, plain_run: RunDirectory
) -> None:
    points = json.loads(elf_run.metrics_file.read_text())["points"]
    assert [(card.accuracy, card.cost) for card in section.cards] == [
        (f"{100 * points[name]['accuracy']:.1f}", f"{points[name]['mean_cost']:.3f}") for name in ("full", "economic")
    ]
    # Test classes are balanced here, so the balanced accuracy adds nothing.
    assert {card.balanced_accuracy for card in section.cards} == {""}
    (card,) = run_section(read_run(plain_run), "run-1", with_images=False).cards
    assert (card.name, card.cost, card.time, card.note) == ("full", "1.000", "", "a plain network")


def test_points_that_do_the_same_are_one_card(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    points = dict.fromkeys(record.results.points, record.results.points["full"])
    changed = replace(record, results=record.results.model_copy(update={"points": points}))
    (card,) = run_section(changed, "run-1", with_images=False).cards
    assert card.name == "full, economic"
    assert card.note == "full depth; cheapest within the tolerance of accuracy, by the calibration split"


def test_balanced_accuracy_is_shown_where_it_differs(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    full = record.at("full").model_copy(update={"balanced_accuracy": 0.125})
    changed = replace(
        record, results=record.results.model_copy(update={"points": {**record.results.points, "full": full}})
    )
    assert run_section(changed, "run-1", with_images=False).cards[0].balanced_accuracy == "12.5"


def test_provenance(section: RunSection, elf_run: RunDirectory) -> None:
    shown = rows(section.provenance)
    assert shown["command"] == "elfnet train --out <here>"
    assert shown["hardware"] == "processor A & B <fast>, cores 2, system Linux"
    assert shown["machine settings"] == "device cpu, precision float32, compile no, channels last yes, threads 1"
    assert shown["seeds"] == "subset 0, class order -1, training 7"
    assert shown["data"] == "cifar10, images of 32 × 32 × 3"
    assert shown["data fingerprint"] == "f00d" * 16
    assert shown["checkpoint (sha256)"] == json.loads(elf_run.metrics_file.read_text())["checkpoint_sha256"]
    assert shown["thresholds chosen on"] == "calibration split, n = 240"
    assert "[exits]" in section.recipe


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("cifar10-lt/elf-ce-drw", "exit at confidence > 0.9 (mask)"),
        ("cifar10-lt/joint-ce-drw", "all examples visit all exits"),
    ],
)
def test_settings(make_run: Callable[..., RunDirectory], recipe: str, expected: str) -> None:
    overrides = {"exits.train_threshold": "0.9"} if "elf" in recipe else {}
    section = run_section(read_run(make_run(recipe=recipe, overrides=overrides)), "run-1", with_images=False)
    (table,) = (block for block in section.training.blocks if isinstance(block, Table))
    shown = rows(table)
    assert shown["exit rule in training"] == expected
    assert shown["class weights"] == "effective, from epoch 3"
    assert (shown["epochs"], shown["wall time"]) == ("5 of 5", "8 s")


def test_a_plain_network_has_nothing_about_exits(plain_run: RunDirectory) -> None:
    section = run_section(read_run(plain_run), "run-1", with_images=True)
    assert (section.slider, section.trade_off, section.gallery) == (None, None, None)
    assert (section.points.by_rule, section.points.notes) == ((), ())
