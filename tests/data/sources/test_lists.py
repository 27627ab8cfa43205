"""List files: paths with blanks, names of classes, and every broken line named by its number."""

from pathlib import Path

import pytest

from elfnet.data.sources.lists import lists, read_list
from elfnet.data.types import SourceRequest
from elfnet.errors import RequestError, WorkError


def written(folder: Path, text: str, name: str = "list.txt") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_reads_as_published(tmp_path: Path) -> None:
    text = "train/n01440764/a b.JPEG 0\r\n\ntrain/n01443537/c.JPEG\t1\ntrain/n01440764/d.JPEG 0"
    listing = read_list(written(tmp_path, text), Path("root"))
    assert list(listing.paths) == ["train/n01440764/a b.JPEG", "train/n01443537/c.JPEG", "train/n01440764/d.JPEG"]
    assert listing.labels_N.tolist() == [0, 1, 0]
    assert listing.label_names == ("n01440764", "n01443537")
    assert listing.numbered


@pytest.mark.parametrize("text", ["a.png 0\nb.png 1\n", "x/a.png 0\nx/b.png 1\n", "x/a.png 0\ny/b.png 0\nz/c.png 1\n"])
def test_classes_without_a_folder_of_their_own_are_called_by_number(tmp_path: Path, text: str) -> None:
    assert read_list(written(tmp_path, text), tmp_path).label_names == ("0", "1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.png 0\nb.png\n", r"line 2 of .*list\.txt has no label: 'b\.png'"),
        ("a.png 0\nb.png one\n", r"line 2 of .*list\.txt has label 'one', which is not a class number"),
        ("a.png -1\n", r"line 1 .* has label '-1'"),
        ("a.png 0.5\n", r"line 1 .* has label '0\.5'"),
        ("a.png 99999999999999999999\n", r"line 1 .* has label '9999"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(WorkError, match=expected):
        read_list(written(tmp_path, text), tmp_path)


def test_a_gap_an_empty_and_a_missing_list(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="has no example of label 1, but has label 2; labels must start at 0"):
        lists(SourceRequest(train=written(tmp_path, "a.png 0\nb.png 2\n")))
    with pytest.raises(WorkError, match="has no example of label 0, but has label 999999999"):
        lists(SourceRequest(train=written(tmp_path, "a.png 999999999\n")))
    with pytest.raises(WorkError, match="lists no example"):
        lists(SourceRequest(train=written(tmp_path, "\n")))
    with pytest.raises(WorkError, match=r"data\.train=nowhere\.txt: there is no such file \(nowhere\.txt nor .+/"):
        lists(SourceRequest(train=Path("nowhere.txt"), root=tmp_path))
    there = written(tmp_path, "a.png 0\nb.png 1\n")
    with pytest.raises(WorkError, match=r"data\.test=no\.json: .* set data\.test to an empty value to hold out"):
        lists(SourceRequest(train=there, test=Path("no.json")))
    with pytest.raises(RequestError, match=r"needs data\.train"):
        lists(SourceRequest())


def test_splits_share_the_numbering_whatever_their_folders_are_called(tmp_path: Path) -> None:
    train = written(tmp_path, "cats/a.png 0\ndogs/b.png 1\n")
    test = written(tmp_path, "val/c.png 1\n", "test.txt")
    source = lists(SourceRequest(train=train, test=test, root=tmp_path))
    assert source.class_names == ("cats", "dogs")
    assert source.test is not None
    assert source.test.labels_N.tolist() == [1]
    with pytest.raises(WorkError, match=r"test\.txt has label 7, but .*list\.txt has labels 0\.\.1"):
        lists(SourceRequest(train=train, test=written(tmp_path, "c.png 7\n", "test.txt")))
    with pytest.raises(RequestError, match=r"cats/a\.png is in both .*list\.txt \(train\) and .*test\.txt \(test\)"):
        lists(SourceRequest(train=train, test=written(tmp_path, "cats/a.png 0\n", "test.txt")))


def test_a_list_is_also_looked_for_beside_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "a.png 0\nb.png 1\n", "beside.txt")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(lists(SourceRequest(train=Path("beside.txt"), root=tmp_path)).train) == 2


def test_what_is_no_text_is_not_read_as_lines(tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    expected = r"image\.png is not a text list \(line 3 has a NUL byte\); a list has one path and label per line$"
    with pytest.raises(WorkError, match=expected):
        read_list(file, tmp_path)


def test_a_nul_byte_far_down_is_named_by_its_line(tmp_path: Path) -> None:
    """No file can have such a name; the operating system's words for it have no line number."""
    text = "".join(f"{number:08}.png {number % 2}\n" for number in range(30_000)) + "\nx\0.png 0\n"
    with pytest.raises(WorkError, match=r"line 30002 of .*list\.txt has a NUL byte: 'x\\x00\.png 0'"):
        read_list(written(tmp_path, text), tmp_path)


def test_a_file_that_is_listed_twice_is_named_with_its_labels(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"list\.txt lists x/a\.png twice, as '0' and as '1'; keep one of them"):
        lists(SourceRequest(train=written(tmp_path, "x/a.png 0\nx/b.png 1\nx/a.png 1\n")))
    with pytest.raises(WorkError, match=r"list\.txt lists b\.png twice, as '1'; keep"):
        lists(SourceRequest(train=written(tmp_path, "a.png 0\nb.png 1\nc.png 1\nb.png 1\n")))
    train = written(tmp_path, "a.png 0\nb.png 1\n")
    with pytest.raises(WorkError, match=r"test\.txt lists c\.png twice"):
        lists(SourceRequest(train=train, test=written(tmp_path, "c.png 1\nc.png 1\n", "test.txt")))


def test_one_class_only(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"list\.txt has only one class \('cats'\); a classifier needs at least two"):
        lists(SourceRequest(train=written(tmp_path, "cats/a.png 0\ncats/b.png 0\n")))


def test_a_list_has_no_group_column(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"data\.group_column=who: .*list\.txt has no columns; use a table"):
        lists(SourceRequest(train=written(tmp_path, "a.png 0\nb.png 1\n"), group_column="who"))
