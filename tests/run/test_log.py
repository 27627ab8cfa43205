"""log.jsonl: one typed record per line, altered lines refused, a torn last line left out."""

import json
from pathlib import Path

import pytest
from run_files import epoch_record

from elfnet.errors import WorkError
from elfnet.run.log import append_to_log, log_line, read_log, reweighting_start, write_log

RECORDS = tuple(epoch_record(epoch, weights="none" if epoch < 2 else "effective") for epoch in range(4))
STORED = Path(__file__).parents[1] / "integration" / "stored" / "begun-run" / "log.jsonl"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log.jsonl"
    write_log(file, RECORDS[:-1])
    append_to_log(file, RECORDS[-1])
    return file


def test_what_was_written_is_read_back(log: Path) -> None:
    assert read_log(log) == RECORDS
    assert len(log.read_text().splitlines()) == 4


def test_optional_fields_that_are_not_given_are_not_written() -> None:
    content = json.loads(log_line(RECORDS[0]))
    assert {*RECORDS[0].model_fields_set, "checksum"} == set(content)
    assert content["calibration_balanced_accuracy"] is None


def test_the_log_of_version_0_1_0_is_read() -> None:
    assert "checksum" not in STORED.read_text()
    assert [record.epoch for record in read_log(STORED)] == [0, 1]


def test_no_log_has_no_records(tmp_path: Path) -> None:
    assert read_log(tmp_path / "log.jsonl") == ()


@pytest.mark.parametrize("cut", [1, 2, 20, 200])
def test_a_torn_last_line_is_left_out(log: Path, cut: int) -> None:
    """Only the line feed may be missing from a record that is read."""
    log.write_bytes(log.read_bytes()[:-cut])
    assert read_log(log) == (RECORDS if cut == 1 else RECORDS[:-1])


def test_zeros_after_a_power_loss_are_left_out(log: Path) -> None:
    log.write_bytes(log.read_bytes() + bytes(100))
    assert read_log(log) == RECORDS


@pytest.mark.parametrize("line", range(4))
def test_an_altered_line_is_refused(log: Path, line: int) -> None:
    lines = log.read_text().splitlines(keepends=True)
    lines[line] = lines[line].replace('"seconds": 1.5', '"seconds": 1.6')
    log.write_text("".join(lines))
    with pytest.raises(
        WorkError, match=rf"log\.jsonl is damaged \(line {line + 1}: altered after it was written"
    ) as caught:
        read_log(log)
    assert "restore it from a copy" in str(caught.value)


def test_every_mutation_of_a_complete_line_is_refused_or_means_the_same(tmp_path: Path) -> None:
    file, line = tmp_path / "log.jsonl", log_line(RECORDS[2]).encode()
    refused = 0
    for position in range(len(line) - 1):
        mutated = bytearray(line)
        mutated[position] ^= 1 << (position % 7)
        file.write_bytes(bytes(mutated) + line)
        try:
            assert read_log(file)[0] == RECORDS[2], bytes(mutated)
        except WorkError:
            refused += 1
    assert refused > 0.9 * len(line)


@pytest.mark.parametrize("damage", ['{"epoch": 0}\n', "[1]\n", "\n", '{"epoch": 0, "lo\n{}\n'])
def test_a_damaged_log_is_one_line(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(damage)
    with pytest.raises(WorkError, match=r"log\.jsonl is damaged \(line 1: ") as caught:
        read_log(file)
    assert "\n" not in str(caught.value)


def test_the_start_of_reweighting() -> None:
    assert reweighting_start(RECORDS) == 2
    assert reweighting_start(RECORDS[:2]) is None
    assert reweighting_start(RECORDS[2:]) is None
