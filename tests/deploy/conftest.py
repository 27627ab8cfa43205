"""Networks, their graphs and exit tables for the tests of backends; exporting takes seconds, so it is done once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from elfnet.calibrate.family import Family
from elfnet.calibrate.fixed_points import fixed_points
from elfnet.calibrate.line_search import measured_point
from elfnet.deploy.onnx_export import export_stages
from elfnet.evaluate.derived import derive
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.run_network import logits_of
from elfnet.models.build import build_network
from elfnet.models.cost import count_cost
from elfnet.models.staged import StagedNetwork

CLASSES = 5
IMAGE_SHAPE = (3, 16, 16)
EXAMPLES = 1024


def _table_of(network: StagedNetwork, images: NDArray[np.float32]) -> ExitTable:
    cost = count_cost(network, (images.shape[1], images.shape[2], images.shape[3]))
    return ExitTable(
        logits_NEC=logits_of(network, torch.from_numpy(images).split(50)),  # type: ignore[no-untyped-call]
        labels_N=np.arange(len(images), dtype=np.int64) % CLASSES,
        cost_E=np.array(cost.relative),
        head_cost_E=np.array(cost.heads) / cost.plain,
        plain_multiply_adds=cost.plain,
        class_counts_C=np.array([50, 40, 30, 20, 10]),
        class_names=tuple("abcde"),
        split="calibration",
        checkpoint_sha256="0" * 64,
        confidence_scale=1.0,
        many_above=35,
        few_below=15,
        experts=network.experts,
    )


def _family_of(table: ExitTable) -> Family:
    """Full depth, and thresholds at which some leave early and some do not, in wide gaps between two confidences."""
    derived = derive(table)
    observed = np.sort(derived.confidence_NE[:, :-1], axis=None)
    family = fixed_points(table, [_in_a_gap(observed, share) for share in (0.33, 0.75)])
    # Of those who could leave at an exit, whoever comes there, about a third does.
    of_each = [_in_a_gap(np.sort(derived.confidence_NE[:, k]), 0.67) for k in range(table.exits - 1)]
    each = measured_point(derived, derived.policy("a third at each exit", tuple(of_each)), rule="fixed")
    return replace(family, points=(*family.points, each))


def _in_a_gap(observed: NDArray[np.float64], share: float) -> float:
    around = observed[int((share - 0.02) * len(observed)) : int((share + 0.02) * len(observed))]
    widest = int(np.argmax(np.diff(around)))
    return float(around[widest : widest + 2].mean())


@pytest.fixture(scope="session")
def make_table() -> Callable[[StagedNetwork, NDArray[np.float32]], ExitTable]:
    """The exit table of float32 logits that torch computes."""
    return _table_of


@pytest.fixture(scope="session")
def make_family() -> Callable[[ExitTable], Family]:
    return _family_of


def _as_if_trained(network: StagedNetwork) -> StagedNetwork:
    """Statistics and shifts of batch norm as after training, and heads that are more or less sure."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.normal_(0.0, 0.2, generator=generator)
                module.running_var.uniform_(0.5, 2.0, generator=generator)
                module.weight.uniform_(0.5, 1.5, generator=generator)
                module.bias.normal_(0.0, 0.3, generator=generator)
        for head in network.heads:
            # Experts are as sure as one classifier only if they are not all too sure.
            head.classifier.weight *= 3 if network.experts == 1 else 1  # type: ignore[union-attr,operator]
    return network


@pytest.fixture(scope="session", params=["random", "as if trained", "with experts"])
def exported_network(request: pytest.FixtureRequest) -> StagedNetwork:
    torch.manual_seed(0)
    experts = 3 if request.param == "with experts" else 1
    network = build_network("resnet8", classes=CLASSES, head_filters=8, experts=experts)
    return (network if request.param == "random" else _as_if_trained(network)).eval()


@pytest.fixture(scope="session")
def exported_graphs(exported_network: StagedNetwork) -> list[bytes]:
    return export_stages(exported_network, IMAGE_SHAPE)


@pytest.fixture(scope="session")
def exported_images() -> NDArray[np.float32]:
    """Some are faint and some are strong, so that they are not all equally easy."""
    strength = np.random.default_rng(1).uniform(0.1, 2.0, size=(EXAMPLES, 1, 1, 1))
    return (np.random.default_rng(0).normal(size=(EXAMPLES, *IMAGE_SHAPE)) * strength).astype(np.float32)


@pytest.fixture(scope="session")
def exported_table(exported_network: StagedNetwork, exported_images: NDArray[np.float32]) -> ExitTable:
    return _table_of(exported_network, exported_images)


@pytest.fixture(scope="session")
def exported_family(exported_table: ExitTable) -> Family:
    return _family_of(exported_table)
