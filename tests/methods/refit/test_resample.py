"""Properties of every resampler, and of each one."""

# Shapes: N examples, M examples afterwards, F features

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from elfnet.data.types import Ints
from elfnet.errors import RequestError
from elfnet.methods.refit.classifiers import (
    LabelledFeed,
    classifier_features,
    fit_softmax_regression,
    linear_classifiers,
)
from elfnet.methods.refit.resample import RESAMPLERS, Floats, Resampled, refit_on_resampled
from elfnet.models.staged import StagedNetwork
from elfnet.run.info import ResampledInfo

SIZES = (40, 12, 4, 2, 1)
GROWING = ("over-sampling", "smote", "borderline-smote", "adasyn")


def clouds(sizes: tuple[int, ...], *, apart: float) -> tuple[Floats, Ints]:
    random = np.random.default_rng(1)
    labels_N = np.repeat(np.arange(len(sizes)), sizes)
    centre_CF = apart * random.normal(size=(len(sizes), 3))
    return centre_CF[labels_N] + random.normal(size=(len(labels_N), 3)), labels_N


def resample(how: str, features_NF: Floats, labels_N: Ints, *, neighbours: int = 5, seed: int = 0) -> Resampled:
    return RESAMPLERS[how](features_NF, labels_N, neighbours=neighbours, seed=seed)


@pytest.mark.parametrize("how", RESAMPLERS)
@pytest.mark.parametrize("apart", [0.3, 50.0], ids=["mixed", "apart"])
def test_every_resampler(how: str, apart: float) -> None:
    features_NF, labels_N = clouds(SIZES, apart=apart)
    before = features_NF.copy(), labels_N.copy()
    first, second = resample(how, features_NF, labels_N), resample(how, features_NF, labels_N)
    assert np.array_equal(first.features_MF, second.features_MF)
    assert np.array_equal(first.labels_M, second.labels_M)
    assert np.array_equal(features_NF, before[0])
    assert np.array_equal(labels_N, before[1])
    assert np.isfinite(first.features_MF).all()
    assert len(first.features_MF) == len(first.labels_M)
    assert set(first.labels_M) == set(labels_N), "no class is lost"
    if how in GROWING:
        assert np.array_equal(first.features_MF[: len(features_NF)], features_NF), "nothing is taken away"
    else:
        assert (np.bincount(first.labels_M) <= SIZES).all()


@pytest.mark.parametrize("how", [how for how in RESAMPLERS if how != "edited-nearest-neighbours"])
def test_the_seed_matters(how: str) -> None:
    features_NF, labels_N = clouds((40, 12, 6), apart=0.3)
    first, second = (resample(how, features_NF, labels_N, seed=seed) for seed in (0, 1))
    assert not np.array_equal(first.features_MF, second.features_MF)


@pytest.mark.parametrize(
    ("how", "expected"), [("over-sampling", 40), ("smote", 40), ("under-sampling", 1), ("cluster-under-sampling", 1)]
)
def test_classes_are_made_equal(how: str, expected: int) -> None:
    assert (np.bincount(resample(how, *clouds(SIZES, apart=2)).labels_M) == expected).all()


def test_smote_of_two_examples_lies_between_them_and_says_that_the_neighbourhood_was_smaller() -> None:
    features_NF, labels_N = clouds(SIZES, apart=2)
    resampled = resample("smote", features_NF, labels_N)
    assert resampled.smaller_neighbourhoods == {2: 3, 3: 1, 4: 0}
    new_NF = resampled.features_MF[len(labels_N) :][resampled.labels_M[len(labels_N) :] == 3]
    start, end = features_NF[labels_N == 3]
    place_N = (new_NF - start) @ (end - start) / ((end - start) @ (end - start))
    assert np.allclose(new_NF, start + place_N[:, None] * (end - start))
    assert ((place_N >= 0) & (place_N <= 1)).all()
    assert len(np.unique(place_N)) == 38


def test_one_example_is_repeated() -> None:
    features_NF, labels_N = clouds(SIZES, apart=2)
    resampled = resample("smote", features_NF, labels_N)
    alone = resampled.features_MF[resampled.labels_M == 4]
    assert len(alone) == 40
    assert (alone == features_NF[-1]).all()


def test_fewer_neighbours_need_fewer_examples() -> None:
    assert resample("smote", *clouds(SIZES, apart=2), neighbours=1).smaller_neighbourhoods == {4: 0}


@pytest.mark.parametrize("how", ["borderline-smote", "adasyn"])
def test_classes_far_from_all_others_are_left_as_they_were(how: str) -> None:
    features_NF, labels_N = clouds((30, 15, 14), apart=100)
    resampled = resample(how, features_NF, labels_N)
    assert resampled.unchanged_classes == (1, 2)
    assert np.array_equal(resampled.labels_M, labels_N)


