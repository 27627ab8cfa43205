"""Images in, named answers out."""

# Shapes: N images, E exits, C classes

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from elfnet.calibrate.line_search import fixed_points
from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError, WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import confidences_for_policy, replay
from elfnet.exits.policy import probability_and_prediction
from elfnet.inference.engine import Engine
from elfnet.inference.model import Model, as_list, exit_from_zero
from elfnet.inference.predict_files import Classified, NotRead, classify_files
from elfnet.inference.preprocess import Preprocess

CLASSES = 5
NAMES = ("ant", "bee", "cat", "dog", "elk")


class Weighted:
    """Exit k's logits are fixed weights on the first pixels of an image, larger at later exits."""

    exits = 3

    def __init__(self) -> None:
        self._weights_EPC = np.random.default_rng(1).normal(0, 1, (3, 16, CLASSES)).astype(np.float32)
        self._weights_EPC *= np.array([0.4, 0.7, 1.0], dtype=np.float32)[:, None, None]
        self.batches: list[int] = []

    def start(self, images_BKHW: NDArray[np.float32]) -> Any:
        self.batches.append(len(images_BKHW))
        return images_BKHW.reshape(len(images_BKHW), -1)

    def run(self, k: int, features: Any) -> tuple[Any, NDArray[np.float32]]:
        # Not a matrix product, whose last bits depend on the size of the batch.
        return features, (features[:, :, None] * self._weights_EPC[k]).sum(axis=1)

    def run_without_head(self, _k: int, features: Any) -> Any:
        return features

    def keep(self, features: Any, stay: NDArray[np.int64]) -> Any:
        return features[stay]


@pytest.fixture
def pixels() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (20, 4, 4, 1), dtype=np.uint8)


@pytest.fixture
def preprocess() -> Preprocess:
    return Preprocess(mode="L", height=4, width=4, mean=(0.5,), std=(0.25,))


@pytest.fixture
def backend() -> Weighted:
    return Weighted()


@pytest.fixture
def table(backend: Weighted, preprocess: Preprocess, pixels: NDArray[np.uint8]) -> ExitTable:
    features = preprocess.normalise(pixels).reshape(20, -1)
    return ExitTable(
        logits_NEC=np.stack([backend.run(k, features)[1] for k in range(3)], axis=1),
        labels_N=np.arange(20, dtype=np.int64) % CLASSES,
        cost_E=np.array([0.2, 0.6, 1.1]),
        head_cost_E=np.array([0.05, 0.05, 0.01]),
        plain_multiply_adds=100,
        class_counts_C=np.array([50, 40, 30, 20, 10]),
        class_names=NAMES,
        split="calibration",
        checkpoint_sha256="0" * 64,
        confidence_scale=1.0,
        many_above=35,
        few_below=15,
    )


@pytest.fixture
def family(table: ExitTable) -> Family:
    return fixed_points(table, [0.7])


@pytest.fixture
def model(backend: Weighted, family: Family, preprocess: Preprocess) -> Model:
    return Model(Engine(backend, family), preprocess, NAMES)


@pytest.mark.parametrize("point", ["full", "s=0.7"])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_predictions_are_what_replay_says(
    model: Model, table: ExitTable, family: Family, pixels: NDArray[np.uint8], point: str, batch: int
) -> None:
    expected = replay(table, family.point(point).policy)
    found = model.predict(pixels, operating_point=point, batch=batch)
    assert [answer.class_index for answer in found] == expected.prediction_N.tolist()
    assert [answer.label for answer in found] == [NAMES[index] for index in expected.prediction_N]
    assert [answer.exit for answer in found] == (expected.exit_N + 1).tolist()
    assert [answer.cost for answer in found] == expected.cost_N.tolist()
    assert [answer.confidence for answer in found] == pytest.approx(expected.confidence_N, abs=1e-6)
    if point != "full":
        assert len({answer.exit for answer in found}) > 1


def test_top_classes_at_the_exit_taken(
    model: Model, table: ExitTable, family: Family, pixels: NDArray[np.uint8]
) -> None:
    taken = replay(confidences_for_policy(table, family.point("s=0.7").policy), family.point("s=0.7").policy)
    for row, answer in enumerate(model.predict(pixels, operating_point="s=0.7", top=3)):
        probability_NC, _ = probability_and_prediction(table.logits_NEC[row, taken.exit_N[row]][None], 1.0)
        best = sorted(zip(probability_NC[0], NAMES, strict=True), reverse=True)[:3]
        assert [label for label, _ in answer.top] == [label for _, label in best]
        assert [value for _, value in answer.top] == pytest.approx([value for value, _ in best], abs=1e-6)
        assert answer.top[0][0] == answer.label
    assert len(model.predict(pixels[0], top=100)[0].top) == CLASSES


