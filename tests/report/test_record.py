"""Reading a run: consistent files are read, others are refused in one line."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_files import change_json

from elfnet.data.long_tail import head_classes
from elfnet.errors import ElfnetError, RequestError, WorkError
from elfnet.recipe.load import load_recipe
from elfnet.report.record import method_name, read_run, read_runs
from elfnet.run.directory import RunDirectory

RunFactory = Callable[..., RunDirectory]


def test_reads_what_was_written(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    metrics = json.loads(elf_run.metrics_file.read_text())
    assert (record.name, record.method, record.exits, record.plain) == ("elf", "ELF(CE)+DRW", 4, False)
    for name, point in metrics["points"].items():
        assert record.at(name).to_json() == point
    assert [point.to_json() for point in record.results.curve] == metrics["curve"]
    assert [quality.to_json() for quality in record.results.exits] == metrics["exits"]
    assert record.tail_group == "medium"  # "few" has no class
    assert record.table is not None


@pytest.mark.parametrize("missing", ["metrics.json", "policy.json"])
def test_run_that_was_not_calibrated(make_run: RunFactory, missing: str) -> None:
    run = make_run()
    (run.root / missing).unlink()
    with pytest.raises(RequestError, match=rf"no {missing} .*run 'elfnet calibrate {run.root}' first") as caught:
        read_run(run)
    assert "\n" not in str(caught.value)


def test_table_may_be_gone_but_not_of_another_checkpoint(make_run: RunFactory) -> None:
    run, other = make_run("a", seed=1), make_run("b", seed=2)
    table = run.table("test")
    table.unlink()
    assert read_run(run).table is None
    table.write_bytes(other.table("test").read_bytes())
    with pytest.raises(WorkError, match="evaluate the run again"):
        read_run(run)


def test_metrics_of_other_thresholds_are_refused(make_run: RunFactory) -> None:
    run = make_run()
    change_json(run.metrics_file, lambda content: content["points"]["s=0.5"].update(thresholds=[0.51, 0.5, 0.5]))
    with pytest.raises(WorkError, match=r"not measured with the operating points of policy\.json; .*again"):
        read_run(run)


@pytest.mark.parametrize(
    ("file", "field"), [("metrics.json", "curve"), ("metrics.json", "points"), ("run.json", "data")]
)
def test_missing_fields_are_one_line(make_run: RunFactory, file: str, field: str) -> None:
    run = make_run()
    change_json(run.root / file, lambda content: content.pop(field))
    with pytest.raises(WorkError, match=rf"{file} is damaged") as caught:
        read_run(run)
    assert "\n" not in str(caught.value)


def test_results_of_other_classes_are_refused(make_run: RunFactory) -> None:
    run = make_run()

    def add_class(content: dict[str, Any]) -> None:
        content["data"]["class_names"].append("g")
        content["data"]["class_counts"].append(1)

    change_json(run.info_file, add_class)
    with pytest.raises(WorkError, match=r"run\.json is damaged \(7 class names, but metrics\.json has 6 classes\)"):
        read_run(run)


def test_runs_of_one_name_are_told_apart(make_run: RunFactory, tmp_path: Path) -> None:
    make_run("first/run")
    make_run("second/run", seed=2)
    records = read_runs([tmp_path / "first" / "run", str(tmp_path / "second" / "run")])
    assert [record.name for record in records] == ["first/run", "second/run"]


def test_no_run_and_a_run_twice_are_refused(elf_run: RunDirectory, tmp_path: Path) -> None:
    cases: list[tuple[list[RunDirectory | str | Path], str]] = [
        ([], "at least one"),
        ([elf_run, elf_run.root], "twice"),
        ([tmp_path], "not a run"),
    ]
    for runs, message in cases:
        with pytest.raises(ElfnetError, match=message):
            read_runs(runs)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("ce", "CE"),
        ("focal-drw", "Focal+DRW"),
        ("ldam", "LDAM"),
        ("elf-ce-drw", "ELF(CE)+DRW"),
        ("elf-ldam", "ELF(LDAM)"),
        ("joint-ce-drw", "Joint(CE)+DRW"),
        ("elf-balanced-softmax-mixup", "ELF(BalancedSoftmax)+Mixup"),
        ("logit-adjusted", "LogitAdjusted"),
        ("manifold-mixup", "CE+ManifoldMixup"),
        ("bbn", "BBN(CE)"),
        ("branchynet", "BranchyNet(CE)+DRW"),
        ("distilled-exits", "Distilled(CE)+DRW"),
    ],
)
def test_shipped_methods(method: str, name: str) -> None:
    assert method_name(load_recipe(f"digits/{method}")) == name


@pytest.mark.parametrize(("mix", "name"), [("cutmix", "CE+CutMix"), ("cmo", "CE+CMO")])
def test_mixed_images(mix: str, name: str) -> None:
    assert method_name(load_recipe("digits/ce", {"train.mix": mix})) == name


def test_weights_from_the_start_are_not_deferred() -> None:
    assert method_name(load_recipe("digits/ce", {"criterion.reweight": "inverse"})) == "CE+RW(inverse)"


def test_halves_by_frequency_with_ties_by_label() -> None:
    assert head_classes(np.array([5, 9, 5, 1, 5])).tolist() == [True, True, True, False, False]


def test_another_class_mix_of_the_test_split_is_said(elf_run: RunDirectory) -> None:
    record = read_run(elf_run)
    assert record.mix_note == ""
    assert record.table is not None
    classes = record.table.classes
    for mix, differs in (((1 / classes,) * classes, False), ((0.5, *(0.5 / (classes - 1),) * (classes - 1)), True)):
        changed = replace(record, family=replace(record.family, class_mix=mix))
        assert changed.mix_note.startswith("The test split has another class mix") is differs
        assert ("33 % of its images" in changed.mix_note) is differs
