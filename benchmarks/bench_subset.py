"""Building ImageNet-LT-sized and iNaturalist-sized long-tailed subsets, with weights, margins and groups.

python benchmarks/bench_subset.py
"""

import numpy as np
from numpy.typing import NDArray

from elfnet.data.long_tail import FrequencyGroups, long_tailed_subset
from elfnet.losses.ldam import ldam_margins
from elfnet.losses.weighting import class_weights
from timing import interleaved, write_results

Ints = NDArray[np.int64]

# (classes, largest class, images of the subset, images per class it is taken from): as published. ImageNet-LT is taken
# from the balanced ImageNet; iNaturalist'18 is long-tailed as it is.
SIZES = {"ImageNet-LT": (1_000, 1_280, 115_846, 1_300), "iNaturalist'18": (8_142, 1_000, 437_513, None)}


def counts_of(classes: int, largest: int, total: int) -> Ints:
    """Exponential counts whose sum is `total`, by bisection of the ratio; the rounding error goes to the largest."""
    low, high = 1.0, 1e30
    for _ in range(200):
        ratio = (low * high) ** 0.5
        counts: Ints = np.maximum((largest * ratio ** (-np.arange(classes) / (classes - 1))).astype(np.int64), 1)
        low, high = (ratio, high) if counts.sum() > total else (low, ratio)
    counts[0] += total - counts.sum()
    return counts


def main() -> None:
    results = {}
    for name, (classes, largest, total, available) in SIZES.items():
        counts = counts_of(classes, largest, total)
        labels_N = np.repeat(np.arange(classes), counts if available is None else available)
        np.random.default_rng(0).shuffle(labels_N)

        def build(labels_N: Ints = labels_N, counts: Ints = counts, classes: int = classes) -> None:
            subset = long_tailed_subset(labels_N, counts, classes=classes, subset_seed=0, class_order_seed=None)
            class_weights(subset.class_counts_C.tolist(), "effective")
            ldam_margins(subset.class_counts_C.tolist(), max_margin=0.5, power=0.25)
            FrequencyGroups().of_classes(subset.class_counts_C)

        seconds = interleaved({name: build}, rounds=5, warmup=1)[name]
        results[name] = {
            "classes": classes,
            "images": int(counts.sum()),
            "out_of": len(labels_N),
            "seconds_median": round(sorted(seconds)[2], 3),
            "seconds_worst": round(max(seconds), 3),
        }
    write_results("subset", {**results, "aim": "under 2 seconds each"})


if __name__ == "__main__":
    main()
