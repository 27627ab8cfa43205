"""A data source by name. Importing this module fills the registry."""

from pathlib import Path

from elfnet.data import cifar, digits, feature_rows, folder, hub, lists
from elfnet.data.source import SOURCES, Source, SourceRequest

__all__ = ["SOURCES", "cifar", "digits", "feature_rows", "folder", "hub", "lists", "load_source"]


def load_source(name: str, directory: Path | None = None, *, request: SourceRequest | None = None) -> Source:
    """Read the source `name`; `directory` is searched first for its files, `request` says more.

    Example:
        >>> load_source("digits").class_names[:3]
        ('0', '1', '2')
    """
    return SOURCES[name](request or SourceRequest(directory=directory))
