"""An exponential moving average (EMA) of the weights of a network."""

import copy

import torch
from torch import Tensor

from elfnet.models.staged import StagedNetwork


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
        torch._foreach_copy_(averaged[1], trained[1])
        self.steps += 1

    @staticmethod
    def _tensors(network: StagedNetwork) -> tuple[list[Tensor], list[Tensor]]:
        """Floating-point tensors, which are averaged, and all others, which are copied."""
        tensors = [*network.parameters(), *network.buffers()]
        return [t for t in tensors if t.is_floating_point()], [t for t in tensors if not t.is_floating_point()]
