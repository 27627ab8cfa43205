"""Worker processes of a service under uvicorn's supervisor: a worker that crashes is replaced.

Each worker loads the bundle and accepts connections from the same socket. The operating point is an integer in memory
that all of them share, so that a change applies to every worker, and to those that are started later.
"""

import ctypes
import hashlib
import logging
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import start_http_server
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.calibrate.point_family import Family
from elfnet.errors import ElfnetError, WorkError
from elfnet.inference.bundle.manifest import identity_of
from elfnet.inference.bundle.one_file import is_one_file, open_one_file
from elfnet.inference.bundle.read import open_bundle
from elfnet.inference.model import DEFAULT_BACKEND, load
from elfnet.serve.app import create_app
from elfnet.serve.metrics import WORKERS_VARIABLE, registry_of_workers
from elfnet.serve.server import BACKLOG, ServerConfig
from elfnet.serve.service import Service, SharedIndex, read_samples
from elfnet.serve.settings import ServeSettings
from elfnet.sweep.die_with_parent import end_with_parent

logger = logging.getLogger("uvicorn.error")

QUICK_SECONDS = 30.0
MAX_QUICK_CRASHES = 5
"""The service ends after this many crashes per worker in a row, each within `QUICK_SECONDS` of a start."""


@dataclass(frozen=True, kw_only=True)
class BundleService:
    """What a worker process needs to build its service.

    Attributes:
        bundle: the bundle to serve.
        settings: limits of all workers together.
        token: see `Service`.
        samples: folder with sample images.
        backend, variant, threads: see `elfnet.load`; `threads` is per worker.
        times: time of the stages on this machine; without it, budgets in milliseconds are refused.
    """

    bundle: Path
    settings: ServeSettings = field(default_factory=ServeSettings)
    token: str | None = None
    samples: Path | None = None
    backend: str = DEFAULT_BACKEND
    variant: str | None = None
    threads: int | None = None
    times: MeasuredCost | None = None


def serve_workers(
    served: BundleService,
    bound: socket.socket,
    *,
    point: str,
    workers: int = 1,
    metrics_address: tuple[str, int] | None = None,
    log_level: str = "warning",
) -> None:
    """Serve a bundle in supervised worker processes until SIGINT or SIGTERM; then complete the requests in progress.

    Args:
        bound: from `bind_socket`; closed at the end.
        point: name of the operating point at the start.
        workers: number of processes, which divide the limits of the settings.
        metrics_address: host and port of a server of its own for `/metrics`; None for a route of the service.
        log_level: of uvicorn; "info" logs one line per request.

    Raises:
        RequestError: if the limits cannot be divided.
        WorkError: if the workers cannot start.
    """
    family, identity = open_points(served.bundle, served.variant)
    app = _WorkerApp(
        served=served,
        settings=served.settings.divide(workers),
        threads=threads_per_worker(served.threads, workers),
        identity=identity,
        parent=os.getpid(),
        point=_share_point(family, point),
    )
    with ExitStack() as stack:
        stack.enter_context(closing(bound))
        directory = None
        if workers > 1 or metrics_address is not None:
            directory = stack.enter_context(_metrics_directory())
        if metrics_address is not None and directory is not None:
            stack.enter_context(_metrics_server(metrics_address, directory))
        # From now on connections wait for a worker, also while a worker is being replaced.
        bound.listen(BACKLOG)
        config = ServerConfig(app, settings=app.settings, log_level=log_level, factory=True, workers=workers)
        supervisor = Supervisor(config, [bound], metrics_directory=directory)
        supervisor.run()
        if supervisor.gave_up:
            raise WorkError(supervisor.gave_up)
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise WorkError("the service could not start; the message above says why")


