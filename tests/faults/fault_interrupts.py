"""Ctrl-C while files of a run are read: always an interrupt, never a verdict about a file."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

from elfnet.errors import ElfnetError
from elfnet.run.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from fault_case import Outcomes


def run(seed: int, count: int, directory: Path) -> Outcomes:
    """Send SIGINT at a random time while a checkpoint is read."""
    import torch

    outcomes = Outcomes()
    file = directory / "last.safetensors"
    save_checkpoint(Checkpoint("a network", 1, {f"weight{i}": torch.zeros(50) for i in range(300)}), file)
    began = time.perf_counter()
    load_checkpoint(file)
    seconds = time.perf_counter() - began
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for case in range(count):
            delay = seconds * np.random.default_rng((seed, case)).random()
            outcome = _interrupted(file, delay)
            outcomes.fail(f"case {case}: {outcome}") if outcome.startswith("reported") else outcomes.add(outcome)
    finally:
        signal.signal(signal.SIGINT, previous)
    return outcomes


def _interrupted(file: Path, delay: float) -> str:
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    outcome = "read before the interrupt"
    try:
        timer.start()
        try:
            load_checkpoint(file)
        except KeyboardInterrupt:
            outcome = "interrupted"
        except (ElfnetError, ValueError) as error:
            outcome = f"reported {error!r}"
        timer.join()
        time.sleep(0)  # a pending signal is handled here at the latest
    except KeyboardInterrupt:
        timer.join()
    return outcome
