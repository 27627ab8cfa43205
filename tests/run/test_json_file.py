"""JSON files with a hash of their content."""

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from elfnet.errors import WorkError
from elfnet.run.json_file import read_json, write_json

CONTENT = {"n": 60, "share": [0.5, 1.0], "names": {"a": None, "b": True}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "run.json"
    write_json(file, CONTENT)
    return file


def test_what_was_written_is_read_back_without_the_hash(file: Path) -> None:
    assert read_json(file) == CONTENT
    assert json.loads(file.read_text()).keys() == {*CONTENT, "sha256"}


def test_a_file_of_an_earlier_version_has_no_hash(file: Path) -> None:
    file.write_text(json.dumps(CONTENT))
    assert read_json(file) == CONTENT


def test_order_and_white_space_do_not_matter(file: Path) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(content.items()))))
    assert read_json(file) == CONTENT


def test_an_altered_value_is_one_line_with_the_way_out(file: Path) -> None:
    file.write_text(file.read_text().replace("60", "61"))
    with pytest.raises(
        WorkError, match=r"run\.json was altered after it was written \(its hash does not match\); calibrate again$"
    ):
        read_json(file, way_out="calibrate again")


def test_mutations_are_refused_or_mean_the_same(file: Path) -> None:
    original, rng = file.read_bytes(), random.Random(0)
    for _ in range(400):
        mutated = bytearray(original)
        mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        file.write_bytes(mutated)
        with suppress(WorkError):
            content = read_json(file)
            # The name of the hash itself may be hit; every reader refuses a field that it does not know.
            assert content == CONTENT or not content.keys() <= CONTENT.keys()


@pytest.mark.parametrize("content", ["", "{", '{"a": ', "[1, 2]", "3", '{"a": NaN}', '{"a": -Infinity}', "[" * 100_000])
def test_a_damaged_file_is_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)
    with pytest.raises(WorkError, match=r"run\.json is damaged \(.*\); restore it from a copy") as caught:
        read_json(file)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkError, match=r"run\.json is damaged"):
        read_json(file)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"cannot read .*run\.json: No such file or directory"):
        read_json(tmp_path / "run.json")
