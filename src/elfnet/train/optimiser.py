"""SGD, and its state by parameter name so that a checkpoint does not depend on the order of parameters."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def build_sgd(
    network: nn.Module, *, lr: float, momentum: float, weight_decay: float, backbone_lr_factor: float = 1.0
) -> torch.optim.SGD:
    """SGD without Nesterov, weight decay on every parameter, one fused kernel where torch has one.

    Parameters that take no gradient (`freeze_backbone`) are left out. With a `backbone_lr_factor` the stages of the
    network form a group of their own; `set_learning_rate` then gives them that part of the rate.
    """
    groups = [(list(network.parameters()), 1.0)]
    if backbone_lr_factor != 1.0:
        stages = set(network.get_submodule("stages").parameters())
        groups = [
            ([p for p in network.parameters() if p in stages], backbone_lr_factor),
            ([p for p in network.parameters() if p not in stages], 1.0),
        ]
    learning = [([p for p in parameters if p.requires_grad], factor) for parameters, factor in groups]
    fused = all(p.device.type in ("cpu", "cuda") for p in network.parameters())
    return torch.optim.SGD(
        [{"params": p, "lr": lr * factor, "lr_factor": factor} for p, factor in learning if p],
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        fused=fused,
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """The schedule's rate for the heads, and for the backbone its part of it."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("lr_factor", 1.0)


def momentum_state(optimiser: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """Momentum of every parameter that has one yet."""
    state = {}
    for name, parameter in network.named_parameters():
        buffer = optimiser.state.get(parameter, {}).get("momentum_buffer")
        if buffer is not None:
            state[name] = buffer
    return state


def restore_momentum(optimiser: torch.optim.Optimizer, network: nn.Module, saved: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if name in saved:
            # In the parameter's own memory layout: a fused step reads both side by side.
            optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(saved[name])
