"""How image files are read, as the data section of a recipe asks for it; without torch, so that reports can look."""

# Shapes: M images, S side

import os

import numpy as np

from elfnet.data.image_files import EncodedImages
from elfnet.data.image_reader import Decoder
from elfnet.data.preparation import Evaluation
from elfnet.data.read_image import Limits
from elfnet.data.resize import Pixels
from elfnet.recipe.schema import DataRecipe

MOST_WORKERS = 8


def evaluation_of(data: DataRecipe) -> Evaluation:
    """What evaluation shows; a random part sees more detail in training, so the middle is cropped somewhat closer."""
    default = round(data.image_size * 8 / 7) if data.augment.startswith("resized") else data.image_size
    return Evaluation(image_size=data.image_size, resize=data.resize or default)


def decoder_of(data: DataRecipe, images: EncodedImages) -> Decoder:
    return Decoder(images, limits_of(data))


def limits_of(data: DataRecipe) -> Limits:
    return Limits(most_pixels=round(data.most_megapixels * 1e6), most_bytes=round(data.most_megabytes * 1e6))


def workers_of(data: DataRecipe) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS) if data.workers < 0 else data.workers


def images_as_evaluated(data: DataRecipe, images: EncodedImages) -> Pixels:
    """Images as evaluation shows them to the network, before normalising: uint8 (M, S, S, 3). For a few images."""
    evaluation, decoder = evaluation_of(data), decoder_of(data, images)
    side = data.image_size
    pixels = np.zeros((len(images), side, side, 3), dtype=np.uint8)
    for index in range(len(images)):
        pixels[index] = evaluation(lambda choose, index=index: decoder.part(index, choose))  # type: ignore[misc]
    return pixels
