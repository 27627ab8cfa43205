"""The directory of a table: what may be continued there, and what is refused. Data sets are image files in lists."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from elfnet.errors import RequestError
from elfnet.reproduce.run import Outcome, reproduce_table

COLUMN = "cifar10-lt-100"
COUNTS = {"train": (12, 6, 3), "val": (3, 3, 3), "test": (4, 4, 4)}
SMALL = {
    "model.backbone": "resnet10",
    "data.image_size": 32,
    "data.workers": 0,
    "train.batch_size": 12,
    "train.compile": "off",
    "train.threads": 1,
    "train.epochs": 1,
}


@pytest.mark.parametrize(
    ("table", "changes", "message"),
    [
        ("table2", {"settings": {"train.lr": 0.3}}, r"another recipe: train.lr=0.1, not 0.3; .*another --out"),
        ("table2", {"settings": {"train.epochs": 3}}, r"another recipe: train.epochs=2, not 3"),
        ("table2", {"tier": "short"}, "holds table2 at tier smoke, not table2 at tier short; give another --out"),
        ("table1", {"columns": []}, "holds table2 at tier smoke, not table1"),
    ],
)
def test_another_table_or_recipe_is_refused_before_anything_is_run(
    filled: tuple[Path, Outcome], tiny: dict[str, Any], table: str, changes: dict[str, Any], message: str
) -> None:
    # The requested row has no run; the runs of other rows would be in the same table.
    request: dict[str, Any] = {"rows": ["focal-drw" if table == "table2" else "ce"], "columns": [COLUMN], **changes}
    request["settings"] = {**tiny, **changes.get("settings", {})}
    with pytest.raises(RequestError, match=message):
        reproduce_table(table, filled[0], **request)
    assert not (filled[0] / COLUMN / "focal-drw").exists()


def test_a_directory_of_something_else_is_refused(tiny: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text('{"over": []}')
    with pytest.raises(RequestError, match=r"table\.json was not written by 'elfnet reproduce'; give another --out"):
        reproduce_table("table2", tmp_path, rows=["ce"], settings=tiny)
    (tmp_path / "table.json").unlink()
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="file is not a directory; give another --out"):
        reproduce_table("table2", tmp_path / "file", rows=["ce"], settings=tiny)


def write_images(root: Path, *, seed: int) -> None:
    """Write lists in the format of ImageNet-LT, and their images: noise around a grey value per class."""
    generator = np.random.default_rng(seed)
    for split, counts in COUNTS.items():
        lines = []
        for label, count in enumerate(counts):
            for number in range(count):
                path = root / "images" / split / f"class{label}" / f"{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = generator.integers(0, 60, (36, 40, 3)) + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(path)
                lines.append(f"{path.relative_to(root).as_posix()} {label}\n")
        (root / f"ImageNet_LT_{split}.txt").write_text("".join(lines))


def test_data_may_move_but_not_change_and_a_stand_in_is_named(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_images(data, seed=0)
    request: dict[str, Any] = {"tier": "short", "rows": ["ce"], "columns": ["imagenet-lt"]}

    def fill(root: Path | None) -> dict[str, Any]:
        settings = {**SMALL, **({} if root is None else {"data.root": str(root)})}
        return reproduce_table("table1", out, **request, settings=settings).table

    table = fill(data)
    cell = table["cells"][0]
    assert (cell["row"], cell["column"], cell["n"], cell["as_in_paper"]) == ("ce", "imagenet-lt", 1, False)
    text = (out / "table.md").read_text()
    assert "ImageNet-LT: a stand-in of 3 classes and 21 training images (12 to 3 per class); the real data set" in text
    assert "44.6\\*" in text
    published = [*out.glob("table.*"), *out.rglob("seed0.json")]
    assert str(tmp_path) not in "".join(file.read_text() for file in published)
    assert json.loads((out / "table.json").read_text()) == table
    # The same images in another directory are the same data; without a path the stored one is used.
    data.rename(tmp_path / "moved")
    assert fill(tmp_path / "moved") == table
    assert fill(None) == table
    write_images(tmp_path / "other", seed=1)
    (tmp_path / "other" / "ImageNet_LT_test.txt").write_text("images/test/class0/0.jpg 0\n")
    with pytest.raises(RequestError, match=r"other differs from the data that the run in .* was trained on"):
        fill(tmp_path / "other")
