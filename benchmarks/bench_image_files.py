"""JPEG files to training batches at 224 pixels: ours and the packed cache against a plain Pillow + NumPy loader.

    python benchmarks/bench_image_files.py [SIZE ...]

All three run with as many worker processes and do the same: random part brought to 224, flip, colour jitter 0.4
(brightness, contrast, saturation), normalise. The plain loader is what one writes first: image by image with Pillow,
floats from NumPy, torch's own collation. Images are made here. With sizes, such as 800x600, only
these are measured, and the others of the last record are kept. Processor time is that of all processes together: on a
busy machine it tells more than the wall clock.
"""

import itertools
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from elfnet.data.build import load_splits
from elfnet.data.images.decode import Limits, decode
from elfnet.data.images.resize import Part
from elfnet.data.loading.build import IMAGENET, training_batches
from elfnet.data.loading.feed import TrainingFeed
from elfnet.recipe.load import load_recipe
from elfnet.train.machine import tune_malloc
from timing import RESULTS, ratio, write_results

SIDE, BATCH, WORKERS, JITTER = 224, 32, 2, 0.4
# Width, height and how many files, copies of `DIFFERENT` images: an epoch must be long against the start of its first
# batch and the wait for its last. What a JPEG costs to decode also depends on its bytes per pixel, and with that every
# ratio here: so each size is measured with fine noise and quality 95 ("detailed"), and without and quality 90
# ("smooth").
SIZES = {"500x375": (500, 375, 960), "800x600": (800, 600, 512), "1600x1200": (1600, 1200, 192)}
DIFFERENT = 64
KINDS = {"detailed": (12.0, 95), "smooth": (0.0, 90)}
ROUNDS = 7
Seconds = dict[str, list[float]]
MEAN, STD = np.array(IMAGENET.mean_K, np.float32), np.array(IMAGENET.std_K, np.float32)


