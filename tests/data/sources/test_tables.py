"""CSV tables, and Parquet ones through a stand-in for pyarrow."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from elfnet.data.sources.file_listing import number_groups
from elfnet.data.sources.lists import lists
from elfnet.data.sources.tables import read_table
from elfnet.data.types import SourceRequest
from elfnet.errors import RequestError, WorkError

COLUMNS = {"path_column": "path", "label_column": "label"}


def written(folder: Path, text: str, name: str = "table.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_columns_by_name_in_any_order_and_quoted(tmp_path: Path) -> None:
    text = '\ufeffage,label,path,patient\n61,malignant,"x, y.png",p2\n\n40,benign,z.png,p1\n'
    listing = read_table(written(tmp_path, text), tmp_path, **COLUMNS, group_column="patient")
    assert list(listing.paths) == ["x, y.png", "z.png"]
    assert listing.label_names == ("benign", "malignant")
    assert listing.labels_N.tolist() == [1, 0]
    assert listing.groups == ("p2", "p1")
    tabs = read_table(written(tmp_path, "path\tlabel\na b,c\t1\n", "t.tsv"), tmp_path, **COLUMNS)
    assert list(tabs.paths) == ["a b,c"]


def test_whole_numbers_are_classes_by_value_and_may_have_gaps(tmp_path: Path) -> None:
    listing = read_table(written(tmp_path, "path,label\na,10\nb,2\nc,10\n"), tmp_path, **COLUMNS)
    assert listing.label_names == ("2", "10")
    assert listing.labels_N.tolist() == [1, 0, 1]
    assert len(lists(SourceRequest(train=tmp_path / "table.csv")).train) == 3


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("file,label\na,0\n", RequestError, r"no column 'path'; it has: file, label; .* data\.path_column"),
        ("path,class\na,0\n", RequestError, r"no column 'label'; .* data\.label_column"),
        # A quote that is not closed; the message stays one line.
        ('"path,\nlabel\n', RequestError, r"no column 'path'; it has: 'path,\\nlabel\\n'; .* data\.path_column"),
        ("path;label\na;0\n", WorkError, r"table\.csv separates columns by semicolons; save it with commas"),
        ("", WorkError, r"table\.csv is empty; it needs a line with column names"),
        ("\n\n", WorkError, r"table\.csv is empty"),
        ("path,label\na,0\n\nb\0,1\n", WorkError, r"line 4 of .*table\.csv has a NUL byte in path: 'b\\x00'"),
        ("path,label\na,cat\na,dog\n", WorkError, r"lists a twice, as 'cat' and as 'dog'"),
        ("path,label\na,cat\n", WorkError, r"table\.csv has only one class \('cat'\)"),
        ("path,label\na,0\nb,\n", WorkError, r"line 3 of .*table\.csv has no label: 'b,'"),
        ("path,label\na,0\nb\n", WorkError, "line 3 .* has no label"),
        ("path,label\n", WorkError, "lists no example"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, text: str, kind: type[Exception], expected: str) -> None:
    with pytest.raises(kind, match=expected):
        lists(SourceRequest(train=written(tmp_path, text)))


def test_a_group_column_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no column 'patient'.* data\.group_column"):
        lists(SourceRequest(train=written(tmp_path, "path,label\na,0\n"), group_column="patient"))


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"path,label\n\xff\xfe,0\n")
    with pytest.raises(WorkError, match="save it as CSV in UTF-8"):
        lists(SourceRequest(train=tmp_path / "table.csv"))


def test_a_group_in_two_splits_is_named(tmp_path: Path) -> None:
    train = written(tmp_path, "path,label,patient\na,0,p1\nb,1,p2\n")
    test = written(tmp_path, "path,label,patient\nc,0,p2\n", "test.csv")
    request = SourceRequest(train=train, test=test, group_column="patient")
    with pytest.raises(WorkError, match="group 'p2' is in both train and test"):
        lists(request)


def test_groups_are_numbered_in_order_of_appearance() -> None:
    """Not by a set, whose order changes from process to process: a resumed run would have other splits."""
    names = [f"patient {number}" for number in (30, 4, 30, 17, 2, 4)]
    numbered = number_groups({"train": names, "calibration": None, "test": ["other", "more", "other"]})
    assert numbered["train"] is not None
    assert numbered["train"].tolist() == [0, 1, 0, 2, 3, 1]
    assert numbered["calibration"] is None
    assert numbered["test"] is not None
    assert numbered["test"].tolist() == [4, 5, 4]


def stand_in(monkeypatch: pytest.MonkeyPatch, columns: dict[str, list[Any]]) -> None:
    """A module that answers as pyarrow.parquet does, from a table in memory."""
    package, parquet = ModuleType("pyarrow"), ModuleType("pyarrow.parquet")

    def column(name: str) -> SimpleNamespace:
        return SimpleNamespace(to_pylist=lambda: columns[name])

    parquet.read_schema = lambda _file: SimpleNamespace(names=list(columns))  # type: ignore[attr-defined]
    parquet.read_table = lambda _file, columns: SimpleNamespace(column=column)  # type: ignore[attr-defined]  # noqa: ARG005
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, {"path": ["a", "b"], "label": [3, 1], "extra": [0, 0]})
    listing = read_table(tmp_path / "t.parquet", tmp_path, **COLUMNS)
    assert list(listing.paths) == ["a", "b"]
    assert listing.label_names == ("1", "3")
    with pytest.raises(RequestError, match=r"no column 'patient'; it has: path, label, extra; .*data\.group_column"):
        read_table(tmp_path / "t.parquet", tmp_path, **COLUMNS, group_column="patient")
    stand_in(monkeypatch, {"path": ["a", "b"], "label": [3, None]})
    with pytest.raises(WorkError, match=r"row 1 of .* has no label"):
        read_table(tmp_path / "t.parquet", tmp_path, **COLUMNS)
    stand_in(monkeypatch, {"path": ["a", "b\0c"], "label": [3, 1]})
    with pytest.raises(WorkError, match=r"row 1 of .*t\.parquet has a NUL byte in path: 'b\\x00c'"):
        read_table(tmp_path / "t.parquet", tmp_path, **COLUMNS)


def test_parquet_without_pyarrow_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(RequestError, match="needs pyarrow: pip install pyarrow, or save it as CSV or npz"):
        read_table(tmp_path / "t.parquet", tmp_path, **COLUMNS)
