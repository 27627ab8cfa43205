"""The supervisor gives up when workers only crash, and goes on when they crash now and then."""

import signal
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.supervisors.multiprocess import SIGNALS, Multiprocess

from elfnet.serve import ServeSettings
from elfnet.serve import workers as workers_module
from elfnet.serve.server import ServerConfig
from elfnet.serve.workers import MAX_QUICK_CRASHES, QUICK_SECONDS, Supervisor


class Crashes:
    """Replaces workers of a supervisor as uvicorn does, without starting processes; time is a number."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor, self.seconds, self._pids = supervisor, 0.0, count(1)
        supervisor.processes = [self._new() for _ in range(supervisor.processes_num)]

    def crash(self, *, after: float) -> None:
        """The first worker ends `after` seconds after the supervisor has seen it."""
        self.supervisor.keep_subprocess_alive()
        self.seconds += after
        self.supervisor.processes[0].exitcode = -9  # type: ignore[misc]
        self.supervisor.keep_subprocess_alive()

    def replace(self, supervisor: Multiprocess) -> None:
        for place, process in enumerate(supervisor.processes):
            if process.exitcode is not None:
                supervisor.processes[place] = self._new()

    def _new(self) -> Any:
        return SimpleNamespace(pid=next(self._pids), exitcode=None)


@pytest.fixture(params=[1, 3])
def crashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crashes]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    config = ServerConfig(lambda: None, settings=ServeSettings(), workers=request.param)
    found = Crashes(Supervisor(config, [], metrics_directory=None))
    monkeypatch.setattr(Multiprocess, "keep_subprocess_alive", lambda supervisor: found.replace(supervisor))
    monkeypatch.setattr(workers_module, "time", SimpleNamespace(monotonic=lambda: found.seconds))
    yield found
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_worker_that_always_crashes_ends_the_service(crashes: Crashes) -> None:
    supervisor = crashes.supervisor
    limit = MAX_QUICK_CRASHES * supervisor.processes_num
    for _ in range(limit - 1):
        crashes.crash(after=QUICK_SECONDS - 1)
    assert not supervisor.should_exit.is_set()
    crashes.crash(after=1)
    assert supervisor.should_exit.is_set()
    assert supervisor.gave_up.startswith(
        f"{limit} workers in a row ended within 30 s of their start, the last with exit code -9; the service ends."
    )


def test_a_worker_that_crashes_now_and_then_is_replaced_for_ever(crashes: Crashes) -> None:
    for number in range(20 * MAX_QUICK_CRASHES):
        crashes.crash(after=QUICK_SECONDS if number % MAX_QUICK_CRASHES == 0 else 1)
    assert not crashes.supervisor.should_exit.is_set()
    assert crashes.supervisor.gave_up == ""
