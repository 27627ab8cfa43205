"""Data sets: sources, long-tailed subsets and splits.

`sources` reads data sets, `images` decodes and augments images, `loading` makes batches. Only `loading` imports torch.
"""

from typing import TYPE_CHECKING

from elfnet.lazy import lazy_names

if TYPE_CHECKING:
    from elfnet.data.build import load_source, load_splits
    from elfnet.data.long_tail import FrequencyGroups, exponential_counts
    from elfnet.data.splits import Splits, make_splits
    from elfnet.data.types import Examples, LabelledImages, Source

_MODULES = {
    "Examples": "elfnet.data.types",
    "FrequencyGroups": "elfnet.data.long_tail",
    "LabelledImages": "elfnet.data.types",
    "Source": "elfnet.data.types",
    "Splits": "elfnet.data.splits",
    "exponential_counts": "elfnet.data.long_tail",
    "load_source": "elfnet.data.build",
    "load_splits": "elfnet.data.build",
    "make_splits": "elfnet.data.splits",
}

__all__ = [
    "Examples",
    "FrequencyGroups",
    "LabelledImages",
    "Source",
    "Splits",
    "exponential_counts",
    "load_source",
    "load_splits",
    "make_splits",
]

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
