"""Files, folders and lists, in a fixed order, one at a time."""

import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from elfnet.inference.predict_files import find_images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.png", "a.JPG", "notes.txt", "deep/c.webp", "deep/er/d.tiff", "deep.bmp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def found(*names: object, listed: str = "") -> list[str]:
    return list(find_images([str(name) for name in names], listed=io.StringIO(listed)))


def test_a_folder_is_searched_through_by_name(folder: Path) -> None:
    names = [str(Path(path).relative_to(folder)) for path in found(folder)]
    assert names == ["a.JPG", "b.png", "deep.bmp", "deep/c.webp", "deep/er/d.tiff"]


def test_what_is_named_is_taken_whatever_its_suffix(folder: Path) -> None:
    asked = [str(folder / "notes.txt"), "nowhere"]
    assert found(*asked) == asked


def test_a_list_may_name_files_and_folders(folder: Path) -> None:
    lines = f"x y.png\r\n\n{folder / 'deep'}\nlast.png"
    assert found("first.png", "-", listed=lines) == [
        "first.png",
        "x y.png",
        str(folder / "deep" / "c.webp"),
        str(folder / "deep" / "er" / "d.tiff"),
        "last.png",
    ]


def test_a_list_is_read_as_it_comes() -> None:
    """An endless list gives its first names at once."""

    class Endless(io.StringIO):
        def __iter__(self) -> Iterator[str]:  # type: ignore[override]
            return (f"{number}.png\n" for number in itertools.count())

    assert list(itertools.islice(find_images(["-"], listed=Endless()), 3)) == ["0.png", "1.png", "2.png"]


def test_a_folder_without_images_is_named_itself(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert found(tmp_path) == [str(tmp_path)]


def test_links_to_folders_inside_folders_are_not_followed(folder: Path) -> None:
    (folder / "deep" / "back").symlink_to(folder)
    (folder / "link.png").symlink_to(folder / "b.png")
    names = [str(Path(path).relative_to(folder)) for path in found(folder)]
    assert names == ["a.JPG", "b.png", "deep.bmp", "link.png", "deep/c.webp", "deep/er/d.tiff"]
