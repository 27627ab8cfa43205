"""A Ray cluster for a while: the one whose address is given, or one of this machine's own that ends afterwards."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from elfnet.errors import RequestError, WorkError
from elfnet.extras import missing_package

SECONDS_TO_ANSWER = 10.0
OF_A_LOCAL_CLUSTER = {
    # Nothing is sent to Ray's makers on behalf of whoever runs this.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's workers give way to everything else on a machine; here they are what it is meant to do.
    "RAY_worker_niceness": "0",
}


@contextmanager
def ray_cluster(address: str | None, *, cpus: int, gpus: float = 0) -> Iterator[Any]:
    """The module `ray`, connected.

    Args:
        address: None: what $RAY_ADDRESS names, else a cluster of this machine alone.
        cpus, gpus: what one task will ask for; refused where this machine alone is the cluster and has less.
    """
    if cpus < 1 or gpus < 0:
        raise RequestError(f"--cpus {cpus} and --gpus {gpus:g} must be 1 or more, and 0 or more")
    try:
        import ray
    except ImportError:
        raise RequestError(missing_package("--backend ray", "ray") + "; or choose another --backend") from None
    if ray.is_initialized():
        # The caller's own: it is used, and left as it is.
        yield ray
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    alone = address is None and not os.environ.get("RAY_ADDRESS")
    where = "on this machine" if alone else f"at {address or os.environ['RAY_ADDRESS']}"
    try:
        if alone:
            with _environment(OF_A_LOCAL_CLUSTER):
                ray.init(address="local", include_dashboard=False, **settings)
        else:
            _require_answer(address or os.environ["RAY_ADDRESS"])
            ray.init(address=address, **settings)
    except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
        raise WorkError(f"no Ray cluster could be reached {where} ({in_short(error)}); see --address") from error
    try:
        if alone:
            there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call, unused-ignore]
            _require_room(there, cpus, gpus)
        yield ray
    finally:
        ray.shutdown()


def in_short(error: BaseException) -> str:
    """What a library's error says, in one line and without the traceback it carries."""
    lines = [line.strip() for line in str(getattr(error, "cause", None) or error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def _require_answer(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER).close()


def _require_room(there: dict[str, float], cpus: int, gpus: float) -> None:
    """A task that never finds room would wait for ever."""
    for flag, name, asked in (("cpus", "CPU", cpus), ("gpus", "GPU", gpus)):
        if asked > there.get(name, 0):
            raise RequestError(
                f"--{flag} {asked:g}: this machine has {there.get(name, 0):g}; ask for less, or name a cluster with "
                "--address"
            )


@contextmanager
def _environment(defaults: dict[str, str]) -> Iterator[None]:
    """Variables for what is started now; those that the user has set stay as they are."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
