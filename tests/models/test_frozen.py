"""A frozen backbone gets no gradients and no statistics; its heads are trained."""

import torch
from torch import nn

from elfnet.exits.training_rule import TrainingRule
from elfnet.models.build import build_network
from elfnet.models.layers import freeze_backbone, training_mode
from elfnet.train.forward import ExitingForward


def test_only_heads_learn() -> None:
    torch.manual_seed(0)
    network = build_network("resnet8", classes=3, head_filters=4)
    freeze_backbone(network)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    for left in ("mask", "drop"):
        forward = ExitingForward(network, TrainingRule(threshold=0.3), after_exit="drop" if left == "drop" else "mask")
        training_mode(network, forward)
        assert forward.training
        logits_EBC, visited_EB = forward(torch.randn(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2]))
        torch.autograd.backward((logits_EBC * visited_EB.unsqueeze(-1)).square().sum())
    assert all(p.grad is None for p in network.stages.parameters())
    assert all(p.grad is not None for p in network.heads.parameters())
    after = network.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in after if name.startswith("stages."))
    # The batch norms of the heads are not frozen.
    assert not torch.equal(after["heads.0.trunk.1.running_mean"], before["heads.0.trunk.1.running_mean"])


def test_training_mode_of_a_network_that_is_not_frozen_is_train() -> None:
    network = build_network("resnet8", classes=3).eval()
    training_mode(network)
    assert all(module.training for module in network.modules())


def test_frozen_stages_stay_in_evaluation_mode() -> None:
    network = build_network("resnet8", classes=3)
    freeze_backbone(network)
    assert not any(module.training for module in network.stages.modules())
    training_mode(network)
    assert not any(module.training for stage in network.stages for module in stage.modules())
    assert all(isinstance(head, nn.Module) and head.training for head in network.heads)
