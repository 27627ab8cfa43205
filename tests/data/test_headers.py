"""Headers of image files: sizes, grey or colour, and damaged files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elfnet.data.check_files import check_headers, read_headers
from elfnet.data.images.decode import Limits, UnreadableImageError
from elfnet.data.images.files import ImageFiles, PathTable


def files(root: Path, *names: str) -> ImageFiles:
    return ImageFiles(
        root=root, paths=PathTable.of(names), labels_N=np.zeros(len(names), dtype=np.int64), image_size=224
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, size, mode in (("a.png", (30, 20), "L"), ("b.png", (28, 50), "L"), ("c.jpg", (90, 70), "L")):
        Image.new(mode, size).save(tmp_path / name)
    Image.new("RGB", (10, 10)).save(tmp_path / "colour.png")
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("no image")
    return tmp_path


def test_median_of_the_shorter_sides_and_grey(root: Path) -> None:
    found = read_headers(files(root, "a.png", "b.png", "c.jpg"), Limits())
    assert (found.images, found.side, found.grey, found.unreadable) == (3, 28, True, ())
    assert not read_headers(files(root, "a.png", "colour.png"), Limits()).grey


def test_damaged_files_of_any_split_stop_or_are_left_to_training(root: Path) -> None:
    splits = {"train": files(root, "a.png"), "test": files(root, "b.png", "empty.png", "text.png", "gone.png")}
    with pytest.raises(UnreadableImageError, match=r"empty.png is not an image or is damaged; .*and 2 more;.*skip"):
        check_headers(splits, Limits(), unreadable="stop")
    found = check_headers(splits, Limits(), unreadable="skip")
    assert len(found["test"].unreadable) == 3
    assert found["test"].side == 28
    assert "No such file" in found["test"].unreadable[2]


def test_images_above_the_limits_are_named(root: Path) -> None:
    large, heavy = files(root, "c.jpg"), files(root, "colour.png")
    assert "90 x 70 pixels" in read_headers(large, Limits(max_pixels=1000)).unreadable[0]
    assert "more than 10 bytes" in read_headers(heavy, Limits(max_bytes=10)).unreadable[0]
