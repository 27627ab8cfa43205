"""Every backend gives what torch gives in float32, in the order of the input, whoever else is calling."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from elfnet.calibrate.point_family import Family
from elfnet.errors import RequestError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.inference.backends.build import BACKENDS, open_backend
from elfnet.inference.engine import Backend, Engine
from elfnet.models.staged import StagedNetwork

TOO_NEAR = 1e-4
# Compiling a ResNet takes minutes; that backend is tested on a small network in its own file.
NAMES = [name for name in BACKENDS if name != "torch-compiled"]


@pytest.fixture(scope="module", params=NAMES)
def backend(request: pytest.FixtureRequest, exported_network: StagedNetwork, exported_graphs: list[bytes]) -> Backend:
    return open_backend(
        request.param,
        graphs=lambda: exported_graphs,
        network=lambda: exported_network,
        threads=1,
        image_shape=(3, 16, 16),
    )


@pytest.mark.parametrize(("batch", "examples"), [(1, 40), (7, 205), (64, 1024)])
def test_engine_equals_replay(
    backend: Backend,
    exported_images: NDArray[np.float32],
    exported_table: ExitTable,
    exported_family: Family,
    batch: int,
    examples: int,
) -> None:
    engine = Engine(backend, exported_family)
    confidence_NE = compute_confidences(exported_table).confidence_NE[:examples, :-1]
    for point in exported_family.points:
        expected = replay(exported_table, point.policy)
        near_N = (np.abs(confidence_NE - np.array(point.policy.thresholds)) <= TOO_NEAR).any(axis=1)
        assert near_N.sum() <= 0.001 * examples
        for first in range(0, examples, batch):
            answers = engine(exported_images[first : min(first + batch, examples)], operating_point=point.name)
            part = slice(first, first + len(answers.exit_N))
            clear_N = ~near_N[part]
            assert answers.exit_N[clear_N].tolist() == expected.exit_N[part][clear_N].tolist()
            assert answers.prediction_N[clear_N].tolist() == expected.prediction_N[part][clear_N].tolist()
            assert answers.confidence_N[clear_N] == pytest.approx(expected.confidence_N[part][clear_N], abs=TOO_NEAR)
        if point.name != "full":
            assert len(np.unique(expected.exit_N[:examples])) > 1
    # At the last point somebody leaves at every exit.
    assert np.bincount(expected.exit_N, minlength=exported_table.exits).min() > 0


@pytest.mark.parametrize("batch", [1, 5, 20])
def test_stage_alone_is_the_stage(backend: Backend, exported_images: NDArray[np.float32], batch: int) -> None:
    features = backend.start(exported_images[:batch])
    everybody = np.arange(batch)
    for k in range(backend.exits - 1):
        alone = backend.run_without_head(k, features)
        features, _ = backend.run(k, features)
        # Through `keep`, which is all that the engine knows of features besides handing them on.
        expected = backend.run(k + 1, backend.keep(features, everybody))[1]
        assert backend.run(k + 1, alone)[1] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_keep_takes_the_examples_asked_for_in_that_order(
    backend: Backend, exported_images: NDArray[np.float32]
) -> None:
    features, logits_BC = backend.run(0, backend.start(exported_images[:9]))
    _, next_logits_BC = backend.run(1, features)
    stay = np.array([1, 4, 8])
    assert backend.run(1, backend.keep(features, stay))[1] == pytest.approx(next_logits_BC[stay], abs=1e-4)
    # What was there before is still there.
    assert backend.run(1, features)[1] == pytest.approx(next_logits_BC, abs=1e-6)
    assert logits_BC.dtype == np.float32


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_many_callers(backend: Backend, exported_images: NDArray[np.float32], exported_family: Family) -> None:
    """The same answers as one after the other, for batches of different sizes on one backend."""
    engine = Engine(backend, exported_family)
    point = exported_family.names()[1]
    parts = [exported_images[40 * i : 40 * i + size] for i, size in enumerate((1, 3, 40, 8, 17, 2, 33, 1, 9, 25))]
    alone = [engine(part, operating_point=point) for part in parts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda part: engine(part, operating_point=point), parts * 4))
    for answers, expected in zip(together, alone * 4, strict=True):
        assert answers.exit_N.tolist() == expected.exit_N.tolist()
        assert answers.confidence_N == pytest.approx(expected.confidence_N, abs=1e-5)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: images[0], r"images of shape \(3, 16, 16\) are refused"),
        (lambda images: images[:, :1], r"the network needs \(examples, 3, 16, 16\)"),
        (lambda images: images[:, :, :8], r"the network needs \(examples, 3, 16, 16\)"),
        (lambda images: images.astype(np.float64), "images of type float64 are refused"),
    ],
)
def test_wrong_images(
    backend: Backend,
    exported_images: NDArray[np.float32],
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    message: str,
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        backend.start(change(exported_images[:2]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("exported_network", ["as if trained"], indirect=True)
def test_images_in_any_memory_layout(backend: Backend, exported_images: NDArray[np.float32]) -> None:
    images = exported_images[:6]
    turned = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    _, expected = backend.run(0, backend.start(images))
    assert backend.run(0, backend.start(turned))[1] == pytest.approx(expected, abs=1e-6)
