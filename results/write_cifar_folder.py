"""Write CIFAR-10-LT out as PNG files in class folders, for a run that trains from files instead of from memory.

    python results/write_cifar_folder.py cifar10-lt-png --directory DATA --ratio 100
    elfnet train folder --data.root cifar10-lt-png --data.image_size 32 --data.augment crop-flip \\
        --data.colour_jitter 0 --data.normalise measured --model.backbone resnet32 --train.batch_size 128 \\
        --train.lr 0.1 --train.epochs 40 --out runs/cifar10-folder

The folders `train`, `calibration` and `test` hold the splits that `cifar10-lt` makes, so that the run sees the images,
the padding and the flips that a run of `cifar10-lt/elf-ce-drw` sees, drawn in another order.
"""

import argparse
from pathlib import Path

from PIL import Image

from elfnet.data.build import load_splits
from elfnet.data.types import LabelledImages
from elfnet.recipe.load import load_recipe


def write_split(images: LabelledImages, class_names: tuple[str, ...], folder: Path) -> None:
    """One folder per class; files are numbered in the order of the split."""
    for name in class_names:
        (folder / name).mkdir(parents=True)
    for number, (pixels, label) in enumerate(zip(images.images_NHWC, images.labels_N.tolist(), strict=True)):
        Image.fromarray(pixels.squeeze()).save(folder / class_names[label] / f"{number:05}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write CIFAR-10-LT or CIFAR-100-LT as PNG files in class folders.")
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--data", default="cifar10-lt", choices=("cifar10-lt", "cifar100-lt"))
    parser.add_argument("--directory", default="", help="where the official files are")
    parser.add_argument("--ratio", type=float, default=100.0, help="largest class : smallest class")
    asked = parser.parse_args()
    recipe = load_recipe(f"{asked.data}/ce", {"data.directory": asked.directory, "data.ratio": asked.ratio})
    splits = load_splits(recipe.data)
    parts = {"train": splits.train, "calibration": splits.calibration, "test": splits.test}
    for name, images in parts.items():
        write_split(images, splits.class_names, asked.out / name)


if __name__ == "__main__":
    main()
