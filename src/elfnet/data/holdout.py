"""How many examples of each class are held out of training, for calibration and for a test split."""

# Shapes: C classes by label

import numpy as np
from numpy.typing import NDArray

from elfnet.data.source import Source
from elfnet.errors import RequestError

Ints = NDArray[np.int64]

CALIBRATION_SHARE = 0.1
TEST_SHARE = 0.2
KEPT_FOR_TRAINING = 2  # a held-out share never leaves a class with fewer


def held_out_counts(
    source: Source, *, calibration_per_class: int | None, test_per_class: int | None
) -> tuple[Ints, Ints]:
    """Calibration and test examples to take from each class of the source's training split, each of shape (C,).

    A number holds out as many of every class, and fails where a class would have nothing left to train on. None holds
    out a share of each class (`CALIBRATION_SHARE`, `TEST_SHARE`), at least one example, but leaves two for training.
    A source with a split of its own gives none for it.
    """
    total_C = source.train.class_counts(len(source.class_names))
    if not total_C.all():
        name = class_label(source, int((total_C == 0).argmax()))
        raise RequestError(f"class {name} has no training example in {source.name}; remove the class")
    calibration_C, test_C = np.zeros_like(total_C), np.zeros_like(total_C)
    if source.calibration is None:
        calibration_C = _held_out(total_C, total_C, calibration_per_class, CALIBRATION_SHARE, "calibration_per_class")
    elif calibration_per_class is not None:
        raise _unread("calibration", calibration_per_class, source)
    if source.test is None:
        test_C = _held_out(total_C, total_C - calibration_C, test_per_class, TEST_SHARE, "test_per_class")
    elif test_per_class is not None:
        raise _unread("test", test_per_class, source)
    empty_C = total_C - calibration_C - test_C < 1
    if empty_C.any():
        label = int(empty_C.argmax())
        raise RequestError(
            f"class {class_label(source, label)} has {total_C[label]} examples: holding out {calibration_C[label]} for "
            f"calibration and {test_C[label]} for test leaves none to train on; hold out fewer"
        )
    return calibration_C, test_C


def _unread(split: str, value: int, source: Source) -> RequestError:
    setting = f"{split}_per_class"
    return RequestError(f"{setting}={value}, but {source.name} has its own {split} split; leave {setting} unset")


def class_label(source: Source, label: int) -> str:
    """A class as errors name it."""
    return f"{label} ({source.class_names[label]})"


def _held_out(total_C: Ints, left_C: Ints, per_class: int | None, share: float, setting: str) -> Ints:
    if per_class is None:
        wanted_C: Ints = np.maximum(np.floor(total_C * share + 0.5), 1).astype(np.int64)
        spare_C: Ints = np.maximum(left_C - KEPT_FOR_TRAINING, 0)
        return np.asarray(np.minimum(wanted_C, spare_C))
    if per_class < 1:
        raise RequestError(f"{setting}={per_class} must be at least 1, or unset for a share of each class")
    return np.full_like(total_C, per_class)
