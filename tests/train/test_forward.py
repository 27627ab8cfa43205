"""`mask` and `drop` agree in loss and gradient; `drop` really does not run what it need not."""

# Shapes: E exits, B batch, C classes, P pool of images to choose from

from collections.abc import Callable, Sequence
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from elfnet.exits.training_rule import TrainingRule, exit_taken
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.elf import ELFLoss
from elfnet.losses.weighting import weighted_batch_mean
from elfnet.models.build import build_network
from elfnet.models.staged import StagedNetwork
from elfnet.train.forward import ExitingForward

CLASSES = 4
RULE = TrainingRule(threshold=0.3)
LEAVING = {
    "nobody leaves early": [2, 2, 2, 2],
    "some leave at each exit": [0, 2, 1, 0, 1, 2, 2],
    "all leave at the first": [0, 0, 0],
    "exactly one stays": [0, 0, 2, 0],
    "exactly one stays once": [0, 1, 0],
    "all leave at the second": [1, 1],
    "all are gone after the second": [1, 0, 1, 0],
    "one that leaves at the first": [0],
    "one that leaves at the second": [1],
    "one that stays to the last": [2],
}


def _head(channels: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


@pytest.fixture
def network() -> StagedNetwork:
    """Three exits, no batch norm, float64, and heads that disagree."""
    torch.manual_seed(0)
    stages: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh()),
        nn.Sequential(nn.Conv2d(4, 5, 3, stride=2, padding=1), nn.Tanh()),
        nn.Sequential(nn.Conv2d(5, 6, 3, padding=1), nn.Tanh()),
    ]
    network = StagedNetwork(stages, [_head(4), _head(5), _head(6)], classes=CLASSES).double()
    with torch.no_grad():
        for head in network.heads:
            head.get_parameter("2.weight").mul_(8)
    return network


