"""Batch normalisation that a single example cannot break."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class BatchNorm2d(nn.BatchNorm2d):
    """As torch's, but one value per channel in training is normalised by the running statistics.

    When examples leave during training, one example may remain on a 1 x 1 map. Its batch variance is zero, so torch
    raises; normalising with what is known so far, and learning no statistics from it, lets the step go on.
    """

    def forward(self, input: Tensor) -> Tensor:
        one_value_a_channel = self.training and input.shape[0] * input.shape[2] * input.shape[3] == 1
        if one_value_a_channel and self.running_mean is not None:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)


@torch.no_grad()
def reset_statistics(network: nn.Module) -> None:
    """Forget the running statistics of every batch norm, and average the coming batches equally."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            module.momentum = None
