"""What follows from a recipe about its losses and stages."""

import pytest

from elfnet.recipe.load import load_recipe
from elfnet.recipe.stages import loss_scale


@pytest.mark.parametrize("loss", ["ce", "focal", "ldam", "balanced-softmax", "logit-adjusted"])
def test_every_loss_scales_cosines_and_only_cosines(loss: str) -> None:
    cosines = {"criterion.loss": loss, "criterion.reweight": "none", "model.head": "cosine"}
    assert loss_scale(load_recipe("cifar10-lt/ce", cosines)) == 30
    assert loss_scale(load_recipe("cifar10-lt/ce", {**cosines, "criterion.cosine_scale": 16.0})) == 16
    assert loss_scale(load_recipe("cifar10-lt/ce", {"criterion.cosine_scale": 16.0})) == 1
