"""The files of a run as typed values."""

from collections.abc import Callable

import pytest

from elfnet.checkpoint.run_directory import RunDirectory
from elfnet.errors import WorkError
from elfnet.report.run_files import read_epochs, reweighting_start


def test_records_and_the_switch(elf_run: RunDirectory) -> None:
    epochs = read_epochs(elf_run)
    assert [epoch.epoch for epoch in epochs] == [0, 1, 2, 3, 4]
    assert epochs[0].loss_by_exit[0] is None
    assert epochs[1].calibration_balanced_accuracy is None
    assert reweighting_start(epochs) == 3
    assert reweighting_start(epochs[:3]) is None
    assert reweighting_start(epochs[3:]) is None


def test_damaged_log_is_one_line(make_run: Callable[..., RunDirectory]) -> None:
    run = make_run()
    for damage in ('{"epoch": 0}\n', "[1]\n"):
        run.log_file.write_text(damage)
        with pytest.raises(WorkError, match=r"log\.jsonl is damaged") as caught:
            read_epochs(run)
        assert "\n" not in str(caught.value)


def test_line_that_a_kill_cut_short_is_left_out(make_run: Callable[..., RunDirectory]) -> None:
    run = make_run()
    run.log_file.write_text(run.log_file.read_text()[:-20])
    assert [epoch.epoch for epoch in read_epochs(run)] == [0, 1, 2, 3]
