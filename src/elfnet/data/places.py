"""Where data files are looked for, and where a download goes."""

import os
from collections.abc import Mapping
from pathlib import Path

DATA_VARIABLE = "ELFNET_DATA"


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/elfnet`, or `~/.cache/elfnet`."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "elfnet"


def data_places(directory: Path | None, environment: Mapping[str, str] | None = None) -> list[Path]:
    """Directories in the order they are searched: the one given, `$ELFNET_DATA`, the cache.

    The first one is where a download is put: whoever names a place wants the data there.
    """
    environment = os.environ if environment is None else environment
    named = environment.get(DATA_VARIABLE)
    places = [directory, Path(named) if named else None, cache_directory(environment)]
    return list(dict.fromkeys(place.expanduser() for place in places if place is not None))
