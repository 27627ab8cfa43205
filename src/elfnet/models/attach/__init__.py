"""Exits on any classifier: record what it computes, find where it can be cut, prove the parts equal to the whole."""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.models.attach.attach_exits import attach_exits
    from elfnet.models.attach.cuts import legal_cuts
    from elfnet.models.attach.from_blocks import from_blocks

_MODULES = {
    "attach_exits": "elfnet.models.attach.attach_exits",
    "from_blocks": "elfnet.models.attach.from_blocks",
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
