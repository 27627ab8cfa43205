"""`elfnet data` on a user's own images, and the terminal rendering of a description."""

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from elfnet.cli.data import render_description
from elfnet.data.long_tail import GROUP_NAMES, FrequencyGroups

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Seven images of two classes, each different."""
    for label, (name, count) in enumerate({"apple": 5, "pear": 2}.items()):
        (tmp_path / "fruit" / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((9, 9, 3), 40 * label + number, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "fruit" / name / f"{number}.png")
    return tmp_path / "fruit"


def test_describe_a_folder(elfnet: Call, root: Path) -> None:
    code, out, _ = elfnet("data", "describe", root)
    assert code == 0
    for words in ("2 classes", "examples: 7 train", "imbalance ratio: 2.5", "apple", "pear"):
        assert words in out
    facts = json.loads(elfnet("data", "describe", root, "--json", "--data.many_above", 3, "--data.few_below", 3)[1])
    assert [row["train"] for row in facts["per_class"]] == [5, 2]
    assert facts["groups"]["many"]["classes"] == 1


def test_describe_deep(elfnet: Call, root: Path) -> None:
    (root / "pear" / "broken.png").write_bytes(b"no image")
    code, out, _ = elfnet("data", "describe", root, "--deep")
    assert code == 0
    assert "unreadable: 1" in out
    facts = json.loads(elfnet("data", "describe", root, "--deep", "--json")[1])
    assert facts["files"]["files"] == 8
    code, _, error = elfnet("data", "describe", "digits", "--deep")
    assert code == 2
    assert "give its path" in error


def test_describe_a_list_and_a_table(elfnet: Call, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("x/a.jpg 0\nx/b.jpg 0\ny/c.jpg 1\n")
    assert json.loads(elfnet("data", "describe", tmp_path / "list.txt", "--json")[1])["classes"] == 2
    (tmp_path / "t.csv").write_text("file,kind,who\na,x,1\nb,y,1\n")
    columns = ["--data.path_column", "file", "--data.label_column", "kind", "--data.group_column", "who"]
    facts = json.loads(elfnet("data", "describe", tmp_path / "t.csv", *columns, "--json")[1])
    assert facts["group_column"]["train"] == {"groups": 1, "largest": 2}
    code, out, error = elfnet("data", "describe", tmp_path / "t.csv")
    assert (code, out) == (2, "")
    assert "has no column 'path'; it has: file, kind, who" in error


def test_describe_what_a_recipe_makes_of_a_folder(elfnet: Call, root: Path) -> None:
    code, out, _ = elfnet("data", "describe", "folder", "--data.root", root, "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["examples"] == {"train": 5, "calibration": 1, "test": 1}
    assert facts["image_shape"] == [224, 224, 3]


def test_prepare_packs_the_cache(elfnet: Call, root: Path, tmp_path: Path) -> None:
    words = ["data", "prepare", "folder", "--data.root", root, "--data.cache", tmp_path / "cache", "--data.workers", 0]
    code, _, err = elfnet(*words)
    assert code == 2
    assert "give --data.image_size, here and to train" in err
    words += ["--data.image_size", 224]
    code, out, _ = elfnet(*words, "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["train"], facts["test"]) == (7, 0)
    assert sorted(Path(file).name for file in facts["packed"]) == sorted(
        file.name for file in (tmp_path / "cache").iterdir()
    )
    assert len(facts["packed"]) == 3
    assert "folder is ready: 2 classes, 7 training images, no test set of its own" in elfnet(*words)[1]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["train", "folder"], 2, "needs data.root"),
        (["train", "folder", "--data.root", "nowhere"], 2, "cannot list nowhere"),
        (["train", "csv"], 2, "needs data.train"),
        (["train", "features"], 2, "needs data.train"),
        (["train", "hub"], 2, "needs data.hub"),
        (["train", "imagenet-lt", "--data.root", "x"], 1, "no such file (ImageNet_LT_train.txt nor x/ImageNet_LT_tr"),
        (["train", "--data.root", "images"], 2, "data.root=images is not used by data.source=digits"),
        (["train", "features", "--data.train", "x.npz", "--data.root", "images"], 2, "data.root=images is not used by"),
        (["train", "folder", "--data.root", "images", "--data.hub", "x"], 2, "data.hub=x is not used by data.source="),
        (
            ["data", "describe", ".", "--data.ratio", "10"],
            2,
            "--data.ratio has no effect on the description of .; leave it",
        ),
        (["data", "describe", "folders"], 2, "did you mean 'folder'"),
    ],
    ids=lambda value: "_".join(value)[:40] if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(
    elfnet: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found, out, error = elfnet(*words)
    assert (found, out) == (code, "")
    assert error.count("\n") == 1
    assert expected in error


NO_DUPLICATES: dict[str, Any] = {
    "files": 15,
    "megabytes": 0.5,
    "shorter_side": {"smallest": 7, "median": 10, "largest": 12},
    "longer_side": {"smallest": 8, "median": 11, "largest": 30},
    "unreadable": [],
    "duplicates_across_splits": [],
    "duplicates_within_splits": 0,
    "duplicates_of_different_classes": [],
}


def facts(counts: Sequence[int], names: Sequence[str] | None = None, **more: Any) -> dict[str, Any]:
    """A description of classes with these training counts."""
    groups = FrequencyGroups()
    group_C, count_C = groups.of_classes(counts), np.array(counts)
    return {
        "source": "birds",
        "classes": len(counts),
        "examples": {"train": int(count_C.sum()), "calibration": 80},
        "largest_class": max(counts),
        "smallest_class": min(counts),
        "imbalance_ratio": max(counts) / min(counts),
        "group_rule": groups.rule,
        "groups": {
            name: {"classes": int((group_C == index).sum()), "examples": int(count_C[group_C == index].sum())}
            for index, name in enumerate(GROUP_NAMES)
        },
        "per_class": [
            {
                "label": label,
                "name": f"class {label}" if names is None else names[label],
                "group": GROUP_NAMES[group_C[label]],
                "train": count,
            }
            for label, count in enumerate(counts)
        ],
        **more,
    }


def text(description: dict[str, Any], *, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=100).print(render_description(description))
    file.flush()
    buffer = file.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(encoding)


def test_one_bar_per_class_as_long_as_its_count() -> None:
    counts = [390, 200, 100, 49]
    lines = [line for line in text(facts(counts)).splitlines() if line.startswith("class ") and "█" in line]
    assert [line.split()[1] for line in lines] == ["0", "1", "2", "3"]
    assert [line.split()[3] for line in lines] == ["many", "many", "medium", "medium"]
    lengths = [line.count("█") for line in lines]
    assert lengths[0] > 50
    for length, count in zip(lengths, counts, strict=True):
        assert abs(length - lengths[0] * count / counts[0]) <= 1


def test_the_summary_shows_counts_groups_and_ratio() -> None:
    kept = {"train": 1500, "calibration": 200, "test": 470}
    more: dict[str, Any] = {"missing_from_calibration": [1], "after_hold_out": kept, "ignored": {".heic": 3, ".txt": 1}}
    shown = text(facts([1800, 10, 360], image_shape=[2, 2, 1], **more))
    assert "birds: 3 classes, 2 x 2 x 1 images" in shown
    assert "examples: 2,170 train, 80 calibration" in shown
    assert "imbalance ratio: 180  (largest class 1,800, smallest 10)" in shown
    assert "many 2 classes / 2,160 examples, medium -, few 1 classes" in shown  # an empty group is a dash, never 0
    assert "without calibration examples: 1 class (class 1)" in shown
    assert "after hold-out by 'elfnet train': 1,500 train, 200 calibration, 470 test" in shown
    assert "ignored files: 3 .heic, 1 .txt; convert .heic to JPEG or PNG" in shown


def test_data_that_training_refuses_are_not_promised_cross_fitting() -> None:
    few: dict[str, Any] = {"cross_fitting": True, "after_hold_out": {"train": 4, "calibration": 1, "test": 1}}
    assert "'elfnet train' uses cross-fitting instead" in text(facts([3, 3], **few))
    none: dict[str, Any] = {"cross_fitting": True, "after_hold_out": {"train": 4, "calibration": 0, "test": 0}}
    shown = " ".join(text(facts([2, 2], **none)).split())
    assert "refuses data with no example for the calibration and the test split; add examples" in shown
    assert "cross-fitting" not in shown


def test_many_classes_are_drawn_as_a_curve_over_the_ranks() -> None:
    counts = np.random.default_rng(1).permutation(np.arange(1, 101)).tolist()
    shown = text(facts(counts))
    assert "class 7" not in shown
    assert "mean train" in shown
    curve = [line.split() for line in shown.splitlines() if re.match(r"\d+-\d+ ", line)]
    assert len(curve) == 40
    assert curve[0][:3] == ["1-3", "99", "medium"]  # the mean of 100, 99 and 98
    assert curve[-1][0] == "99-100"
    assert curve[-1][2] == "few"
    means = [int(line[1]) for line in curve]
    assert means == sorted(means, reverse=True)


def test_class_names_are_never_markup() -> None:
    shown = text(facts([30, 30], ["[bold]x[/bold]", "[/nothing]"], source="[red]set"))
    assert "[bold]x[/bold]" in shown
    assert "[/nothing]" in shown
    assert "[red]set" in shown


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    assert "####" in text(facts([40, 20, 10]), encoding="ascii")


def test_groups_of_a_table() -> None:
    shown = text(facts([3, 1], group_column={"train": {"groups": 3, "largest": 2}}))
    assert "train: 3 groups that stay together, the largest of 2" in shown


def test_a_deep_check_with_long_lists_cut() -> None:
    pairs = [["a/1.png", "b/1.png"]]
    files = NO_DUPLICATES | {"unreadable": [f"image {i} is empty" for i in range(15)]}
    files |= {"duplicates_within_splits": 5, "duplicates_of_different_classes": pairs}
    shown = text(facts([9, 6], files=files))
    assert "files: 15, 0.5 MB; smallest / median / largest shorter side 7 / 10 / 12, longer side 8 / 11 / 30" in shown
    assert "unreadable: 15\n  image 0 is empty\n" in shown
    assert "  image 9 is empty\n  ... and 5 more\n" in shown
    assert "same content in two splits: 0\n" in shown
    assert "same content within a split: 5; with different classes: 1\n  a/1.png = b/1.png\n" in shown
