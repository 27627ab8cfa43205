"""New examples between neighbours of one class, class by class, so that each has the neighbourhood its size allows."""

# Shapes: N examples, n of them of one class, M examples afterwards, F features

from collections.abc import Callable
from typing import Any

import numpy as np

from elfnet.data.examples import Ints
from elfnet.methods.refit.resample.imbalanced_learn import run_sampler, seed_of_class
from elfnet.methods.refit.resample.resampled import Floats, Resampled

MakeSampler = Callable[[dict[int, int], int, int], Any]
"""A sampler of imbalanced-learn from (wanted size by class, neighbours, seed)."""


def grow_every_class(
    features_NF: Floats,
    labels_N: Ints,
    *,
    neighbours: int,
    seed: int,
    make: MakeSampler,
    nothing_to_do: Callable[[Exception], bool] = lambda _: False,
) -> Resampled:
    """Grow every class to the size of the largest.

    A class of n examples has neighbourhoods of at most n - 1; that of one example is repeated, as nothing lies between.

    Args:
        nothing_to_do: whether an exception of the sampler means that it finds no place for new examples.
    """
    size_C = np.bincount(labels_N)
    largest = int(size_C.max())
    features, labels = [features_NF], [labels_N]
    smaller: dict[int, int] = {}
    as_they_were = []
    for label in np.flatnonzero((size_C > 0) & (size_C < largest)).tolist():
        size = int(size_C[label])
        near = min(neighbours, size - 1)
        if near < neighbours:
            smaller[label] = near
        if near == 0:
            new_nF = np.repeat(features_NF[labels_N == label], largest - 1, axis=0)
        else:
            sampler = make({label: largest}, near, seed_of_class(seed, label))
            try:
                grown_MF, _ = run_sampler(sampler, features_NF, labels_N)
            except (RuntimeError, ValueError) as error:
                if not nothing_to_do(error):
                    raise
                grown_MF = features_NF
            # What is new stands behind what was there.
            new_nF = grown_MF[len(features_NF) :]
        if not len(new_nF):
            as_they_were.append(label)
        features.append(new_nF)
        labels.append(np.full(len(new_nF), label, dtype=np.int64))
    return Resampled(np.concatenate(features), np.concatenate(labels), smaller, tuple(as_they_were))
