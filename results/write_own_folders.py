"""Write two small folders of grey images as a new user might have them, for `results/compare_defaults.py`.

    python results/write_own_folders.py folders --directory DATA

`digits`: scikit-learn's digits at 28 pixels. `grey`: ten classes of CIFAR-100, grey, at 28 pixels. Both have the
folders `train` (long-tailed by an exponential profile), `calibration` and `test` (balanced).
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from write_cifar_folder import write_split

from elfnet.data.build import load_source
from elfnet.data.splits import Splits, make_splits
from elfnet.data.types import LabelledImages, Source

SIDE = 28
GREY_CLASSES = ("bicycle", "bottle", "castle", "chair", "clock", "cup", "forest", "lion", "orange", "tank")


def grey(images: LabelledImages) -> LabelledImages:
    """The images in grey at `SIDE` pixels."""
    pixels = [
        np.asarray(Image.fromarray(one.squeeze()).convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        for one in images.images_NHWC
    ]
    return LabelledImages(np.stack(pixels)[..., None], images.labels_N)


def some_classes(source: Source, names: tuple[str, ...]) -> Source:
    """A source with some of the classes only."""
    number = np.full(len(source.class_names), -1, dtype=np.int64)
    for new, name in enumerate(names):
        number[source.class_names.index(name)] = new

    def part(images: LabelledImages) -> LabelledImages:
        kept = images.take(np.flatnonzero(number[images.labels_N] >= 0))
        return grey(LabelledImages(kept.images_NHWC, number[kept.labels_N]))

    assert source.test is not None
    return replace(source, class_names=names, train=part(source.train), test=part(source.test))


def splits_of(name: str, directory: str) -> Splits:
    """The three splits of one of the folders."""
    if name == "digits":
        source = load_source("digits")
        source = replace(source, train=grey(source.train))
        return make_splits(source, profile="exponential", ratio=20, calibration_per_class=30, test_per_class=50)
    source = some_classes(load_source("cifar100", Path(directory)), GREY_CLASSES)
    return make_splits(source, profile="exponential", ratio=25, calibration_per_class=50)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write two folders of small grey images.")
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--directory", default="", help="where the official files of CIFAR-100 are")
    args = parser.parse_args()
    for name in ("digits", "grey"):
        splits = splits_of(name, args.directory)
        for split in ("train", "calibration", "test"):
            write_split(getattr(splits, split), splits.class_names, args.out / name / split)


if __name__ == "__main__":
    main()