def threads_per_worker(threads: int | None, workers: int) -> int | None:
    """Threads of the backend of each worker: as given, or the cores divided among several workers."""
    return threads or (max(1, (os.cpu_count() or 1) // workers) if workers > 1 else None)


def open_points(bundle: Path, variant: str | None) -> tuple[Family, str]:
    """Verify a bundle of any version; returns its operating points and a hash of what it computes."""
    if is_one_file(bundle):
        opened = open_one_file(bundle, variant=variant)
        opened.manifest.preprocessing.preprocess().require_images("the service")
        return opened.family, hashlib.sha256(opened.content).hexdigest()
    older = open_bundle(bundle, variant=variant or "float32")
    return older.family, identity_of(older.manifest)


@dataclass(frozen=True, kw_only=True)
class _WorkerApp:
    """Builds the ASGI application in a worker process, to which this object is sent."""

    served: BundleService
    settings: ServeSettings
    threads: int | None
    identity: str
    parent: int
    point: Any

    def __call__(self) -> FastAPI:
        end_with_parent(self.parent)
        try:
            return create_app(self._service())
        except ElfnetError as error:
            sys.stderr.write(f"elfnet: {' '.join(str(error).split())}\n")
            sys.exit(STARTUP_FAILURE)

    def _service(self) -> Service:
        served = self.served
        # A worker that is started later must not serve another model than the others.
        if open_points(served.bundle, served.variant)[1] != self.identity:
            raise WorkError(f"{served.bundle} was replaced while it was served; start the service again")
        model = load(served.bundle, backend=served.backend, variant=served.variant, threads=self.threads)
        model.times = served.times
        samples = read_samples(served.samples)
        return Service(
            model,
            name=served.bundle.stem,
            settings=self.settings,
            token=served.token,
            samples=samples,
            shared_point=self.point,
        )


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which also reports a worker that was replaced, and gives up if workers only crash.

    Attributes:
        gave_up: the reason why no more workers are started; empty as long as they are.
    """

    def __init__(self, config: ServerConfig, sockets: list[socket.socket], *, metrics_directory: str | None) -> None:
        super().__init__(config, sockets)
        self.gave_up = ""
        self._metrics_directory = metrics_directory
        self._started: dict[int | None, float] = {}
        self._quick_crashes = 0

    def keep_subprocess_alive(self) -> None:
        before = list(self.processes)
        self._started = {one.pid: self._started.get(one.pid, time.monotonic()) for one in before}
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if old is not new and old.pid is not None:
                logger.warning("worker %d ended with exit code %s and was replaced", old.pid, old.exitcode)
                if self._metrics_directory is not None:
                    mark_process_dead(old.pid, self._metrics_directory)  # type: ignore[no-untyped-call]
                self._count_crash(old)

    def _count_crash(self, old: Process) -> None:
        quick = time.monotonic() - self._started[old.pid] < QUICK_SECONDS
        self._quick_crashes = self._quick_crashes + 1 if quick else 0
        if self._quick_crashes >= MAX_QUICK_CRASHES * self.processes_num:
            self.gave_up = (
                f"{self._quick_crashes} workers in a row ended within {QUICK_SECONDS:g} s of their start, the last "
                f"with exit code {old.exitcode}; the service ends. Exit code -9 mostly means too little memory"
            )
            self.should_exit.set()


def _share_point(family: Family, point: str) -> SharedIndex:
    index = [one.name for one in family.points].index(point)
    # Worker processes are spawned; the memory is passed on to them when they are started.
    shared: SharedIndex = multiprocessing.get_context("spawn").RawValue(ctypes.c_int64, index)
    return shared


@contextmanager
def _metrics_directory() -> Iterator[str]:
    """Create the directory in which workers share their metrics, and name it in their environment."""
    with tempfile.TemporaryDirectory(prefix="elfnet-metrics-") as directory:
        os.environ[WORKERS_VARIABLE] = directory
        try:
            yield directory
        finally:
            del os.environ[WORKERS_VARIABLE]


@contextmanager
def _metrics_server(address: tuple[str, int], directory: str) -> Iterator[None]:
    """Serve the metrics of all workers from this process."""
    host, port = address
    try:
        server, thread = start_http_server(port, addr=host, registry=registry_of_workers(directory))
    except (OSError, OverflowError) as error:
        raise WorkError(f"cannot listen on {host}:{port}: {error}; give another --metrics-port") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
