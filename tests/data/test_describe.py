"""Descriptions of splits and of listings as plain data."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elfnet.data.check_files import check_files
from elfnet.data.describe import describe_listing, describe_splits, listings_at
from elfnet.data.images.decode import Limits
from elfnet.data.long_tail import FrequencyGroups
from elfnet.data.splits import make_splits
from elfnet.data.types import Source, SourceRequest
from elfnet.errors import RequestError, WorkError

MakeSource = Callable[..., Source]
GROUPS = FrequencyGroups(many_above=4, few_below=3)


def test_the_dictionary_is_plain_json_and_adds_up(make_source: MakeSource) -> None:
    splits = make_splits(make_source([400] * 4, own_test=True), ratio=50, calibration_per_class=10)
    facts = json.loads(json.dumps(describe_splits(splits, FrequencyGroups())))
    assert [entry["train"] for entry in facts["per_class"]] == [390, 108, 29, 8]
    assert [entry["group"] for entry in facts["per_class"]] == ["many", "many", "medium", "few"]
    assert facts["groups"] == {
        "many": {"classes": 2, "examples": 498},
        "medium": {"classes": 1, "examples": 29},
        "few": {"classes": 1, "examples": 8},
    }
    assert facts["imbalance_ratio"] == 390 / 8
    assert facts["examples"] == {"train": 535, "calibration": 40, "test": 12}
    assert facts["image_shape"] == [2, 2, 1]


def test_a_folder_with_splits(image_folder: Callable[..., Path]) -> None:
    image_folder({"a": 6, "b": 3, "c": 2}, below="images/train")
    root = image_folder({"b": 2}, below="images/test").parent
    facts = describe_listing(listings_at(root, SourceRequest()), GROUPS)
    assert facts["classes"] == 3
    assert facts["examples"] == {"train": 11, "test": 2}
    assert facts["imbalance_ratio"] == 3
    assert {name: group["classes"] for name, group in facts["groups"].items()} == {"many": 1, "medium": 1, "few": 1}
    assert facts["per_class"][1] == {"label": 1, "name": "b", "group": "medium", "train": 3, "test": 2}
    assert "group_column" not in facts
    assert "files" not in facts


def test_a_list_whose_files_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("".join(f"x/{i}.jpg {i % 2 * (i > 5)}\n" for i in range(20)))
    (tmp_path / "val.txt").write_text("y.jpg 1\n")
    request = SourceRequest(calibration=tmp_path / "val.txt")
    facts = describe_listing(listings_at(tmp_path / "train.txt", request), GROUPS)
    assert facts["examples"] == {"train": 20, "calibration": 1}
    assert [row["train"] for row in facts["per_class"]] == [13, 7]
    (tmp_path / "val.txt").write_text("y.jpg 2\n")
    with pytest.raises(WorkError, match="has label 2"):
        listings_at(tmp_path / "train.txt", request)


def test_feature_arrays(tmp_path: Path) -> None:
    illness = np.array(["flu", "flu", "cold", "flu", "flu", "cold"])
    np.savez(tmp_path / "train.npz", X=np.arange(12.0).reshape(6, 2), y=illness, who=np.array([1, 1, 2, 3, 3, 3]))
    np.savez(tmp_path / "test.npz", X=np.zeros((1, 2)), y=np.array(["flu"]), who=np.array([9]))
    request = SourceRequest(test=tmp_path / "test.npz", group_column="who")
    listings = listings_at(tmp_path / "train.npz", request)
    facts = describe_listing(listings, GROUPS)
    assert facts["source"] == str(tmp_path / "train.npz")
    assert facts["examples"] == {"train": 6, "test": 1}
    assert [(row["name"], row["train"]) for row in facts["per_class"]] == [("cold", 2), ("flu", 4)]
    assert facts["group_column"]["train"] == {"groups": 3, "largest": 3}
    with pytest.raises(RequestError, match=r"--deep reads image files, and .*train\.npz has none; leave it out"):
        check_files(listings, Limits(), threads=1)


def test_a_folder_has_no_group_column(image_folder: Callable[..., Path], tmp_path: Path) -> None:
    request = SourceRequest(group_column="who")
    with pytest.raises(RequestError, match=r"data\.group_column=who: .*images has no columns; use a table"):
        listings_at(image_folder({"a": 2, "b": 2}), request)
    (tmp_path / "t.csv").write_text("path,label,who\nx,a,p1\ny,b,p2\n")
    with pytest.raises(RequestError, match=r"data\.group_column=who: .*images has no columns"):
        listings_at(tmp_path / "t.csv", replace(request, test=tmp_path / "images"))


def test_groups_of_a_table(tmp_path: Path) -> None:
    rows = [("a", 0, "p1"), ("b", 1, "p1"), ("c", 1, "p2"), ("d", 1, "p3")]
    (tmp_path / "t.csv").write_text("path,label,who\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    listings = listings_at(tmp_path / "t.csv", SourceRequest(group_column="who"))
    assert describe_listing(listings, GROUPS)["group_column"] == {"train": {"groups": 3, "largest": 2}}


def test_a_deep_check_is_part_of_the_description(image_folder: Callable[..., Path]) -> None:
    listings = listings_at(image_folder({"a": 2, "b": 2}), SourceRequest())
    checked = check_files(listings, Limits(), threads=1)
    assert describe_listing(listings, GROUPS, checked)["files"] == checked.to_dict()


def test_counts_after_hold_out_and_ignored_files(tmp_path: Path) -> None:
    for name, number in (("a", 20), ("b", 2)):
        (tmp_path / name).mkdir()
        for index in range(number):
            (tmp_path / name / f"{index}.png").write_bytes(b"")
    (tmp_path / "a" / "photo.HEIC").write_bytes(b"")
    facts = describe_listing(listings_at(tmp_path, SourceRequest()), FrequencyGroups())
    # Of 20, 2 for calibration and 4 for test; both of 2 stay for training.
    assert facts["after_hold_out"] == {"train": 16, "calibration": 2, "test": 4}
    assert facts["missing_from_calibration"] == [1]
    assert facts["ignored"] == {".heic": 1}
