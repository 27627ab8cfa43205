"""Feeds and normalisation from the data section of a recipe, for any kind of examples."""

# Shapes: K channels, V = 256 values

from pathlib import Path

import numpy as np
import torch

from elfnet.data.images.augmentation_policies import build_policy
from elfnet.data.images.files import EncodedImages, ImageReader
from elfnet.data.images.transforms import Augmentation, decoder_of, evaluation_of, workers_of
from elfnet.data.ldam_drw_protocol import MEAN, PROTOCOL, STD
from elfnet.data.loading.feed import BatchSource, EvaluationFeed, Pairing, SampledFeed, Selection, TrainingFeed
from elfnet.data.loading.memory import (
    AugmentedSource,
    CropFlipSource,
    FeatureSource,
    PlainSource,
    measured_normalisation,
)
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.loading.pack import open_or_create_pack
from elfnet.data.loading.sampler import UNSHARDED, Shard
from elfnet.data.loading.workers import FileSource
from elfnet.data.sources.arrays import FeatureRows
from elfnet.data.splits import Splits
from elfnet.data.types import Examples, LabelledImages
from elfnet.errors import RequestError
from elfnet.recipe.schema import DataRecipe

IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MEASURED_IMAGES = 2_000  # image files used to measure mean and deviation: enough for three digits


def normalisation_of(data: DataRecipe, splits: Splits) -> Normalisation:
    """Mean and standard deviation per channel, by `data.normalise`; measured on the training split only."""
    train: Examples = splits.train
    channels = train.example_shape[-1]
    if data.protocol == PROTOCOL:
        return Normalisation(MEAN, STD)
    method = data.normalise
    if method == "auto":
        method = "imagenet" if isinstance(train, EncodedImages) else "measured"
    if method == "none":
        return Normalisation((0.0,) * channels, (1.0,) * channels)
    if method == "imagenet":
        if channels != 3:
            raise RequestError(
                f"data.normalise=imagenet needs three channels, not {channels}; set data.normalise=measured"
            )
        return IMAGENET
    if isinstance(train, LabelledImages):
        return Normalisation.of(train)
    if isinstance(train, FeatureRows):
        return measured_normalisation(train)
    assert isinstance(train, EncodedImages)
    chosen = np.sort(np.random.default_rng(data.subset_seed).permutation(len(train))[:MEASURED_IMAGES])
    return _measured(data, train.take(chosen))


def training_batches(
    data: DataRecipe,
    splits: Splits,
    normalisation: Normalisation,
    *,
    batch_size: int,
    seed: int,
    device: torch.device,
    channels_last: bool = True,
    shard: Shard = UNSHARDED,
    pairing: Pairing | None = None,
    selection: Selection | None = None,
) -> TrainingFeed:
    """Make the feed of augmented training batches, drawn by `data.sampler`.

    Args:
        batch_size: Examples per step, over all processes.
        channels_last: Whether images are in channels_last memory.
        shard: This process's part of each batch.
        pairing: Selects the examples to mix; None for no mixing.
        selection: Selects the examples of an epoch; None for all.
    """
    train: Examples = splits.train
    augmentation = augmentation_of(data, splits)
    source: BatchSource
    if isinstance(train, FeatureRows):
        source = FeatureSource(train, normalisation, device=device)
    elif isinstance(train, LabelledImages):
        # The fast source draws random numbers per batch, so it cannot read a partner from another process's part.
        if augmentation.policy is None and not augmentation.erases and pairing is None:
            pad = augmentation.pad if augmentation.crop == "padded" else 0
            source = CropFlipSource(train.images_NHWC, normalisation, pad=pad, flip=augmentation.flip, device=device)
        else:
            source = AugmentedSource(train.images_NHWC, augmentation, normalisation, seed=seed, device=device)
    else:
        assert isinstance(train, EncodedImages)
        source = FileSource(
            image_reader(data, train),
            evaluation_of(data),
            normalisation,
            device=device,
            workers=workers_of(data),
            augmentation=augmentation,
            seed=seed,
            unreadable=data.unreadable,
        )
    return SampledFeed(
        source,
        train.labels_N,
        batch_size=batch_size,
        seed=seed,
        device=device,
        channels_last=channels_last,
        sampler=data.sampler,
        shard=shard,
        pairing=pairing,
        selection=selection,
    )


