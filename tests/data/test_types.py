"""Labelled images and sources refuse what does not fit, naming the place."""

import numpy as np
import pytest

from elfnet.data.build import load_source
from elfnet.data.types import LabelledImages, Source, SourceRequest
from elfnet.errors import RequestError, WorkError


def images(labels: list[int], *, side: int = 2) -> LabelledImages:
    return LabelledImages(np.zeros((len(labels), side, side, 1), np.uint8), np.array(labels, np.int64))


def source(train: LabelledImages, test: LabelledImages | None = None, *, classes: int = 10) -> Source:
    return Source("made-up", tuple(str(label) for label in range(classes)), train, test, horizontal_flip=False)


def test_a_label_out_of_range_is_named_with_its_place() -> None:
    with pytest.raises(WorkError, match=r"made-up train: label 12 out of range 0\.\.9 at position 3"):
        source(images([0, 1, 9, 12, 99]))
    with pytest.raises(WorkError, match=r"label 10 out of range 0\.\.9 at position 1"):
        source(images([9, 10]))
    with pytest.raises(WorkError, match=r"made-up test: label -1 out of range 0\.\.9 at position 0"):
        source(images([0]), images([-1]))


def test_labels_within_range_pass() -> None:
    assert len(source(images([0, 9]), images([4])).train) == 2


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RequestError, match="2 images but 3 labels"):
        LabelledImages(np.zeros((2, 4, 4, 1), np.uint8), np.zeros(3, np.int64))
    with pytest.raises(RequestError, match=r"float32 of shape \(2, 4, 4, 1\)"):
        LabelledImages(np.zeros((2, 4, 4, 1), np.float32), np.zeros(2, np.int64))
    with pytest.raises(RequestError, match=r"uint8 of shape \(2, 4, 4\)"):
        LabelledImages(np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64))
    with pytest.raises(RequestError, match="labels must be int64"):
        LabelledImages(np.zeros((2, 4, 4, 1), np.uint8), np.zeros(2, np.int32))


def test_a_source_needs_classes_and_one_image_shape() -> None:
    with pytest.raises(RequestError, match="no class"):
        source(images([]), classes=0)
    with pytest.raises(
        RequestError, match=r"training images of shape \(2, 2, 1\) and test images of shape \(3, 3, 1\)"
    ):
        source(images([0]), images([0], side=3))


@pytest.mark.parametrize("name", ["digits", "cifar10", "cifar100"])
def test_published_images_have_no_group_column(name: str) -> None:
    with pytest.raises(RequestError, match=rf"data\.group_column=who: {name} has no columns; use a table"):
        load_source(name, request=SourceRequest(group_column="who"))


def test_take_and_counts() -> None:
    chosen = images([0, 2, 2, 1]).take(np.array([1, 3]))
    assert chosen.labels_N.tolist() == [2, 1]
    assert chosen.class_counts(4).tolist() == [0, 1, 1, 0]
