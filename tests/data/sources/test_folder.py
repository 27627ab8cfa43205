"""Folders of class folders: what is listed, and what is refused by name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from elfnet.data.sources.folder import folder, ignored_line, list_folder, split_folders
from elfnet.data.types import SourceRequest
from elfnet.errors import RequestError, WorkError

Write = Callable[..., Path]


def test_classes_and_files_in_order_of_names_nested_and_without_hidden_ones(image_folder: Write) -> None:
    root = image_folder({"b": 2, "a": 1})
    (root / "a" / "inner").mkdir()
    (root / "b" / "000.png").rename(root / "a" / "inner" / "x.JPG")
    for other in (root / "a" / ".hidden.png", root / "a" / "notes.txt", root / "readme.md"):
        other.write_text("")
    (root / ".git").mkdir()
    listing = list_folder(root)
    assert list(listing.paths) == ["a/000.png", "a/inner/x.JPG", "b/001.png"]
    assert listing.labels_N.tolist() == [0, 0, 1]
    assert listing.label_names == ("a", "b")


def test_images_without_a_class_are_counted(image_folder: Write) -> None:
    root = image_folder({"b": 2, "a": 1})
    for name in ("a.jpg", "b.JPG", "c.heic", "readme.md", ".hidden.jpg", "b/d.heic"):
        (root / name).write_text("")
    ignored = {".heic": 1, ".heic outside class folders": 1, ".jpg outside class folders": 2}
    assert list_folder(root).ignored == ignored
    assert ignored_line(ignored) == (
        "ignored files: 1 .heic, 1 .heic outside class folders, 2 .jpg outside class folders; convert .heic to JPEG or "
        "PNG to use them"
    )


def test_an_empty_class_folder_is_named(image_folder: Write) -> None:
    root = image_folder({"full": 1, "empty": 0})
    with pytest.raises(WorkError, match=r"class folder .*empty has no image .*; remove it"):
        list_folder(root)


def test_a_class_folder_with_other_files_only_says_what_to_do_with_them(image_folder: Write) -> None:
    root = image_folder({"a": 1, "b": 0})
    (root / "a" / "notes.txt").write_text("")
    with pytest.raises(WorkError, match=r"images/b has no image \([^)]*\); remove it, or put images into it$"):
        list_folder(root)
    (root / "b" / "x.heic").write_text("")
    with pytest.raises(WorkError, match=r"only files of \.heic; remove it, or convert them to JPEG or PNG$"):
        list_folder(root)


def test_a_root_without_class_folders_or_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="has no class folder"):
        list_folder(tmp_path)
    with pytest.raises(RequestError, match=r"cannot list .*nowhere.*; check data\.root"):
        list_folder(tmp_path / "nowhere")
    with pytest.raises(RequestError, match=r"needs data\.root"):
        folder(SourceRequest())


def test_a_root_with_a_test_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "test" / "a").mkdir(parents=True)
    with pytest.raises(WorkError, match=r"has a folder test, but none for training; add .*/train"):
        folder(SourceRequest(root=tmp_path))


def test_without_split_folders_all_is_for_training(image_folder: Write) -> None:
    # "train" may be a class as well; only if all folders are called like splits is a root divided.
    source = folder(SourceRequest(root=image_folder({"train": 2, "ship": 3}), image_size=8))
    assert source.class_names == ("ship", "train")
    assert (source.calibration, source.test) == (None, None)
    assert source.train.example_shape == (8, 8, 3)
    assert source.horizontal_flip


@pytest.mark.parametrize("validation", ["val", "validation", "calibration"])
def test_split_folders_are_found(image_folder: Write, validation: str) -> None:
    for split, count in (("train", 4), (validation, 2), ("test", 3)):
        root = image_folder({"b": count, "a": count}, below=f"images/{split}").parent
    source = folder(SourceRequest(root=root))
    assert source.calibration is not None
    assert source.test is not None
    assert [len(part) for part in (source.train, source.calibration, source.test)] == [8, 4, 6]
    assert Path(source.test.name(0)) == root / "test" / "a" / "000.png"


@pytest.mark.parametrize(
    "names", [("Train", "Val", "Test"), ("training", "validation", "testing"), ("train", "dev", "eval")]
)
def test_split_folders_have_other_usual_names(image_folder: Write, names: tuple[str, str, str]) -> None:
    for name in names:
        root = image_folder({"a": 2, "b": 2}, below=f"images/{name}").parent
    places = [root / name for name in names]
    assert split_folders(root) == dict(zip(("train", "calibration", "test"), places, strict=True))


def test_a_folder_beside_those_of_splits_is_named(image_folder: Write) -> None:
    # Otherwise train, test and __MACOSX would be three classes.
    for name in ("train", "test", "__MACOSX"):
        root = image_folder({"a": 2, "b": 2}, below=f"images/{name}").parent
    with pytest.raises(WorkError, match=r"images has folders of splits \(train, test\) and also '__MACOSX'; move it"):
        split_folders(root)


def test_splits_can_be_named_separately(image_folder: Write) -> None:
    root = image_folder({"a": 3, "b": 3})
    other = image_folder({"b": 2}, below="other")
    source = folder(SourceRequest(root=root, test=other))
    assert source.test is not None
    assert source.test.labels_N.tolist() == [1, 1], "labels are those of the training folder"


def test_the_validation_folder_named_as_test_data_is_not_calibration_too(image_folder: Write) -> None:
    for split in ("train", "val"):
        root = image_folder({"a": 3, "b": 3}, below=f"images/{split}").parent
    source = folder(SourceRequest(root=root, test=root / "val"))
    assert source.test is not None
    assert source.calibration is None
    with pytest.raises(RequestError, match=r"000.png is in both .*val \(calibration\) and .*val \(test\)"):
        folder(SourceRequest(root=root, test=root / "val", calibration=root / "val"))


def test_a_class_that_is_not_trained_on_is_named(image_folder: Write) -> None:
    root, other = image_folder({"a": 3, "b": 3}), image_folder({"z": 1}, below="other")
    with pytest.raises(WorkError, match=r"other has class 'z', which .*images does not have"):
        folder(SourceRequest(root=root, test=other))


@pytest.mark.parametrize(
    ("link", "target"),
    [("a/loop", "../a"), ("a/loop", ".."), ("a/loop", "../.."), ("a/inner/loop", "../../a"), ("loop", ".")],
)
def test_a_link_to_a_folder_above_is_named(image_folder: Write, link: str, target: str) -> None:
    root = image_folder({"a": 2, "a/inner": 1, "b": 2})
    (root / link).symlink_to(target)
    with pytest.raises(WorkError, match=rf"images/{link} is a link to a folder above it; remove it$"):
        list_folder(root)


def test_two_folders_with_links_to_each_other(image_folder: Write) -> None:
    root = image_folder({"a": 2, "b": 2})
    (root / "a" / "x").symlink_to("../b")
    assert len(list_folder(root).paths) == 6, "a link to elsewhere is followed"
    (root / "b" / "y").symlink_to("../a")
    with pytest.raises(WorkError, match=r"images/a/x/y is a link to a folder above it"):
        list_folder(root)


@pytest.mark.parametrize("place", ["a/self.png", "self"])
def test_a_link_to_itself_is_named(image_folder: Write, place: str) -> None:
    root = image_folder({"a": 2, "b": 2})
    (root / place).symlink_to(Path(place).name)
    with pytest.raises(WorkError, match=rf"cannot list .*images/{place}: Too many levels of symbolic links; "):
        list_folder(root)


def test_one_class_only(image_folder: Write) -> None:
    with pytest.raises(WorkError, match=r"images has only one class \('a'\); a classifier needs at least two"):
        folder(SourceRequest(root=image_folder({"a": 3})))


def test_a_folder_has_no_group_column(image_folder: Write) -> None:
    with pytest.raises(RequestError, match=r"data\.group_column=who: .*images has no columns; use a table"):
        folder(SourceRequest(root=image_folder({"a": 1, "b": 1}), group_column="who"))


def test_two_validation_folders_are_refused(image_folder: Write) -> None:
    for split in ("train", "val", "validation"):
        root = image_folder({"a": 1}, below=f"images/{split}").parent
    with pytest.raises(WorkError, match="has both val and validation"):
        folder(SourceRequest(root=root))