def augmentation_of(data: DataRecipe, splits: Splits) -> Augmentation:
    """The training transform of a recipe; images are mirrored only if that keeps their labels."""
    policy = None
    if data.policy != "none":
        policy = build_policy(data.policy, operations=data.randaugment_operations, magnitude=data.randaugment_magnitude)
    crops = {"resized-crop": "resized", "crop": "padded", "none": "none"}
    return Augmentation(
        crop=crops[data.augment.removesuffix("-flip")],
        flip=data.augment.endswith("flip") and splits.horizontal_flip,
        min_crop_area=data.min_crop_area,
        pad=data.pad if data.pad >= 0 else max(1, round(_side(data, splits.train) / 10)),
        policy=policy,
        jitter=data.colour_jitter,
        cutout=data.cutout,
        random_erasing=data.random_erasing,
    )


def _side(data: DataRecipe, train: Examples) -> int:
    """The shorter side of the network's input, in pixels."""
    return min(train.example_shape[:2]) if isinstance(train, LabelledImages) else data.image_size


def evaluation_batches(
    data: DataRecipe,
    examples: Examples,
    normalisation: Normalisation,
    *,
    device: torch.device,
    batch_size: int | None = None,
    shard: Shard = UNSHARDED,
) -> EvaluationFeed:
    """Make the feed of evaluation batches: every example once, in order, without augmentation.

    Args:
        batch_size: Images per batch; None takes 256 for up to 64 x 64 pixels, and fewer for larger images, at least 32.
        shard: This process's part of the examples.
    """
    if batch_size is None:
        height, width, _ = examples.example_shape
        batch_size = max(32, min(256, 256 * 64 * 64 // (height * width)))
    source: BatchSource
    if isinstance(examples, LabelledImages):
        source = PlainSource(examples.images_NHWC, normalisation, device=device)
    elif isinstance(examples, FeatureRows):
        source = FeatureSource(examples, normalisation, device=device)
    else:
        assert isinstance(examples, EncodedImages)
        source = FileSource(
            image_reader(data, examples),
            evaluation_of(data),
            normalisation,
            device=device,
            workers=workers_of(data),
            unreadable=data.unreadable,
        )
    return EvaluationFeed(source, len(examples), batch_size=batch_size, shard=shard)


def image_reader(data: DataRecipe, images: EncodedImages) -> ImageReader:
    """The reader of encoded images: a decoder, or with `data.cache` the packed cache, which is created if missing."""
    decoder = decoder_of(data, images)
    if not data.cache:
        return decoder
    return open_or_create_pack(
        images,
        decoder,
        Path(data.cache).expanduser(),
        side=evaluation_of(data).resize,
        workers=workers_of(data),
        unreadable=data.unreadable,
    )


def _measured(data: DataRecipe, images: EncodedImages) -> Normalisation:
    """Measure mean and deviation on images after the evaluation transform."""
    plain = Normalisation((0.0,) * 3, (1 / 255,) * 3)
    # Without the cache, which is for whole splits.
    uncached = data.model_copy(update={"cache": ""})
    batches = evaluation_batches(uncached, images, plain, batch_size=64, device=torch.device("cpu"))
    histogram_KV = np.zeros((3, 256), dtype=np.int64)
    for batch in batches:
        values = batch.round().to(torch.uint8)
        for channel in range(3):
            histogram_KV[channel] += np.bincount(values[:, channel].flatten().numpy(), minlength=256)
    return Normalisation.of_histogram(histogram_KV)
