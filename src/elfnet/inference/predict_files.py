"""Find image files and classify them in batches, here or on a Ray cluster.

Files and results are streams: memory does not grow with the number of files.
"""

# Shapes: N images, K channels, H height, W width

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from elfnet.data.images.decode import SUFFIXES
from elfnet.errors import ElfnetError, RequestError, WorkError
from elfnet.inference.model import Model, Prediction
from elfnet.ray_cluster import in_short, ray_cluster

FROM_LIST = "-"
"""The name that stands for a list of paths on standard input."""
BATCHES_PER_PART = 4
PARTS_PER_WORKER = 2
"""A worker of the cluster computes one part while the next one waits, so that it is never idle."""
ATTEMPTS = 3


@dataclass(frozen=True)
class Classified:
    """A file and its prediction."""

    file: str
    prediction: Prediction


@dataclass(frozen=True)
class NotRead:
    """A file that could not be read, and the reason in one line."""

    file: str
    reason: str


def classify_files(
    model: Model, files: Iterable[str], *, batch: int = 64, top: int = 1, resize: bool = True
) -> Iterator[Classified | NotRead]:
    """Classify image files with a model.

    Args:
        model: The model.
        files: Paths of image files.
        batch: Images per batch.
        top: Number of best classes per prediction.
        resize: Resize images to the network's size; if False, refuse other sizes.

    Yields:
        One result per file. Predictions come in the order of `files`; a file that cannot be read is reported at once.
    """
    if batch < 1 or top < 1:
        raise RequestError(f"batch={batch} and top={top} must be 1 or more")
    names: list[str] = []
    pixels: list[NDArray[np.uint8]] = []

    def answers() -> Iterator[Classified]:
        for name, prediction in zip(names, model.answer(np.stack(pixels), top=top), strict=True):
            yield Classified(name, prediction)

    for file in files:
        try:
            pixels.append(model.preprocess.pixels(file, resize=resize))
        except ElfnetError as error:
            yield NotRead(file, str(error))
            continue
        names.append(file)
        if len(names) == batch:
            yield from answers()
            names.clear()
            pixels.clear()
    if names:
        yield from answers()


_opened: dict[str, Model] = {}
"""The model of a worker process of the cluster, by the command that it works for."""


def _classify_part(
    command: str, open_model: Callable[[], Model], directory: str, files: list[str], settings: dict[str, Any]
) -> list[Classified | NotRead]:
    """Classify the files of one part on the cluster; a worker process opens the model for its first part."""
    if command not in _opened:
        # Paths may be relative to the directory of the command.
        os.chdir(directory)
        _opened.clear()
        _opened[command] = open_model()
    return list(classify_files(_opened[command], files, **settings))


def classify_on_ray(
    open_model: Callable[[], Model],
    files: Iterable[str],
    *,
    batch: int = 64,
    top: int = 1,
    resize: bool = True,
    cpus: int = 1,
    address: str | None = None,
) -> Generator[Classified | NotRead, None, None]:
    """Classify image files on a Ray cluster, with as many workers as it has room for.

    Files of a worker that is lost are classified by another one, up to `ATTEMPTS` times.

    Args:
        open_model: Called once per worker; it is pickled, so it must not hold the model itself.
        files: Paths of image files, valid on every machine of the cluster.
        batch: See `classify_files`.
        top: See `classify_files`.
        resize: See `classify_files`.
        cpus: Cores per worker.
        address: See `ray_cluster`.

    Yields:
        Results as `classify_files` does.

    Raises:
        WorkError: A worker failed.
    """
    with ray_cluster(address, cpus=cpus) as ray:
        # Tasks, not actors: an actor of a lost host waits for room on another host, and its parts would wait with it.
        task: Any = ray.remote(num_cpus=cpus, max_retries=ATTEMPTS)(_classify_part)
        command, settings = uuid4().hex, {"batch": batch, "top": top, "resize": resize}
        workers = max(1, int(ray.cluster_resources().get("CPU", cpus) // cpus))
        parts = _parts(iter(files), BATCHES_PER_PART * batch)
        running: deque[Any] = deque()
        while True:
            # Parts are collected in the order in which they are sent; only these parts are in memory.
            for part in islice(parts, PARTS_PER_WORKER * workers - len(running)):
                running.append(task.remote(command, open_model, os.getcwd(), part, settings))  # noqa: PTH109
            if not running:
                return
            try:
                found = ray.get(running.popleft())
            except ray.exceptions.RayError as error:
                raise WorkError(f"a worker on the Ray cluster failed: {in_short(error)}") from error
            yield from found


def _parts(files: Iterator[str], size: int) -> Iterator[list[str]]:
    while part := list(islice(files, size)):
        yield part


def find_images(names: Iterable[str], *, listed: TextIO) -> Iterator[str]:
    """Find image files by name, in folders, and in a list.

    Args:
        names: Files, folders, or `-` for the paths in `listed`. Folders are searched recursively for common image
            suffixes; a file that is named itself may have any suffix. Links to folders inside folders are not followed.
        listed: One path per line.

    Yields:
        Paths in the order of `names`; those of a folder sorted by name. A folder that contains no image or cannot be
        read is returned itself, so that reading it reports the error.
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
    for path in files_below(folder):
        empty = False
        yield path
    if empty:
        yield folder


def files_below(folder: str) -> Iterator[str]:
    """Yield the image files of a folder, then those of its subfolders, each sorted by name."""
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
        yield from files_below(str(Path(folder) / name))
