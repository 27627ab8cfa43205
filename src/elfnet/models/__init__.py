"""Networks: stages and heads, backbones, experts, costs in multiply-adds, and exits attached to existing models."""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.models.attach.attach import attach_exits, from_blocks
    from elfnet.models.attach.cuts import legal_cuts
    from elfnet.models.build import build_network
    from elfnet.models.experts import ExpertNetwork
    from elfnet.models.flops import NetworkCost, count_cost
    from elfnet.models.heads import CosineClassifier, Head, LinearClassifier
    from elfnet.models.staged import BatchNorm2d, StagedNetwork

_MODULES = {
    "BatchNorm2d": "elfnet.models.staged",
    "CosineClassifier": "elfnet.models.heads",
    "ExpertNetwork": "elfnet.models.experts",
    "Head": "elfnet.models.heads",
    "LinearClassifier": "elfnet.models.heads",
    "NetworkCost": "elfnet.models.flops",
    "StagedNetwork": "elfnet.models.staged",
    "attach_exits": "elfnet.models.attach.attach",
    "build_network": "elfnet.models.build",
    "count_cost": "elfnet.models.flops",
    "from_blocks": "elfnet.models.attach.attach",
    "legal_cuts": "elfnet.models.attach.cuts",
}

__all__ = [
    "BatchNorm2d",
    "CosineClassifier",
    "ExpertNetwork",
    "Head",
    "LinearClassifier",
    "NetworkCost",
    "StagedNetwork",
    "attach_exits",
    "build_network",
    "count_cost",
    "from_blocks",
    "legal_cuts",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
