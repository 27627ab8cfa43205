"""SGD, and its state by parameter name so that a checkpoint does not depend on the order of parameters."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def build_sgd(network: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> torch.optim.SGD:
    """SGD without Nesterov, weight decay on every parameter, one fused kernel where torch has one."""
    parameters = list(network.parameters())
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, fused=fused)


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
