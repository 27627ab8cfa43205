"""The names that published weight files use, beside ours.

A backbone has the same published names with and without exits: torchvision's for the ImageNet networks, the usual
ones (`conv1`, `layer1.0.conv1`, `linear`) for the CIFAR ResNets. Exit heads have none, since nobody publishes them.
"""

import re
from collections.abc import Collection

from torch import Tensor

from elfnet.errors import RequestError
from elfnet.models.staged import StagedNetwork

_HEAD = re.compile(r"heads\.(\d+)\.")
SEVERAL_LAST_GROUPS = (
    "a network with experts has its last group several times, and published weights have it once; "
    "use a network with model.experts=1"
)
_CIFAR_STEM = {"0": "conv1", "1": "bn1"}


def published_names(ours: Collection[str]) -> dict[str, str]:
    """From the names of a network's state dict to published ones, for every tensor of the backbone.

    The last classifier belongs to the backbone; the early exits do not.

    Example:
        >>> published_names(["stages.1.features.denseblock1.denselayer1.norm1.bias", "heads.4.classifier.bias"])
        {'stages.1.features.denseblock1.denselayer1.norm1.bias': 'features.denseblock1.denselayer1.norm1.bias',
         'heads.4.classifier.bias': 'classifier.bias'}
    """
    exits = 1 + max((int(match[1]) for match in map(_HEAD.match, ours) if match), default=0)
    stages = {name: _of_stage(name, plain=exits == 1) for name in ours if name.startswith("stages.")}
    last, classifier = f"heads.{exits - 1}.classifier.", classifier_name(list(stages.values()))
    found = stages | {name: f"{classifier}.{name.removeprefix(last)}" for name in ours if name.startswith(last)}
    if len(set(found.values())) < len(found):
        raise RequestError(SEVERAL_LAST_GROUPS)
    return found


def classifier_name(published: Collection[str]) -> str:
    """What files with these names call the last classifier; CIFAR ResNets are those without a fourth group."""
    if any(name.startswith("features.") for name in published):
        return "classifier"
    return "fc" if any(name.startswith("layer4.") for name in published) else "linear"


def export_backbone(network: StagedNetwork) -> dict[str, Tensor]:
    """The backbone's tensors under their published names, ready for other libraries."""
    if network.experts > 1:
        raise RequestError(SEVERAL_LAST_GROUPS)
    state = network.state_dict()
    return {published: state[ours] for ours, published in published_names(state).items()}


def _of_stage(name: str, *, plain: bool) -> str:
    """A plain network is one stage that holds the others: its names are `stages.0.K.rest`."""
    prefix = "stages.0." if plain else "stages."
    stage, _, rest = name.removeprefix(prefix).partition(".")
    part, _, tensor = rest.partition(".")
    if not part.isdigit():
        return rest
    # The CIFAR ResNets number the parts of their stages.
    return f"layer{stage}.{rest}" if stage != "0" else f"{_CIFAR_STEM.get(part, part)}.{tensor}"
