"""What version 0.1.0 wrote is read by this one: a run that was begun, its operating points, and a bundle.

The files are of a tiny ResNet-8 on the embedded digits, trained with `exits.left=drop`, which is now
`exits.after_exit`. Records of tables are tested in tests/reproduce.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from elfnet import Family, load
from elfnet.errors import RequestError
from elfnet.recipe.load import load_recipe
from elfnet.run.directory import RunDirectory, open_run
from elfnet.train.run import train_recipe

STORED = Path(__file__).parent / "stored"
LOSS = (9.5722, 9.0207, 8.5392, 9.0093)
"""Of each epoch of the undisturbed run, by version 0.1.0."""


@pytest.fixture
def begun(tmp_path: Path) -> RunDirectory:
    """A copy of a run that was stopped after two of four epochs."""
    shutil.copytree(STORED / "begun-run", tmp_path / "run")
    return open_run(tmp_path / "run")


def test_a_begun_run_resumes(begun: RunDirectory) -> None:
    recipe = begun.recipe()
    assert recipe.exits.after_exit == "drop"
    assert recipe.refit.method == "none"
    assert len(begun.log()) == 2
    train_recipe(recipe, begun.root, resume=True)
    # Another processor may round differently.
    assert [record.loss for record in begun.log()] == pytest.approx(LOSS, rel=1e-3)


def test_a_users_file_with_an_old_name_is_refused(begun: RunDirectory) -> None:
    with pytest.raises(RequestError, match=r"is now called"):
        load_recipe(str(begun.recipe_file))


def test_operating_points_are_read() -> None:
    family = Family.open(STORED / "policy.json")
    assert {"full", "accurate", "economic"} <= set(family.names())
    assert family.point("full").policy.exits == 4


def test_the_first_one_file_bundle_answers_as_the_older_bundle_of_the_same_network() -> None:
    older, newer = load(STORED / "bundle.elfnet", threads=1), load(STORED / "bundle.onnx", threads=1)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 1), dtype=np.uint8)
    for point in older.operating_points:
        expected = older.classify(pixels, operating_point=point)
        found = newer.classify(pixels, operating_point=point)
        assert found.exit_N.tolist() == expected.exit_N.tolist()
        assert found.prediction_N.tolist() == expected.prediction_N.tolist()
        assert found.confidence_N == pytest.approx(expected.confidence_N, abs=1e-5)


def test_torch_rebuilds_the_network_of_a_bundle() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (20, 32, 32, 1), dtype=np.uint8)
    expected = load(STORED / "bundle.elfnet", threads=1).classify(pixels, operating_point="full")
    found = load(STORED / "bundle.elfnet", backend="torch").classify(pixels, operating_point="full")
    assert found.prediction_N.tolist() == expected.prediction_N.tolist()
    assert found.confidence_N == pytest.approx(expected.confidence_N, abs=1e-5)


def test_a_bundle_predicts() -> None:
    model = load(STORED / "bundle.elfnet")
    images = [np.full((32, 32), value, dtype=np.uint8) for value in (0, 90, 255)]
    for point in ("full", "economic"):
        model.set_operating_point(point)
        predictions = list(model.predict(images))
        assert len(predictions) == 3
        assert all(one.label in model.class_names and 0 < one.cost <= 1.2 for one in predictions)