def _batch_leaving_at(exits: Sequence[int], network: StagedNetwork) -> tuple[Tensor, Tensor]:
    """Images and labels chosen from a pool so that example i leaves at `exits[i]`."""
    pool = torch.randn(400, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits_EPC = network.logits(pool)
    leaves_at: dict[int, list[tuple[int, int]]] = {k: [] for k in range(network.exits)}
    for label in range(CLASSES):
        exit_P = exit_taken(RULE.visited(logits_EPC, torch.full((400,), label)))
        for position, k in enumerate(exit_P.tolist()):
            leaves_at[k].append((position, label))
    chosen = [leaves_at[k].pop(0) for k in exits]
    return pool[[position for position, _ in chosen]], torch.tensor([label for _, label in chosen])


def _loss_and_gradients(
    network: StagedNetwork, images: Tensor, target_B: Tensor, left: Literal["mask", "drop"]
) -> tuple[Tensor, Tensor, dict[str, Tensor | None]]:
    network.zero_grad(set_to_none=True)
    logits_EBC, visited_EB = ExitingForward(network, RULE, after_exit=left)(images, target_B)
    weight_B = torch.linspace(0.5, 2.0, len(images), dtype=torch.float64)
    loss_EB = ELFLoss(CrossEntropyLoss()).at_exits(logits_EBC, target_B, visited_EB)
    loss = weighted_batch_mean(loss_EB.sum(dim=0), weight_B)
    torch.autograd.backward(loss)
    return loss.detach(), visited_EB, {name: parameter.grad for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("exits", LEAVING.values(), ids=LEAVING.keys())
def test_mask_and_drop_agree_in_loss_and_every_gradient(exits: list[int], network: StagedNetwork) -> None:
    images, target_B = _batch_leaving_at(exits, network)
    mask_loss, mask_visited_EB, mask_gradients = _loss_and_gradients(network, images, target_B, "mask")
    drop_loss, drop_visited_EB, drop_gradients = _loss_and_gradients(network, images, target_B, "drop")
    assert exit_taken(mask_visited_EB).tolist() == exits
    assert torch.equal(mask_visited_EB, drop_visited_EB)
    assert float(mask_loss) == pytest.approx(float(drop_loss), abs=1e-12)
    for name, gradient in mask_gradients.items():
        other = drop_gradients[name]
        assert gradient is not None
        assert other is not None, f"{name} has no gradient in drop"
        assert torch.allclose(gradient, other, atol=1e-12, rtol=0), name


@pytest.mark.parametrize("exits", LEAVING.values(), ids=LEAVING.keys())
def test_drop_runs_later_stages_on_those_that_stay_only(exits: list[int], network: StagedNetwork) -> None:
    images, target_B = _batch_leaving_at(exits, network)
    rows: dict[str, int] = {}
    for kind, modules in (("stage", network.stages), ("head", network.heads)):
        for k, module in enumerate(modules):
            key = f"{kind} {k}"
            module.register_forward_pre_hook(lambda _m, inputs, key=key: rows.__setitem__(key, len(inputs[0])))
    ExitingForward(network, RULE, after_exit="drop")(images, target_B)
    here = [sum(exit >= k for exit in exits) for k in range(3)]
    expected = {f"{kind} {k}": n for k, n in enumerate(here) if n for kind in ("stage", "head")}
    assert rows == expected


def test_logits_are_those_of_the_whole_batch_where_visited_and_zero_elsewhere(network: StagedNetwork) -> None:
    images, target_B = _batch_leaving_at([0, 2, 1, 0, 1, 2, 2], network)
    mask_EBC, visited_EB = ExitingForward(network, RULE, after_exit="mask")(images, target_B)
    drop_EBC, _ = ExitingForward(network, RULE, after_exit="drop")(images, target_B)
    assert torch.equal(mask_EBC, network.logits(images))
    assert torch.allclose(drop_EBC, torch.where(visited_EB[..., None], mask_EBC, 0.0), atol=1e-12)


def test_parameters_nobody_reached_get_a_gradient_of_zero(network: StagedNetwork) -> None:
    images, target_B = _batch_leaving_at([0, 0], network)
    _, _, gradients = _loss_and_gradients(network, images, target_B, "drop")
    for name, gradient in gradients.items():
        assert gradient is not None
        assert bool(gradient.any()) is name.startswith(("stages.0", "heads.0")), name


@pytest.mark.parametrize("left", ["mask", "drop"])
def test_without_a_rule_everybody_visits_everything(left: Literal["mask", "drop"], network: StagedNetwork) -> None:
    images, target_B = _batch_leaving_at([0, 1, 2], network)
    logits_EBC, visited_EB = ExitingForward(network, None, after_exit=left)(images, target_B)
    assert torch.equal(logits_EBC, network.logits(images))
    assert visited_EB.shape == (3, 3)
    assert visited_EB.dtype == torch.bool
    assert visited_EB.all()


class FirstStays(TrainingRule):
    """All but the first of those here leave at every exit."""

    def leaves(self, logits_BC: Tensor, target_B: Tensor) -> Tensor:  # noqa: ARG002
        return torch.arange(len(target_B)) > 0


@pytest.mark.parametrize("left", ["mask", "drop"])
def test_one_staying_on_a_map_of_one_pixel_trains_with_batch_norm(left: Literal["mask", "drop"]) -> None:
    torch.manual_seed(0)
    network = build_network("resnet8", classes=CLASSES).train()
    images, target_B = torch.randn(5, 3, 4, 4), torch.arange(5) % CLASSES
    rule = FirstStays(threshold=0.5) if left == "drop" else RULE
    logits_EBC, visited_EB = ExitingForward(network, rule, after_exit=left)(images, target_B)
    if left == "drop":
        assert exit_taken(visited_EB).tolist() == [3, 0, 0, 0, 0]
    torch.autograd.backward(ELFLoss(CrossEntropyLoss()).at_exits(logits_EBC, target_B, visited_EB).sum(dim=0).mean())
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_drop_keeps_the_memory_layout(layout: torch.memory_format, network: StagedNetwork) -> None:
    images, target_B = _batch_leaving_at([0, 2, 1, 2, 2], network)
    seen: list[bool] = []

    def look(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        seen.append(inputs[0].is_contiguous(memory_format=layout))

    for stage in network.stages:
        stage.register_forward_pre_hook(look)
    ExitingForward(network, RULE, after_exit="drop")(images.contiguous(memory_format=layout), target_B)
    assert seen == [True, True, True]


class Compiled:
    """Stands for torch.compile, which takes too long here: remembers what it was asked to compile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[nn.Module, dict[str, bool]]] = []
        monkeypatch.setattr(nn.Module, "compile", lambda module, **how: self.asked.append((module, how)))


def test_mask_compiles_the_network_for_full_batches(network: StagedNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled(monkeypatch)
    forward = ExitingForward(network, RULE, after_exit="mask")
    forward.compile_for(4)
    assert compiled.asked == [(network, {"dynamic": False})]
    # Only a call goes through what was compiled, and only a call runs hooks.
    calls: list[int] = []
    network.register_forward_pre_hook(lambda _module, inputs: calls.append(len(inputs[0])))
    for size in (4, 3):
        images, target_B = _batch_leaving_at([2, 1, 0, 2][:size], network)
        calls.clear()
        logits_EBC, _ = forward(images, target_B)
        assert calls == ([4] if size == 4 else [])
        assert torch.equal(logits_EBC, network.logits(images))


def test_drop_compiles_full_and_partial_batches_apart_and_not_a_single_example(
    network: StagedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, list[int]] = {}

    def stand_in(run: Callable[..., Tensor], **how: bool) -> Callable[..., Tensor]:
        name = "full" if how.get("dynamic") is False else "part"
        sizes[name] = []

        def compiled(module: nn.Module, features: Tensor) -> Tensor:
            sizes[name].append(len(features))
            return run(module, features)

        return compiled

    monkeypatch.setattr(torch, "compile", stand_in)
    forward = ExitingForward(network, RULE, after_exit="drop")
    forward.compile_for(4)
    images, target_B = _batch_leaving_at([0, 1, 1, 2], network)
    forward(images, target_B)
    # Stage and head of each exit: all four, then the three that stayed, then a single one without a graph.
    assert sizes == {"full": [4, 4], "part": [3, 3]}
