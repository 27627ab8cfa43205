"""Crop, flip and normalise: the whole batch at once against image by image with Pillow and NumPy.

python benchmarks/bench_input_pipeline.py
"""

import random

import numpy as np
import torch
from PIL import Image, ImageOps

from elfnet.data.loading.feed import CROP_NUMBERS, Request
from elfnet.data.loading.memory import CropFlipSource
from elfnet.data.loading.normalise import Normalisation
from timing import interleaved, ratio, write_results

IMAGES, BATCH, SIZE, PAD = 5_000, 128, 32, 4
MEAN, STD = (0.49, 0.48, 0.45), (0.2, 0.2, 0.2)


def main() -> None:
    # Pillow uses one thread; so do we here.
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    images_NHWK = rng.integers(0, 256, (IMAGES, SIZE, SIZE, 3), dtype=np.uint8)
    chosen = rng.integers(0, IMAGES, (50, BATCH))
    cpu = torch.device("cpu")
    ours = CropFlipSource(images_NHWK, Normalisation(MEAN, STD), pad=PAD, flip=True, device=cpu)
    generator = torch.Generator().manual_seed(0)
    dice = random.Random(0)
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)

    def one_image(index: int) -> torch.Tensor:
        image = ImageOps.expand(Image.fromarray(images_NHWK[index]), PAD)
        left, top = dice.randint(0, 2 * PAD), dice.randint(0, 2 * PAD)
        image = image.crop((left, top, left + SIZE, top + SIZE))
        if dice.random() < 0.5:
            image = ImageOps.mirror(image)
        pixels = (np.asarray(image, np.float32) / 255 - mean) / std
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy())

    def image_by_image() -> None:
        for batch in chosen[:5]:
            torch.stack([one_image(int(index)) for index in batch])

    def whole_batch() -> None:
        for batch in chosen[:5]:
            crops_3B = torch.randint(CROP_NUMBERS, (3, BATCH), generator=generator)
            ours.gather(0, Request(batch, np.zeros_like(batch), crops_3B))

    seconds = interleaved({"image by image": image_by_image, "whole batch": whole_batch}, rounds=30, warmup=5)
    per_second = {name: round(5 * BATCH / sorted(times)[len(times) // 2]) for name, times in seconds.items()}
    write_results(
        "input_pipeline",
        {
            "what": f"random crop (pad {PAD}), flip, normalise; batches of {BATCH} images of {SIZE}x{SIZE}x3",
            "images_per_second": per_second,
            "speed_up": ratio(seconds, "image by image", "whole batch"),
            "aim": "at least 20",
        },
    )


if __name__ == "__main__":
    main()
