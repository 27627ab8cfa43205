"""What holds for every test: one torch thread, and nothing left behind.

A test that leaves a thread, a child process, an environment variable or another default dtype behind makes a later one
fail for no visible reason; here the culprit fails itself.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

# Before torch is imported: compiling in this process instead of in a pool of workers that outlives the test.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import pytest
import torch
from markupsafe import Markup

from elfnet.calibrate.measured_cost import MeasuredCost
from elfnet.export import read_run
from elfnet.report import svg
from elfnet.report.html import DrawnFigure
from elfnet.run.directory import file_lock

# Fixtures that tests of several packages share; each is made when a test first asks for it.
pytest_plugins = ("exported_networks", "exported_files")

# Set by pytest itself, or by libraries once when they are first imported or first compile something.
NOT_OURS = ("PYTEST_", "KMP_", "PYTORCH_", "TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    torch.set_num_threads(1)
    # torch gives a warning once per process; as an error it would then hit whichever test happens to come first.
    torch.set_warn_always(True)


@pytest.fixture(scope="session", autouse=True)
def _progress_bars_without_thread() -> Iterator[None]:
    """The bars of torch's exporter and compiler would start a thread that outlives the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tqdm.tqdm.monitor_interval", 0)
        yield


@pytest.fixture(scope="session", autouse=True)
def measure_times() -> Iterator[Callable[..., MeasuredCost]]:
    """`times_of_run` as it is. Commands measure with torch: ONNX Runtime needs an export, which takes seconds."""
    real = read_run.times_of_run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_run, "times_of_run", partial(real, backend="torch"))
        yield real


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}


def _children() -> set[int]:
    """Ids of the child processes of every thread of this process; empty where the system does not tell.

    Python's own two, which serve worker processes, are started once and end with this process.
    """
    found: set[int] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        # A thread may end while we look.
        with suppress(OSError):
            found |= {int(child) for child in children.read_text().split()}
    server: Any = forkserver._forkserver
    tracker: Any = resource_tracker._resource_tracker
    return found - {server._forkserver_pid, tracker._pid}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    threads, children = set(threading.enumerate()), _children()
    environment, dtype = _environment(), torch.get_default_dtype()
    yield
    left = [thread.name for thread in set(threading.enumerate()) - threads]
    assert not left, f"threads left running: {left}"
    assert not _children() - children, f"child processes left running: {_children() - children}"
    now = _environment()
    changed = sorted(name for name in environment | now if environment.get(name) != now.get(name))
    assert not changed, f"environment variables changed: {changed}"
    assert torch.get_default_dtype() == dtype, "the default dtype of torch was changed"


@pytest.fixture(scope="session")
def tiny_settings() -> dict[str, Any]:
    """Settings that make a run of the digits recipes take seconds; the class weights come in at the fifth epoch."""
    return {
        "data.largest": 24,
        "data.ratio": 4,
        "data.calibration_per_class": 6,
        "data.test_per_class": 6,
        "model.backbone": "resnet8",
        "model.head_filters": 8,
        "train.epochs": 5,
        "train.lr": 0.1,
        "train.batch_size": 48,
        "train.compile": "off",
        "train.threads": 1,
    }


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without pictures, for tests that are not about them: drawing takes seconds."""
    monkeypatch.setattr(svg, "draw_figure", lambda figure, _: DrawnFigure(figure.title, figure.caption, Markup("")))


@pytest.fixture
def locked_elsewhere() -> Callable[[Path], AbstractContextManager[None]]:
    """Hold the lock of a directory in a thread of its own, which stands for another process."""

    @contextmanager
    def hold(directory: Path) -> Iterator[None]:
        held, done = threading.Event(), threading.Event()

        def keep() -> None:
            with file_lock(directory):
                held.set()
                done.wait()

        thread = threading.Thread(target=keep)
        thread.start()
        held.wait()
        try:
            yield
        finally:
            done.set()
            thread.join()

    return hold
