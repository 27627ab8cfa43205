"""Image files by name, by folder, or from a list that somebody else writes; one after the other, never all at once."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from elfnet.deploy.images.decode import SUFFIXES

FROM_LIST = "-"


def find_images(names: Iterable[str], *, listed: TextIO) -> Iterator[str]:
    """Paths in the order of `names`; folders recursively, by name; `-` stands for the lines of `listed`.

    What is named is taken whatever its suffix; in folders only common image suffixes are. The names of one folder at a
    time are held, so that their order is always the same; links to folders are not followed inside folders. A folder
    without any image, or one that cannot be read, is given by its own name: reading it then says so.
    """
    for name in names:
        lines = (line.rstrip("\r\n") for line in listed) if name == FROM_LIST else (name,)
        for line in lines:
            if not line:
                continue
            if Path(line).is_dir():
                yield from _in_folder(line)
            else:
                yield line


def _in_folder(folder: str) -> Iterator[str]:
    empty = True
    for path in _walk(folder):
        empty = False
        yield path
    if empty:
        yield folder


def _walk(folder: str) -> Iterator[str]:
    """Files of a folder first, then those of the folders in it, each by name."""
    files, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif Path(entry.name).suffix.lower() in SUFFIXES:
                    files.append(entry.name)
    except OSError:
        yield folder
        return
    files.sort()
    for name in files:
        yield str(Path(folder) / name)
    del files
    for name in sorted(folders):
        yield from _walk(str(Path(folder) / name))
