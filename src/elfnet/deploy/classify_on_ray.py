"""Answers for more image files than one machine can take: parts of the list on a Ray cluster, in the order of files.

Its machines must see the files and the model under the same paths.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any

from elfnet.deploy.classify_files import Classified, NotRead, classify_files
from elfnet.deploy.model import Model
from elfnet.deploy.ray_cluster import in_short, ray_cluster
from elfnet.errors import WorkError

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
