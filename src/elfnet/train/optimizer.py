"""Optimizers: build them, set their learning rate, save and restore their state; the moving average of weights (EMA).

State is saved by parameter name, which makes a checkpoint independent of the order of parameters.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from elfnet.errors import RequestError
from elfnet.models.staged import StagedNetwork

MOMENTUM = "momentum_buffer"


def build_optimizer(
    network: nn.Module,
    *,
    name: str = "sgd",
    lr: float,
    momentum: float,
    weight_decay: float,
    nesterov: bool = False,
    beta2: float = 0.999,
    decay_norms_and_biases: bool = True,
    backbone_lr_factor: float = 1.0,
    layer_decay: float = 1.0,
) -> torch.optim.Optimizer:
    """Build SGD or AdamW, with a fused kernel where torch has one.

    Parameters without a gradient (see `freeze_backbone`) are left out.

    Args:
        name: `sgd` or `adamw`.
        momentum: of SGD; beta1 of AdamW.
        nesterov: use Nesterov momentum in SGD.
        beta2: of AdamW.
        decay_norms_and_biases: whether weight decay applies to vectors (biases, weights of normalisation layers).
        backbone_lr_factor: the learning rate of the stages is multiplied by this.
        layer_decay: the learning rate of a stage is that of the next stage times this.
    """
    fused = all(p.device.type in ("cpu", "cuda") for p in network.parameters())
    factors = _factors(network, backbone_lr_factor, layer_decay)
    groups = _groups(network, lr, weight_decay, decay_norms_and_biases, factors)
    if name == "sgd":
        return torch.optim.SGD(
            groups, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov, fused=fused
        )
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=lr, betas=(momentum, beta2), weight_decay=weight_decay, fused=fused)
    raise RequestError(f"unknown train.optimizer {name!r}; choose from: adamw, sgd")


def _factors(network: nn.Module, backbone_lr_factor: float, layer_decay: float) -> dict[nn.Parameter, float]:
    """Factor of the learning rate of each parameter of the stages."""
    if backbone_lr_factor == layer_decay == 1.0:
        return {}
    stages = list(network.get_submodule("stages").children())
    if len(stages) == 1:
        # A plain network is one stage that contains the others.
        stages = list(stages[0].children()) or stages
    return {
        parameter: backbone_lr_factor * layer_decay ** (len(stages) - 1 - k)
        for k, stage in enumerate(stages)
        for parameter in stage.parameters()
    }


def _groups(
    network: nn.Module,
    lr: float,
    weight_decay: float,
    decay_norms_and_biases: bool,
    factors: Mapping[nn.Parameter, float],
) -> list[dict[str, object]]:
    """Parameter groups, one per combination of learning-rate factor and weight decay."""
    by_setting: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in network.parameters():
        if parameter.requires_grad:
            factor = factors.get(parameter, 1.0)
            decay = weight_decay if decay_norms_and_biases or parameter.ndim > 1 else 0.0
            by_setting.setdefault((factor, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": lr * factor, "lr_factor": factor, "weight_decay": decay}
        for (factor, decay), parameters in by_setting.items()
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter group: the rate times the factor of the group."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("lr_factor", 1.0)


def optimizer_state(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """The state of the optimizer: momentum of SGD by parameter name, other tensors by `KEY:NAME`."""
    state = {}
    for name, parameter in network.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                state[name if key == MOMENTUM else f"{key}:{name}"] = value
    return state


def restore_optimizer(optimizer: torch.optim.Optimizer, network: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Restore a state that `optimizer_state` returned."""
    parameters, fused = dict(network.named_parameters()), optimizer.defaults.get("fused")
    for full_name, value in saved.items():
        key, _, name = full_name.rpartition(":")
        parameter = parameters.get(name)
        if parameter is not None:
            # A fused step needs the state in the memory layout of its parameter, and AdamW's step count, which has no
            # layout, on its device. Without a fused kernel the step count stays on the host.
            if value.shape == parameter.shape:
                kept = torch.empty_like(parameter).copy_(value)
            else:
                kept = value.to(parameter.device if fused else value.device, copy=True)
            optimizer.state[parameter][key or MOMENTUM] = kept


class WeightAverage:
    """A copy of a network whose weights are the moving average of the trained weights.

    After each step w_avg <- d w_avg + (1 - d) w, with d = min(decay, (1 + n) / (10 + n)) after n steps, so that a short
    run is not dominated by its first weights. Running statistics of batch norm are averaged in the same way, so that
    they fit the averaged weights. torch.optim.swa_utils.AveragedModel keeps its step count on the device, and the host
    would wait for it in each step.

    Args:
        network: the trained network, on its device; it is copied.
        decay: in (0, 1); 0.999 averages over about the last 1,000 steps.

    Attributes:
        network: the network with averaged weights.
        steps: number of updates so far.
    """

    def __init__(self, network: StagedNetwork, decay: float) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.steps = 0
        self._decay = decay

    @torch.no_grad()
    def update(self, network: StagedNetwork) -> None:
        """Update the average with the weights after a step."""
        weight = 1 - min(self._decay, (1 + self.steps) / (10 + self.steps))
        averaged, trained = self._tensors(self.network), self._tensors(network)
        # One call for all tensors of a kind: a network has hundreds of small ones.
        torch._foreach_lerp_(averaged[0], trained[0], weight)
        if averaged[1]:  # Counters of batch norm; other networks may have none.
            torch._foreach_copy_(averaged[1], trained[1])
        self.steps += 1

    @staticmethod
    def _tensors(network: StagedNetwork) -> tuple[list[Tensor], list[Tensor]]:
        """Floating-point tensors, which are averaged, and all others, which are copied."""
        tensors = [*network.parameters(), *network.buffers()]
        return [t for t in tensors if t.is_floating_point()], [t for t in tensors if not t.is_floating_point()]
