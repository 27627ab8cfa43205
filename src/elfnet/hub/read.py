"""Open an exported file by name."""

from pathlib import Path
from typing import Any

from elfnet.inference.model import Model, load
from elfnet.pretrained.names import FILE, find_model


def in_folder(name: str | Path, file: str) -> Path:
    """Return the path of a file of a pretrained model: in a folder, or as `find_model` finds it."""
    path = find_model(name, file=file)
    return path / file if path.is_dir() else path


def from_pretrained(name: str | Path, **settings: Any) -> Model:
    """Open the exported file of a pretrained network.

    Args:
        name: A folder that `save_pretrained` wrote, an exported file, the name of a shipped network, or
            `hub:user/name[@revision]`.
        settings: Arguments of `elfnet.load`, such as `threads`.

    Raises:
        WorkError: The repository cannot be reached, or the file is damaged.
    """
    return load(in_folder(name, FILE), **settings)
