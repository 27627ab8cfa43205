"""The protocol of LDAM-DRW's reference code (Cao et al. 2019), which most papers on long-tailed CIFAR follow.

It has the same training images, no calibration split, and fixed constants of normalisation. `data.protocol=ldam-drw`
selects it; the learning rate then changes once per epoch, and the test split is scored after every epoch.
"""

# Shapes: N examples, C classes by label

import hashlib

import numpy as np

from elfnet.data.long_tail import class_counts
from elfnet.data.splits import Splits, fingerprint
from elfnet.data.types import E, Ints, Source
from elfnet.errors import RequestError

PROTOCOL = "ldam-drw"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Mean and standard deviation per channel of that code, for CIFAR-10 and CIFAR-100 alike."""


def ldam_drw_indices(labels_N: Ints, counts_C: list[int], *, seed: int = 0) -> Ints:
    """Positions of the training images in the order of that code: class after class, each shuffled.

    NumPy's legacy generator is seeded once. In label order, the positions of each class are shuffled, and the first n
    are taken.

    Args:
        labels_N: labels of the official training split, in its official order.
        counts_C: images per class.
        seed: 0 in that code (`rand_number`).
    """
    rng = np.random.RandomState(seed)
    chosen = []
    for label, count in enumerate(counts_C):
        places = np.flatnonzero(labels_N == label)
        rng.shuffle(places)
        chosen.append(places[:count])
    return np.concatenate(chosen).astype(np.int64)


def ldam_drw_splits(
    source: Source[E], *, profile: str = "exponential", ratio: float = 100.0, seed: int = 0
) -> Splits[E]:
    """Make the training split of LDAM-DRW's code, an empty calibration split, and the official test split.

    Args:
        source: CIFAR-10 or CIFAR-100.
        profile: exponential, or step with half of the classes rare.
        seed: selects the images.

    Raises:
        RequestError: the source has no test split.
    """
    train, classes = source.train, len(source.class_names)
    if source.test is None:
        raise RequestError(
            f"data.protocol={PROTOCOL} needs a test set, and {source.name} has none; use cifar10 or cifar100"
        )
    counts_C = class_counts(profile, classes=classes, largest=len(train) // classes, ratio=ratio)
    indices = np.sort(ldam_drw_indices(train.labels_N, counts_C, seed=seed))
    nothing = np.zeros(0, dtype=np.int64)
    chosen, calibration = train.take(indices), train.take(nothing)
    return Splits(
        source_name=source.name,
        class_names=source.class_names,
        train=chosen,
        calibration=calibration,
        test=source.test,
        train_indices=indices,
        calibration_indices=nothing,
        test_indices=None,
        class_counts_C=np.asarray(counts_C, dtype=np.int64),
        calibration_counts_C=calibration.class_counts(classes),
        test_counts_C=source.test.class_counts(classes),
        horizontal_flip=source.horizontal_flip,
        fingerprint=fingerprint(source.class_names, chosen, calibration, source.test),
    )


def indices_sha256(indices: Ints) -> str:
    """Hex sha256 of positions as little-endian int64, to compare a split with that of other code."""
    return hashlib.sha256(np.ascontiguousarray(indices, dtype="<i8").tobytes()).hexdigest()
