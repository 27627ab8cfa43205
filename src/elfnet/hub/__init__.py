"""Networks and exported files on the Hugging Face hub, or in folders of its form.

`from_pretrained` needs no torch. Only `push_to_hub`, and names that begin with `hub:`, use the network.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.hub.network import load_network
    from elfnet.hub.publish import push_to_hub, save_pretrained
    from elfnet.hub.read import from_pretrained

__all__ = ["from_pretrained", "load_network", "push_to_hub", "save_pretrained"]

__getattr__ = lazy_names(
    __name__,
    {
        "from_pretrained": "elfnet.hub.read",
        "load_network": "elfnet.hub.network",
        "push_to_hub": "elfnet.hub.publish",
        "save_pretrained": "elfnet.hub.publish",
    },
)


def __dir__() -> list[str]:
    return __all__
