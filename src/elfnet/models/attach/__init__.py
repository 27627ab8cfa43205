"""Attach exits to any image classifier: record its forward pass, find legal cuts, build stages, check the result.

`attach_exits` does all of this. `legal_cuts` lists the places for exits. `from_blocks` builds the same network from
stages given by hand.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.models.attach.attach import attach_exits, from_blocks
    from elfnet.models.attach.cuts import legal_cuts

_MODULES = {
    "attach_exits": "elfnet.models.attach.attach",
    "from_blocks": "elfnet.models.attach.attach",
    "legal_cuts": "elfnet.models.attach.cuts",
}

__all__ = [
    "attach_exits",
    "from_blocks",
    "legal_cuts",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
