"""A multilayer perceptron for feature vectors: four layers, with an exit after each.

Features are images of one pixel, (B, F, 1, 1), so heads, costs, training and export are those of all networks.
"""

# Shapes: B batch, F features

from collections import OrderedDict

import torch
from torch import Tensor, nn

from elfnet.models.staged import Backbone, BatchNorm2d

WIDTH = 256
LAYERS = 4
DROPOUT = 0.5


class Dense(nn.Module):
    """Linear layer, batch norm, ReLU and dropout on (B, F, 1, 1); larger maps are averaged first."""

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self.norm = BatchNorm2d(features_out)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, features: Tensor) -> Tensor:
        linear: Tensor = self.linear(features.mean(dim=(2, 3)))
        out: Tensor = self.dropout(torch.relu(self.norm(linear[:, :, None, None])))
        return out


class ResidualDense(Dense):
    """`Dense` with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)

    def forward(self, features: Tensor) -> Tensor:
        return features + super().forward(features)


def staged_mlp(features_in: int, *, width: int = WIDTH, layers: int = LAYERS) -> Backbone:
    """The perceptron: a first layer to `width` features, then residual layers of that width."""
    parts: list[nn.Module] = [Dense(features_in, width), *(ResidualDense(width) for _ in range(layers - 1))]
    # Named layers, so that the names of weights are unique without the index of the stage.
    stages: list[nn.Module] = [nn.Sequential(OrderedDict([(f"layer{k}", part)])) for k, part in enumerate(parts, 1)]
    return Backbone(stages, [width] * layers)


def initialise_dense(stages: nn.Module) -> None:
    """He initialisation of every linear layer; biases start at 0."""
    for module in stages.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)
