"""Two feeds side by side."""

import numpy as np
import torch

from elfnet.data.batches import Normalisation, TrainingBatches
from elfnet.data.preparation import Augmentation
from elfnet.data.source import LabelledImages
from elfnet.data.two_samplers import PairedFeed


def _feed(sampler: str, seed: int) -> TrainingBatches:
    labels_N = np.repeat(np.arange(3), (40, 8, 2))
    images = LabelledImages(
        np.zeros((50, 4, 4, 1), dtype=np.uint8) + labels_N[:, None, None, None].astype(np.uint8), labels_N
    )
    return TrainingBatches(
        images,
        Augmentation(crop="none", flip=False),
        Normalisation((0.0,), (1 / 255,)),
        batch_size=16,
        seed=seed,
        device=torch.device("cpu"),
        sampler=sampler,
    )


def test_every_step_has_both_halves_of_its_two_feeds() -> None:
    paired = PairedFeed(_feed("shuffle", 0), _feed("reversed", 9))
    first, second = list(_feed("shuffle", 0).epoch(3)), list(_feed("reversed", 9).epoch(3))
    steps = list(paired.epoch(3))
    assert len(steps) == len(paired) == 4
    for (images, labels), (images_1, labels_1), (images_2, labels_2) in zip(steps, first, second, strict=True):
        assert torch.equal(images, torch.cat([images_1, images_2]))
        assert torch.equal(labels, torch.cat([labels_1, labels_2]))


def test_the_second_half_shows_rare_classes_most() -> None:
    paired = PairedFeed(_feed("shuffle", 0), _feed("reversed", 9))
    halves = [labels.chunk(2) for _, labels in paired.epoch(0)]
    frequent, rare = (torch.cat(half).bincount(minlength=3) for half in zip(*halves, strict=True))
    assert frequent.tolist() == [40, 8, 2]
    assert rare.argsort().tolist() == [0, 1, 2]