def natural_noise(width: int, height: int, fine: float, rng: np.random.Generator) -> Image.Image:
    """Noise of every scale, the finer the weaker, and `fine` noise of single pixels on top."""
    total = np.zeros((height, width, 3), np.float32)
    for octave in range(2, 9):
        cells = rng.normal(0, 1, (2**octave * height // width + 2, 2**octave + 2, 3)).astype(np.float32)
        planes = [Image.fromarray(cells[..., c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(3)]
        total += np.stack([np.asarray(plane) for plane in planes], axis=-1) * 0.62**octave
    pixels = 128 + 110 * total / np.abs(total).max() + rng.normal(0, fine, total.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_images(root: Path, width: int, height: int, count: int, kind: str) -> int:
    """Two class folders of JPEGs; gives their bytes."""
    rng = np.random.default_rng(0)
    fine, quality = KINDS[kind]
    images = [_encoded(natural_noise(width, height, fine, rng), quality) for _ in range(min(count, DIFFERENT))]
    written = 0
    for number in range(count):
        file = root / ("even", "odd")[number % 2] / f"{number:04}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        written += file.write_bytes(images[number % DIFFERENT])
    return written


def _encoded(image: Image.Image, quality: int) -> bytes:
    content = BytesIO()
    image.save(content, "jpeg", quality=quality)
    return content.getvalue()


class PlainImages(Dataset[tuple[Tensor, int]]):
    """Image by image, as one writes it first."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        rng = np.random.default_rng(index)
        with Image.open(self._files[index]) as opened:
            image = opened.convert("RGB")
        image = self._random_part(image, rng)
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = enhance(image).enhance(rng.uniform(1 - JITTER, 1 + JITTER))
        pixels = (np.asarray(image, np.float32) / 255 - MEAN) / STD
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), index % 2

    def _random_part(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        width, height = image.size
        for _ in range(10):
            area = rng.uniform(0.08, 1) * width * height
            shape = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
            across, down = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if across <= width and down <= height:
                left, top = int(rng.integers(0, width - across + 1)), int(rng.integers(0, height - down + 1))
                image = image.crop((left, top, left + across, top + down))
                break
        return image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)


def plain_loader(root: Path) -> DataLoader[tuple[Tensor, int]]:
    files = sorted(root.rglob("*.jpg"))
    return DataLoader(PlainImages(files), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)


def our_batches(root: Path, cache: str = "") -> TrainingFeed:
    recipe = load_recipe(
        "folder/ce",
        {
            "data.root": str(root),
            "data.image_size": SIDE,
            "data.augment": "resized-crop-flip",
            "data.colour_jitter": JITTER,
            "data.workers": WORKERS,
            "data.cache": cache,
            "data.calibration_per_class": 1,
            "data.test_per_class": 1,
        },
    )
    splits = load_splits(recipe.data)
    device = torch.device("cpu")
    return training_batches(recipe.data, splits, IMAGENET, batch_size=BATCH, seed=0, device=device)


def downscaling_error(root: Path) -> dict[str, Any]:
    """What the decoder's down-scaling changes: mean and largest difference of pixels, of 255, where it is used."""
    differences = []
    for file in sorted(root.rglob("*.jpg"))[:40]:
        with Image.open(file) as image:
            scale = min(image.size) // SIDE
        if scale < 2:
            continue

        def whole(width: int, height: int) -> Part:
            side = min(width, height)
            return Part((0, 0, side, side), (SIDE, SIDE))

        content = file.read_bytes()
        full, scaled = (
            np.asarray(decode(content, "", Limits(), choose=whole, downscale=downscale), np.int16)
            for downscale in (False, True)
        )
        differences.append(np.abs(full - scaled))
    if not differences:
        return {"used": False}
    return {
        "used": True,
        "mean_difference_of_255": round(float(np.mean(differences)), 3),
        "largest_difference_of_255": int(np.max(differences)),
    }


def processor_seconds() -> float:
    """Of this process and of the workers that live now; Linux only."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    waiting = _children("self")
    while waiting:
        process = waiting.pop()
        # Our workers are children of the server that forks them, not of this process.
        waiting += _children(process)
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def _children(process: str) -> list[str]:
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [child for children in found for child in children.read_text().split()]


def in_turn(variants: dict[str, Callable[[], object]], rounds: int) -> tuple[Seconds, Seconds]:
    """Wall and processor seconds of each variant, in turn; the first round, which starts workers, is not counted."""
    wall: Seconds = {name: [] for name in variants}
    processor: Seconds = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name, call in variants.items():
            began, worked = time.perf_counter(), processor_seconds()
            call()
            if turn:
                wall[name].append(time.perf_counter() - began)
                processor[name].append(processor_seconds() - worked)
    return wall, processor


def measure(width: int, height: int, count: int, kind: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "images"
        size = write_images(root, width, height, count, kind)
        plain, ours = plain_loader(root), our_batches(root)
        cached = our_batches(root, str(Path(place) / "cache"))
        epochs = itertools.count()

        def run(batches: Iterable[object]) -> None:
            for _ in batches:
                pass

        variants: dict[str, Callable[[], object]] = {
            "plain": partial(run, plain),
            "ours": lambda: run(ours.epoch(next(epochs))),
            "packed": lambda: run(cached.epoch(next(epochs))),
        }
        wall, processor = in_turn(variants, rounds=ROUNDS)
        ours.close()
        cached.close()
        error = downscaling_error(root)
    return {
        "images": count,
        "bytes_a_pixel": round(size / (width * height * count), 2),
        "images_per_second": {name: round(count / median(times)) for name, times in wall.items()},
        "processor_ms_an_image": {name: round(1000 * median(times) / count, 2) for name, times in processor.items()},
        "speed_up": {
            name: {"wall": ratio(wall, "plain", name), "processor_time": ratio(processor, "plain", name)}
            for name in ("ours", "packed")
        },
        "decoder_downscaling": error,
    }


def main() -> None:
    torch.set_num_threads(1)
    tune_malloc()  # as a process that trains does; for all three
    os.environ["OMP_NUM_THREADS"] = "1"
    asked = sys.argv[1:] or list(SIZES)
    kept = json.loads((RESULTS / "image_files.json").read_text())["sizes"] if sys.argv[1:] else {}
    measured = {f"{name} {kind}": measure(*SIZES[name], kind) for name in asked for kind in KINDS}
    write_results(
        "image_files",
        {
            "what": f"JPEG files to augmented batches of {BATCH} at {SIDE}x{SIDE}, {WORKERS} worker processes",
            "sizes": kept | measured,
            "aim": "at least 1.5; packed at least 5",
        },
    )


if __name__ == "__main__":
    main()
