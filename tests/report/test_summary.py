"""A run in words, and differences with confidence intervals."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from run_files import epoch_record

from elfnet.errors import RequestError
from elfnet.evaluate.bootstrap import Difference
from elfnet.report.record import read_run
from elfnet.report.summary import PointEffect, compare_at_full_depth, increasing_loss_verdict, summary, tail_effect
from elfnet.run.directory import RunDirectory


def test_numbers_in_words(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    paragraphs = summary(record)
    assert paragraphs["Data"] == (
        "cifar10, imbalance ratio 100: 6 classes with 500 down to 20 training images (2 many, 4 medium, 0 few; "
        "many > 100, medium 20..100, few < 20). 811 images for training, 240 for calibration, 240 for test."
    )
    assert paragraphs["Network"] == "resnet32 with 4 exits, trained with ELF(CE)+DRW for 5 epochs."
    full, economic, text = record.at("full"), record.at("economic"), paragraphs["Accuracy and cost"]
    assert f"{100 * full.accuracy:.1f} % of the 240 test images correctly and costs 1.000 times" in text
    assert "% less than full depth;" in text
    assert f"{100 * economic.accuracy:.1f} % correct at a mean cost of {economic.mean_cost:.3f}" in text
    assert "“medium” (n = 160)" in paragraphs["Rare classes"]


def test_full_depth_is_not_called_accurate(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    full = record.family.points[0]
    points = tuple(full.renamed("accurate") if one.name == "accurate" else one for one in record.family.points)
    text = summary(replace(record, family=replace(record.family, points=points)))["Accuracy and cost"]
    assert "No threshold was more accurate than full depth on the calibration split." in text
    assert "accurate point" not in text


def test_another_unit_of_cost_is_named(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    timed = replace(
        record, results=record.results.model_copy(update={"cost_unit": "time relative to the plain backbone (here)"})
    )
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
        ([0.1, 0.2, 0.3, 0.4], "holds", "is larger the later their exit."),
        ([0.1, 0.3, 0.2, 0.4], "does not hold", "is not larger at every later exit."),
        ([None, 0.3, 0.2, 0.4], "undefined", "cannot be compared between exits: no example took exit 1."),
        ([None, None, None, 1.0], "undefined", "cannot be compared between exits: no example took exits 1, 2 and 3."),
    ],
)
def test_increasing_loss(
    make_run: Callable[..., RunDirectory], loss: list[float | None], logged: str, expected: str
) -> None:
    record = read_run(make_run())
    last = record.epochs[-1].model_copy(update={"loss_by_exit": tuple(loss), "increasing_loss": logged})
    assert increasing_loss_verdict(replace(record, epochs=(*record.epochs[:-1], last))).endswith(expected)


def test_joint_training_is_the_reason(make_run: Callable[..., RunDirectory]) -> None:
    log = [epoch_record(0, exit_share=(0.0, 0.0, 0.0, 1.0), loss_by_exit=(None, None, None, 1.0))]
    record = read_run(make_run(recipe="cifar10-lt/joint-ce-drw", log=log))
    assert "; in joint training every example visits every exit" in summary(record)["Increasing loss"]
    assert "for 1 of 5 epochs" in summary(record)["Network"]


def test_tail_is_the_rarest_group_with_examples(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    effect = tail_effect(record, "s=0.5")
    assert effect is not None
    assert effect.group == "medium"
    assert effect.early == record.at("s=0.5").accuracy_by_group["medium"]
    assert effect.difference is not None
    assert effect.difference.estimate == pytest.approx(effect.early - effect.full)
    assert effect.verdict == "significantly lower"  # three in four examples take exits that are far worse
    without = tail_effect(replace(record, table=None), "s=0.5")
    assert without is not None
    assert without.difference is None
    assert without.verdict == "lower, with unknown significance because the exit table is missing"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.2, -0.01, "significantly lower"),
        (0.01, 0.2, "significantly higher"),
        (0.0, 0.0, "unchanged"),
        (-0.1, 0.0, "no significant change"),
    ],
)
def test_verdicts(low: float, high: float, verdict: str) -> None:
    assert PointEffect("few", 0.5, 0.5, Difference(0.0, low, high, 9)).verdict == verdict


def test_second_minus_first(elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    first, second = read_run(elf_run), read_run(plain_run)
    comparison = compare_at_full_depth(first, second)
    everyone = comparison.differences["all"]
    assert everyone is not None
    assert everyone.estimate == pytest.approx(second.at("full").accuracy - first.at("full").accuracy)
    assert comparison.differences["few"] is None


def test_other_examples_are_not_compared(elf_run: RunDirectory, make_run: Callable[..., RunDirectory]) -> None:
    first = read_run(elf_run)
    for other, message in (
        (replace(first, table=None), "no exit table"),
        (read_run(make_run("fewer", examples=234)), "different labels"),
    ):
        with pytest.raises(RequestError, match=message):
            compare_at_full_depth(first, other)


def test_equal_labels_are_not_equal_images(elf_run: RunDirectory) -> None:
    first = read_run(elf_run)
    info = first.info.model_copy(update={"data": first.info.data.model_copy(update={"fingerprint": "other"})})
    data = first.recipe.data
    # The data set's own test split is the same whatever the seed; another data set's is not.
    reseeded = replace(
        first, info=info, recipe=first.recipe.model_copy(update={"data": data.model_copy(update={"subset_seed": 1})})
    )
    assert compare_at_full_depth(first, reseeded).n == 240
    elsewhere = first.recipe.model_copy(update={"data": data.model_copy(update={"source": "cifar100"})})
    with pytest.raises(RequestError, match="the test examples may differ"):
        compare_at_full_depth(first, replace(first, info=info, recipe=elsewhere))
    # A test split that was cut from the data (40 a class here) is the same only with the same seed.
    cut = data.model_copy(update={"test_per_class": 40})
    cut_first = replace(first, recipe=first.recipe.model_copy(update={"data": cut}))
    cut_other = cut.model_copy(update={"subset_seed": 1})
    with pytest.raises(RequestError, match="the test examples may differ"):
        compare_at_full_depth(
            cut_first, replace(cut_first, info=info, recipe=first.recipe.model_copy(update={"data": cut_other}))
        )