def test_images_of_every_kind(model: Model, pixels: NDArray[np.uint8], tmp_path: Path) -> None:
    picture = Image.fromarray(pixels[0, :, :, 0])
    picture.save(tmp_path / "a.png")
    (expected,) = model.predict(pixels[0])
    content = (tmp_path / "a.png").read_bytes()
    for same in (tmp_path / "a.png", str(tmp_path / "a.png"), content, picture, pixels[0, :, :, 0], pixels[:1]):
        assert model.predict(same) == [expected]
    mixed = model.predict([pixels[0], picture, tmp_path / "a.png", content])
    assert mixed == [expected] * 4
    assert model.predict(image for image in pixels[:2])[0] == expected
    assert model.predict([]) == []


def test_the_operating_point_can_be_changed(model: Model) -> None:
    assert list(model.operating_points) == ["full", "s=0.7"]
    assert model.operating_point == "full"
    cost = model.operating_points["s=0.7"].expected.mean_cost
    assert model.set_operating_point(cost) == model.operating_point == "s=0.7"
    assert model.set_operating_point("full") == "full"
    assert model.set_operating_point(f" {cost} ") == "s=0.7"
    with pytest.raises(RequestError, match="unknown operating point"):
        model.set_operating_point("s=0.8")
    with pytest.raises(RequestError, match=r"None is no operating point; give its name, or a budget such as 0\.5"):
        model.set_operating_point(None)  # type: ignore[arg-type]


def test_abstaining(backend: Weighted, family: Family, preprocess: Preprocess, pixels: NDArray[np.uint8]) -> None:
    model = Model(Engine(backend, family, abstain_below=0.9), preprocess, NAMES)
    found = model.predict(pixels)
    withheld = [answer for answer in found if answer.label is None]
    assert 0 < len(withheld) < len(found)
    for answer in found:
        assert (answer.label is None) == (answer.class_index is None) == (answer.confidence < 0.9)
        assert answer.top


@pytest.mark.parametrize("wrong", [{"top": 0}, {"batch": 0}])
def test_wrong_numbers(model: Model, pixels: NDArray[np.uint8], wrong: dict[str, int]) -> None:
    with pytest.raises(RequestError, match="must be 1 or more"):
        model.predict(pixels, **wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="must be 1 or more"):
        list(classify_files(model, [], **wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [0, 1.5, 9])
def test_an_exit_that_there_is_not(number: int) -> None:
    with pytest.raises(RequestError, match=r"must be a whole number in 1\.\.4"):
        exit_from_zero(number, 4)


def test_what_is_no_image(model: Model) -> None:
    with pytest.raises(RequestError, match="int is not an image"):
        as_list(3)  # type: ignore[arg-type]
    with pytest.raises(WorkError, match="there is no image nowhere"):
        model.predict("nowhere.png")
    with pytest.raises(WorkError, match="the image in memory is not an image or is damaged"):
        model.predict(b"hello")


def test_a_stream_of_files(model: Model, backend: Weighted, pixels: NDArray[np.uint8], tmp_path: Path) -> None:
    """Bad files are told at once and skipped; the others keep their order, a batch at a time."""
    names = []
    for number in range(5):
        names.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(pixels[number, :, :, 0]).save(names[-1])
    names.insert(1, str(tmp_path / "nowhere.png"))
    results = list(classify_files(model, iter(names), batch=2, top=1))
    bad = [result for result in results if isinstance(result, NotRead)]
    good = [result for result in results if isinstance(result, Classified)]
    assert [result.file for result in bad] == [names[1]]
    assert "there is no image" in bad[0].reason
    assert [result.file for result in good] == [names[0], *names[2:]]
    assert [result.prediction for result in good] == model.predict(pixels[:5], top=1)
    assert backend.batches[:3] == [2, 2, 1]


def test_a_stream_holds_one_batch(model: Model, tmp_path: Path) -> None:
    """An answer comes after `batch` files, with the rest of an endless stream not yet asked for."""
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    asked = 0

    def endless() -> Any:
        nonlocal asked
        while True:
            asked += 1
            yield str(tmp_path / "a.png")

    next(iter(classify_files(model, endless(), batch=3)))
    assert asked == 3
