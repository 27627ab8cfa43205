"""The network of a run: the one that its recipe describes, or the one that was handed in when it was trained."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elfnet.errors import RequestError
from elfnet.models.attach.signature import signature_of
from elfnet.models.from_recipe import network_of, network_signature
from elfnet.models.staged import StagedNetwork
from elfnet.recipe.schema import ModelRecipe


def signature_of_run(model: ModelRecipe, info: Mapping[str, Any]) -> str:
    """What the run's checkpoints are for. The network itself is not needed to know.

    Args:
        info: of run.json; `info["network"]` is there if the network was handed in.
    """
    if "network" in info:
        return str(info["network"]["signature"])
    data = info["data"]
    return network_signature(model, classes=len(data["class_names"]), image_channels=data["image_shape"][-1])


def network_of_run(
    model: ModelRecipe, info: Mapping[str, Any], given: StagedNetwork | None, *, where: Path
) -> StagedNetwork:
    """A network to load the run's weights into; one that is handed in is copied and stays as it is.

    Args:
        where: the run's directory, for what may be refused.
    """
    data = info["data"]
    if given is not None:
        require_fits(info, given, where=where)
        return copy.deepcopy(given)
    if "network" not in info:
        return network_of(model, classes=len(data["class_names"]), image_channels=data["image_shape"][-1])
    raise RequestError(
        f"the run in {where} trained a network that was handed in, which no recipe describes; "
        "do this from Python with network= built as it was then, or use a bundle of the run"
    )


def require_fits(info: Mapping[str, Any], given: StagedNetwork, *, where: Path) -> None:
    """Refuse a network that the run's weights are not for."""
    height, width, channels = info["data"]["image_shape"]
    require_same_signature(info, signature_of(given, (channels, height, width)), where=where)


def require_same_signature(info: Mapping[str, Any], found: str, *, where: Path) -> None:
    if "network" not in info:
        raise RequestError(f"the run in {where} has the network of its recipe; leave network= out")
    there = info["network"]["signature"]
    if found != there:
        raise RequestError(
            f"network= is another network than the run in {where} trained ({found}, not {there}); "
            "build it as it was then: the same model and the same cuts"
        )
