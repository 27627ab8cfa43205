"""The exit table: checks on construction, round trip, and what happens to a file that was tampered with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable

TableFactory = Callable[..., ExitTable]


def read_header(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write_header(path: Path, header: dict[str, Any], body: bytes) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def refused(path: Path) -> str:
    with pytest.raises(WorkError) as caught:
        ExitTable.open(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert "evaluate the run" in message
    return message


def test_round_trip(make_table: TableFactory, tmp_path: Path) -> None:
    table = make_table(split="calibration", confidence_scale=30.0, many_above=7, few_below=3)
    path = tmp_path / "deep" / "calibration.safetensors"
    table.save(path)
    again = ExitTable.open(path)
    for name in ("logits_NEC", "labels_N", "cost_E", "class_counts_C"):
        ours, theirs = getattr(table, name), getattr(again, name)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    for name in (
        "plain_multiply_adds",
        "class_names",
        "split",
        "checkpoint_sha256",
        "confidence_scale",
        "many_above",
        "few_below",
    ):
        assert getattr(table, name) == getattr(again, name)
    assert isinstance(again.logits_NEC, np.memmap)
    assert not again.logits_NEC.flags.writeable
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_round_trip_of_logits_that_are_not_contiguous(make_table: TableFactory, tmp_path: Path) -> None:
    logits_ENC = np.random.default_rng(0).normal(size=(4, 300, 6)).astype(np.float32)
    table = make_table(logits_NEC=logits_ENC.transpose(1, 0, 2))
    table.save(tmp_path / "t.safetensors")
    np.testing.assert_array_equal(ExitTable.open(tmp_path / "t.safetensors").logits_NEC, logits_ENC.transpose(1, 0, 2))


def test_round_trip_of_an_empty_table(make_table: TableFactory, tmp_path: Path) -> None:
    make_table(examples=0).save(tmp_path / "t.safetensors")
    assert ExitTable.open(tmp_path / "t.safetensors").logits_NEC.shape == (0, 4, 6)


def test_an_opened_table_can_be_saved_over_itself(make_table: TableFactory, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    make_table().save(path)
    before = ExitTable.open(path)
    before.save(path)
    after = ExitTable.open(path)
    np.testing.assert_array_equal(before.logits_NEC, after.logits_NEC)
    np.testing.assert_array_equal(make_table().logits_NEC, after.logits_NEC)


def test_shapes_and_groups(make_table: TableFactory) -> None:
    table = make_table(examples=10)
    assert (table.examples, table.exits, table.classes) == (10, 4, 6)
    # 500 and 101 are above 100; 100 and 20 are medium; 19 and 2 are below 20.
    assert table.group_of_class.tolist() == [0, 0, 1, 1, 2, 2]


def test_missing_file(tmp_path: Path) -> None:
    assert "there is no exit table" in refused(tmp_path / "none.safetensors")


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1, -1000])
def test_truncated_file(make_table: TableFactory, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "t.safetensors"
    make_table().save(path)
    path.write_bytes(path.read_bytes()[:keep])
    refused(path)


@pytest.mark.parametrize("position", [0.3, 0.6, 0.99])
def test_altered_tensor_byte(make_table: TableFactory, tmp_path: Path, position: float) -> None:
    path = tmp_path / "t.safetensors"
    make_table().save(path)
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 1
    path.write_bytes(content)
    assert "altered or damaged" in refused(path)


def test_the_split_cannot_be_edited(make_table: TableFactory, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    make_table(split="test").save(path)
    header, body = read_header(path)
    header["__metadata__"]["facts"] = header["__metadata__"]["facts"].replace('"test"', '"calibration"')
    write_header(path, header, body)
    assert "altered or damaged" in refused(path)


def test_other_format_version(make_table: TableFactory, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    make_table().save(path)
    header, body = read_header(path)
    header["__metadata__"]["format_version"] = "2"
    write_header(path, header, body)
    assert "format '2', this version of elfnet reads '1'" in refused(path)


def test_missing_metadata_field(make_table: TableFactory, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    make_table().save(path)
    header, body = read_header(path)
    del header["__metadata__"]["content_sha256"]
    write_header(path, header, body)
    refused(path)


def test_other_files(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file({"logits": np.zeros((1, 1, 1), dtype=np.float32)}, weights)
    assert "not an exit table" in refused(weights)
    text = tmp_path / "text.safetensors"
    text.write_text("hello, this is no table at all")
    refused(text)


def test_a_failed_save_leaves_the_old_file(
    make_table: TableFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.safetensors"
    make_table().save(path)
    before = path.read_bytes()

    def disk_full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elfnet.evaluate.exit_table.save_file", disk_full)
    with pytest.raises(WorkError, match="No space left on device"):
        make_table(seed=1).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_require_checkpoint(make_table: TableFactory) -> None:
    table = make_table()
    table.require_checkpoint("a" * 64)
    with pytest.raises(WorkError, match="of checkpoint aaaaaaaaaaaa, not of bbbbbbbbbbbb"):
        table.require_checkpoint("b" * 64)


@pytest.mark.parametrize(
    "replaced",
    [
        {"logits_NEC": np.zeros((300, 4, 6))},
        {"logits_NEC": np.zeros((300, 24), dtype=np.float32)},
        {"logits_NEC": np.zeros((300, 0, 6), dtype=np.float32), "cost_E": np.zeros(0)},
        {"labels_N": np.zeros(299, dtype=np.int64)},
        {"labels_N": np.zeros(300, dtype=np.int32)},
        {"labels_N": np.full(300, 6)},
        {"labels_N": np.full(300, -1)},
        {"cost_E": np.array([0.1, 0.5, 1.0])},
        {"cost_E": np.array([0.1, 0.5, 0.4, 1.0])},
        {"cost_E": np.array([0.0, 0.5, 0.7, 1.0])},
        {"cost_E": np.array([0.1, 0.5, 0.7, np.nan])},
        {"class_counts_C": np.array([1, 2, 3])},
        {"class_names": ("a", "b")},
        {"split": "validation"},
        {"checkpoint_sha256": ""},
        {"confidence_scale": 0.0},
        {"confidence_scale": float("nan")},
        {"many_above": 10, "few_below": 20},
    ],
)
def test_impossible_tables_are_refused(make_table: TableFactory, replaced: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        make_table(**replaced)
    assert "\n" not in str(caught.value)
