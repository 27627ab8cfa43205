"""Re-sampling of features so that classes become less imbalanced, and classifiers fitted on re-sampled features.

`RESAMPLERS` lists the methods of imbalanced-learn by `refit.method`. A resampler is a pure function of its arguments.
"""

# Shapes: N examples, n new examples of one class, M examples after re-sampling, E exits, F features, C classes

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from elfnet.data.types import Ints
from elfnet.errors import RequestError
from elfnet.extras import missing_package
from elfnet.methods.refit.classifiers import (
    SMALL_GRADIENT,
    LabelledFeed,
    classifier_features,
    fit_softmax_regression,
    linear_classifiers,
)
from elfnet.models.heads import LinearClassifier
from elfnet.models.staged import StagedNetwork
from elfnet.run.info import FitInfo, ResampledInfo

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Resampled:
    """Features and labels to fit a classifier on.

    Attributes:
        smaller_neighbourhoods: the number of neighbours that was used, for each class with too few examples for the
            requested number.
        unchanged_classes: classes that the method could not change.
    """

    features_MF: Floats
    labels_M: Ints
    smaller_neighbourhoods: dict[int, int] = field(default_factory=dict)
    unchanged_classes: tuple[int, ...] = ()


class Resampler(Protocol):
    """A re-sampling method. `neighbours` is ignored by methods that use no neighbours."""

    def __call__(self, features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled: ...


def over_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    """Repeat random examples until all classes are as large as the largest."""
    sampler = _sampler_class("over_sampling", "RandomOverSampler")(random_state=seed)
    return Resampled(*_run_sampler(sampler, features_NF, labels_N))


def under_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    """Drop random examples until all classes are as small as the smallest."""
    sampler = _sampler_class("under_sampling", "RandomUnderSampler")(random_state=seed)
    return Resampled(*_run_sampler(sampler, features_NF, labels_N))


def cluster_under_sample(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    """Replace each class by as many cluster centres as the smallest class has examples."""
    sampler = _sampler_class("under_sampling", "ClusterCentroids")(random_state=seed)
    return Resampled(*_run_sampler(sampler, features_NF, labels_N))


def edit_nearest_neighbours(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:  # noqa: ARG001
    """Drop examples whose nearest neighbours are mostly of another class (Wilson 1972).

    A class that would lose all its examples keeps them.
    """
    n_neighbors = min(neighbours, len(labels_N) - 1)
    sampler = _sampler_class("under_sampling", "EditedNearestNeighbours")(n_neighbors=n_neighbors, kind_sel="mode")
    _run_sampler(sampler, features_NF, labels_N)
    kept_N = np.zeros(len(labels_N), dtype=bool)
    kept_N[sampler.sample_indices_] = True
    emptied = np.setdiff1d(labels_N, labels_N[kept_N])
    kept_N |= np.isin(labels_N, emptied)
    return Resampled(features_NF[kept_N], labels_N[kept_N], unchanged_classes=tuple(emptied.tolist()))


def smote(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    """SMOTE (Chawla et al. 2002): new examples between an example and its neighbours of the same class."""
    sampler_class = _sampler_class("over_sampling", "SMOTE")

    def make(sizes: dict[int, int], n_neighbors: int, seed: int) -> Any:
        return sampler_class(sampling_strategy=sizes, k_neighbors=n_neighbors, random_state=seed)

    return _grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make)


NEIGHBOURS_OF_ANY_CLASS = 10
"""Borderline-SMOTE decides by so many neighbours whether an example is close to another class."""


def borderline_smote(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    """Borderline-SMOTE (Han et al. 2005): SMOTE for examples that are close to another class."""
    sampler_class = _sampler_class("over_sampling", "BorderlineSMOTE")
    m_neighbors = min(NEIGHBOURS_OF_ANY_CLASS, len(labels_N) - 1)

    def make(sizes: dict[int, int], n_neighbors: int, seed: int) -> Any:
        return sampler_class(
            sampling_strategy=sizes, k_neighbors=n_neighbors, m_neighbors=m_neighbors, random_state=seed
        )

    return _grow_every_class(features_NF, labels_N, neighbours=neighbours, seed=seed, make=make)


NO_NEW_EXAMPLES = ("ADASYN is not suited", "No samples will be generated")
"""Messages of imbalanced-learn if no example has a neighbour of another class, or if all counts round to zero."""


def adasyn(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
    """ADASYN (He et al. 2008): SMOTE with more new examples where more neighbours are of other classes.

    A class without any neighbour of another class gets no new examples and does not change.
    """
    sampler_class = _sampler_class("over_sampling", "ADASYN")

    def make(sizes: dict[int, int], n_neighbors: int, seed: int) -> Any:
        return sampler_class(sampling_strategy=sizes, n_neighbors=n_neighbors, random_state=seed)

    def is_unchanged(error: Exception) -> bool:
        return any(text in str(error) for text in NO_NEW_EXAMPLES)

    return _grow_every_class(
        features_NF, labels_N, neighbours=neighbours, seed=seed, make=make, is_unchanged=is_unchanged
    )


RESAMPLERS: dict[str, Resampler] = {
    "over-sampling": over_sample,
    "under-sampling": under_sample,
    "smote": smote,
    "borderline-smote": borderline_smote,
    "adasyn": adasyn,
    "edited-nearest-neighbours": edit_nearest_neighbours,
    "cluster-under-sampling": cluster_under_sample,
}
"""Resamplers by `refit.method`."""


def _grow_every_class(
    features_NF: Floats,
    labels_N: Ints,
    *,
    neighbours: int,
    seed: int,
    make: Callable[[dict[int, int], int, int], Any],
    is_unchanged: Callable[[Exception], bool] = lambda _: False,
) -> Resampled:
    """Grow every class to the size of the largest.

    A class of n examples has at most n - 1 neighbours. A single example is repeated, as there is nothing to
    interpolate.

    Args:
        make: creates a sampler of imbalanced-learn from (wanted size by class, neighbours, seed).
        is_unchanged: whether an exception of the sampler means that it adds no examples.
    """
    size_C = np.bincount(labels_N)
    largest = int(size_C.max())
    features, labels = [features_NF], [labels_N]
    smaller_neighbourhoods: dict[int, int] = {}
    unchanged_classes = []
    for label in np.flatnonzero((size_C > 0) & (size_C < largest)).tolist():
        size = int(size_C[label])
        n_neighbors = min(neighbours, size - 1)
        if n_neighbors < neighbours:
            smaller_neighbourhoods[label] = n_neighbors
        if n_neighbors == 0:
            new_nF = np.repeat(features_NF[labels_N == label], largest - 1, axis=0)
        else:
            sampler = make({label: largest}, n_neighbors, _class_seed(seed, label))
            try:
                grown_MF, _ = _run_sampler(sampler, features_NF, labels_N)
            except (RuntimeError, ValueError) as error:
                if not is_unchanged(error):
                    raise
                grown_MF = features_NF
            # imbalanced-learn appends new examples to the given ones.
            new_nF = grown_MF[len(features_NF) :]
        if not len(new_nF):
            unchanged_classes.append(label)
        features.append(new_nF)
        labels.append(np.full(len(new_nF), label, dtype=np.int64))
    return Resampled(np.concatenate(features), np.concatenate(labels), smaller_neighbourhoods, tuple(unchanged_classes))


def _class_seed(seed: int, label: int) -> int:
    """A seed per class: classes are sampled one after the other and must not draw the same numbers."""
    return int(np.random.SeedSequence([seed, label]).generate_state(1)[0])


def require_imbalanced_learn() -> None:
    """Check that imbalanced-learn is installed.

    Raises:
        RequestError: it is not.
    """
    try:
        with _ignored_warnings():
            import_module("imblearn")
    except ImportError:
        raise RequestError(missing_package("re-sampling features", "imblearn")) from None


def _sampler_class(module: str, name: str) -> Any:
    require_imbalanced_learn()
    with _ignored_warnings():
        return getattr(import_module(f"imblearn.{module}"), name)


def _run_sampler(sampler: Any, features_NF: Floats, labels_N: Ints) -> tuple[Floats, Ints]:
    threadpool_limits = import_module("threadpoolctl").threadpool_limits
    # With several threads the order in which cluster centres are summed, and so the result, differs between runs.
    with _ignored_warnings(), threadpool_limits(limits=1, user_api="openmp"):
        features_MF, labels_M = sampler.fit_resample(features_NF, labels_N)
    return np.asarray(features_MF, dtype=np.float64), np.asarray(labels_M, dtype=np.int64)


@contextmanager
def _ignored_warnings() -> Iterator[None]:
    """Hide warnings about versions or duplicates among few examples: a user cannot act on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


CLASSES_SHOWN = 5
"""The number of class names in a remark."""


def refit_on_resampled(
    network: StagedNetwork,
    train: LabelledFeed,
    *,
    resample: Resampler,
    neighbours: int,
    seed: int,
    weight_decay: float,
    class_names: Sequence[str],
) -> tuple[FitInfo, list[str]]:
    """Re-sample the features of every exit separately, and fit its classifier on them in place.

    Args:
        train: the training split.
        neighbours: the number of neighbours, for resamplers that use them.

    Returns:
        The record for run.json, and remarks for the log.
    """
    require_imbalanced_learn()
    features_E, labels_N = classifier_features(network, train)
    exits: list[ResampledInfo] = []
    smaller_neighbourhoods: dict[int, int] = {}
    remarks = []
    for number, (classifier, features_NF) in enumerate(zip(linear_classifiers(network), features_E, strict=True), 1):
        resampled = resample(features_NF.numpy(), labels_N, neighbours=neighbours, seed=seed)
        fitted = _fit_in_place(classifier, resampled, weight_decay, class_names)
        exits.append(fitted)
        # It depends on the sizes of the classes only, so it is equal at every exit.
        smaller_neighbourhoods = resampled.smaller_neighbourhoods
        if fitted.largest_derivative > SMALL_GRADIENT:
            remarks.append(f"the fit at exit {number} did not converge in {fitted.steps} steps")
    if smaller_neighbourhoods:
        remarks.insert(0, _smaller_remark(smaller_neighbourhoods, neighbours, class_names))
    unchanged = [f"{len(one.classes_as_they_were)} at exit {number}" for number, one in enumerate(exits, 1)]
    if any(one.classes_as_they_were for one in exits):
        remarks.append(f"classes without a change: {', '.join(unchanged)}")
    by_name = {class_names[c]: number for c, number in smaller_neighbourhoods.items()}
    return FitInfo(exits=tuple(exits), smaller_neighbourhoods=by_name), remarks


@torch.no_grad()
def _fit_in_place(
    classifier: LinearClassifier, resampled: Resampled, weight_decay: float, class_names: Sequence[str]
) -> ResampledInfo:
    fit = fit_softmax_regression(
        torch.from_numpy(resampled.features_MF),
        torch.from_numpy(resampled.labels_M),
        classifier.weight,
        classifier.bias,
        weight_decay=weight_decay,
    )
    classifier.weight.copy_(fit.weight_CF)
    classifier.bias.copy_(fit.bias_C)
    return ResampledInfo(
        examples=len(resampled.labels_M),
        steps=fit.steps,
        largest_derivative=fit.gradient,
        classes_as_they_were=tuple(class_names[c] for c in resampled.unchanged_classes),
    )


def _smaller_remark(smaller: dict[int, int], neighbours: int, class_names: Sequence[str]) -> str:
    shown = ", ".join(f"{class_names[c]} {number}" for c, number in list(smaller.items())[:CLASSES_SHOWN])
    more = ", ..." if len(smaller) > CLASSES_SHOWN else ""
    return f"smaller neighbourhoods than {neighbours} in {len(smaller)} small classes ({shown}{more})"
