"""iNaturalist annotations: images and annotations belong together by id."""

import json
from pathlib import Path
from typing import Any

import pytest

from elfnet.data.sources.lists import lists, read_annotations
from elfnet.data.types import SourceRequest
from elfnet.errors import RequestError, WorkError

CONTENT: dict[str, Any] = {
    "info": {"year": 2018},
    "images": [
        {"id": 7, "file_name": "train_val2018/Aves/1/x.jpg", "license": 1, "width": 800},
        {"id": 3, "file_name": "train_val2018/Aves/0/y.jpg", "license": 2},
    ],
    "annotations": [
        {"id": 0, "image_id": 3, "category_id": 0},
        {"id": 1, "image_id": 7, "category_id": 1},
    ],
    "categories": [{"id": 1, "name": "Turdus merula"}, {"id": 0, "name": "Parus major"}],
}


def written(folder: Path, content: Any) -> Path:
    file = folder / "train2018.json"
    file.write_text(json.dumps(content))
    return file


def test_reads_as_published(tmp_path: Path) -> None:
    listing = read_annotations(written(tmp_path, CONTENT), tmp_path)
    assert list(listing.paths) == ["train_val2018/Aves/0/y.jpg", "train_val2018/Aves/1/x.jpg"]
    assert listing.labels_N.tolist() == [0, 1]
    assert listing.label_names == ("Parus major", "Turdus merula")


def test_names_that_do_not_tell_classes_apart_are_not_used(tmp_path: Path) -> None:
    same = {**CONTENT, "categories": [{"id": 0, "name": "bird"}, {"id": 1, "name": "bird"}]}
    assert read_annotations(written(tmp_path, same), tmp_path).label_names == ("0", "1")
    without = {key: value for key, value in CONTENT.items() if key != "categories"}
    assert read_annotations(written(tmp_path, without), tmp_path).label_names == ("0", "1")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"annotations": [{"image_id": 99, "category_id": 0}]}, "is not an annotation file .*99"),
        ({"images": None}, "is not an annotation file"),
        ({"annotations": [{"image_id": 3}]}, "category_id"),
        ({"annotations": [{"image_id": 3, "category_id": -4}]}, "has category_id -4"),
        ({"annotations": [{"image_id": 3, "category_id": 10**30}]}, r"it has an integer of 31 digits"),
        ({"annotations": [{"image_id": 3, "category_id": 1.5}]}, r"has category_id 1\.5"),
        ({"annotations": [{"image_id": 3, "category_id": None}]}, "has category_id None"),
        ({"images": [{"id": 3, "file_name": "y"}, {"id": 7, "file_name": "x\0"}]}, r"annotation 1 .* NUL .*'x\\x00'"),
        ({"images": [{"id": 3, "file_name": "y"}, {"id": 7, "file_name": "\ud800"}]}, "is not an annotation file"),
        ({"annotations": [{"image_id": 3, "category_id": 1}]}, "no example of label 0, but has label 1"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    with pytest.raises(WorkError, match=expected):
        lists(SourceRequest(train=written(tmp_path, {**CONTENT, **change})))


def test_annotations_have_no_group_column(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"data\.group_column=who: .*train2018\.json has no columns"):
        lists(SourceRequest(train=written(tmp_path, CONTENT), group_column="who"))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, CONTENT)
    file.write_text(file.read_text()[:-20])
    with pytest.raises(WorkError, match=r"train2018\.json is truncated or not JSON"):
        lists(SourceRequest(train=file))
