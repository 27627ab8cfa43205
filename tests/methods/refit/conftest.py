"""A small network with exits, and imbalanced data that it classifies partly correctly."""

# Shapes: N images, H height, W width, K channels

from collections.abc import Callable

import numpy as np
import pytest
import torch

from elfnet.data.loading.feed import EvaluationFeed
from elfnet.data.loading.memory import PlainSource
from elfnet.data.loading.normalise import Normalisation
from elfnet.data.types import Ints, LabelledImages
from elfnet.methods.refit.classifiers import LabelledFeed
from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork

CLASSES = 4


@pytest.fixture
def network() -> StagedNetwork:
    torch.manual_seed(3)
    built = build_network("resnet8", classes=CLASSES, image_channels=1, head_filters=6)
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            if name.endswith("classifier.weight"):
                # Frequent classes have weights of larger norm, as after training.
                parameter.mul_(torch.tensor([2.0, 1.2, 1.0, 0.6]).unsqueeze(1))
            if name.endswith("classifier.bias"):
                parameter.copy_(torch.tensor([1.0, 0.4, -0.2, -0.8]))
    return built.eval()


@pytest.fixture
def feed_of() -> Callable[[Ints], LabelledFeed]:
    """Images with these labels: noise around a picture of each class."""

    def build(labels_N: Ints) -> LabelledFeed:
        random = np.random.default_rng(5)
        centre_CHWK = random.integers(0, 256, (CLASSES, 8, 8, 1))
        noise_NHWK = random.integers(-90, 90, (len(labels_N), 8, 8, 1))
        images_NHWK = np.clip(centre_CHWK[labels_N] + noise_NHWK, 0, 255).astype(np.uint8)
        images = LabelledImages(images_NHWK, labels_N)
        source = PlainSource(images_NHWK, Normalisation((0.5,), (0.3,)), device=torch.device("cpu"))
        return LabelledFeed(EvaluationFeed(source, len(images), batch_size=16), images)

    return build


@pytest.fixture
def calibration(feed_of: Callable[[Ints], LabelledFeed]) -> LabelledFeed:
    return feed_of(np.repeat(np.arange(CLASSES), [9, 12, 10, 11]))
