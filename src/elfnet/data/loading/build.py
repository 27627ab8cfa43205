"""Feeds of any kind of examples, as the data section of a recipe asks for them."""

from pathlib import Path

import numpy as np
import torch

from elfnet.data.images.files import EncodedImages, ImageReader
from elfnet.data.images.policies import build_policy
from elfnet.data.images.transforms import Augmentation, decoder_of, evaluation_of, workers_of
from elfnet.data.loading.features import FeatureSource, measured_normalisation
from elfnet.data.loading.feed import BatchSource, EvaluationFeed, Pairing, SampledFeed, Selection, TrainingFeed
from elfnet.data.loading.files import FileSource
from elfnet.data.loading.memory import AugmentedSource, CropFlipSource, PlainSource
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.loading.pack import packed
from elfnet.data.loading.sampler import UNSHARDED, Shard
from elfnet.data.sources.features import FeatureRows
from elfnet.data.splits import Splits
from elfnet.data.types import Examples, LabelledImages
from elfnet.errors import RequestError
from elfnet.recipe.schema import DataRecipe

IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MEASURED_IMAGES = 2_000  # image files that mean and deviation are measured on: enough for three digits


def normalisation_of(data: DataRecipe, splits: Splits) -> Normalisation:
    """Mean and deviation of each channel, by `data.normalise`; measured on the training split only."""
    train: Examples = splits.train
    channels = train.example_shape[-1]
    how = data.normalise
    if how == "auto":
        how = "imagenet" if isinstance(train, EncodedImages) else "measured"
    if how == "none":
        return Normalisation((0.0,) * channels, (1.0,) * channels)
    if how == "imagenet":
        if channels != 3:
            raise RequestError(f"data.normalise=imagenet is for three channels, not {channels}; use measured")
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
    """Augmented batches of the training split, drawn by `data.sampler`.

    Args:
        share: this process's part of each batch.
        pairing: what examples are mixed with; None: with nothing.
        selection: which examples an epoch shows; None: all of them.
    """
    train: Examples = splits.train
    augmentation = augmentation_of(data, splits)
    source: BatchSource
    if isinstance(train, FeatureRows):
        source = FeatureSource(train, normalisation, device=device)
    elif isinstance(train, LabelledImages):
        # The quick source draws its numbers by batch, so it cannot show an example that another process holds.
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
    """How training images are changed; they are mirrored only where a mirror image keeps its label."""
    crops = {"resized-crop": "resized", "crop": "padded", "none": "none"}
    return Augmentation(
        crop=crops[data.augment.removesuffix("-flip")],
        flip=data.augment.endswith("flip") and splits.horizontal_flip,
        min_crop_area=data.min_crop_area,
        pad=data.pad,
        policy=build_policy(data.policy, operations=data.randaugment_operations, magnitude=data.randaugment_magnitude),
        jitter=data.colour_jitter,
        cutout=data.cutout,
        random_erasing=data.random_erasing,
    )


def evaluation_batches(
    data: DataRecipe,
    examples: Examples,
    normalisation: Normalisation,
    *,
    device: torch.device,
    batch_size: int | None = None,
    shard: Shard = UNSHARDED,
) -> EvaluationFeed:
    """Every example once, in order, without augmentation; with a share, the shares together have every example once.

    Args:
        batch_size: None takes 256 images of up to 64 x 64 pixels and fewer of larger ones, at least 32.
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
    """Decodes when asked, or reads the packed cache, which is made now if it is not there."""
    decoder = decoder_of(data, images)
    if not data.cache:
        return decoder
    return packed(
        images,
        decoder,
        Path(data.cache).expanduser(),
        side=evaluation_of(data).resize,
        workers=workers_of(data),
        unreadable=data.unreadable,
    )


def _measured(data: DataRecipe, images: EncodedImages) -> Normalisation:
    """Measured on images as evaluation sees them."""
    plain = Normalisation((0.0,) * 3, (1 / 255,) * 3)
    # Without the cache: this sample is not a split.
    uncached = data.model_copy(update={"cache": ""})
    batches = evaluation_batches(uncached, images, plain, batch_size=64, device=torch.device("cpu"))
    histogram_KV = np.zeros((3, 256), dtype=np.int64)
    for batch in batches:
        values = batch.round().to(torch.uint8)
        for channel in range(3):
            histogram_KV[channel] += np.bincount(values[:, channel].flatten().numpy(), minlength=256)
    return Normalisation.of_histogram(histogram_KV)
