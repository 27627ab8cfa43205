"""The start of the second stage of a run: new classifiers on the features of the first stage.

`elfnet.recipe.stages` describes its training. All parameters except the classifiers are frozen, so a step has no
backward pass through the stages.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from elfnet.methods.refit.build import take_over
from elfnet.models.build import network_of
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.stages import Stage
from elfnet.train.state import RunState


def second_stage_network(
    stage: Stage, weights: Mapping[str, Tensor], *, classes: int, image_channels: int
) -> StagedNetwork:
    """Build the network that the second stage starts from.

    Args:
        stage: the second stage.
        weights: final weights of the first stage; the averaged weights if the run averages them.

    Returns:
        A network on the CPU with these weights and new classifiers, which depend only on the seed.
    """
    torch.manual_seed(stage.recipe.train.seed)
    network = network_of(stage.recipe.model, classes=classes, image_channels=image_channels)
    take_over(stage.recipe.refit.method, network, weights)
    return network


def second_stage_state(state: RunState) -> RunState:
    """The progress of a run at the start of its second stage: epochs and time of the first stage.

    The best epoch is chosen among those of the second stage only, because its network may differ.
    """
    return RunState(epochs_done=state.epochs_done, seconds=state.seconds)
