"""The model section of a recipe."""

from itertools import combinations
from typing import Any

import torch

from elfnet.models.from_recipe import network_of, network_signature
from elfnet.recipe.schema import ModelRecipe

SMALL = ModelRecipe(backbone="resnet8")
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"backbone": "resnet14"},
    {"exits": False},
    {"head": "cosine"},
    {"head_filters": 8},
    {"head_stride": 1},
    {"exits": False, "head": "cosine"},
)


def test_every_setting_reaches_the_network() -> None:
    model = ModelRecipe(backbone="resnet14", head="cosine", head_filters=5, head_stride=1)
    network = network_of(model, classes=3, image_channels=1)
    assert len(list(network.stages[1].children())) == 2
    assert network.heads[0].get_submodule("trunk")(torch.zeros(2, 16, 4, 4)).shape == (2, 5, 4, 4)
    assert network.logits(torch.zeros(2, 1, 8, 8)).shape == (4, 2, 3)
    plain = network_of(ModelRecipe(backbone="resnet8", exits=False), classes=3, image_channels=1)
    assert plain.exits == 1


def test_signatures_tell_networks_apart() -> None:
    signatures = [network_signature(SMALL.model_copy(update=c), classes=10, image_channels=3) for c in CHANGES]
    signatures.append(network_signature(SMALL, classes=11, image_channels=3))
    signatures.append(network_signature(SMALL, classes=10, image_channels=1))
    assert all(a != b for a, b in combinations(signatures, 2))
    assert all("\n" not in signature for signature in signatures)


def test_head_settings_that_a_plain_network_does_not_have_do_not_count() -> None:
    plain = SMALL.model_copy(update={"exits": False})
    other = plain.model_copy(update={"head_filters": 8, "head_stride": 1})
    assert network_signature(plain, classes=10, image_channels=3) == network_signature(
        other, classes=10, image_channels=3
    )
