"""Answers for a stream of image files, a batch at a time: memory does not grow with their number."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from elfnet.cluster import in_short, ray_cluster
from elfnet.errors import ElfnetError, RequestError, WorkError
from elfnet.inference.images import SUFFIXES
from elfnet.inference.model import Model, Prediction


@dataclass(frozen=True)
class Classified:
    file: str
    prediction: Prediction


@dataclass(frozen=True)
class NotRead:
    """A file that could not be used, and why, in one line."""

    file: str
    reason: str


def classify_files(
    model: Model, files: Iterable[str], *, batch: int = 64, top: int = 1, resize: bool = True
) -> Iterator[Classified | NotRead]:
    """One result a file; those that can be read in the order of `files`, the others as soon as they are met."""
    if batch < 1 or top < 1:
        raise RequestError(f"batch={batch} and top={top} must be 1 or more")
    names: list[str] = []
    pixels: list[NDArray[np.uint8]] = []

    def answers() -> Iterator[Classified]:
        ready_NKHW = model.preprocess.normalise(np.stack(pixels))
        for name, prediction in zip(names, model.answer(ready_NKHW, top=top), strict=True):
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


BATCHES_A_PART = 4
PARTS_A_WORKER = 2
"""A worker computes one part while the next one waits, so that it never idles."""
ATTEMPTS = 3


class Worker:
    """What runs on the cluster: opens the model once, then answers parts."""

    def __init__(self, open_model: Callable[[], Model], directory: str) -> None:
        # Paths may be relative to where the command was given.
        os.chdir(directory)
        self._model = open_model()

    def classify(self, files: list[str], batch: int, top: int, resize: bool) -> list[Classified | NotRead]:
        return list(classify_files(self._model, files, batch=batch, top=top, resize=resize))


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
    """As `classify_files`, with as many workers as the cluster has room for; a worker that is lost is started again.

    Args:
        open_model: called in every worker; sent there, so it must be cheap to pickle.
        cpus: cores of a worker.
        address: as of `ray_cluster`.
    """
    with ray_cluster(address, cpus=cpus) as ray:
        remote: Any = ray.remote(num_cpus=cpus, max_restarts=ATTEMPTS, max_task_retries=ATTEMPTS)(Worker)
        number = max(1, int(ray.cluster_resources().get("CPU", cpus) // cpus))
        workers = [remote.remote(open_model, os.getcwd()) for _ in range(number)]  # noqa: PTH109
        parts = _parts(iter(files), BATCHES_A_PART * batch)
        running: deque[Any] = deque()
        turn = 0
        while True:
            # In turn, and taken back in the same order: no more than these parts are ever held.
            for part in islice(parts, PARTS_A_WORKER * number - len(running)):
                running.append(workers[turn % number].classify.remote(part, batch, top, resize))
                turn += 1
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
