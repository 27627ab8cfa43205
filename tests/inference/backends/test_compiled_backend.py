"""The compiled backend compiles three forms, whatever batch sizes come, and gives what eager torch gives."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch._dynamo.utils import counters

from elfnet.calibrate.point_family import Family
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import replay
from elfnet.inference.backends.build import Precision
from elfnet.inference.backends.torch import CompiledTorchBackend, TorchBackend
from elfnet.inference.engine import Engine
from elfnet.models.experts import ExpertNetwork
from elfnet.models.heads import final_head
from elfnet.models.staged import StagedNetwork

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 128)


@pytest.fixture
def network() -> StagedNetwork:
    """Two convolutions: the compiler's rules about batches are those of large networks, its time is not."""
    torch.manual_seed(0)
    stages: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
        nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
    ]
    heads = [final_head(4, 5, kind="linear"), final_head(8, 5, kind="linear")]
    return StagedNetwork(stages, list(heads), classes=5).eval()


@pytest.fixture
def images() -> NDArray[np.float32]:
    strength = np.random.default_rng(1).uniform(0.1, 3.0, size=(300, 1, 1, 1))
    return (np.random.default_rng(0).normal(size=(300, 3, 8, 8)) * strength).astype(np.float32)


@pytest.fixture(autouse=True)
def _forget_what_was_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    counters.clear()


def _all_sizes(backend: CompiledTorchBackend, eager: TorchBackend, images: NDArray[np.float32]) -> None:
    for size in (*SIZES, *reversed(SIZES)):
        features = backend.start(images[:size])
        expected = eager.start(images[:size])
        alone = backend.run_without_head(0, features)
        features, logits_BC = backend.run(0, features)
        expected, expected_BC = eager.run(0, expected)
        assert torch.allclose(alone, features, atol=1e-5)
        assert logits_BC == pytest.approx(expected_BC, abs=1e-4)
        # Also the layouts that `keep` makes.
        stay = np.arange(0, size, 2)
        _, logits_BC = backend.run(1, backend.keep(features, stay))
        _, expected_BC = eager.run(1, eager.keep(expected, stay))
        assert logits_BC == pytest.approx(expected_BC, abs=1e-4)


@pytest.mark.slow
def test_three_forms_and_no_recompile(network: StagedNetwork, images: NDArray[np.float32]) -> None:
    backend = CompiledTorchBackend(network, compiler="eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        _all_sizes(backend, TorchBackend(network), images)
    # Stage 0 with its head and alone, stage 1 with its head; for one example, for few, for many.
    assert counters["stats"]["unique_graphs"] == 3 * 3


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_real_compiler(network: StagedNetwork, images: NDArray[np.float32], precision: Precision) -> None:
    backend = CompiledTorchBackend(network, precision=precision)
    eager = TorchBackend(network, precision=precision)
    if precision == "float32":
        with torch._dynamo.config.patch(error_on_recompile=True):
            _all_sizes(backend, eager, images)
        assert counters["stats"]["unique_graphs"] == 3 * 3
    else:
        features, logits_BC = backend.run(0, backend.start(images[:5]))
        assert features.dtype == torch.bfloat16
        assert logits_BC == pytest.approx(eager.run(0, eager.start(images[:5]))[1], abs=0.05)


@pytest.fixture
def network_with_experts() -> StagedNetwork:
    """One shared stage and three experts behind it."""
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
    groups = [nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3)]
    classifiers = [final_head(8, 5, kind="linear") for _ in range(3)]
    return ExpertNetwork([shared], [final_head(4, 5, kind="linear")], groups, classifiers, classes=5).eval()


@pytest.mark.parametrize(
    ("which", "exits"), [("network", 2), pytest.param("network_with_experts", 3, marks=pytest.mark.slow)]
)
def test_engine_equals_replay(
    which: str,
    exits: int,
    images: NDArray[np.float32],
    make_table: Callable[[StagedNetwork, NDArray[np.float32]], ExitTable],
    make_family: Callable[[ExitTable], Family],
    request: pytest.FixtureRequest,
) -> None:
    network: StagedNetwork = request.getfixturevalue(which)
    table = make_table(network, images)
    family = make_family(table)
    engine = Engine(CompiledTorchBackend(network, compiler="eager"), family)
    for batch, point in product((1, 7, 64), family.points):
        expected = replay(table, point.policy)
        for first in range(0, len(images), batch):
            with torch._dynamo.config.patch(error_on_recompile=True):
                answers = engine(images[first : first + batch], operating_point=point.name)
            part = slice(first, first + batch)
            assert answers.exit_N.tolist() == expected.exit_N[part].tolist()
            assert answers.prediction_N.tolist() == expected.prediction_N[part].tolist()
    assert len(np.unique(expected.exit_N)) >= exits
