"""The packed cache: the same pixels as decoding, made once, and never taken for whole when it is not."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from elfnet.data.images.decode import Limits, UnreadableImageError
from elfnet.data.images.files import Decoder, ImageFiles
from elfnet.data.images.resize import Part
from elfnet.data.loading import pack as pack_images
from elfnet.data.loading.pack import PackedImages, open_or_create_pack, pack_fingerprint
from elfnet.data.sources.folder import folder
from elfnet.data.types import SourceRequest
from elfnet.errors import WorkError


@pytest.fixture
def files(image_folder: Callable[..., Path]) -> ImageFiles:
    root = image_folder({"a": 5, "b": 3})
    wide = np.random.default_rng(0).integers(0, 256, (40, 90, 3), dtype=np.uint8)
    Image.fromarray(wide).save(root / "b" / "wide.png")
    train: ImageFiles = folder(SourceRequest(root=root, image_size=8)).train
    return train


def pack(files: ImageFiles, directory: Path, **changes: Any) -> PackedImages:
    settings: dict[str, Any] = {"side": 20, "workers": 0, "unreadable": "stop"}
    return open_or_create_pack(files, Decoder(files, Limits()), directory, **(settings | changes))


@pytest.mark.parametrize("workers", [0, 2])
def test_images_are_kept_with_their_shorter_side_and_never_enlarged(
    files: ImageFiles, tmp_path: Path, workers: int
) -> None:
    found = pack(files, tmp_path / "cache", workers=workers)
    assert len(found) == 9
    for row in range(8):
        with Image.open(files.name(row)) as image:
            assert np.array_equal(found.image(row), np.asarray(image))
    with Image.open(files.name(8)) as wide:
        smaller = np.asarray(wide.resize((45, 20), Image.Resampling.BILINEAR, reducing_gap=3.0))
    assert np.array_equal(found.image(8), smaller)
    assert found.name(8) == files.name(8)


@pytest.mark.parametrize("quick", [True, False])
def test_parts_of_small_images_are_those_of_the_files(files: ImageFiles, tmp_path: Path, quick: bool) -> None:
    found, decoder = pack(files, tmp_path / "cache"), Decoder(files, Limits())

    def choose(width: int, height: int) -> Part:
        return Part((1, 2, width - 1, height - 3), (8, 8), quick)

    for row in range(8):
        assert np.array_equal(found.part(row, choose), decoder.part(row, choose))


def test_made_once_and_anew_for_other_files_or_another_side(
    files: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(files, tmp_path / "cache")
    made: list[Path] = []
    write = pack_images._write

    def spy(file: Path, *rest: Any, **named: Any) -> None:
        made.append(file)
        write(file, *rest, **named)

    monkeypatch.setattr(pack_images, "_write", spy)
    pack(files, tmp_path / "cache")
    assert not made
    pack(files, tmp_path / "cache", side=21)
    assert len(made) == 1
    os.utime(files.name(0), (1, 1))
    pack(files, tmp_path / "cache")
    assert len(made) == 2
    assert len(set(made)) == 2


def test_the_fingerprint_is_of_names_sizes_times_and_the_side(files: ImageFiles) -> None:
    marks = [pack_fingerprint(files, side=20), pack_fingerprint(files, side=21)]
    marks.append(pack_fingerprint(files.take(np.arange(8)), side=20))
    Path(files.name(3)).rename(Path(files.name(3)).with_name("other.png"))
    marks.append(pack_fingerprint(folder(SourceRequest(root=files.root, image_size=8)).train, side=20))
    assert len(set(marks)) == 4


@pytest.mark.parametrize("keep", [0, 10, 1000, -1, -30])
def test_a_file_cut_short_is_refused(files: ImageFiles, tmp_path: Path, keep: int) -> None:
    file = pack(files, tmp_path / "cache").file
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(WorkError, match=r"images-.*\.pack are truncated or damaged; delete the file"):
        pack(files, tmp_path / "cache")


def test_a_file_with_a_hole_is_refused(files: ImageFiles, tmp_path: Path) -> None:
    """The end is whole; some of the pixels before it are not there."""
    file = pack(files, tmp_path / "cache").file
    file.write_bytes(file.read_bytes()[64:])
    with pytest.raises(WorkError, match="truncated or damaged"):
        pack(files, tmp_path / "cache")


def test_a_file_of_other_images_under_this_name_is_refused(files: ImageFiles, tmp_path: Path) -> None:
    file = pack(files, tmp_path / "cache").file
    other = pack(files, tmp_path / "cache", side=21).file
    other.replace(file)
    with pytest.raises(WorkError, match="contain other images"):
        pack(files, tmp_path / "cache")


def test_nothing_is_left_when_an_image_stops_it(files: ImageFiles, tmp_path: Path) -> None:
    broken = Path(files.name(4))
    broken.write_bytes(broken.read_bytes()[:50])
    with pytest.raises(UnreadableImageError, match=broken.name):
        pack(files, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_skipped_images_are_remembered_and_stop_a_run_that_does_not_skip(files: ImageFiles, tmp_path: Path) -> None:
    broken = Path(files.name(4))
    broken.write_bytes(broken.read_bytes()[:50])
    found = pack(files, tmp_path / "cache", unreadable="skip")
    assert found.unreadable == 1
    with pytest.raises(UnreadableImageError, match=broken.name):
        found.image(4)
    assert found.image(5).shape == (10, 12, 3)
    with pytest.raises(UnreadableImageError, match=rf"{broken.name}.*set data\.unreadable=skip"):
        pack(files, tmp_path / "cache")
