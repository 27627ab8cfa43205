"""The files of a run as typed values."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from elfnet.errors import WorkError
from elfnet.report.run_files import read_epochs, read_info, read_results, reweighting_start
from elfnet.run.directory import RunDirectory

RunFactory = Callable[..., RunDirectory]


def change_info(run: RunDirectory, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(run.info_file.read_text())
    change(content)
    run.info_file.write_text(json.dumps(content))


def test_info(elf_run: RunDirectory) -> None:
    info = read_info(elf_run)
    assert info.class_counts_C.tolist() == [500, 101, 100, 60, 30, 20]
    assert (info.train, info.calibration, info.test, info.image_shape) == (811, 240, 240, (32, 32, 3))
    assert info.multiply_adds is not None
    assert info.multiply_adds.plain == 1_234_000
    assert len(info.multiply_adds.stages) == len(info.multiply_adds.heads) == 4
    assert info.seeds == {"subset": 0, "training": 7}
    assert not info.external_network


def test_facts_that_a_run_may_lack(make_run: RunFactory) -> None:
    run = make_run()

    def remove(content: dict[str, Any]) -> None:
        for name in ("multiply_adds", "command", "versions", "hardware", "machine", "seeds"):
            del content[name]
        del content["data"]["fingerprint"], content["data"]["image_shape"]
        content["network"] = {"signature": "x"}

    change_info(run, remove)
    info = read_info(run)
    assert (info.multiply_adds, info.command, info.fingerprint, info.image_shape) == (None, None, None, ())
    assert info.versions == info.hardware == info.machine == info.seeds == {}
    assert info.external_network


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda content: content["data"].pop("calibration"), "'calibration'"),
        (lambda content: content["data"]["class_names"].pop(), "the numbers of class names and counts differ"),
        (lambda content: content["multiply_adds"].pop("heads"), "'heads'"),
        (lambda content: content.update(data=3), "not subscriptable"),
    ],
)
def test_damaged_info_is_one_line(make_run: RunFactory, change: Callable[[dict[str, Any]], object], why: str) -> None:
    run = make_run()
    change_info(run, change)
    with pytest.raises(WorkError, match=rf"run\.json is damaged \(.*{why}.*\); restore it from a copy") as caught:
        read_info(run)
    assert "\n" not in str(caught.value)


def test_damaged_results_name_the_command_that_writes_them_again(make_run: RunFactory) -> None:
    run = make_run()
    content = json.loads(run.metrics_file.read_text())
    del content["points"]["full"]["macro_f1"]
    run.metrics_file.write_text(json.dumps(content))
    with pytest.raises(
        WorkError, match=rf"metrics\.json is damaged .*macro_f1.*run 'elfnet calibrate {run.root}' again"
    ):
        read_results(run)


def test_epochs_and_the_start_of_reweighting(elf_run: RunDirectory) -> None:
    epochs = read_epochs(elf_run)
    assert [epoch.epoch for epoch in epochs] == [0, 1, 2, 3, 4]
    assert epochs[0].loss_by_exit[0] is None
    assert epochs[1].calibration_balanced_accuracy is None
    assert reweighting_start(epochs) == 3
    assert reweighting_start(epochs[:3]) is None
    assert reweighting_start(epochs[3:]) is None


def test_damaged_log_is_one_line(make_run: RunFactory) -> None:
    run = make_run()
    for damage in ('{"epoch": 0}\n', "[1]\n"):
        run.log_file.write_text(damage)
        with pytest.raises(WorkError, match=r"log\.jsonl is damaged") as caught:
            read_epochs(run)
        assert "\n" not in str(caught.value)


def test_a_truncated_last_line_is_left_out(make_run: RunFactory) -> None:
    run = make_run()
    run.log_file.write_text(run.log_file.read_text()[:-20])
    assert [epoch.epoch for epoch in read_epochs(run)] == [0, 1, 2, 3]
