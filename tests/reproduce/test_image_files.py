"""Tables 1 and 3 on image files named by lists: a stand-in, and the table says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from elfnet.errors import RequestError
from elfnet.reproduce.run_table import reproduce_table

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


def write_images(root: Path, *, seed: int) -> None:
    """Lists as ImageNet-LT has them, and the images they name: noise around a shade for each class."""
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


def test_a_stand_in_is_filled_and_said_to_be_one(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_images(data, seed=0)
    asked: dict[str, Any] = {"tier": "short", "rows": ["ce"], "columns": ["imagenet-lt"]}

    def fill(root: Path | None, table: str = "table1") -> dict[str, Any]:
        settings = {**SMALL, **({} if root is None else {"data.root": str(root)})}
        return reproduce_table(table, out, **asked, settings=settings).table

    table = fill(data)
    cell = table["cells"][0]
    assert (cell["row"], cell["column"], cell["n"], cell["as_in_paper"]) == ("ce", "imagenet-lt", 1, False)
    text = (out / "table.md").read_text()
    assert "ImageNet-LT: a stand-in of 3 classes and 21 training images (12 to 3 a class), not the data set" in text
    assert "44.6\\*" in text
    assert str(tmp_path) not in "".join(file.read_text() for file in (*out.glob("table.*"), *out.rglob("seed0.json")))
    # The same images in another place are the same data; others there are not, and naming no place asks for neither.
    data.rename(tmp_path / "moved")
    assert fill(tmp_path / "moved") == table
    assert fill(None) == table
    write_images(tmp_path / "other", seed=1)
    (tmp_path / "other" / "ImageNet_LT_test.txt").write_text("images/test/class0/0.jpg 0\n")
    with pytest.raises(RequestError, match=r"other is not what the run in .* was trained on"):
        fill(tmp_path / "other")
