"""Reading every file: sizes, unreadable ones, duplicates."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from elfnet.data.check_files import DeepCheck, check_files
from elfnet.data.describe import listings_at
from elfnet.data.images.decode import Limits
from elfnet.data.types import SourceRequest


def checked(root: Path, *, threads: int = 1) -> DeepCheck:
    return check_files(listings_at(root, SourceRequest()), Limits(), threads=threads)


def test_what_is_there_is_found(image_folder: Callable[..., Path]) -> None:
    image_folder({"a": 4, "b": 3}, below="images/train")
    root = image_folder({"a": 2}, below="images/test").parent
    # The second folder has images of the same colours: two that are in both splits.
    train = root / "train"
    shutil.copy(train / "a" / "003.png", train / "b" / "copy.png")
    (train / "b" / "001.png").write_bytes(b"no image")
    Image.fromarray(np.zeros((30, 7, 3), np.uint8)).save(train / "b" / "tall.png")
    for threads in (1, 3):
        found = checked(root, threads=threads)
        assert found.files == 11
        assert found.shorter_sides == (7, 10, 10)
        assert found.longer_sides == (12, 12, 30)
        assert [str(train / "b" / "001.png") in what for what in found.unreadable] == [True]
        names = [(Path(one).parts[-3:], Path(other).parts[-3:]) for one, other in found.across_splits]
        assert names == [(("train", "a", f"00{i}.png"), ("test", "a", f"00{i}.png")) for i in range(2)]
        assert found.within_splits == 1
        assert [tuple(Path(one).name for one in pair) for pair in found.conflicting] == [("003.png", "copy.png")]
    facts = found.to_dict()
    assert facts["duplicates_within_splits"] == 1
    assert facts["shorter_side"] == {"smallest": 7, "median": 10, "largest": 10}


def test_only_unreadable_files(image_folder: Callable[..., Path]) -> None:
    root = image_folder({"a": 1, "b": 1})
    for file in root.rglob("*.png"):
        file.write_text("different " + file.parent.name)
    found = checked(root)
    assert len(found.unreadable) == 2
    assert found.shorter_sides == (0, 0, 0)
