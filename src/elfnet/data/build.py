"""A data source by name. Importing this module fills the registry."""

from pathlib import Path

from elfnet.data import cifar, digits
from elfnet.data.source import SOURCES, Source

__all__ = ["SOURCES", "cifar", "digits", "load_source"]


def load_source(name: str, directory: Path | None = None) -> Source:
    """Read the source `name`; `directory` is searched first for its files.

    Example:
        >>> load_source("digits").class_names[:3]
        ('0', '1', '2')
    """
    return SOURCES[name](directory)
