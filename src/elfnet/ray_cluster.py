"""Connect to a Ray cluster: at a given address, or a temporary cluster on this machine."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from elfnet.errors import RequestError, WorkError
from elfnet.extras import missing_package

CONNECT_TIMEOUT = 10.0
LOCAL_CLUSTER_ENVIRONMENT = {
    # No usage statistics are sent.
    "RAY_USAGE_STATS_ENABLED": "0",
    # By default Ray's workers run at low priority; here they do the main work.
    "RAY_worker_niceness": "0",
}


@contextmanager
def ray_cluster(address: str | None, *, cpus: int, gpus: float = 0) -> Iterator[Any]:
    """Connect to a Ray cluster, and yield the module `ray`. A connection of the caller is reused and stays open.

    Args:
        address: of the cluster; None: $RAY_ADDRESS if it is set, else a temporary cluster on this machine.
        cpus, gpus: resources that one task needs.

    Raises:
        RequestError: Ray is not installed, or this machine has fewer resources than one task needs.
        WorkError: the cluster does not answer.
    """
    if cpus < 1 or gpus < 0:
        raise RequestError(f"--cpus {cpus} and --gpus {gpus:g} must be 1 or more, and 0 or more")
    try:
        import ray
    except ImportError:
        raise RequestError(missing_package("--backend ray", "ray") + "; or choose another --backend") from None
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    alone = address is None and not os.environ.get("RAY_ADDRESS")
    where = "on this machine" if alone else f"at {address or os.environ['RAY_ADDRESS']}"
    try:
        if alone:
            with _environment(LOCAL_CLUSTER_ENVIRONMENT):
                ray.init(address="local", include_dashboard=False, **settings)
        else:
            _require_answer(address or os.environ["RAY_ADDRESS"])
            ray.init(address=address, **settings)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        raise WorkError(f"no Ray cluster could be reached {where} ({in_short(error)}); see --address") from error
    try:
        if alone:
            available: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call, unused-ignore]
            _require_resources(available, cpus, gpus)
        yield ray
    finally:
        ray.shutdown()


def in_short(error: BaseException) -> str:
    """The message of a library's error in one line, without its traceback."""
    lines = [line.strip() for line in str(getattr(error, "cause", None) or error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def _require_answer(address: str) -> None:
    """Raise an `OSError` at once if nothing answers at the address; Ray would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()


def _require_resources(available: dict[str, float], cpus: int, gpus: float) -> None:
    """Refuse a task that needs more than the machine has; it would wait forever."""
    for flag, name, needed in (("cpus", "CPU", cpus), ("gpus", "GPU", gpus)):
        if needed > available.get(name, 0):
            raise RequestError(
                f"--{flag} {needed:g}: this machine has {available.get(name, 0):g}; lower it, or name a cluster with "
                "--address"
            )


@contextmanager
def _environment(defaults: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while; variables that the user has set are not changed."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
