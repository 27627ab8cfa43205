"""Gradient equilibrium: gradients against a computation by hand; the forward pass and one exit are unchanged."""

# Shapes: E exits, B batch, C classes

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elfnet.exits.training_rule import TrainingRule, exit_taken
from elfnet.models.build import build_network
from elfnet.models.experts import ExpertNetwork, own_logits
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.load import load_recipe
from elfnet.train.forward import ExitingForward, GradientEquilibrium, forward_and_mixing, scale_gradient


class Times(nn.Module):
    """Multiplication by one number, of a tensor or of every tensor of a tuple."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor, dtype=torch.float64))

    def forward(self, features: Any) -> Any:
        if isinstance(features, tuple):
            return tuple(self.factor * tensor for tensor in features)
        return self.factor * features


class InTwoParts(Times):
    """The first stage of a network whose stages pass on two tensors."""

    def forward(self, features: Tensor) -> Any:
        return super().forward((features, 10 * features))


class Sum(Times):
    """A head that reads both."""

    def forward(self, features: Any) -> Any:
        return super().forward(sum(features))


class NobodyLeaves(TrainingRule):
    def leaves(self, logits_BC: Tensor, target_B: Tensor) -> Tensor:  # noqa: ARG002
        return torch.zeros(len(logits_BC), dtype=torch.bool)


class OddOnesLeave(TrainingRule):
    """At every exit every second of those still here leaves."""

    def leaves(self, logits_BC: Tensor, target_B: Tensor) -> Tensor:  # noqa: ARG002
        return (torch.arange(logits_BC.shape[-2]) % 2 == 1).expand(logits_BC.shape[:-1])


STAGES, HEADS = (2.0, 3.0, 5.0), (7.0, 11.0, 13.0)
FEATURES = (2.0, 6.0, 30.0)
"""Of an input of 1 behind each stage."""
# From the last exit backwards: what arrives at the features of each stage, for a loss that is the sum of the logits.
INTO_3 = 13.0
INTO_2 = 11 / 2 + (INTO_3 * 5) / 2
INTO_1 = 7 / 3 + (INTO_2 * 3) * 2 / 3


def _gradients(network: StagedNetwork) -> dict[str, float]:
    return {name: float(p.grad) for name, p in network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("after_exit", ["mask", "drop"])
def test_gradients_are_those_computed_by_hand(after_exit: Literal["mask", "drop"]) -> None:
    network = StagedNetwork([Times(w) for w in STAGES], [Times(w) for w in HEADS], classes=1)
    forward = ExitingForward(network, NobodyLeaves(threshold=0.5), after_exit=after_exit, equilibrium=True)
    logits_EBC, _ = forward(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.long))
    assert logits_EBC.flatten().tolist() == [f * w for f, w in zip(FEATURES, HEADS, strict=True)]
    logits_EBC.sum().backward()
    expected = {
        "stages.0.factor": INTO_1 * 1,
        "stages.1.factor": INTO_2 * FEATURES[0],
        "stages.2.factor": INTO_3 * FEATURES[1],
        # Heads get their full gradient: the features they read.
        "heads.0.factor": FEATURES[0],
        "heads.1.factor": FEATURES[1],
        "heads.2.factor": FEATURES[2],
    }
    assert _gradients(network) == pytest.approx(expected, rel=1e-12)


def test_every_tensor_that_a_stage_passes_on_is_scaled() -> None:
    first, *others = STAGES
    network = StagedNetwork([InTwoParts(first), *map(Times, others)], [Sum(w) for w in HEADS], classes=1)
    forward = ExitingForward(network, None, equilibrium=True)
    logits_EBC, _ = forward(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.long))
    logits_EBC.sum().backward()
    # The parts are 1 and 10 times what the network above has.
    assert _gradients(network)["stages.0.factor"] == pytest.approx(11 * INTO_1, rel=1e-12)
    assert _gradients(network)["stages.1.factor"] == pytest.approx(11 * INTO_2 * FEATURES[0], rel=1e-12)


@pytest.mark.parametrize("after_exit", ["mask", "drop"])
def test_experts_weigh_as_much_as_other_exits_and_get_their_full_gradient(after_exit: Literal["mask", "drop"]) -> None:
    groups, classifiers = (5.0, 6.0, 7.0), (13.0, 17.0, 19.0)
    network = ExpertNetwork(
        [Times(w) for w in STAGES[:2]],
        [Times(w) for w in HEADS[:2]],
        [Times(w) for w in groups],
        [Times(w) for w in classifiers],
        classes=1,
    )
    forward = ExitingForward(network, NobodyLeaves(threshold=0.5), after_exit=after_exit, equilibrium=True)
    answers_EBC, _ = forward(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.long))
    torch.autograd.backward(own_logits(answers_EBC, experts=3).sum())
    # Behind stage 2 are four exits: its own head and three experts. Behind stage 1 there is one more.
    into_2 = (HEADS[1] + sum(g * c for g, c in zip(groups, classifiers, strict=True))) / 4
    into_1 = HEADS[0] / 5 + (into_2 * STAGES[1]) * 4 / 5
    expected = {
        "stages.0.factor": into_1,
        "stages.1.factor": into_2 * FEATURES[0],
        "heads.0.factor": FEATURES[0],
        "heads.1.factor": FEATURES[1],
    }
    for k, (group, classifier) in enumerate(zip(groups, classifiers, strict=True), start=2):
        expected |= {f"stages.{k}.factor": classifier * FEATURES[1], f"heads.{k}.factor": group * FEATURES[1]}
    assert _gradients(network) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("exits", [1, 2, 5])
def test_the_weights_of_all_exits_add_up_to_one_in_every_stage(exits: int) -> None:
    factors = GradientEquilibrium(exits).factors
    for stage in range(exits):
        weights, passed_on = [], 1.0
        for of_head, of_rest in factors[stage:]:
            weights.append(passed_on * of_head)
            passed_on *= of_rest
        assert weights == pytest.approx([1 / (exits - stage)] * (exits - stage))


def _gradients_of_resnet(**how: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    network = build_network("resnet8", classes=4, head_filters=8).double()
    images = torch.randn(7, 3, 8, 8, dtype=torch.float64)
    target_B = torch.arange(7) % 4
    logits_EBC, visited_EB = ExitingForward(network.eval(), OddOnesLeave(threshold=0.5), **how)(images, target_B)
    if how["after_exit"] == "drop":
        assert exit_taken(visited_EB).tolist() == [3, 0, 1, 0, 2, 0, 1]
    (logits_EBC[..., 0] * visited_EB).sum().backward()
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def test_heads_learn_as_without_it_and_early_stages_less() -> None:
    plain, balanced = (_gradients_of_resnet(after_exit="drop", equilibrium=on) for on in (False, True))
    assert plain.keys() == balanced.keys()
    for name, gradient in plain.items():
        same = torch.allclose(gradient, balanced[name], atol=1e-12, rtol=1e-9)
        # The last stage has one exit behind it.
        assert same is name.startswith(("heads.", "stages.3.")), name


def test_with_one_exit_nothing_changes() -> None:
    torch.manual_seed(0)
    network = build_network("resnet8", classes=4, exits=False)
    images, target_B = torch.randn(3, 3, 8, 8), torch.arange(3)
    gradients = []
    for on in (False, True):
        network.zero_grad()
        ExitingForward(network, None, equilibrium=on)(images, target_B)[0].square().sum().backward()
        gradients.append([p.grad for p in network.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(list(network.parameters()))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_in_evaluation_nothing_is_added_to_the_forward_pass() -> None:
    features = torch.randn(2, 3)
    with torch.no_grad():
        assert scale_gradient(features, 0.5).grad_fn is None
    assert torch.equal(scale_gradient(features, 0.5), features)


def test_memory_layout_is_kept() -> None:
    features = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert scale_gradient(features, 0.5).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("after_exit", ["mask", "drop"])
def test_a_compiled_step_is_the_same_step(after_exit: Literal["mask", "drop"]) -> None:
    """With a backend that traces and does not generate code, which would take a minute."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise((6, 5, 5, 5))]
    network = StagedNetwork(list(layers), [nn.Linear(5, 3) for _ in layers], classes=3).double()
    images, target_B = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3

    def gradients(forward: ExitingForward) -> list[Tensor]:
        network.zero_grad()
        logits_EBC, visited_EB = forward(images, target_B)
        (logits_EBC.square().sum(dim=-1) * visited_EB).sum().backward()
        return [p.grad for p in network.parameters() if p.grad is not None]

    forward = ExitingForward(network, OddOnesLeave(threshold=0.5), after_exit=after_exit, equilibrium=True)
    expected = gradients(forward)
    compiled = ExitingForward(network, OddOnesLeave(threshold=0.5), after_exit=after_exit, equilibrium=True)
    with pytest.MonkeyPatch.context() as patch:
        _without_code_generation(patch)
        compiled.compile_for(8)
        found = gradients(compiled)
    assert len(found) == len(expected) == len(list(network.parameters()))
    for one, other in zip(expected, found, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def _without_code_generation(patch: pytest.MonkeyPatch) -> None:
    """nn.Module.compile calls torch.compile, too."""
    compile_in_full = torch.compile
    patch.setattr(
        torch, "compile", lambda run, **how: compile_in_full(run, **how | {"backend": "aot_eager", "fullgraph": True})
    )


@pytest.mark.parametrize("on", [False, True])
def test_the_recipe_switches_it(on: bool) -> None:
    recipe = load_recipe("digits/elf-ce", {"model.backbone": "resnet8", "criterion.equilibrium": on})
    torch.manual_seed(0)
    network = build_network("resnet8", classes=4)
    plain, _ = forward_and_mixing(load_recipe("digits/elf-ce"), network, None, np.arange(4))
    asked, _ = forward_and_mixing(recipe, network, None, np.arange(4))
    gradients = []
    for forward in (plain, asked):
        network.zero_grad()
        forward(torch.ones(2, 3, 8, 8), torch.arange(2))[0].square().sum().backward()
        gradients.append(network.get_parameter("stages.0.0.weight").grad)
    one, other = gradients
    assert one is not None
    assert other is not None
    assert torch.equal(one, other) is not on
