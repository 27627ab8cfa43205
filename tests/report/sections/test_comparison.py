"""Several runs side by side."""

from dataclasses import replace

import pytest

from elfnet.report.html import Cell
from elfnet.report.record import read_run
from elfnet.report.sections.comparison import comparison_section
from elfnet.run.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("undrawn")


def test_differences_to_the_first_run(elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    first, second = read_run(elf_run), read_run(plain_run)
    section = comparison_section([first, second])
    assert section.not_compared == ()
    assert section.differences is not None
    ((name, everyone, *_, few, _),) = section.differences.rows
    assert (section.first, name, few) == ("elf", "plain", "–")
    assert isinstance(everyone, Cell)
    assert everyone.value == pytest.approx(second.at("full").accuracy - first.at("full").accuracy)
    low, high = (float(end.replace("−", "-")) for end in everyone.interval.strip("[]").split(", "))
    assert low <= 100 * (everyone.value or 0) <= high
    assert everyone.bold == (low > 0 or high < 0)


def test_a_run_that_cannot_be_compared_is_named_with_the_reason(elf_run: RunDirectory, plain_run: RunDirectory) -> None:
    section = comparison_section([read_run(elf_run), replace(read_run(plain_run), table=None)])
    assert section.differences is None
    assert section.not_compared == ("plain is not compared: plain has no exit table of the test split.",)
