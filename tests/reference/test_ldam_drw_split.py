"""The training images of LDAM-DRW's reference code, beside a literal loop and by the hash of their positions."""

import os
from pathlib import Path

import numpy as np
import pytest

from elfnet.data.ldam_drw_protocol import MEAN, STD, indices_sha256, ldam_drw_indices, ldam_drw_splits
from elfnet.data.long_tail import class_counts
from elfnet.data.sources.cifar import CIFAR10, CIFAR100, Release, load_cifar

CASES = {"cifar10": (10, 5000, 12_406), "cifar100": (100, 500, 10_847)}


def _literal_counts(classes: int, largest: int, factor: float) -> list[int]:
    exponents = [rank / (classes - 1) for rank in range(classes)]
    return [int(largest * factor**exponent) for exponent in exponents]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ratio", [10, 20, 50, 100, 200])
def test_counts(name: str, ratio: int) -> None:
    classes, largest, _ = CASES[name]
    found = class_counts("exponential", classes=classes, largest=largest, ratio=ratio)
    assert found == _literal_counts(classes, largest, 1 / ratio)
    if ratio == 100:
        assert sum(found) == CASES[name][2]


@pytest.mark.parametrize("name", CASES)
def test_images_on_shuffled_labels(name: str) -> None:
    """That code seeds NumPy's global generator once, and shuffles the positions of each class in label order."""
    classes, largest, _ = CASES[name]
    labels_N = np.random.default_rng(5).permutation(np.repeat(np.arange(classes), largest))
    counts_C = _literal_counts(classes, largest, 0.01)
    state = np.random.get_state()  # noqa: NPY002 (the legacy generator is what is compared)
    np.random.seed(0)  # noqa: NPY002
    literal: list[int] = []
    for label in range(classes):
        places = np.where(labels_N == label)[0]
        np.random.shuffle(places)  # noqa: NPY002
        literal += places[: counts_C[label]].tolist()
    np.random.set_state(state)  # noqa: NPY002
    assert ldam_drw_indices(labels_N, counts_C).tolist() == literal


@pytest.mark.slow
@pytest.mark.skipif("ELFNET_DATA" not in os.environ, reason="needs the official files of CIFAR in $ELFNET_DATA")
@pytest.mark.parametrize(
    ("release", "images", "sha256"),
    [
        (CIFAR10, 12_406, "4bf45bff8878d2786e47dccd702f96ff33b2b11d8c7da3b5015f10937290f866"),
        (CIFAR100, 10_847, "e0d58a4d2700c46062da852554e5d185bbee74d3c612b052ea2a839bdadf939e"),
    ],
    ids=["cifar10", "cifar100"],
)
def test_images_of_the_official_files(release: Release, images: int, sha256: str) -> None:
    source = load_cifar(release, Path(os.environ["ELFNET_DATA"]))
    splits = ldam_drw_splits(source, ratio=100)
    assert len(splits.train) == images
    assert len(splits.calibration) == 0
    assert len(splits.test) == 10_000
    in_their_order = ldam_drw_indices(source.train.labels_N, splits.class_counts_C.tolist())
    assert indices_sha256(in_their_order) == sha256
    assert np.array_equal(np.sort(in_their_order), splits.train_indices)


def test_normalisation() -> None:
    assert MEAN == (0.4914, 0.4822, 0.4465)
    assert STD == (0.2023, 0.1994, 0.2010)
