"""Stages and heads, run in order; training mode; batch norm that accepts one value per channel."""

import pytest
import torch
from torch import Tensor, nn

from elfnet.exits.training_rule import TrainingRule
from elfnet.models.build import build_network
from elfnet.models.staged import BatchNorm2d, StagedNetwork, freeze_backbone, reset_statistics, training_mode
from elfnet.train.forward import ExitingForward


def test_head_k_reads_what_stage_k_made() -> None:
    stages: list[nn.Module] = [nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 7)]
    heads: list[nn.Module] = [nn.Linear(5, 3), nn.Linear(6, 3), nn.Linear(7, 3)]
    network = StagedNetwork(stages, heads, classes=3)
    images = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    logits_EBC = network.logits(images)
    assert network.exits == 3
    assert logits_EBC.shape == (3, 2, 3)
    first = stages[0](images)
    assert torch.equal(logits_EBC[0], heads[0](first))
    assert torch.equal(logits_EBC[1], heads[1](stages[1](first)))
    assert torch.equal(logits_EBC[2], heads[2](stages[2](stages[1](first))))


@pytest.mark.parametrize(("stages", "heads"), [(0, 0), (2, 1), (1, 2)])
def test_every_stage_needs_one_head(stages: int, heads: int) -> None:
    with pytest.raises(ValueError, match=f"{stages} stages and {heads} heads"):
        StagedNetwork([nn.Identity()] * stages, [nn.Identity()] * heads, classes=3)


def _pair() -> tuple[BatchNorm2d, nn.BatchNorm2d]:
    """Ours and torch's with the same made-up parameters and statistics."""
    generator = torch.Generator().manual_seed(1)
    ours, theirs = BatchNorm2d(3), nn.BatchNorm2d(3)
    for name in ("weight", "bias", "running_mean", "running_var"):
        value = torch.rand(3, generator=generator) + 0.5
        for module in (ours, theirs):
            getattr(module, name).data.copy_(value)
    return ours, theirs


def _images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (1, 3, 2, 1), (2, 3, 1, 1)])
def test_equals_torchs(shape: tuple[int, ...], training: bool) -> None:
    ours, theirs = _pair()
    ours.train(training)
    theirs.train(training)
    assert torch.equal(ours(_images(*shape)), theirs(_images(*shape)))
    for name, buffer in theirs.named_buffers():
        assert torch.equal(ours.get_buffer(name), buffer), name


def test_one_value_a_channel_is_normalised_by_what_is_known() -> None:
    ours, theirs = _pair()
    images = _images(1, 3, 1, 1).requires_grad_()
    before = {name: buffer.clone() for name, buffer in ours.named_buffers()}
    output = ours.train()(images)
    assert torch.allclose(output, theirs.eval()(images))
    assert all(torch.equal(buffer, before[name]) for name, buffer in ours.named_buffers())
    output.square().sum().backward()
    for gradient in (images.grad, ours.weight.grad, ours.bias.grad):
        assert gradient is not None
        assert gradient.abs().min() > 0


def test_torchs_own_would_raise() -> None:
    """The reason for this class. If torch accepts one value, remove the class."""
    with pytest.raises(ValueError, match="more than 1 value"):
        nn.BatchNorm2d(3).train()(_images(1, 3, 1, 1))


def test_after_a_reset_the_coming_batches_are_averaged_equally() -> None:
    ours, _ = _pair()
    network = nn.Sequential(ours)
    reset_statistics(network)
    assert int(ours.num_batches_tracked or 0) == 0
    batches = _images(5, 4, 3, 2, 2) * 3 + 1
    for batch in batches:
        network.train()(batch)
    mean_K = batches.mean(dim=(1, 3, 4)).mean(dim=0)
    variance_K = torch.stack([batch.var(dim=(0, 2, 3), unbiased=True) for batch in batches]).mean(dim=0)
    assert torch.allclose(ours.get_buffer("running_mean"), mean_K, atol=1e-5)
    assert torch.allclose(ours.get_buffer("running_var"), variance_K, atol=1e-5)


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
