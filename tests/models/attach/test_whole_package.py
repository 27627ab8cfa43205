"""All other parts of the package work on networks with attached exits."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elfnet.calibrate.line_search import fixed_points
from elfnet.errors import WorkError
from elfnet.evaluate.exit_table import ExitTable
from elfnet.evaluate.policy_replay import compute_confidences, replay
from elfnet.exits.training_rule import TrainingRule
from elfnet.export.onnx import export_stages
from elfnet.inference.backends.torch import TorchBackend
from elfnet.inference.engine import Engine
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.elf import ELFLoss
from elfnet.models.attach.attach import attach_exits
from elfnet.models.attach.cuts import legal_cuts
from elfnet.models.flops import count_cost
from elfnet.models.staged import StagedNetwork
from elfnet.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint, signature_of
from elfnet.train.forward import ExitingForward

IMAGE = (3, 16, 16)
Build = Callable[[str], nn.Module]


class Attached(Protocol):
    """What the fixture of that name gives."""

    original: nn.Module
    network: StagedNetwork


@pytest.mark.parametrize("left", ["mask", "drop"])
def test_training_lowers_the_loss(attached: Attached, images: Tensor, left: Literal["mask", "drop"]) -> None:
    torch.manual_seed(0)
    network = copy.deepcopy(attached.network).train()
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    forward = ExitingForward(network, TrainingRule(threshold=0.3), after_exit=left)
    target_B = torch.arange(5)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.02)
    losses, gone = [], 0
    for _ in range(12):
        logits_EBC, visited_EB = forward(images, target_B)
        loss = ELFLoss(CrossEntropyLoss()).at_exits(logits_EBC, target_B, visited_EB).sum(dim=0).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None for p in network.parameters())
        optimiser.step()
        losses.append(loss.item())
        gone += int((~visited_EB).sum())
    assert losses[-1] < 0.9 * losses[0]
    assert gone > 0, "no example stopped early, so drop was not tested"


def test_cost_is_the_originals_and_agrees_with_the_cuts(build_model: Build, images: Tensor) -> None:
    model = build_model("torchvision-like")
    by_name = {cut.name: cut for cut in legal_cuts(model, images)}
    network = attach_exits(model, ["layer1", "layer2"], example=images)
    whole = count_cost(StagedNetwork([nn.Identity()], [model], classes=5), IMAGE)
    cost = count_cost(network, IMAGE)
    assert cost.plain == whole.plain
    assert cost.stages[0] / cost.plain == pytest.approx(by_name["layer1"].share)
    assert sum(cost.stages[:2]) / cost.plain == pytest.approx(by_name["layer2"].share)


def test_engine_equals_replay(
    make_table: Callable[[StagedNetwork, NDArray[np.float32]], ExitTable], attached: Attached
) -> None:
    network = copy.deepcopy(attached.network)
    pixels = np.random.default_rng(0).normal(size=(20, *IMAGE)).astype(np.float32)
    table = make_table(network, pixels)
    # In a wide gap between confidences at the first exit: some examples stop there, and rounding does not change which.
    observed = np.sort(compute_confidences(table).confidence_NE[:, 0])
    middle = 5 + int(np.argmax(np.diff(observed)[5:15]))
    family = fixed_points(table, [float((observed[middle] + observed[middle + 1]) / 2)])
    point = family.points[-1]
    expected = replay(table, point.policy)
    answers = Engine(TorchBackend(network), family)(pixels, operating_point=point.name)
    assert answers.exit_N.tolist() == expected.exit_N.tolist()
    assert answers.prediction_N.tolist() == expected.prediction_N.tolist()
    assert len(set(answers.exit_N.tolist())) > 1


KINDS = ["timm-like", "transformers-resnet", "transformers-convnext", "transformers-vit", "transformers-swin"]


# The exporter takes seconds per network, whatever its size.
@pytest.fixture(scope="session", params=[pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS])
def exported(request: pytest.FixtureRequest, build_model: Build) -> tuple[StagedNetwork, list[bytes]]:
    """A network and the graphs of its stages; torch's exporter starts a thread that stays, so it runs here."""
    model = build_model(request.param)
    if request.param == "transformers-swin":
        # torch cannot export this model's masked attention with a free batch size, exits or not.
        model.set_attn_implementation("eager")  # type: ignore[operator]
    network = attach_exits(model, example=torch.randn(2, *IMAGE)).eval()
    return network, export_stages(network, IMAGE)


@pytest.mark.parametrize("batch", [1, 5])
def test_exported_stages_give_the_same(exported: tuple[StagedNetwork, list[bytes]], images: Tensor, batch: int) -> None:
    network, graphs = exported
    features: Any = images[:batch].numpy()
    with torch.no_grad():
        expected_E = network(images[:batch]).numpy()
    for graph, expected in zip(graphs, expected_E, strict=True):
        session = onnxruntime.InferenceSession(graph)
        names = [output.name for output in session.get_outputs()]
        results = dict(zip(names, session.run(None, {"features": features}), strict=True))
        np.testing.assert_allclose(results["logits"], expected, rtol=1e-3, atol=1e-4)
        features = results.get("next_features")


def test_a_checkpoint_fits_this_network_only(build_model: Build, images: Tensor, tmp_path: Path) -> None:
    file = tmp_path / "last.safetensors"
    network = attach_exits(build_model("dense-like"), ["transition"], example=images)
    save_checkpoint(Checkpoint(signature_of(network, IMAGE), 1, network.state_dict()), file)
    again = attach_exits(build_model("dense-like"), ["transition"], example=images)
    again.load_state_dict(dict(load_checkpoint(file, network=signature_of(again, IMAGE)).weights))
    assert torch.equal(again.eval()(images), network.eval()(images))
    # The same weights, cut elsewhere: the shapes of the features differ.
    other = attach_exits(build_model("dense-like"), [":avg_pool2d"], example=images)
    with pytest.raises(WorkError, match="is for another network"):
        load_checkpoint(file, network=signature_of(other, IMAGE))


@pytest.mark.slow
def test_compiled_training_step(build_model: Build, images: Tensor) -> None:
    torch.manual_seed(0)
    network = attach_exits(build_model("timm-like"), example=images).train()
    target_B = torch.arange(5)
    expected, _ = ExitingForward(network, TrainingRule(threshold=0.3), after_exit="drop")(images, target_B)
    compiled = ExitingForward(network, TrainingRule(threshold=0.3), after_exit="drop")
    compiled.compile_for(5)
    logits_EBC, _ = compiled(images, target_B)
    torch.testing.assert_close(logits_EBC, expected, rtol=1e-3, atol=1e-4)
    logits_EBC.sum().backward()
