"""Worker processes: where they come from, what they are sent, and what the user's script has to do with it."""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from elfnet.data.images.decode import Limits
from elfnet.data.images.files import Decoder, ImageFiles
from elfnet.data.images.transforms import Evaluation
from elfnet.data.loading.pack import open_or_create_pack
from elfnet.data.loading.workers import BatchReader, ReadBatch, WorkerProcesses
from elfnet.data.sources.folder import folder
from elfnet.data.types import SourceRequest
from elfnet.errors import WorkError

Write = Callable[..., Path]
WHOLE_IMAGE = Evaluation(image_size=8, resize=8)
# No main guard, and read from standard input or from a file: both are what people write.
SCRIPT = """
import sys, threading
import numpy as np
import torch
from pathlib import Path
from elfnet.data.sources.folder import folder
from elfnet.data.images.files import Decoder
from elfnet.data.images.transforms import Evaluation
from elfnet.data.images.decode import Limits
from elfnet.data.types import SourceRequest
from elfnet.data.loading.workers import BatchReader, WorkerProcesses

print("began", flush=True)
images = folder(SourceRequest(root=Path("images"), image_size=8)).train
reader = BatchReader(Decoder(images, Limits()), Evaluation(image_size=8, resize=8))
workers = WorkerProcesses(reader, workers=2, device=torch.device("cpu"), keep_workers=False)
for batch in workers.read(0, [np.arange(3), np.arange(3, 5)]):
    print(batch.place_B.tolist(), flush=True)
workers.close()
"""


@pytest.fixture
def images(image_folder: Write) -> ImageFiles:
    train: ImageFiles = folder(SourceRequest(root=image_folder({"a": 3, "b": 2}), image_size=8)).train
    return train


def read(reader: Dataset[ReadBatch], workers: int) -> list[bytes]:
    processes = WorkerProcesses(reader, workers=workers, device=torch.device("cpu"), keep_workers=False)
    try:
        return [batch.pixels_BSSK.numpy().tobytes() for batch in processes.read(0, [np.arange(3), np.arange(3, 5)])]
    finally:
        processes.close()


def test_packed_images_are_sent_as_the_name_of_their_file(images: ImageFiles, tmp_path: Path) -> None:
    cache = open_or_create_pack(images, Decoder(images, Limits()), tmp_path, side=10, workers=0, unreadable="stop")
    assert len(pickle.dumps(cache)) - len(pickle.dumps(images)) < 500 < cache.file.stat().st_size
    assert read(BatchReader(cache, WHOLE_IMAGE), 2) == read(BatchReader(cache, WHOLE_IMAGE), 0)


def test_relative_paths_are_those_of_whoever_asks(
    image_folder: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = image_folder({"a": 3, "b": 2}).relative_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    images: ImageFiles = folder(SourceRequest(root=root, image_size=8)).train
    reader = BatchReader(Decoder(replace(images, root=root), Limits()), WHOLE_IMAGE)
    assert read(reader, 1) == read(reader, 0)


def test_workers_have_none_of_the_threads_of_this_process(images: ImageFiles) -> None:
    """That is why they are not forked from it."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    reader = BatchReader(Decoder(images, Limits()), WHOLE_IMAGE)
    processes = WorkerProcesses(reader, workers=1, device=torch.device("cpu"), keep_workers=True)
    try:
        list(processes.read(0, [np.arange(5)]))
        (worker,) = processes._running._workers
        status = Path(f"/proc/{worker.pid}/status")
        if not status.is_file():
            pytest.skip("this system does not tell the parent of a process")
        parent = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("PPid:"))
        assert int(parent) != os.getpid()
    finally:
        processes.close()
        stop.set()
        thread.join()


def test_a_reader_that_cannot_be_sent_is_refused_in_one_line() -> None:
    class Local(Dataset[ReadBatch]):
        pass

    with pytest.raises(WorkError, match=r"cannot be sent to worker processes \(.*Local.*\); .*or set data\.workers=0"):
        read(Local(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "standard input"])
def test_a_script_without_a_main_guard_runs_once(image_folder: Write, tmp_path: Path, how: str) -> None:
    image_folder({"a": 3, "b": 2}, below="images")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py" if how == "file" else "-"],
        input=None if how == "file" else SCRIPT,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["began", "[0, 1, 2]", "[0, 1]"]
