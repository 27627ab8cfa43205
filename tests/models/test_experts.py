"""Experts as late exits: outputs, losses and gradients against naive loops; networks without experts do not change."""

# Shapes: E exits, B batch, C classes

import copy
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.evaluate.run import answers_at_full_depth, logits_of
from elfnet.exits.training_rule import TrainingRule, exit_taken
from elfnet.losses.base import Labels
from elfnet.losses.cross_entropy import CrossEntropyLoss
from elfnet.losses.elf import ELFLoss
from elfnet.models.build import build_network
from elfnet.models.experts import ExpertNetwork, own_logits
from elfnet.models.flops import NetworkCost, count_cost
from elfnet.models.staged import StagedNetwork, freeze_backbone, training_mode
from elfnet.models.weights import export_backbone, load_backbone_weights
from elfnet.train.forward import ExitingForward

CLASSES = 4
WEIGHTS_C = torch.ones(CLASSES, dtype=torch.float64)


@pytest.fixture
def network() -> StagedNetwork:
    """ResNet-8 with three experts in evaluation mode, float64, whose classifiers disagree."""
    torch.manual_seed(0)
    network = build_network("resnet8", classes=CLASSES, experts=3, head_filters=8).double().eval()
    with torch.no_grad():
        for head in network.heads:
            head.get_parameter("classifier.weight").mul_(2)
    return network


