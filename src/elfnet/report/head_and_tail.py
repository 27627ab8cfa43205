"""Head and tail in the paper's sense: two halves of the classes."""

# Shapes: C classes

import numpy as np
from numpy.typing import NDArray

HALVES = "Head: the more frequent half of the classes; tail: the others."


def head_classes(class_counts_C: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for the more frequent half of the classes, shape (C,); the rest are tail. Ties go by label.

    The training log counts the same halves.
    """
    order_C = np.argsort(-class_counts_C, kind="stable")
    is_head_C = np.zeros(len(class_counts_C), dtype=np.bool_)
    is_head_C[order_C[: (len(class_counts_C) + 1) // 2]] = True
    return is_head_C
