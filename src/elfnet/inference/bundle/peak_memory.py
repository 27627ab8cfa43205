"""Measure the peak memory of a bundle, in a separate process that loads it and classifies one batch.

The process runs `python -m elfnet.inference.bundle.peak_memory BUNDLE BATCH`, which prints two numbers of bytes as
JSON: the peak resident set size before loading, and after classifying.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from elfnet.errors import WorkError
from elfnet.inference.bundle.manifest import PeakMemory

BATCH = 32


def measure_peak_memory(bundle: Path, *, batch: int = BATCH) -> PeakMemory:
    """Measure the peak resident set size of a process that imports only the base package.

    Raises:
        WorkError: The process failed.
    """
    command = [sys.executable, "-m", __name__, str(bundle), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise WorkError(f"the new bundle fails in a separate process ({last}); nothing was written")
    before, peak = json.loads(done.stdout)
    return PeakMemory(batch=batch, bytes=peak, before_loading=before)


def peak_resident_bytes() -> int | None:
    """Return the peak resident set size of this process; None if the system does not report it."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Not getrusage: on Linux it includes the parent process before exec, which has torch loaded.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def _main(bundle: str, batch: str) -> None:
    from elfnet.inference.model import load

    before = peak_resident_bytes()
    model = load(bundle, threads=1)
    shape = (int(batch), *model.preprocess.input_shape)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8).astype(model.preprocess.input_type)
    model.predict(pixels, batch=int(batch), operating_point="full" if "full" in model.operating_points else None)
    sys.stdout.write(json.dumps([before, peak_resident_bytes()]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
