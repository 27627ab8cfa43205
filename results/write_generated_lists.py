"""A small generated data set in ImageNet-LT's layout: JPEG files of 256 x 224 pixels and the three lists.

    python results/write_generated_lists.py generated
    elfnet train imagenet-lt/elf-ce-drw --data.root generated --train.epochs 6 --train.batch_size 16 --train.lr 0.005

Twelve classes, 120 to 8 training images: stripes of a class's own direction and colour, of any width (a random crop
would change it), over noise of every scale. It shows that the whole path works (lists, JPEG reading, crops, ResNet-50
with exits, calibration), not how well anything classifies photographs.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, LARGEST, RATIO = 12, 120, 15.0
HELD_OUT = {"val": 6, "test": 20}
WIDTH, HEIGHT = 256, 224


def stripes(label: int, rng: np.random.Generator) -> Image.Image:
    """One image: direction and colour say the class; width, phase, contrast and noise do not."""
    angle = np.pi * (label % 4) / 6 + rng.normal(0, 0.06)  # up to 90 degrees: no class is the mirror image of another
    period = rng.uniform(10.0, 50.0)
    colour = np.roll((1.0, -0.3, -0.3), label // 4) + rng.normal(0, 0.2, 3)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    wave = np.sin((columns * np.cos(angle) + rows * np.sin(angle)) * 2 * np.pi / period + rng.uniform(0, 2 * np.pi))
    background = np.zeros((HEIGHT, WIDTH, 3), np.float32)
    for cells in (3, 7, 20, 60):
        coarse = rng.normal(0, 25, (cells, cells, 3)).clip(-127, 127) + 128
        background += np.asarray(Image.fromarray(coarse.astype(np.uint8)).resize((WIDTH, HEIGHT)), np.float32) / 4
    pixels = background + wave[..., None].clip(0) * rng.uniform(60, 120) * colour
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a small generated data set in ImageNet-LT's layout.")
    parser.add_argument("out", type=Path, help="folder to make")
    out: Path = parser.parse_args().out
    rng = np.random.default_rng(0)
    train = [round(LARGEST * RATIO ** (-label / (CLASSES - 1))) for label in range(CLASSES)]
    for split, counts in {"train": train, **{name: [each] * CLASSES for name, each in HELD_OUT.items()}}.items():
        lines = []
        for label, count in enumerate(counts):
            folder = out / split / f"stripes{label:02}"
            folder.mkdir(parents=True)
            for number in range(count):
                file = folder / f"{number:04}.jpg"
                stripes(label, rng).save(file, quality=90)
                lines.append(f"{file.relative_to(out).as_posix()} {label}\n")
        (out / f"ImageNet_LT_{split}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
