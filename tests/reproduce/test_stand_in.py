"""Telling a stand-in by its class counts."""

from elfnet.reproduce.paper_table import load_table
from elfnet.reproduce.stand_in import stand_in


def test_the_real_counts_are_none() -> None:
    imagenet, inaturalist = load_table("table1").columns
    counts = [1280, 5] + [114] * 997 + [115846 - 1285 - 114 * 997]
    assert stand_in(imagenet, {"class_counts": counts, "images": 115846}) is None
    # A tenth is held out there, so that the largest class is not what it was.
    assert stand_in(inaturalist, {"class_counts": [900] * 8142, "images": 437513}) is None


def test_any_other_is_said_to_be_one() -> None:
    imagenet, _ = load_table("table1").columns
    text = stand_in(imagenet, {"class_counts": [12, 7, 2], "images": 21})
    assert text == (
        "ImageNet-LT: a stand-in of 3 classes and 21 training images (12 to 2 a class), not the data set itself, which "
        "has 1,000 and 115,846"
    )
    counts = [1281, 5] + [114] * 997 + [115846 - 1286 - 114 * 997]
    assert stand_in(imagenet, {"class_counts": counts, "images": 115846}) is not None
    assert stand_in(imagenet, {"class_counts": [1280, *[5] * 999], "images": 115845}) is not None
