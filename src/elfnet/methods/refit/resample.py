"""ADASYN (He et al. 2008): as SMOTE, with more new examples where more neighbours are of other classes.

A class none of whose examples has such a neighbour needs no new ones by this rule, and is left as it is.
"""

# Shapes: N examples, M examples afterwards, F features
# Shapes: N examples, n of them of one class, M examples afterwards, F features

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elfnet.data.types import Ints
from elfnet.errors import RequestError
from elfnet.extras import missing_package

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Resampled:
    """Features and labels to fit a classifier on.

    Attributes:
        smaller: classes with too few examples for the neighbours asked for, each with how many were looked at.
        as_they_were: classes that the method would have changed but left, since it had nothing to go by.
    """

    features_MF: Floats
    labels_M: Ints
    smaller: dict[int, int] = field(default_factory=dict)
    as_they_were: tuple[int, ...] = ()


class Resampler(Protocol):
    """A way of re-sampling; a pure function of its arguments."""

    def __call__(self, features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled: ...


def require_imbalanced_learn() -> None:
    """Refuse where it is not installed."""
    try:
        with _quiet():
            import_module("imblearn")
    except ImportError:
        raise RequestError(missing_package("re-sampling features", "imblearn")) from None


def sampler_class(module: str, name: str) -> Any:
    """A class of imbalanced-learn."""
    require_imbalanced_learn()
    with _quiet():
        return getattr(import_module(f"imblearn.{module}"), name)


def run_sampler(sampler: Any, features_NF: Floats, labels_N: Ints) -> tuple[Floats, Ints]:
    """Features and labels that a sampler makes of these."""
    limits = import_module("threadpoolctl").threadpool_limits
    # Several threads add up cluster centres in the order in which they come, which is another one each time.
    with _quiet(), limits(limits=1, user_api="openmp"):
        features_MF, labels_M = sampler.fit_resample(features_NF, labels_N)
    return np.asarray(features_MF, dtype=np.float64), np.asarray(labels_M, dtype=np.int64)


def seed_of_class(seed: int, label: int) -> int:
    """Classes are sampled one by one, and draw different numbers."""
    return int(np.random.SeedSequence([seed, label]).generate_state(1)[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """About versions, duplicates among few examples and the like: none of it is the user's to act on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def cluster_under_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    sampler = sampler_class("under_sampling", "ClusterCentroids")(random_state=seed)
    return Resampled(*run_sampler(sampler, features_NF, labels_N))


def edit_nearest_neighbours(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    near = min(neighbours, len(labels_N) - 1)
    sampler = sampler_class("under_sampling", "EditedNearestNeighbours")(n_neighbors=near, kind_sel="mode")
    run_sampler(sampler, features_NF, labels_N)
    kept_N = np.zeros(len(labels_N), dtype=bool)
    kept_N[sampler.sample_indices_] = True
    emptied = np.setdiff1d(labels_N, labels_N[kept_N])
    kept_N |= np.isin(labels_N, emptied)
    return Resampled(features_NF[kept_N], labels_N[kept_N], as_they_were=tuple(emptied.tolist()))


def over_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    sampler = sampler_class("over_sampling", "RandomOverSampler")(random_state=seed)
    return Resampled(*run_sampler(sampler, features_NF, labels_N))


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


# What imbalanced-learn says where no example has a neighbour of another class, or all shares round to zero.
NO_PLACE = ("ADASYN is not suited", "No samples will be generated")


def adasyn(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    kind = sampler_class("over_sampling", "ADASYN")

    def make(sizes: dict[int, int], near: int, seed: int) -> Any:
        return kind(sampling_strategy=sizes, n_neighbors=near, random_state=seed)

    def no_place(error: Exception) -> bool:
        return any(text in str(error) for text in NO_PLACE)

    return grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make, nothing_to_do=no_place)


NEIGHBOURS_OF_ANY_CLASS = 10


def borderline_smote(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    kind = sampler_class("over_sampling", "BorderlineSMOTE")
    around = min(NEIGHBOURS_OF_ANY_CLASS, len(labels_N) - 1)

    def make(sizes: dict[int, int], near: int, seed: int) -> Any:
        return kind(sampling_strategy=sizes, k_neighbors=near, m_neighbors=around, random_state=seed)

    return grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make)


def smote(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    kind = sampler_class("over_sampling", "SMOTE")

    def make(sizes: dict[int, int], near: int, seed: int) -> Any:
        return kind(sampling_strategy=sizes, k_neighbors=near, random_state=seed)

    return grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make)


def under_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    sampler = sampler_class("under_sampling", "RandomUnderSampler")(random_state=seed)
    return Resampled(*run_sampler(sampler, features_NF, labels_N))
