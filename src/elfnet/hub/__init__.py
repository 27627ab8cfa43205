"""Networks and exported files on the Hugging Face hub, or in folders of its form.

`from_pretrained` needs no torch. Only `push_to_hub`, and names that begin with `hub:`, use the network.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.hub.files import from_pretrained, push_to_hub, save_pretrained
    from elfnet.hub.network import load_network

__all__ = ["from_pretrained", "load_network", "push_to_hub", "save_pretrained"]

__getattr__ = lazy_names(
    __name__,
    {
        "from_pretrained": "elfnet.hub.files",
        "load_network": "elfnet.hub.network",
        "push_to_hub": "elfnet.hub.files",
        "save_pretrained": "elfnet.hub.files",
    },
)


def __dir__() -> list[str]:
    return __all__
