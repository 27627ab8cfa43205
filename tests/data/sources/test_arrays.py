"""Images in .npz files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elfnet.data.build import load_source
from elfnet.data.types import SourceRequest
from elfnet.errors import ElfnetError

GREY = np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5)


def _file(folder: Path, name: str = "train", **arrays: Any) -> Path:
    file = folder / f"{name}.npz"
    np.savez(file, **arrays)
    return file


def _load(**files: Any) -> Any:
    return load_source("arrays", request=SourceRequest(**files))


def test_grey_and_colour_images(tmp_path: Path) -> None:
    labels = ["b", "a", "b", "a", "b", "a"]
    source = _load(train=_file(tmp_path, X=GREY, y=labels), test=_file(tmp_path, "test", X=GREY[:2], y=labels[:2]))
    assert source.class_names == ("a", "b")
    assert source.train.labels_N.tolist() == [1, 0, 1, 0, 1, 0]
    assert source.train.example_shape == (4, 5, 1)
    np.testing.assert_array_equal(source.train.images_NHWC[..., 0], GREY)
    assert source.test.labels_N.tolist() == [1, 0]
    assert not source.horizontal_flip
    colour = _load(train=_file(tmp_path, X=np.stack([GREY] * 3, axis=-1), y=[10, 2] * 3))
    assert colour.horizontal_flip
    assert colour.class_names == ("2", "10")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": GREY / 255, "y": [0, 1] * 3}, r"X in .* is float64 of shape \(6, 4, 5, 1\); it must be uint8"),
        ({"X": GREY, "y": [0, 1]}, "has 6 images but 2 labels"),
        ({"X": GREY, "y": [0.5] * 6}, "it must have integers or text"),
        ({"X": GREY, "y": ["a"] * 6}, "only one class"),
        ({"X": GREY}, "has no array 'y'"),
    ],
)
def test_what_is_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(ElfnetError, match=message):
        _load(train=_file(tmp_path, **arrays))


def test_a_class_that_training_does_not_have_is_refused(tmp_path: Path) -> None:
    train = _file(tmp_path, X=GREY, y=[0, 1] * 3)
    with pytest.raises(ElfnetError, match=r"test\.npz has the class '7'"):
        _load(train=train, test=_file(tmp_path, "test", X=GREY[:1], y=[7]))
    with pytest.raises(ElfnetError, match=r"needs data\.train"):
        _load()