@pytest.mark.parametrize("how", ["borderline-smote", "adasyn"])
def test_classes_among_others_grow(how: str) -> None:
    resampled = resample(how, *clouds((60, 20), apart=0.2))
    assert resampled.unchanged_classes == ()
    assert np.bincount(resampled.labels_M)[1] == pytest.approx(60, abs=5)


def test_an_example_among_another_class_is_edited_away() -> None:
    features_NF = np.concatenate([np.linspace(0, 1, 20), [0.51], np.linspace(9, 10, 12), np.linspace(20, 21, 6)])
    labels_N = np.array([0] * 20 + [1] + [1] * 12 + [2] * 6)
    resampled = resample("edited-nearest-neighbours", features_NF[:, None], labels_N, neighbours=3)
    assert 0.51 not in resampled.features_MF
    # The examples next to it have one neighbour of another class, which is outvoted.
    assert np.bincount(resampled.labels_M).tolist() == [20, 12, 6]


def test_a_class_that_would_be_edited_away_entirely_is_kept() -> None:
    features_NF = np.concatenate([np.linspace(0, 1, 20), [0.31, 0.52, 0.73], [30.0, 31.0]])
    labels_N = np.array([0] * 20 + [1] * 3 + [2] * 2)
    resampled = resample("edited-nearest-neighbours", features_NF[:, None], labels_N, neighbours=3)
    assert resampled.unchanged_classes == (1,)
    assert (resampled.labels_M == 1).sum() == 3


def test_clusters_are_replaced_by_their_centres() -> None:
    features_NF = np.array([[0.0], [0.2], [5.0], [5.2], [1.0], [2.0]])
    resampled = resample("cluster-under-sampling", features_NF, np.array([0, 0, 0, 0, 1, 1]))
    assert sorted(resampled.features_MF[resampled.labels_M == 0, 0]) == pytest.approx([0.1, 5.1])


@pytest.mark.parametrize("how", RESAMPLERS)
def test_without_the_package_one_line_says_what_to_install(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imblearn", None)
    with pytest.raises(RequestError, match=r"needs imblearn: .*pip install .*\[resample\]'"):
        resample(how, *clouds((5, 3), apart=1))


NAMES = ("ant", "bee", "cat", "dog")


@pytest.fixture
def train(feed_of: Callable[[Ints], LabelledFeed]) -> LabelledFeed:
    return feed_of(np.repeat(np.arange(4), [20, 10, 4, 2]))


def test_every_exit_gets_the_fit_of_its_own_features(network: StagedNetwork, train: LabelledFeed) -> None:
    """With a re-sampling that keeps the first of each class, so that the expectation needs no random number."""

    def first_two(features_NF: Floats, labels_N: Ints, *, neighbours: int, seed: int) -> Resampled:
        assert (neighbours, seed) == (3, 7)
        keep = np.concatenate([np.flatnonzero(labels_N == c)[:2] for c in range(4)])
        return Resampled(features_NF[keep], labels_N[keep])

    features_E, labels_N = classifier_features(network, train)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    record, remarks = refit_on_resampled(
        network, train, resample=first_two, neighbours=3, seed=7, weight_decay=0.01, class_names=NAMES
    )
    assert remarks == []
    assert [one.examples for one in record.exits if isinstance(one, ResampledInfo)] == [8] * network.exits
    keep = np.concatenate([np.flatnonzero(labels_N == c)[:2] for c in range(4)])
    for features_NF, classifier in zip(features_E, linear_classifiers(network), strict=True):
        expected = fit_softmax_regression(
            features_NF[keep],
            torch.from_numpy(labels_N[keep]),
            torch.zeros_like(classifier.weight),
            torch.zeros_like(classifier.bias),
            weight_decay=0.01,
        )
        assert torch.allclose(classifier.weight, expected.weight_CF.float(), atol=1e-3)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]) is ("classifier" not in name), name


def test_smote_with_a_class_of_two_says_so_once(network: StagedNetwork, train: LabelledFeed) -> None:
    record, remarks = refit_on_resampled(
        network, train, resample=RESAMPLERS["smote"], neighbours=5, seed=0, weight_decay=2e-4, class_names=NAMES
    )
    assert record.smaller_neighbourhoods == {"cat": 3, "dog": 1}
    assert remarks[0] == "smaller neighbourhoods than 5 in 2 small classes (cat 3, dog 1)"
    assert [one.examples for one in record.exits if isinstance(one, ResampledInfo)] == [80] * network.exits
    assert all(classifier.weight.isfinite().all() for classifier in linear_classifiers(network))
