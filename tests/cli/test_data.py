"""`elfnet data` on a user's own images."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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
        (["train", "folder", "--data.root", "nowhere"], 1, "cannot list nowhere"),
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
