"""The second stage of a run: new classifiers on the features that the first stage has learnt.

See `elfnet.recipe.stages` for how it is trained. Everything but the classifiers is frozen, so that a step has no
backward pass through the network.
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
    """The network that the second stage starts from.

    Args:
        stage: the second one.
        weights: of the first stage, as they are evaluated: the averaged ones where the run averages weights.

    Returns:
        A network on the CPU with these weights and with classifiers as newly built, which depend on the seed alone.
    """
    torch.manual_seed(stage.recipe.train.seed)
    network = network_of(stage.recipe.model, classes=classes, image_channels=image_channels)
    take_over(stage.recipe.refit.method, network, weights)
    return network


def second_stage_state(state: RunState) -> RunState:
    """How far the run is, with nothing of the first stage's progress but its time.

    The best epoch is chosen among those of the second stage: its network may be another one.
    """
    return RunState(epochs_done=state.epochs_done, seconds=state.seconds)
