"""`ELFClassifier`: scikit-learn's contract, tables and images, files, and what is refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import elfnet
from elfnet import ELFClassifier
from elfnet.errors import RequestError, WorkError
from elfnet.estimator.fitted import MIN_CALIBRATION, held_out_rows
from elfnet.export.network import FittedNetwork

EXPECTED_FAILED_CHECKS = {
    "check_methods_subset_invariance": "the network computes in float32, and products of one row and of many are "
    "summed in another order: probabilities differ by about 4e-7, the check allows 1e-7",
}
"""Checks of scikit-learn that the estimator does not pass, each with the reason."""


def _table(examples: int = 60, classes: int = 3) -> tuple[NDArray[Any], NDArray[Any]]:
    X, y = make_blobs(examples, n_features=4, centers=classes, cluster_std=0.5, random_state=0)
    return X, np.array(["ant", "bee", "cat", "dog"])[y]


def _images(examples: int = 40) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bright and dark squares."""
    rng = np.random.default_rng(0)
    y = np.arange(examples) % 2
    return (rng.integers(0, 100, (examples, 16, 16)) + 150 * y[:, None, None]).astype(np.uint8), y


@pytest.fixture(scope="module")
def fitted() -> ELFClassifier:
    return ELFClassifier(epochs=8, batch_size=16, random_state=0).fit(*_table())


def test_a_table_is_learnt_and_labels_come_back(fitted: ELFClassifier) -> None:
    X, y = _table()
    assert fitted.classes_.tolist() == ["ant", "bee", "cat"]
    assert fitted.score(X, y) > 0.9
    probability = fitted.predict_proba(X)
    assert probability.shape == (60, 3)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(fitted.classes_[probability.argmax(axis=1)], fitted.predict(X))


def test_tiny_data_is_fitted_without_a_calibration_split(fitted: ELFClassifier) -> None:
    assert len(held_out_rows(np.zeros(60, dtype=np.int64), 0.1, seed=0)) == 0
    assert isinstance(fitted.fitted_, FittedNetwork)
    assert fitted.fitted_.family.split == "train"
    assert fitted.operating_point_.name == "full"


def test_a_share_of_each_class_is_held_out_and_two_examples_stay() -> None:
    labels_N = np.repeat([0, 1, 2], [200, 30, 2])
    held_out = held_out_rows(labels_N, 0.1, seed=0)
    assert np.bincount(labels_N[held_out], minlength=3).tolist() == [20, 3, 0]
    assert len(held_out_rows(labels_N[:-40], 0.1, seed=0)) < MIN_CALIBRATION


def test_pickle_and_clone(fitted: ELFClassifier) -> None:
    X, _ = _table()
    copy = pickle.loads(pickle.dumps(fitted))  # noqa: S301 (joblib needs it; our own files are never pickles)
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    fresh = clone(ELFClassifier(0.6, method="elf-ce", settings={"train.lr": 0.01}))
    assert fresh.get_params()["budget"] == 0.6
    assert not hasattr(fresh, "classes_")


def test_the_same_seed_gives_the_same_classifier_and_torch_keeps_its_own(fitted: ELFClassifier) -> None:
    import torch

    before = torch.random.get_rng_state()
    again = ELFClassifier(epochs=8, batch_size=16, random_state=0).fit(*_table())
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(again.predict_proba(_table()[0]), fitted.predict_proba(_table()[0]))


def test_a_budget_in_milliseconds_is_measured(fitted: ELFClassifier) -> None:
    timed = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    timed.budget = "100000ms"
    points = timed.fitted_.family.points
    best = max(one.expected.balanced_accuracy for one in points)
    assert timed._choose_point().expected.balanced_accuracy == best
    timed.budget = "1e-9ms"
    with pytest.raises(RequestError, match=r"no operating point takes at most 1e-09ms per image on this machine.*fast"):
        timed._choose_point()
    timed.budget = "5 minutes"
    with pytest.raises(RequestError, match="5 minutes"):
        timed._choose_point()


@pytest.mark.slow
def test_save_and_load(fitted: ELFClassifier, tmp_path: Path) -> None:
    X, _ = _table()
    loaded = ELFClassifier.load(fitted.save(tmp_path / "model.onnx"))
    np.testing.assert_allclose(loaded.predict_proba(X), fitted.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    copy = pickle.loads(pickle.dumps(loaded))  # noqa: S301
    np.testing.assert_array_equal(copy.predict(X), fitted.predict(X))
    assert loaded.save(tmp_path / "copy.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()
    plain = elfnet.load(tmp_path / "model.onnx")
    assert [answer.label for answer in plain.predict(X)] == fitted.predict(X).tolist()
    damaged = bytearray((tmp_path / "model.onnx").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged.onnx").write_bytes(damaged)
    with pytest.raises(WorkError, match="damaged"):
        ELFClassifier.load(tmp_path / "damaged.onnx")


@pytest.mark.slow
def test_images_with_a_budget(tmp_path: Path) -> None:
    X, y = _images(400)
    settings = {"model.head_filters": 8}
    model = ELFClassifier(0.6, backbone="resnet8", epochs=2, random_state=0, settings=settings).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.operating_point_.expected.mean_cost <= 0.6
    assert model.exits(X).min() < 4
    loaded = ELFClassifier.load(model.save(tmp_path / "images.onnx"))
    assert loaded.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    # The file is that of `elfnet export`: the model of images opens it, too.
    answers = elfnet.load(tmp_path / "images.onnx").predict(X[0][..., None])
    assert answers[0].label == str(model.predict(X[:1])[0])
    with pytest.raises(RequestError, match=r"images of shape \(8, 8, 1\).*fitted on \(16, 16, 1\)"):
        model.predict(X[:, ::2, ::2])


@pytest.mark.slow
def test_a_pipeline_in_a_grid_search() -> None:
    X, y = _table(90)
    pipeline = make_pipeline(StandardScaler(), ELFClassifier(epochs=6, batch_size=16, random_state=0))
    search = GridSearchCV(pipeline, {"elfclassifier__method": ["joint-quick", "ce"]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8
    assert set(search.cv_results_["param_elfclassifier__method"]) == {"joint-quick", "ce"}


@pytest.mark.slow
def test_scikit_learns_own_checks() -> None:
    found = check_estimator(
        ELFClassifier(epochs=10, batch_size=16, random_state=0),
        expected_failed_checks=EXPECTED_FAILED_CHECKS,
        on_skip=None,
        on_fail=None,
    )
    failed = {one["check_name"]: repr(one["exception"]) for one in found if one["status"] == "failed"}
    assert not failed
    assert sum(one["status"] == "passed" for one in found) > 40


def test_one_class_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^y has only one class \(ant\); a classifier needs at least two"):
        ELFClassifier().fit(np.ones((5, 2)), ["ant"] * 5)


def test_images_that_are_not_bytes_are_refused() -> None:
    X, y = _images()
    with pytest.raises(RequestError, match=r"X is float64 of shape \(40, 16, 16\); images must be uint8"):
        ELFClassifier().fit(X / 255, y)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(RequestError, match=r"calibration=1\.5 must be a share"):
        ELFClassifier(calibration=1.5).fit(*_table())
    with pytest.raises(RequestError, match="unknown recipe"):
        ELFClassifier(method="elf-magic").fit(*_table())