@pytest.fixture
def images() -> Tensor:
    return torch.randn(24, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


TARGET_B = torch.arange(24) % CLASSES


def _literal_logits(network: StagedNetwork, images: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The own logits of every classifier and the outputs of the exits, by definition."""
    features, own, answers = images, [], []
    for k in range(3):
        features = network.stages[k](features)
        own.append(network.heads[k](features))
        answers.append(own[-1])
    of_experts = [network.heads[k](network.stages[k](features)) for k in range(3, 6)]
    for number in range(1, 4):
        answers.append(torch.stack(of_experts[:number]).mean(dim=0))
    return own + of_experts, answers


def test_answers_of_experts_are_means_of_the_experts_so_far(network: StagedNetwork, images: Tensor) -> None:
    assert network.exits == 6
    assert network.experts == 3
    own, answers = _literal_logits(network, images)
    answers_EBC = network.logits(images)
    torch.testing.assert_close(answers_EBC, torch.stack(answers), rtol=0, atol=1e-12)
    torch.testing.assert_close(own_logits(answers_EBC, 3), torch.stack(own), rtol=0, atol=1e-12)
    assert not torch.allclose(answers_EBC[4], own[4], atol=0.1)


def test_own_logits_are_precise_in_float32() -> None:
    own_EBC = torch.randn(8, 50, CLASSES, generator=torch.Generator().manual_seed(0)) * 10
    mean_EBC = own_EBC.cumsum(dim=0) / torch.arange(1, 9)[:, None, None]
    torch.testing.assert_close(own_logits(mean_EBC, 8), own_EBC, rtol=1e-5, atol=3e-5)


def test_without_experts_own_logits_are_the_answers() -> None:
    answers_EBC = torch.randn(3, 2, CLASSES)
    assert own_logits(answers_EBC, 1) is answers_EBC


def _gradients(network: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def _step(network: StagedNetwork, images: Tensor, rule: TrainingRule, after_exit: Literal["mask", "drop"]) -> Tensor:
    """Gradients of the ELF loss; the exit that each example took."""
    network.zero_grad(set_to_none=True)
    answers_EBC, visited_EB = ExitingForward(network, rule, after_exit=after_exit)(images, TARGET_B)
    loss = ELFLoss(CrossEntropyLoss(), exits=network.exits, experts=network.experts)
    torch.autograd.backward(loss.at_exits(answers_EBC, Labels(TARGET_B), visited_EB, WEIGHTS_C).sum())
    return exit_taken(visited_EB)


@pytest.mark.parametrize("after_exit", ["mask", "drop"])
@pytest.mark.parametrize("threshold", [0.2, 0.45, 1.0])
def test_a_step_is_that_of_a_literal_loop(
    network: StagedNetwork, images: Tensor, threshold: float, after_exit: Literal["mask", "drop"]
) -> None:
    taken_B = _step(network, images, TrainingRule(threshold=threshold), after_exit)
    found = _gradients(network)
    network.zero_grad(set_to_none=True)
    own, answers = _literal_logits(network, images)
    loss, exits = torch.zeros((), dtype=torch.float64), []
    for b, label in enumerate(TARGET_B.tolist()):
        for k in range(6):
            # Each classifier learns from its own logits ...
            loss = loss - own[k][b].log_softmax(dim=0)[label]
            # ... and the output of the exit decides where an example stops.
            probability = answers[k][b].detach().softmax(dim=0)
            if k == 5 or (int(probability.argmax()) == label and float(probability[label]) > threshold):
                exits.append(k)
                break
    torch.autograd.backward(loss)
    assert taken_B.tolist() == exits
    assert len(set(exits)) >= {0.2: 4, 0.45: 4, 1.0: 1}[threshold]
    expected = _gradients(network)
    assert found.keys() == expected.keys() == {name for name, _ in network.named_parameters()}
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("after_exit", ["mask", "drop"])
def test_the_mean_decides_where_an_example_stops_and_not_the_expert_alone(after_exit: Literal["mask", "drop"]) -> None:
    """Expert 2 alone is correct and confident, the mean of experts 1 and 2 is wrong, that of all three is correct."""
    experts = [_Constant(logits) for logits in ([0.0, 10.0], [5.0, 0.0], [30.0, 0.0], [0.0, 0.0])]
    groups = [nn.Identity() for _ in experts]
    network = ExpertNetwork([nn.Flatten()], [_Constant([0.0, 0.0])], groups, experts, classes=2)
    forward = ExitingForward(network, TrainingRule(threshold=0.9), after_exit=after_exit)
    _, visited_EB = forward(torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
    assert exit_taken(visited_EB).tolist() == [3]


class _Constant(nn.Module):
    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, features: Tensor) -> Tensor:
        return self.logits.expand(len(features), -1)


def test_experts_start_with_weights_of_their_own() -> None:
    torch.manual_seed(0)
    network = build_network("resnet8", classes=CLASSES, experts=3)
    for one, other in ((3, 4), (3, 5), (4, 5)):
        for module in (network.stages, network.heads):
            for name, weight in module[one].named_parameters():
                if weight.dim() > 1:
                    assert not torch.equal(weight, module[other].get_parameter(name)), name


def test_the_state_has_every_weight_once(network: StagedNetwork) -> None:
    names = list(network.state_dict())
    assert len(names) == len(set(names))
    assert {name.split(".")[0] for name in names} == {"stages", "heads"}
    plain = build_network("resnet8", classes=CLASSES, head_filters=8)
    assert {name for name in names if name.split(".")[1] in "0123"} == set(plain.state_dict())


def test_one_expert_is_the_network_as_it_was() -> None:
    torch.manual_seed(3)
    without = build_network("resnet8", classes=CLASSES)
    torch.manual_seed(3)
    network = build_network("resnet8", classes=CLASSES, experts=1)
    one, other = without.state_dict(), network.state_dict()
    assert type(network) is StagedNetwork
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_copy_is_independent_and_follows_its_own_weights(network: StagedNetwork, images: Tensor) -> None:
    before = network.logits(images)
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.heads[4].get_parameter("classifier.bias").add_(10 * torch.arange(CLASSES))
    assert torch.equal(network.logits(images), before)
    changed = other.logits(images)
    assert torch.equal(changed[:4], before[:4])
    assert not torch.allclose(changed[4], before[4])
    assert not torch.allclose(changed[5], before[5])


def test_plain_costs_one_expert() -> None:
    plain = count_cost(build_network("resnet32", classes=100, exits=False), (3, 32, 32)).plain
    cost = count_cost(build_network("resnet32", classes=100, experts=3, head_filters=48), (3, 32, 32))
    without = count_cost(build_network("resnet32", classes=100, head_filters=48), (3, 32, 32))
    assert cost.plain == without.plain == plain
    assert cost.to_exit[:4] == without.to_exit
    # An expert is the last group and its classifier: one third of the backbone.
    expert = without.stages[3] + without.heads[3]
    assert [after - before for before, after in zip(cost.to_exit[3:], cost.to_exit[4:], strict=False)] == [expert] * 2
    assert cost.relative[-1] == pytest.approx(1.759, abs=1e-3)
    assert NetworkCost(stages=(10, 20, 40, 40), heads=(3, 5, 0, 0), experts=2).plain == 70


def test_full_depth_is_the_mean_of_all_experts(network: StagedNetwork, images: Tensor) -> None:
    network, images = network.float(), images.float()
    answers_N = answers_at_full_depth(network, [images])
    assert answers_N.tolist() == logits_of(network, [images])[:, -1].argmax(axis=1).tolist()


def test_frozen_parts_stay_in_evaluation_mode(network: StagedNetwork) -> None:
    freeze_backbone(network)
    training_mode(network)
    assert not any(module.training for stage in network.stages for module in stage.modules())
    assert all(p.requires_grad for p in network.heads.parameters())
    before = {name: value.clone() for name, value in network.state_dict().items() if "running" in name}
    network(torch.randn(4, 3, 16, 16, dtype=torch.float64))
    for name, value in before.items():
        assert torch.equal(network.state_dict()[name], value) is name.startswith("stages."), name


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet10", "resnext50_32x4d", "densenet121"])
def test_imagenet_networks(backbone: str) -> None:
    with torch.device("meta"):
        network = build_network(backbone, classes=1000, experts=2)
        plain = build_network(backbone, classes=1000)
    assert network.exits == plain.exits + 1
    cost, of_plain = count_cost(network, (3, 224, 224)), count_cost(plain, (3, 224, 224))
    assert cost.plain == of_plain.plain
    assert cost.to_exit[:-1] == of_plain.to_exit


@pytest.mark.parametrize("backbone", ["msdnet", "mlp"])
def test_backbones_without_a_last_group_are_refused(backbone: str) -> None:
    with pytest.raises(
        RequestError,
        match=rf"model\.experts=3 copies .* model\.backbone={backbone} has no such group; set model\.experts=1",
    ):
        build_network(backbone, classes=CLASSES, experts=3)


@pytest.mark.parametrize("branches", [1, 2])
def test_experts_are_exits(branches: int) -> None:
    with pytest.raises(RequestError, match=r"model\.experts=2 needs exits: set model\.exits=true"):
        build_network("resnet8", classes=CLASSES, experts=2, exits=False, branches=branches)


@pytest.mark.parametrize("backbone", ["resnet8", "resnet10"])
def test_published_names_have_one_last_group(backbone: str) -> None:
    network = build_network(backbone, classes=CLASSES, experts=2)
    with pytest.raises(RequestError, match=r"has several copies of its last block group.*model\.experts=1"):
        export_backbone(network)
    with pytest.raises(RequestError, match=r"has several copies of its last block group.*model\.experts=1"):
        load_backbone_weights(network, "some.safetensors")


def test_too_few_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two experts"):
        ExpertNetwork([nn.Flatten()], [nn.Identity()], [nn.Identity()], [nn.Identity()], classes=2)


@pytest.mark.slow
@pytest.mark.parametrize("after_exit", ["mask", "drop"])
def test_a_compiled_step_is_the_same_step(
    network: StagedNetwork, images: Tensor, after_exit: Literal["mask", "drop"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a backend that only traces; generating code would take minutes."""
    rule = TrainingRule(threshold=0.45)
    taken_B = _step(network, images, rule, after_exit)
    assert len(set(taken_B.tolist())) >= 4
    expected = _gradients(network)
    compile_in_full = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda run, **how: compile_in_full(run, **how | {"backend": "aot_eager", "fullgraph": True})
    )
    compiled = ExitingForward(network, rule, after_exit=after_exit, equilibrium=False)
    compiled.compile_for(len(images))
    network.zero_grad(set_to_none=True)
    answers_EBC, visited_EB = compiled(images, TARGET_B)
    loss = ELFLoss(CrossEntropyLoss(), exits=network.exits, experts=network.experts)
    torch.autograd.backward(loss.at_exits(answers_EBC, Labels(TARGET_B), visited_EB, WEIGHTS_C).sum())
    assert torch.equal(exit_taken(visited_EB), taken_B)
    found = _gradients(network)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11, msg=name)
