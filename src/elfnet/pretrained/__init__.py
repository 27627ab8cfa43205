"""Trained networks by name: those that ship with the package, those in a clone's `models/`, and those of the hub.

Names become paths here, so that everything that opens a file takes a name, too. Must not import torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.pretrained.catalogue import ShippedNetwork, shipped_networks
    from elfnet.pretrained.names import find_model

__all__ = ["ShippedNetwork", "find_model", "shipped_networks"]

__getattr__ = lazy_names(
    __name__,
    {
        "ShippedNetwork": "elfnet.pretrained.catalogue",
        "find_model": "elfnet.pretrained.names",
        "shipped_networks": "elfnet.pretrained.catalogue",
    },
)


def __dir__() -> list[str]:
    return __all__
